// SPDX-License-Identifier: Apache-2.0
// Text that fits a terminal.
#pragma once
#include <string>
#include <string_view>

namespace assay::report {

/// The text in at most `width` columns. A name of parts - modules, folders, operators - loses parts
/// in its middle: of "model.layers.17.self_attn.rotary.q_proj" "model.layers.17...q_proj" stays,
/// then "...17...q_proj": its last part and the number of its layer tell most. Where these do not
/// fit the last part keeps both ends.
[[nodiscard]] std::string shorten(std::string_view text, size_t width);

/// "model.layers.5.mlp" of the label "model.layers.5.mlp input 0"; all of what is no label.
[[nodiscard]] std::string_view node_of_label(std::string_view label);

/// The text in lines of at most `width` columns, broken at blanks; a longer word is shortened. Each
/// line starts with `indent` blanks and ends with a line feed.
[[nodiscard]] std::string wrapped(std::string_view text, size_t indent, size_t width);
/// The same for sentences with names and paths, which are what people look for: a word is never
/// shortened, and only the lines behind the first are indented. Without a line feed at the end.
[[nodiscard]] std::string hanging(std::string_view text, size_t indent, size_t width);
/// For hanging(): a blank at which no line is broken. printable() lets no such character through.
inline constexpr char kNoBreak = '\x1f';

/// Filled with blanks to `width` columns.
[[nodiscard]] std::string pad_right(std::string text, size_t width);
[[nodiscard]] std::string pad_left(const std::string& text, size_t width);

/// Four digits: enough to see which row is worse, short enough for 60 columns. NaN is "-".
[[nodiscard]] std::string short_number(double value);
/// A cosine is near 1, so its distance from 1 is what must be seen.
[[nodiscard]] std::string cosine_number(double value);

inline constexpr const char* kRed = "31";
inline constexpr const char* kGreen = "32";
inline constexpr const char* kBold = "1";
[[nodiscard]] std::string paint(std::string text, const char* code, bool colour);

}  // namespace assay::report

// SPDX-License-Identifier: Apache-2.0
// Text that fits a terminal.
#pragma once
#include <string>
#include <string_view>

namespace assay::report {

/// "model.layers.5.input_layernorm" in 20 columns: "...5.input_layernorm"; the end of a name tells
/// most.
[[nodiscard]] std::string shorten(std::string_view text, size_t width);

/// The text in lines of at most `width` columns, broken at blanks; a longer word is shortened. Each
/// line starts with `indent` blanks and ends with a line feed.
[[nodiscard]] std::string wrapped(std::string_view text, size_t indent, size_t width);

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

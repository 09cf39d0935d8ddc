// SPDX-License-Identifier: Apache-2.0
// Numbers as text, the way Python prints them: our csv cells must equal what pandas and csv.writer
// wrote.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// Python's repr(float): the shortest digits that read back to the same double. "1.0", "1e-05",
/// "1e+16", "nan", "inf", "-inf".
[[nodiscard]] std::string python_repr(double value);

/// A JSON string literal with quotes; quotes, backslashes and what printable() replaces escaped,
/// invalid UTF-8 bytes replaced by U+FFFD.
[[nodiscard]] std::string json_quote(std::string_view text);

/// The text with every byte that is not part of valid UTF-8 replaced by U+FFFD.
[[nodiscard]] std::string repair_utf8(std::string_view text);

/// Text from a file or a folder as a terminal may have it: control characters (C0, DEL, C1), line
/// separators and what turns the direction of writing become '?', bytes that are no UTF-8 U+FFFD.
[[nodiscard]] std::string printable(std::string_view text);

/// The same for a whole screen: its line feeds, tabs and our own colours (report::paint) stay.
[[nodiscard]] std::string printable_screen(std::string_view text);

/// A JSON number, or the strings "NaN" / "Infinity" / "-Infinity" (quoted), which JSON numbers
/// cannot express.
[[nodiscard]] std::string json_number(double value);

/// Bytes as RFC 4648 writes them, with padding.
[[nodiscard]] std::string base64(std::string_view bytes);
/// The bytes that base64() wrote so; nothing for any other text.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

/// 1234567 -> "1.2 MB" (powers of 1000).
[[nodiscard]] std::string human_bytes(uint64_t size_bytes);
/// "512MiB", "20GB", "1000": what a user typed; nothing when it is no size, or larger than any.
[[nodiscard]] std::optional<uint64_t> parse_size_bytes(std::string_view text);
/// "1 weight", "3 weights", "2 processes"
[[nodiscard]] std::string counted(uint64_t count, std::string_view noun);

/// What a user typed, as an error shows it: at most its first 40 bytes, with "..." behind them.
[[nodiscard]] std::string shortened(std::string_view text);
/// The same between ' and '.
[[nodiscard]] std::string quoted(std::string_view text);

[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace assay

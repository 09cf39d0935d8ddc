// SPDX-License-Identifier: Apache-2.0
// Text in the columns of a terminal.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace assay {

/// Columns that a terminal gives to printable text: one a character, two for the wide ones of East
/// Asia and for pictures, none for marks that stand on the character before them.
[[nodiscard]] size_t display_columns(std::string_view text);
/// The beginning, and the end, of printable text that take at most so many columns; no character is
/// cut.
[[nodiscard]] std::string_view first_columns(std::string_view text, size_t columns);
[[nodiscard]] std::string_view last_columns(std::string_view text, size_t columns);

/// "0-3, 7" of 0, 1, 2, 3, 7, with `separator` between the ranges.
[[nodiscard]] std::string number_ranges(std::span<const int64_t> ascending,
                                        std::string_view separator);

}  // namespace assay

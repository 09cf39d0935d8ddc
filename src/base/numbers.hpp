// SPDX-License-Identifier: Apache-2.0
// Numbers out of text, whole or not at all.
#pragma once
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace assay {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The decimal number that `text` is, without blanks, plus sign or anything behind it; nothing when
/// it is none or does not fit into Number.
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace assay

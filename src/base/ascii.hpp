// SPDX-License-Identifier: Apache-2.0
// Letters and digits of ASCII, whatever the locale.
#pragma once
#include <string>
#include <string_view>

namespace assay {

/// A to Z become a to z; every other byte stays.
[[nodiscard]] inline std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// a to z become A to Z; every other byte stays.
[[nodiscard]] inline std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

/// Nothing but digits, and at least one.
[[nodiscard]] inline bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace assay

// SPDX-License-Identifier: Apache-2.0
// Lists on the command line.
#pragma once
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

namespace assay::cli {

/// The list with "," for each U+FF0C, the comma of a Chinese keyboard, which looks the same on a
/// screen.
[[nodiscard]] inline std::string with_ascii_commas(std::string_view list) {
  constexpr std::string_view kFullWidthComma = "\xEF\xBC\x8C";
  std::string text(list);
  for (size_t at = text.find(kFullWidthComma); at != std::string::npos;
       at = text.find(kFullWidthComma, at))
    text.replace(at, kFullWidthComma.size(), ",");
  return text;
}

/// {0, 2, 3, 4} -> "0,2-4"
[[nodiscard]] inline std::string number_list(const std::set<int64_t>& numbers) {
  std::string text;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    for (auto next = std::next(last); next != numbers.end() && *next == *last + 1; ++next)
      last = next;
    text += (text.empty() ? "" : ",") + std::to_string(*first);
    if (last != first) text += "-" + std::to_string(*last);
    first = std::next(last);
  }
  return text;
}

}  // namespace assay::cli

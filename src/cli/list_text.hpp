// SPDX-License-Identifier: Apache-2.0
// Lists on the command line.
#pragma once
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

}  // namespace assay::cli

// SPDX-License-Identifier: Apache-2.0
// Lists of what was found, for the top of a page: a place, a sentence, numbers.
#pragma once
#include <string>
#include <vector>

#include "report/html/page.hpp"

namespace assay::report::html {

struct ListedFinding {
  std::string place;  // module or node
  std::string text;
  Json row = nullptr;                                    // of the table
  std::vector<std::pair<std::string, Json>> facts = {};  // name, value; null values are not shown
};

/// {"title", "open", "count", "items": [{"place", "text", "row", "facts": [[name, value], ...]}]}
///
/// count  of all, of which the first are listed
[[nodiscard]] Json list_json(std::string_view title, bool is_open, size_t count,
                             const std::vector<ListedFinding>& items);

/// [[name, value], ...]
[[nodiscard]] Json facts_json(const std::vector<std::pair<std::string, Json>>& facts);

}  // namespace assay::report::html

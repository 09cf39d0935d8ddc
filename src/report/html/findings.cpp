// SPDX-License-Identifier: Apache-2.0
// Every text is made printable on its way into the JSON of the page.
#include "report/html/findings.hpp"

#include "base/text.hpp"

namespace assay::report::html {

Json facts_json(const std::vector<std::pair<std::string, Json>>& facts) {
  Json list = Json::array();
  for (const auto& [name, value] : facts)
    list.push_back({name, value.is_string() ? Json(printable(value.get<std::string>())) : value});
  return list;
}

Json list_json(std::string_view title, bool is_open, size_t count,
               const std::vector<ListedFinding>& items) {
  Json list = Json::array();
  for (const ListedFinding& one : items) {
    list.push_back({{"place", printable(one.place)},
                    {"text", printable(one.text)},
                    {"row", one.row},
                    {"facts", facts_json(one.facts)}});
  }
  return {{"title", title}, {"open", is_open}, {"count", count}, {"items", std::move(list)}};
}

}  // namespace assay::report::html

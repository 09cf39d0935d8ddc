// SPDX-License-Identifier: Apache-2.0
// Python compares the scenarios and hands over the parts of the page as JSON; here they become
// tables and lists like those of other pages.
#include "report/html/scenarios_page.hpp"

#include "base/text.hpp"
#include "report/html/findings.hpp"
#include "report/html/place.hpp"
#include "report/html/sides.hpp"
#include "report/html/table_data.hpp"

namespace assay::report::html {
namespace {

constexpr size_t kListed = 200;

std::vector<std::pair<std::string, Json>> pairs_of(const Json& facts) {
  std::vector<std::pair<std::string, Json>> pairs;
  for (const Json& fact : facts) pairs.emplace_back(fact.at(0).get<std::string>(), fact.at(1));
  return pairs;
}

Json list_of(const Json& list) {
  std::vector<ListedFinding> items;
  const Json& all = list.at("items");
  for (size_t i = 0; i < std::min(all.size(), kListed); ++i) {
    items.push_back({all[i].at("place").get<std::string>(), all[i].at("text").get<std::string>(),
                     all[i].value("row", Json()), pairs_of(all[i].at("facts"))});
  }
  return list_json(list.at("title").get<std::string>(), list.at("open").get<bool>(), all.size(),
                   items);
}

Cell cell_of(const Json& value) {
  if (value.is_string()) return Cell::of(value.get<std::string>());
  if (value.is_number_integer()) return Cell::of(value.get<int64_t>());
  if (value.is_number()) return Cell::of(value.get<double>());
  return {};
}

std::vector<PageColumn> columns_of(const Json& rows) {
  std::vector<PageColumn> columns;
  for (const auto& [name, cells] : rows.items())
    columns.push_back({name, [&cells](size_t row) { return cell_of(cells[row]); }});
  columns.push_back({"operator", [&nodes = rows.at("node")](size_t row) {
                       return Cell::of(operator_in(nodes[row].get_ref<const std::string&>()));
                     }});
  return columns;
}

}  // namespace

Page scenarios_page(std::string_view parts, const run::Run& alone) {
  const Json given = Json::parse(parts);
  Page page = begin_page("invariance", "assay invariance", given.at("sentence").get<std::string>(),
                         given.at("tone").get<std::string>());
  Json& json = page.content;
  json["next"] = printable(given.at("next").get<std::string>());
  json["facts"] = facts_json(pairs_of(given.at("facts")));
  json["lists"] = Json::array();
  for (const Json& list : given.at("lists")) json["lists"].push_back(list_of(list));
  json["axis"] = {{"column", "scenario"}, {"name", "scenario"}};
  json["row_is"] = "an operator in a scenario, held against that in another";
  json["first_row"] = given.at("first_row");
  json["sides"] = {side_json(alone, "the row alone")};
  const Json& rows = given.at("rows");
  json["table"] = add_table(rows.at("node").size(), columns_of(rows), "c", &page.blobs);
  return page;
}

}  // namespace assay::report::html

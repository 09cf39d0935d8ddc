// SPDX-License-Identifier: Apache-2.0
// Where a run lies, what it knows of its host, how whole it is and what is damaged.
#include "report/html/sides.hpp"

#include "base/text.hpp"

namespace assay::report::html {

Json texts_json(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(printable(text));
  return list;
}

Json side_json(const run::Run& run, std::string_view name) {
  Json properties = Json::object();
  for (const auto& [key, value] : run.properties) properties[printable(key)] = printable(value);
  Json missed = Json::array();
  for (const native::MissedNode& node : run.coverage.missed)
    missed.push_back({{"node", printable(node.node)}, {"reason", printable(node.reason)}});
  std::vector<std::string> damage;
  for (const run::Damage& one : run.all_damage()) damage.push_back(one.describe());
  return {{"name", name},
          {"path", printable(run.path)},
          {"layout", run::layout_title(run.layout)},
          {"records", run.records.size()},
          {"properties", std::move(properties)},
          {"complete", run.coverage.complete},
          {"planned", run.coverage.planned},
          {"captured", run.coverage.captured},
          {"lost", run.coverage.lost},
          {"missed", std::move(missed)},
          {"findings", texts_json(run.findings)},
          {"warnings", texts_json(run.warnings)},
          {"damage", texts_json(damage)}};
}

}  // namespace assay::report::html

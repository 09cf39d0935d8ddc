// SPDX-License-Identifier: Apache-2.0
// A place has the same keys wherever it stands; numbers that are not finite are null.
#include "report/rows_json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace assay::report {
namespace {

nlohmann::ordered_json place_json(const repeat::Place& place) {
  nlohmann::ordered_json json;
  json["node"] = repair_utf8(place.node);
  json["module"] = repair_utf8(place.module);
  json["operator"] = repair_utf8(place.operation);
  json["index"] = place.index;
  json["source"] = repair_utf8(place.source);
  json["rank"] = place.rank;
  json["step"] = place.step;
  json["call"] = place.call;
  return json;
}

nlohmann::ordered_json row_finding_json(const repeat::RowFinding& finding) {
  nlohmann::ordered_json json = place_json(finding.place);
  json["slot"] = repair_utf8(finding.slot);
  json["shape"] = std::vector<int64_t>(finding.shape.begin(), finding.shape.end());
  json["different"] = finding.different;
  json["largest_ulp"] = std::isfinite(finding.largest_ulp)
                            ? nlohmann::ordered_json(finding.largest_ulp)
                            : nlohmann::ordered_json();
  json["relative_error"] = std::isfinite(finding.relative_error)
                               ? nlohmann::ordered_json(finding.relative_error)
                               : nlohmann::ordered_json();
  json["exact"] = finding.is_exact;
  json["beyond_rounding"] = finding.is_beyond_rounding;
  json["mixed"] = finding.mixed;
  return json;
}

}  // namespace

std::string places_json(const repeat::Execution& run) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (size_t op = 0; op < run.program().operators.size(); ++op)
    json.push_back(place_json(run.place_of(op)));
  return json.dump();
}

std::string rows_json(const repeat::RowComparison& comparison) {
  nlohmann::ordered_json json;
  json["findings"] = nlohmann::ordered_json::array();
  for (const repeat::RowFinding& one : comparison.findings)
    json["findings"].push_back(row_finding_json(one));
  json["states"] = nlohmann::ordered_json::array();
  for (const repeat::RowState state : comparison.states)
    json["states"].push_back(repeat::state_name(state));
  json["judged"] = comparison.judged;
  json["inherited"] = comparison.inherited;
  json["unsplit"] = comparison.unsplit;
  json["content_dependent"] = comparison.content_dependent;
  return json.dump();
}

}  // namespace assay::report

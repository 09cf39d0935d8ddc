// SPDX-License-Identifier: Apache-2.0
#include "report/rows_json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace assay::report {
namespace {

nlohmann::ordered_json row_finding_json(const repeat::RowFinding& finding) {
  const repeat::Place& place = finding.place;
  nlohmann::ordered_json json;
  json["node"] = repair_utf8(place.node);
  json["module"] = repair_utf8(place.module);
  json["operator"] = repair_utf8(place.operation);
  json["index"] = place.index;
  json["source"] = repair_utf8(place.source);
  json["rank"] = place.rank;
  json["step"] = place.step;
  json["call"] = place.call;
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
  json["mixed"] = finding.mixed;
  return json;
}

}  // namespace

std::string rows_json(const repeat::RowComparison& comparison) {
  nlohmann::ordered_json json;
  json["findings"] = nlohmann::ordered_json::array();
  for (const repeat::RowFinding& one : comparison.findings)
    json["findings"].push_back(row_finding_json(one));
  json["judged"] = comparison.judged;
  json["inherited"] = comparison.inherited;
  json["unsplit"] = comparison.unsplit;
  json["content_dependent"] = comparison.content_dependent;
  return json.dump();
}

}  // namespace assay::report

// SPDX-License-Identifier: Apache-2.0
// The neighbourhood of a node, and the links of a tensor, as a page has them.
//   docs/formats/page.md
#pragma once
#include <unordered_map>

#include "report/html/neighbourhood.hpp"
#include "report/html/page.hpp"

namespace assay::report::html {

/// What a report has about a record.
struct RecordRow {
  int64_t row = 0;
  locate::RowJudgement verdict = locate::RowJudgement::None;
};
using RecordRows = std::unordered_map<size_t, RecordRow>;  // by index into Run::records

/// The object "graph" of a page.
[[nodiscard]] Json neighbourhood_json(const DataFlow& flow, const Neighbourhood& around,
                                      const RecordRows& rows);
/// The producers and consumers of a record, {"producers": [...], "consumers": [...]}.
///
/// links  links_of() the record
[[nodiscard]] Json links_json(const DataFlow& flow, size_t record, const RecordLinks& links,
                              const RecordRows& rows);

}  // namespace assay::report::html

// SPDX-License-Identifier: Apache-2.0
// The blobs "graph" and "links" of a page: who made and who read the tensors of its rows.
//   docs/formats/page.md, "Graph and links"
#pragma once
#include <optional>
#include <vector>

#include "report/html/neighbourhood_json.hpp"

namespace assay::report::html {

struct FlowOfPage {
  const run::Run& mine;
  const locate::Finding* suspect = nullptr;  // what the graph is about
  std::optional<size_t> worst_record = {};   // else the node of this one
  std::vector<size_t> records = {};          // of the rows
  std::vector<size_t> always = {};           // of those that have links however many rows there are
};

/// Adds no graph where nothing differs. Of few rows all have links, of many those in the graph and
/// those in `always`.
/// returns  records of the centre of the graph and of those next to it, the centre's first
std::vector<size_t> add_flow(const FlowOfPage& input, const RecordRows& rows,
                             std::vector<Blob>* blobs);

}  // namespace assay::report::html

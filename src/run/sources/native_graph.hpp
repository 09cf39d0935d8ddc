// SPDX-License-Identifier: Apache-2.0
// A native run of compiled graphs: docs/formats/native.md, "Compiled graphs"
//
//   {path}/20250102030405/manifest.json
//   {path}/20250102030405/rank0/records.jsonl   nodes are "graph_1/Add_1"
//   {path}/20250102030405/rank0/graphs.json, dynamo_original_graph_1_rank_0_pid_77_ts_{time}.txt
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/run.hpp"

namespace assay::run::sources {

/// The newest folder of a time in `path` that holds a native run; nothing when there is none. The
/// others are named in `warnings`.
[[nodiscard]] std::optional<std::string> newest_graph_run(const std::string& path,
                                                          std::vector<std::string>* warnings);

/// Whether the manifest of what was read says that it is of compiled graphs.
[[nodiscard]] bool is_of_graphs(const Run& run);

/// Makes of a native run the run that the tree of its operators would be: graphs, names, texts,
/// coverage, findings.
/// ranks   each with its folder
void become_graph_run(const std::vector<std::pair<int, std::string>>& ranks, Run* run);

}  // namespace assay::run::sources

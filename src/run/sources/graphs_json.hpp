// SPDX-License-Identifier: Apache-2.0
// graphs.json: what a compiled model's capture planned, got and missed, graph by graph.
// Keys: docs/formats/ge-tree.md
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "run/run.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {

inline constexpr std::string_view kGraphsFile = "graphs.json";

/// Adds coverage, properties and findings (graph breaks) to the run. Keys of other types than
/// expected are left out.
/// returns   false: JSON of another program, nothing was added
/// errors    Invalid: no JSON object, or cut off | TooLarge: nested deeper than 64
[[nodiscard]] Result<bool> read_graphs_json(std::string_view text, Run* run);

/// The same for a file. What cannot be used sets coverage.complete to false and adds a warning.
/// returns   true when the file was one of ours
bool add_graphs_file(const std::string& path, Run* run);

/// Names of the operators that were captured, by (rank, graph) and step.
using GraphSteps = std::map<std::pair<int, uint32_t>, std::map<int64_t, std::set<std::string>>>;
/// Counts operators as graphs.json counts the planned ones: each of a graph once. What some steps
/// of a graph lack is missed for `reason`.
void add_graph_coverage(const GraphSteps& graphs, const std::string& reason, Run* run);

/// The run of a program that has compiled graphs and ended before the first file of one was there.
[[nodiscard]] Attempt read_graphs_alone(const std::string& path);

}  // namespace assay::run::sources

// SPDX-License-Identifier: Apache-2.0
// What an ATB dump says beside its tensors: msprobe's table, lists of operations, topology, and
// what
// the probe and the command tell about the capture.   docs/formats/atb-tree.md
#pragma once
#include <map>
#include <string>
#include <vector>

#include "run/run.hpp"
#include "run/sources/atb_tree_find.hpp"

namespace assay::run::sources {

/// One row of statistic.csv.
struct AtbStatisticRow {
  std::string node;  // "0_WordEmbedding/0_GatherOperation"
  std::string op_type;
  Role role = Role::Output;
  std::string index;      // "0"
  std::string parameter;  // "x" of "0_x"
  std::optional<DType> dtype;
  std::optional<Dims> shape;
  std::optional<stats::TensorStats> stats;  // nothing when all four are N/A
};
/// Rows in file order. Rows that are no such row are counted in one warning.
[[nodiscard]] std::vector<AtbStatisticRow> read_atb_statistic_csv(const std::string& path,
                                                                  Run* run);

/// One call of an operation, from operation_tensors_<n>.csv.
struct AtbListedCall {
  std::string step_name;  // "<n>"
  std::string ids;        // "2_0"; empty when the name has none
  std::string op_name;    // "LinearOperation_2_0"
  std::string parameters;
  std::vector<TensorRecord> tensors;  // dtype, shape, role, slot
};
/// The calls that one process listed, by run count, then in file order.
[[nodiscard]] std::vector<AtbListedCall> read_atb_operation_lists(
    const std::vector<std::string>& list_folders, int64_t process, Run* run);
/// The processes that left a list of operations or a topology.
[[nodiscard]] std::vector<int64_t> atb_listed_processes(
    const std::vector<std::string>& list_folders);

/// The operations of one process as a tree: children of the root by id, models and single layers
/// alike. Nothing when the process left no topology.
/// nodes   of the records; a plugin has another name in its folder than in the topology
[[nodiscard]] std::optional<TopologyNode> read_atb_topology(const AtbLocation& location,
                                                            const AtbProcess& process,
                                                            const std::vector<std::string>& nodes,
                                                            Run* run);

/// Property: ids of the processes that manifest.json lists, with blanks between.
inline constexpr const char* kManifestProcesses = "processes";

/// Coverage and properties from manifest.json, else from the summaries and status pages of the
/// processes.
void read_atb_coverage(const std::string& root, Run* run);

}  // namespace assay::run::sources

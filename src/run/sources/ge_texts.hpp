// SPDX-License-Identifier: Apache-2.0
// The texts of compiled graphs that lie in a dump: which belongs to which graph, and the operators
// in them.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "run/run.hpp"

namespace assay::run::sources {

enum class GraphTextKind : uint8_t { Original, Optimized, Build };

/// Which text of a graph a file is; nothing for other files.
[[nodiscard]] std::optional<GraphTextKind> graph_text_kind(std::string_view name);

struct GraphTextFile {
  GraphTextKind kind;
  std::string name;
  std::string path;
};

/// The graphs of one rank that have data.
struct RankGraphs {
  int rank = -1;                 // -1: the dump has no folders of ranks
  std::vector<uint32_t> places;  // ascending
  bool named = false;            // all are called graph_N, N being place + 1
};

/// Fills run->graph_files: the i-th text of a rank belongs to its i-th graph, or graph_N to the
/// text of that number. Of several texts of one number, of several runs into one folder, the newest
/// counts. A text whose graph has no data gives a warning.
void assign_graph_texts(const std::vector<GraphTextFile>& texts,
                        const std::vector<RankGraphs>& ranks, Run* run);

/// Fills run->topology with the operators of the graphs of the first rank, in the order of the
/// texts; of each graph the text before the engine's passes, or what there is. A text that cannot
/// be read gives a warning and no operators.
void add_graph_topology(Run* run);

}  // namespace assay::run::sources

// SPDX-License-Identifier: Apache-2.0
// One captured run, whatever wrote it: the only model that compare, opcheck and report know.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/native/manifest.hpp"
#include "run/coverage.hpp"
#include "run/layout.hpp"
#include "run/record.hpp"
#include "topology/model_tree.hpp"

namespace assay::run {

/// A module or operator tree as the host declared it.
using TopologyNode = topology::ModuleNode;

struct Run {
  std::string path;  // as the user gave it
  Layout layout = Layout::None;
  /// In (rank, step, order, role, slot) order; the same for any order of a directory listing.
  std::vector<TensorRecord> records;
  /// False where the layout does not tell the order of execution: the records then stand in that of
  /// registration, or of their names.
  bool order_known = true;
  std::vector<OperationRecord> operations;  // where the layout knows parameters; in that order, too
  std::optional<TopologyNode> topology;
  /// Where several ranks have trees: each that differs, that of the first rank first. `topology` is
  /// that one until reconcile() makes one of all.
  struct RankTree {
    std::vector<int> ranks;  // ascending
    TopologyNode tree;
  };
  std::vector<RankTree> rank_trees;
  /// Models whose nodes stand one after the other below the root of the topology, as a prompt's and
  /// a decoder's in ATB, by the numbers in front of their names.
  struct Model {
    std::string name;
    std::vector<uint64_t> ids;              // ascending
    std::vector<std::string> weights = {};  // tensors, by the names that operations read them by
  };
  std::vector<Model> models;  // by their first id
  /// Graph mode: text of the compiled graphs, by rank and graph number; empty in other layouts.
  struct GraphFile {
    int rank = -1;  // -1: valid for all
    uint32_t graph = 0;
    std::string path;
  };
  std::vector<GraphFile> graph_files;
  /// By rank and step, where nodes are folders: the folder that they lie in.
  std::map<std::pair<int, std::string>, std::string> step_folders;
  /// By rank: its places in the parallel groups of the job, where the capture knew them.
  std::map<int, native::ParallelPlaces> parallel;
  Coverage coverage;
  std::map<std::string, std::string>
      properties;                     // host program, versions, configuration: for people
  std::vector<std::string> warnings;  // unreadable folders, truncated lines: one sentence each
  /// Of modules that bear another name than in the run's files: theirs, by the new one.
  std::map<std::string, std::string, std::less<>> own_names;
  /// What records point into.
  std::vector<std::shared_ptr<const void>> held;
  /// Found by the reader, without looking at payloads.
  std::vector<Damage> damage;
  std::shared_ptr<FoundDamage> found_damage = std::make_shared<FoundDamage>();
  /// What the capture itself found, for people: graph breaks, overflows, an output that another
  /// operator changed. One sentence each.
  std::vector<std::string> findings;
  /// What healthy runs differ from this one by, as JSON of a floor profile, where its file tells.
  std::string floors;

  [[nodiscard]] bool has(Trait trait) const { return has_trait(layout, trait); }
  /// Nodes are modules, or files and names that stand for some; otherwise they are the operators of
  /// another program.
  [[nodiscard]] bool has_modules() const {
    return !has(Trait::AtbOperations) && !has(Trait::CompiledGraphs);
  }
  /// Captured in a host that is no PyTorch program: nodes are operators of its graphs, some of
  /// which only view others.
  [[nodiscard]] bool has_own_engine() const { return properties.contains("host.kind"); }
  /// Nodes have parents: the run tells its topology, or their names do.
  [[nodiscard]] bool has_tree() const { return topology.has_value() || has(Trait::AtbOperations); }

  /// Two engines may order the units of a layer differently; runs of one layout are of one engine,
  /// and so are a run and a fingerprint.
  [[nodiscard]] bool is_laid_out_like(const Run& other) const {
    return layout == other.layout || (has(Trait::AtenOperators) && other.has(Trait::AtenOperators));
  }

  /// The folder of a record's node; empty where nodes are none.
  [[nodiscard]] std::string node_folder(const TensorRecord& record) const;

  /// The same thing twice is one.
  void add_damage(const std::string& file, std::string what);
  /// What is damaged as far as it is known by now.
  [[nodiscard]] std::vector<Damage> all_damage() const;
  /// The first of it as "FILE: what"; empty while nothing is known to be damaged.
  [[nodiscard]] std::string first_damage() const;
};

}  // namespace assay::run

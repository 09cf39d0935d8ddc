// SPDX-License-Identifier: Apache-2.0
// One side of a comparison as the matcher looks at it: records by place and node, trees, shapes.
#pragma once
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pair/mapping_tables.hpp"
#include "pair/tokens.hpp"
#include "pair/tree.hpp"

namespace assay::pair {

/// What is compared as a whole: a rank, a step folder, and in ATB one of its models.
struct Place {
  int rank = 0;
  int64_t step = 0;
  int part = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
};

/// Records of one place by shared node name.
using NodeRecords = std::map<InternedText, std::vector<size_t>>;

class MatchSide {
 public:
  /// with_trees   flatten the topology and look for layers
  MatchSide(const run::Run& run, bool with_trees, bool short_models);

  /// Fills places with the records that `wanted` accepts.
  template <typename Wanted>
  void group(const Wanted& wanted) {
    for (size_t i = 0; i < run.records.size(); ++i) {
      const run::TensorRecord& record = run.records[i];
      if (!wanted(record)) continue;
      places[{record.rank, record.step, part_of(record)}][shared_node_name(run, record.node)]
          .push_back(i);
    }
  }
  [[nodiscard]] int part_of(const run::TensorRecord& record) const {
    return static_cast<int>(part_of_node(record.node, model_starts));
  }
  [[nodiscard]] const NodeRecords& nodes_at(const Place& place) const;
  /// Steps of a rank with the models in them, of the grouped records.
  [[nodiscard]] StepParts steps_of(int rank) const;

  /// Shape from the record or the file's header, read once; nothing when it cannot be known.
  [[nodiscard]] const std::optional<Dims>& shape_of(size_t record);
  [[nodiscard]] std::optional<int64_t> element_count_of(size_t record);

  [[nodiscard]] bool is_atb() const { return run.has(run::Trait::AtbOperations); }

  const run::Run& run;
  std::vector<uint64_t> model_starts;
  std::vector<Tree> trees;
  std::vector<Layers> layers;  // one a tree
  std::map<Place, NodeRecords> places;
  std::vector<bool> used;   // one a record
  std::vector<bool> named;  // by the user; filled where a record may be in several pairs

 private:
  std::vector<std::optional<std::optional<Dims>>> shapes_;
};

/// The tensors of a node that a location means, in numeric order of their slots.
/// drop_nested   leave out "1.0": the original's filter of golden
[[nodiscard]] std::vector<size_t> records_at(const run::Run& run, const NodeRecords& nodes,
                                             const std::string& node, const Location& location,
                                             bool drop_nested);

/// "0_Attention/0_QKVLinearSplitPack/after/outtensor0.bin", "root.model.norm/output_0.pth": the
/// path within a step, as the original's rules see it.
[[nodiscard]] std::string path_in_step(const run::Run& run, const run::TensorRecord& record);

/// "output_1_0": a file's name without its ending, what the original sorted by.
[[nodiscard]] std::string file_stem(const run::TensorRecord& record);

/// Slots in numeric order: "2" before "10", "1.0" before "1.1".
[[nodiscard]] std::vector<std::pair<int64_t, std::string>> slot_order(const std::string& slot);

}  // namespace assay::pair

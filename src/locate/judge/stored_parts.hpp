// SPDX-License-Identifier: Apache-2.0
// Captured weights that are not the tensor that golden has: codes with their scales, shards of several ranks.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>

#include "locate/program/program.hpp"
#include "pair/weight_names.hpp"

namespace assay::locate {

/// How far a quantised weight is from golden's, in half steps of its own scales and the rounding of these: at most 1 after
/// rounding to nearest.
struct StepDifference {
  double half_steps = 0;
  int64_t worst = -1;
  double golden_value = 0, mine_value = 0;
  std::string scheme;  // "int8 per channel"
  /// A calibrated scheme (GPTQ and the like) may move values further than its rounding.
  bool may_be_calibrated = false;
};

class StoredParts {
 public:
  /// mine  outlives this
  explicit StoredParts(const Program& mine);

  /// A weight in codes, read.
  struct Loaded {
    pair::Coding coding;
    Tensor codes;
    Tensor scale;
    std::optional<Tensor> zero;
    std::optional<Tensor> group_index;
    double scale_factor = 1;
  };

  /// Scales, zero points and the like of a weight in codes.
  [[nodiscard]] bool is_part(const std::string& leaf) const { return parts_.contains(leaf); }
  /// The weight that a leaf holds the codes of: "q_proj.weight" of "q_proj.weight_packed"; nothing for other leaves.
  [[nodiscard]] std::optional<std::string> coded_weight(const std::string& leaf) const;
  /// errors  Invalid, Unsupported (a layout that is not known, shapes that do not fit golden's) | of run::load_tensor()
  [[nodiscard]] Result<StepDifference> difference(const std::string& leaf,
                                                  const run::TensorRecord& golden) const;
  /// The numbers that the codes of a weight ("q_proj.weight") stand for, float32; whether they are golden's is difference()'s
  /// to say.
  /// errors  NotFound: it is not stored in codes | as difference()
  [[nodiscard]] Result<Tensor> restored(const std::string& weight, const Dims& shape) const;
  /// Shards of all ranks as one tensor of golden's shape: along one axis, or flat with padding behind the last.
  /// errors  Unsupported, with what they are instead
  [[nodiscard]] Result<Tensor> put_together(const run::TensorRecord& shard,
                                            const Dims& golden) const;

 private:
  [[nodiscard]] Result<Loaded> load(const pair::Weight& weight) const;

  const Program& mine_;
  run::Run names_;  // mine's leaves as a checkpoint lists them
  std::optional<pair::CheckpointSide> side_;
  std::map<std::string, size_t> coded_;    // leaf -> index of the weight
  std::map<std::string, size_t> by_name_;  // the same by the weight's name
  std::set<std::string> parts_;
};

}  // namespace assay::locate

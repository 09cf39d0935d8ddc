// SPDX-License-Identifier: Apache-2.0
// Captured weights in codes with scales: how far they are from golden's numbers, and which numbers
// they stand for.
#pragma once
#include <span>
#include <string>

#include "pair/program_weights.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::locate {

/// The wider of the distances of a level to its neighbours.
/// levels  ascending
/// at      < levels.size()
[[nodiscard]] double gap_at(std::span<const double> levels, size_t at);

/// How far a quantised weight is from golden's, in half steps of its own scales and the rounding of
/// these: at most 1 after rounding to nearest.
struct StepDifference {
  double half_steps = 0;
  int64_t worst = -1;
  double golden_value = 0, mine_value = 0;
  double error = 0, energy = 0;  // sums of squares of m - g and of g
  std::string scheme = {};       // "int8 per channel"
  /// A calibrated scheme (GPTQ and the like) may move values further than its rounding.
  bool may_be_calibrated = false;
};

/// errors  Invalid, Unsupported (a layout that is not known, shapes that do not fit golden's) | of
///         run::load_tensor()
[[nodiscard]] Result<StepDifference> step_difference(const pair::CodedLeaves& leaves,
                                                     const pair::Weight& weight,
                                                     const run::TensorRecord& golden);
/// The numbers that the codes of a weight ("q_proj.weight") stand for, float32; whether they are
/// golden's is step_difference()'s to say.
/// errors  NotFound: it is not stored in codes | as step_difference()
[[nodiscard]] Result<Tensor> restored_weight(const pair::CodedLeaves& leaves,
                                             const std::string& weight, const Dims& shape);

}  // namespace assay::locate

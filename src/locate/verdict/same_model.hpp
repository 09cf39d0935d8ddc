// SPDX-License-Identifier: Apache-2.0
// Whether two runs are of one model under the same conditions: without that no difference is a
// fault.
#pragma once
#include <optional>
#include <string>

#include "locate/program/pairing.hpp"

namespace assay::locate {

struct ModelDifference {
  std::string text;        // "the run under test has 2 layers in model.layers, golden 3"
  bool exchanged = false;  // golden and mine were named the other way round
};

/// In this order: another model (hardly any module of the same name), another number of layers or
/// experts, other sizes, exchanged sides (golden's weights are those of the run under test,
/// rounded), another checkpoint, values dropped at random.
///
/// One weight or a few that differ are a fault and not another checkpoint: most of those that are
/// compared must be unlike golden's. A weight that holds golden's values in another order, scaled
/// or negated is like it, and so is one that holds another of golden's weights.
///
/// tests    has the weights that differ
/// returns  nothing when no such difference is seen
/// errors   of run::load_tensor()
[[nodiscard]] Result<std::optional<ModelDifference>> find_model_difference(const Program& golden,
                                                                           const Program& mine,
                                                                           const Pairing& pairing,
                                                                           const PairTests& tests);

}  // namespace assay::locate

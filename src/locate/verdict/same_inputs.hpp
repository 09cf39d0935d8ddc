// SPDX-License-Identifier: Apache-2.0
// Whether two runs were given the same: without that no difference is a fault, and no equality a
// proof.
#pragma once
#include <optional>
#include <string_view>

#include "locate/program/pairing.hpp"

namespace assay::locate {

/// The first input of the model that golden was given otherwise.
struct InputDifference {
  int64_t step = 0;
  bool first_step = false;  // of the steps that both runs captured
  bool shape_differs = false;
  std::string text;  // "input_ids differs first at [0, 3]: 17 against golden's 42"
};

/// Compares what the root module was called with: integers and truth values in all steps that both
/// runs captured, reals in the first of them (later ones may be the model's own, caches among
/// them). A mask that one side was not given is taken for all ones. Inputs without bytes on either
/// side are not compared.
///
/// returns  nothing when no difference is seen
[[nodiscard]] std::optional<InputDifference> find_input_difference(const Program& golden,
                                                                   const Program& mine,
                                                                   const Pairing& pairing);

}  // namespace assay::locate

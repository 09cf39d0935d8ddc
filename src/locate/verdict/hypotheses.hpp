// SPDX-License-Identifier: Apache-2.0
// Cheap explanations of a wrong tensor: the one that brings its error below the floor is printed.
#pragma once
#include "locate/program/finding.hpp"

namespace assay::locate {

struct Hypothesis {
  // "a constant factor 1.03", "[0, 8) and [8, 16) of axis 1 are exchanged"; empty: none
  std::string sentence;
  double error = NAN;  // relative L2 that is left when it is undone
};

/// right   the reference, or golden's tensor
/// wrong   of the run under test
/// floor   relative L2 that rounding explains
[[nodiscard]] Hypothesis explain(const TensorView& right, const TensorView& wrong, double floor);

}  // namespace assay::locate

// SPDX-License-Identifier: Apache-2.0
// Cheap explanations of a wrong tensor: the one that brings its error below the floor is printed.
#pragma once
#include <span>

#include "locate/program/finding.hpp"

namespace assay::locate {

struct Hypothesis {
  // "a constant factor 1.03", "heads 2 and 3 are exchanged"; empty: none explains it
  std::string sentence;
  double error = NAN;  // relative L2 that is left when it is undone
};

/// right   the reference, or golden's tensor
/// wrong   of the run under test
/// floor   relative L2 that rounding explains
/// heads   divisors of the last axis to try as number of heads; may be empty
/// ranks   number of ranks of the run, for a missing sum
[[nodiscard]] Hypothesis explain(const TensorView& right, const TensorView& wrong, double floor,
                                 std::span<const int64_t> heads, int ranks);

}  // namespace assay::locate

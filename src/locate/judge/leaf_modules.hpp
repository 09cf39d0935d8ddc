// SPDX-License-Identifier: Apache-2.0
// Modules whose function is known by their class, recomputed from their captured inputs and
// weights: own errors
// without operators and without golden.
#pragma once
#include <set>

#include "locate/judge/own_error.hpp"

namespace assay::locate {

struct LeafErrors {
  std::vector<Finding> findings;    // hard, in execution order
  std::vector<CoarseGroup> coarse;  // information
  std::set<size_t> records;         // outputs that were judged as sharply as an operator
  size_t judged = 0;                // calls
  std::map<std::string, size_t> unjudged;
};

/// Linear, Conv1D, Embedding, LayerNorm, RMSNorm and their namesakes of Hugging Face, SiLU, GELU,
/// ReLU. What the capture does not say (eps, the kind of GELU, whether a norm adds one to its
/// weight) is the usual value that explains most modules of the class; a class that none explains
/// is not judged.
///
/// errors  Interrupted
[[nodiscard]] Result<LeafErrors> judge_leaf_modules(const Program& mine,
                                                    const OwnErrorOptions& options);

}  // namespace assay::locate

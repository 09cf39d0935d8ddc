// SPDX-License-Identifier: Apache-2.0
// Weights of two checkpoints, name by name: float against float, float against quantised.
// docs/commands/compare-weights.md
#pragma once
#include <string>

#include "compare/compare.hpp"
#include "run/run.hpp"

namespace assay::compare {

/// golden_path, my_path   folders with *.safetensors (all shards, index json where there is one),
///                        else *.bin or *.pth of torch; run::open_checkpoint()
/// returns                a Comparison with `weights` set and one sheet "weights"; missing and
///                        extra names are in its unmatched list
/// errors   NotFound ("No .safetensors files found in the directory.") | of the readers |
///          Interrupted
[[nodiscard]] Result<Comparison> compare_weights(const std::string& golden_path,
                                                 const std::string& my_path,
                                                 const CompareOptions& options);

/// The two sides as compare_weights() opens them, of a GGUF file against a checkpoint with stacked
/// experts taken apart. Conventions::weight_pairs: my side is its first file only.
struct Checkpoints {
  run::Run golden;
  run::Run mine;
};
[[nodiscard]] Result<Checkpoints> open_checkpoints(const std::string& golden_path,
                                                   const std::string& my_path,
                                                   const CompareOptions& options);

/// The same of open sides, whose records the unmatched list of the result refers to.
///
/// Names are equal, or equal up to one prefix ("model.") that all remaining names of a side have; a
/// missing lm_head is the embedding it is tied to. A quantised weight meets a float one as (code -
/// zero point) * scale in float32, whatever its layout (dequantise.hpp); two weights with equal
/// codes are compared as they are stored. Anything that cannot be read or does not fit is a row
/// with its reason.
[[nodiscard]] Result<Comparison> compare_weights(const run::Run& golden, const run::Run& mine,
                                                 const CompareOptions& options);

}  // namespace assay::compare

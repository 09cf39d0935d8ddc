// SPDX-License-Identifier: Apache-2.0
// Weights of two checkpoints, name by name: float against float, float against quantised.
#pragma once
#include <string>

#include "compare/compare.hpp"

namespace assay::compare {

/// golden_path, my_path   folders with *.safetensors (all shards, index json where there is one), else
///                        *.bin or *.pth of torch
/// returns                a Comparison with `weights` set and one sheet "weights"; missing and extra
///                        names are in its unmatched list
/// errors   NotFound ("No .safetensors files found in the directory.") | of the readers
[[nodiscard]] Result<Comparison> compare_weights(const std::string& golden_path,
                                                 const std::string& my_path,
                                                 const CompareOptions& options);

}  // namespace assay::compare

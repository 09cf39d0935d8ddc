// SPDX-License-Identifier: Apache-2.0
// How the error grows through the layers, in one line.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compare/compare.hpp"

namespace assay::report {

/// The layers of one stack, "model.layers.0-11", in the order of their numbers.
struct LayerErrors {
  std::string name;
  std::vector<int64_t> numbers;
  std::vector<double> errors;         // infinity: NaN or infinities in mine that golden has not
  std::optional<size_t> marked = {};  // index of the first bad layer
};

/// The largest relative L2 distance (of statistics: relative error of the L2 norm) of all tensors
/// in each layer, over all steps and ranks; stacks in the order of their first rows. Rows without
/// numbers, and of indices, say nothing.
///
/// first_bad   node or label in the layer that is marked; empty: none
[[nodiscard]] std::vector<LayerErrors> errors_by_layer(const compare::Comparison& comparison,
                                                       const std::string& first_bad);

struct SparklineOptions {
  size_t width = 80;    // columns
  bool colour = false;  // the marked layer is red; otherwise there is a caret below it
  bool blocks = true;   // block characters; otherwise characters of ASCII
};

/// "error by layer (relative L2, 3e-7 to 2e-2)" and a line a stack: eight levels, logarithmic from
/// the smallest to the largest error of all stacks. Layers without a difference are dots, and those
/// with NaN or infinities exclamation marks. More layers than columns share one, which shows the
/// largest error among them. Empty where there are fewer than two layers, or no difference.
///
/// measure   what the errors are: "relative L2"
[[nodiscard]] std::string sparkline(const std::vector<LayerErrors>& stacks,
                                    const std::string& measure, const SparklineOptions& options);

}  // namespace assay::report

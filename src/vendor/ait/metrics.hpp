// SPDX-License-Identifier: Apache-2.0
// The four metrics of ait 0.2.x, only for `--compat ait-0.2`.   docs/metrics.md
#pragma once
#include <array>
#include <vector>

#include "compare/algorithms.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::vendor::ait {

/// The distance is without the root.
inline constexpr std::array kMetricNames = {"cosine_similarity", "max_relative_error",
                                            "mean_relative_error", "relative_euclidean_distance"};

/// The values of kMetricNames; the cosine is a text: six decimals, "1.0", "NaN".
///
/// Both sides as float32; positions with |golden| <= 2^-52 have relative error 0. Numbers are
/// float32 values, computed from sums in fp64.
/// golden, mine   equal numbers of elements, all finite
/// source         Ascend/msit, release 0.2.1: ait/components/llm/llm/compare/cmp_algorithm.py
[[nodiscard]] std::vector<compare::AlgorithmValue> metrics(const TensorView& golden,
                                                           const TensorView& mine);

}  // namespace assay::vendor::ait

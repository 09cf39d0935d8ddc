// SPDX-License-Identifier: Apache-2.0
// The four metrics of ait 0.2.x, only for `--compat ait-0.2`.   docs/metrics.md
#pragma once
#include <cmath>
#include <string>

#include "tensor/tensor_view.hpp"

namespace assay::compare {

struct Ait02Metrics {
  std::string cosine_similarity;  // six decimals, "1.0", "NaN"; empty when nothing was compared
  double max_relative_error = NAN;
  double mean_relative_error = NAN;
  double relative_euclidean_distance = NAN;  // without the root
  std::string fail_reason;
};

/// Both sides as float32; positions with |golden| <= 2^-52 have relative error 0. Numbers are float32
/// values, computed from sums in fp64.
/// golden, mine   equal numbers of elements, all finite
/// source         Ascend/msit, release 0.2.1: ait/components/llm/llm/compare/cmp_algorithm.py
[[nodiscard]] Ait02Metrics compare_like_ait02(const TensorView& golden, const TensorView& mine);

}  // namespace assay::compare

// SPDX-License-Identifier: Apache-2.0
#include "compare/ait02.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/interruption.hpp"
#include "tensor/convert.hpp"

namespace assay::compare {
namespace {

constexpr double kEpsilon = 0x1p-52;
constexpr int64_t kBlock = 1 << 15;

double as_float(double value) { return static_cast<double>(static_cast<float>(value)); }

}  // namespace

Ait02Metrics compare_like_ait02(const TensorView& golden, const TensorView& mine) {
  const int values = values_per_element(golden.dtype);
  const int64_t elements = golden.element_count();
  std::vector<double> g(static_cast<size_t>(kBlock * values));
  std::vector<double> m(g.size());
  double product = 0;
  double golden_square = 0;
  double mine_square = 0;
  double difference_square = 0;
  double sum_relative = 0;
  double max_relative = 0;
  for (int64_t first = 0; first < elements; first += kBlock) {
    throw_if_interrupted();
    const int64_t count = std::min(kBlock, elements - first);
    const auto used = static_cast<size_t>(count * values);
    read_values(golden, first, count, std::span(g).first(used));
    read_values(mine, first, count, std::span(m).first(used));
    for (size_t i = 0; i < used; ++i) {
      const double a = as_float(g[i]);
      const double b = as_float(m[i]);
      product += a * b;
      golden_square += a * a;
      mine_square += b * b;
      difference_square += (b - a) * (b - a);
      const double relative = std::abs(a) > kEpsilon ? as_float(std::abs(b / a - 1)) : 0;
      sum_relative += relative;
      max_relative = std::max(max_relative, relative);
    }
  }
  Ait02Metrics out;
  const double golden_norm = std::sqrt(golden_square);
  const double mine_norm = std::sqrt(mine_square);
  if (mine_norm <= kEpsilon && golden_norm < kEpsilon) {
    out.cosine_similarity = "1.0";
  } else if (std::sqrt(mine_norm) <= kEpsilon || std::sqrt(golden_norm) <= kEpsilon) {
    out.cosine_similarity = "NaN";
    out.fail_reason = std::string("Cannot compare by Cosine Similarity. All the values in ") +
                      (std::sqrt(mine_norm) <= kEpsilon ? "my_data" : "golden_data") +
                      " are zeros.";
  } else {
    char text[32];
    std::snprintf(text, sizeof(text), "%.6f", product / (golden_norm * mine_norm));
    out.cosine_similarity = text;
  }
  out.max_relative_error = max_relative;
  out.mean_relative_error =
      as_float(sum_relative / static_cast<double>(std::max<int64_t>(1, elements * values)));
  out.relative_euclidean_distance =
      golden_norm <= kEpsilon ? 0 : as_float(difference_square / golden_square);
  return out;
}

}  // namespace assay::compare

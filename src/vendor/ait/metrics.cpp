// SPDX-License-Identifier: Apache-2.0
// One pass in blocks. Values are rounded to float32 where the original did so, and a cosine is a
// text, as in its report.
#include "vendor/ait/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/interruption.hpp"
#include "tensor/convert.hpp"

namespace assay::vendor::ait {
namespace {

constexpr double kEpsilon = 0x1p-52;
constexpr int64_t kBlock = 1 << 15;

double as_float(double value) { return static_cast<double>(static_cast<float>(value)); }

compare::AlgorithmValue cosine(double golden_norm, double mine_norm, double product) {
  if (mine_norm <= kEpsilon && golden_norm < kEpsilon) return {"1.0", ""};
  const bool mine_is_zero = std::sqrt(mine_norm) <= kEpsilon;
  if (mine_is_zero || std::sqrt(golden_norm) <= kEpsilon) {
    return {"NaN", std::string("Cannot compare by Cosine Similarity. All the values in ") +
                       (mine_is_zero ? "my_data" : "golden_data") + " are zeros."};
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.6f", product / (golden_norm * mine_norm));
  return {text, ""};
}

}  // namespace

std::vector<compare::AlgorithmValue> metrics(const TensorView& golden, const TensorView& mine) {
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
  const double golden_norm = std::sqrt(golden_square);
  const double mean_relative =
      as_float(sum_relative / static_cast<double>(std::max<int64_t>(1, elements * values)));
  const double distance = golden_norm <= kEpsilon ? 0 : as_float(difference_square / golden_square);
  return {cosine(golden_norm, std::sqrt(mine_square), product),
          {max_relative, ""},
          {mean_relative, ""},
          {distance, ""}};
}

}  // namespace assay::vendor::ait

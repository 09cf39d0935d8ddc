// SPDX-License-Identifier: Apache-2.0
// One pass over both tensors in blocks. Differences are kept as numbers and in units in the last
// place; one of a value that is not finite is infinite.
#include "repeat/spread.hpp"

#include <algorithm>
#include <vector>

#include "tensor/convert.hpp"

namespace assay::repeat {
namespace {

constexpr int64_t kBlock = int64_t{1} << 15;

}  // namespace

void Spread::add(int64_t element, double a, double b, const std::optional<FloatGrid>& grid) {
  if (std::isfinite(a)) {
    largest_value = std::max(largest_value, std::abs(a));
    first_squared += a * a;
  }
  if (a == b || (std::isnan(a) && std::isnan(b))) return;
  ++different;
  const double error = std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) : INFINITY;
  largest_error = std::max(largest_error, error);
  error_squared += error * error;
  const double unit = grid && std::isfinite(error) ? grid->ulp(a) : 1;
  if (worst >= 0 && error / unit <= largest_ulp) return;
  largest_ulp = error / unit;
  worst = element;
  first = a;
  other = b;
}

double Spread::relative_error() const {
  if (error_squared == 0) return 0;
  return std::sqrt(error_squared / first_squared);
}

Spread spread_of(const TensorView& first, const TensorView& other) {
  Spread spread;
  const std::optional<FloatGrid> grid = float_grid(first.dtype);
  const int values = values_per_element(first.dtype);
  const int64_t count = first.element_count();
  std::vector<double> a;
  std::vector<double> b;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t block = std::min(kBlock, count - begin);
    a.resize(static_cast<size_t>(block * values));
    b.resize(a.size());
    read_values(first, begin, block, a);
    read_values(other, begin, block, b);
    for (size_t i = 0; i < a.size(); ++i)
      spread.add(begin + static_cast<int64_t>(i) / values, a[i], b[i], grid);
  }
  return spread;
}

}  // namespace assay::repeat

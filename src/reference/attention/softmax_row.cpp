// SPDX-License-Identifier: Apache-2.0
// Loops over eight values at a time, with an exponential of their own: e^x = 2^n e^r, and Taylor's
// series for e^r. The last values of a row pass the same code in a padded block.
#include "reference/attention/softmax_row.hpp"

#include <cmath>
#include <limits>

#include "base/simd.hpp"

namespace assay::reference {
namespace {

using simd::f64x8;
using simd::i64x8;
using simd::load;
using simd::store;
using simd::u64x8;

constexpr double kLowest = -708.0;  // below it 2^n would be no normal number
constexpr double kLog2E = 1.4426950408889634;
// ln 2 in two parts: the product of the first with any exponent is exact.
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;
// Added and subtracted it rounds to an integer, whose bits are then the lowest of the sum.
constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52

[[gnu::always_inline]] inline f64x8 splat(double value) { return f64x8{} + value; }

/// e^x for x <= 0: x = n ln 2 + r with |r| <= ln(2)/2, Taylor's series for e^r up to r^13 (next
/// term below 5e-18), n added to the exponent.
[[gnu::always_inline]] inline f64x8 exponential(f64x8 x) {
  const f64x8 shifted = x * kLog2E + kRounder;
  const f64x8 n = shifted - kRounder;
  const f64x8 r = (x - n * kLn2High) - n * kLn2Low;
  f64x8 sum = splat(1.0 / 6227020800.0);
  sum = sum * r + 1.0 / 479001600.0;
  sum = sum * r + 1.0 / 39916800.0;
  sum = sum * r + 1.0 / 3628800.0;
  sum = sum * r + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  const f64x8 scaled = (f64x8)((u64x8)sum + ((u64x8)shifted << 52));
  // NaN compares false and so keeps what the series made of it; the exponent it got may be any.
  const i64x8 vanishes = x < splat(kLowest);
  const i64x8 is_nan = x != x;
  return vanishes ? f64x8{} : (is_nan ? x : scaled);
}

double lane_sum(f64x8 lanes) {
  double total = 0;
  for (int i = 0; i < 8; ++i) total += lanes[i];
  return total;
}

}  // namespace

ASSAY_CLONES double row_maximum(const double* values, int64_t count) {
  double largest = -std::numeric_limits<double>::infinity();
  f64x8 lanes = splat(largest);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const f64x8 x = load<f64x8>(values + i);
    lanes = x > lanes ? x : lanes;
  }
  for (int k = 0; k < 8; ++k) largest = lanes[k] > largest ? lanes[k] : largest;
  for (; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

ASSAY_CLONES double exponentials(double* values, int64_t count, double maximum) {
  f64x8 sums = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const f64x8 result = exponential(load<f64x8>(values + i) - maximum);
    store(values + i, result);
    sums += result;
  }
  double total = lane_sum(sums);
  if (i < count) {
    // The rest in a padded block, so that an element's result does not depend on its place.
    double rest[8];
    for (int k = 0; k < 8; ++k) rest[k] = i + k < count ? values[i + k] : maximum;
    store(rest, exponential(load<f64x8>(rest) - maximum));
    for (int k = 0; i + k < count; ++k) {
      values[i + k] = rest[k];
      total += rest[k];
    }
  }
  return total;
}

ASSAY_CLONES void scale_row(double* values, int64_t count, double factor) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) store(values + i, load<f64x8>(values + i) * factor);
  for (; i < count; ++i) values[i] *= factor;
}

ASSAY_CLONES void add_row(double* values, const double* terms, int64_t count, double factor) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    store(values + i, load<f64x8>(values + i) + load<f64x8>(terms + i) * factor);
  for (; i < count; ++i) values[i] += terms[i] * factor;
}

SoftmaxSum softmax_row(double* scores, int64_t count, double sink) {
  const double largest = std::fmax(row_maximum(scores, count), sink);
  double sum = exponentials(scores, count, largest);
  if (!std::isinf(sink)) sum += std::exp(sink - largest);
  for (int64_t i = 0; i < count; ++i) scores[i] /= sum;
  return {largest, sum};
}

double exponentials_plain(double* values, int64_t count, double maximum) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    values[i] = std::exp(values[i] - maximum);
    total += values[i];
  }
  return total;
}

}  // namespace assay::reference

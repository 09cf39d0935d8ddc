// SPDX-License-Identifier: Apache-2.0
// Two passes over a block: the first makes the weights exp(g - max) and the mean difference mu, the
// second adds up w f(d - mu). Differences that are all small, as most are, need no general exp().
//   docs/metrics.md, "How the divergence keeps its digits"
#include "measure/kl_divergence.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/simd.hpp"
#include "measure/vector_exp.hpp"

namespace assay::measure {
namespace {

using simd::add_lanes;
using simd::f64x8;
using simd::load;
using simd::store;
using simd::u64x8;

constexpr int64_t kLanes = 8;
constexpr int kTogether = 4;
using Several = Vectors<kTogether>;
// Below this distance from the mean, exp needs no range reduction (|x| log2 e < 1/2) and its excess
// is exact to rounding; above it exp(x) - 1 - x loses at most a factor 20 of accuracy to its
// subtraction.
constexpr double kSmall = 0.34;
// mine - golden is exact to 2^-53 of itself: at this size to 1e-13.
constexpr double kLargeDifference = 1024;

[[gnu::always_inline]] inline Several load_several(const double* values) {
  Several out;
  for (int v = 0; v < kTogether; ++v) out.at[v] = load<f64x8>(values + v * kLanes);
  return out;
}
[[gnu::always_inline]] inline f64x8 absolute_of(f64x8 v) {
  return (f64x8)((u64x8)v & 0x7FFFFFFFFFFFFFFFu);
}

/// Eight values, the ones at and after `count` replaced by `filler`.
[[gnu::always_inline]] inline f64x8 load_padded(const double* values, int64_t count,
                                                double filler) {
  alignas(64) double lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = i < count ? values[i] : filler;
  return load<f64x8>(lanes);
}

struct WeightSums {
  double weight = 0;      // sum of w_i = exp(g_i - max)
  double difference = 0;  // sum of w_i d_i
  double inner = 0;       // sum of w_i inner_i
};

/// Position of the largest value, the first of equal ones up to the lane it was found in.
ASSAY_CLONES int64_t index_of_largest(const double* values, int64_t count) {
  f64x8 best = f64x8{} + values[0];
  f64x8 best_index = {};
  f64x8 index = {0, 1, 2, 3, 4, 5, 6, 7};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const f64x8 v = load<f64x8>(values + i);
    best_index = v > best ? index : best_index;
    best = v > best ? v : best;
    index += 8.0;
  }
  int64_t found = static_cast<int64_t>(best_index[0]);
  for (int lane = 1; lane < kLanes; ++lane) {
    if (best[lane] > values[found]) found = static_cast<int64_t>(best_index[lane]);
  }
  for (; i < count; ++i) {
    if (values[i] > values[found]) found = i;
  }
  return found;
}

/// Differences less that of a reference position: (mine - mine_0) - (golden - golden_0).
ASSAY_CLONES void subtract_from_reference(const double* golden, const double* mine, int64_t count,
                                          double golden_0, double mine_0, double* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(out + i, (load<f64x8>(mine + i) - mine_0) - (load<f64x8>(golden + i) - golden_0));
  }
  for (; i < count; ++i) out[i] = (mine[i] - mine_0) - (golden[i] - golden_0);
}

template <bool kInner>
[[gnu::always_inline]] inline WeightSums weigh(const double* golden, const double* difference,
                                               const double* inner, int64_t count, double largest,
                                               double* weights) {
  f64x8 weight = {};
  f64x8 weighted_difference = {};
  f64x8 weighted_inner = {};
  const auto add = [&](f64x8 w, f64x8 d, f64x8 n) __attribute__((always_inline)) {
    weight += w;
    weighted_difference += w * d;
    if constexpr (kInner) weighted_inner += w * n;
  };
  int64_t i = 0;
  // Four vectors at once, added one after the other: the bits are those of one at a time.
  for (; i + kTogether * kLanes <= count; i += kTogether * kLanes) {
    const Several w = exp_of_nonpositive(load_several(golden + i) - largest);
    for (int v = 0; v < kTogether; ++v) {
      store(weights + i + v * kLanes, w.at[v]);
      add(w.at[v], load<f64x8>(difference + i + v * kLanes),
          kInner ? load<f64x8>(inner + i + v * kLanes) : f64x8{});
    }
  }
  for (; i < count; i += kLanes) {
    const bool whole = i + kLanes <= count;
    const int64_t left = count - i;
    // A padding lane lies so far below the maximum that its weight is 0.
    const f64x8 g = whole ? load<f64x8>(golden + i)
                          : load_padded(golden + i, left, -std::numeric_limits<double>::infinity());
    const f64x8 d = whole ? load<f64x8>(difference + i) : load_padded(difference + i, left, 0);
    f64x8 n = {};
    if constexpr (kInner) n = whole ? load<f64x8>(inner + i) : load_padded(inner + i, left, 0);
    const f64x8 w = exp_of(exp_parts(g - largest));
    store(weights + i, w);
    add(w, d, n);
  }
  return {add_lanes(weight), add_lanes(weighted_difference), add_lanes(weighted_inner)};
}

ASSAY_CLONES WeightSums weigh_values(const double* golden, const double* difference, int64_t count,
                                     double largest, double* weights) {
  return weigh<false>(golden, difference, nullptr, count, largest, weights);
}
ASSAY_CLONES WeightSums weigh_parts(const double* golden, const double* difference,
                                    const double* inner, int64_t count, double largest,
                                    double* weights) {
  return weigh<true>(golden, difference, inner, count, largest, weights);
}

/// w f(e) for e = difference - mean of any size. `relative_mine` is mine - mine_0 - offset. Far
/// from the mean, w exp(e) is computed as the one exponential of that: w may underflow where the
/// product does not.
[[gnu::always_inline]] inline f64x8 weighted_excess(f64x8 w, f64x8 e, f64x8 relative_mine) {
  const f64x8 distance = absolute_of(e);
  const ExpParts parts = exp_parts(distance <= kSmall ? e : relative_mine);
  const f64x8 near = w * parts.excess;
  const f64x8 far = exp_of(parts) - w * (1.0 + e);
  return distance <= kSmall ? near : far;
}

/// sum of w_i f(d_i - mean); infinite when an exponential overflows.
///
/// mine_0, offset   mine at the maximum of golden, and by how much the mean exceeds the difference
///                  there
ASSAY_CLONES double sum_of_excess(const double* mine, const double* difference,
                                  const double* weights, int64_t count, double mean, double mine_0,
                                  double offset) {
  f64x8 sum = {};
  int64_t i = 0;
  for (; i + kTogether * kLanes <= count; i += kTogether * kLanes) {
    const Several e = load_several(difference + i) - mean;
    const Several w = load_several(weights + i);
    // As numbers, for GCC 12 takes a mask apart that is looked at lane by lane.
    f64x8 far = {};
    for (int v = 0; v < kTogether; ++v)
      far += absolute_of(e.at[v]) <= kSmall ? f64x8{} : f64x8{} + 1.0;
    // Tensors that are worth a comparison differ little: almost all ends here, with the bits that
    // the general way gives.
    if (add_lanes(far) == 0) {
      const Several excess = w * small_excess(e);
      for (int v = 0; v < kTogether; ++v) sum += excess.at[v];
      continue;
    }
    for (int v = 0; v < kTogether; ++v) {
      const f64x8 m = load<f64x8>(mine + i + v * kLanes);
      sum += weighted_excess(w.at[v], e.at[v], (m - mine_0) - offset);
    }
  }
  for (; i < count; i += kLanes) {
    const bool whole = i + kLanes <= count;
    const int64_t left = count - i;
    const f64x8 m = whole ? load<f64x8>(mine + i) : load_padded(mine + i, left, mine_0);
    const f64x8 d = whole ? load<f64x8>(difference + i) : load_padded(difference + i, left, mean);
    sum += weighted_excess(load<f64x8>(weights + i), d - mean, (m - mine_0) - offset);
  }
  return add_lanes(sum);
}

/// log sum exp(mine - mine_0) by its own maximum.
double log_sum_exp_from(const double* mine, int64_t count, double mine_0) {
  const double largest = mine[index_of_largest(mine, count)];
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(mine[i] - largest);
  return (largest - mine_0) + std::log(sum);
}

}  // namespace

KlPart kl_of_values(const double* golden, const double* mine, const double* difference,
                    const double* inner, int64_t count) {
  if (count == 1) return {golden[0], mine[0], difference[0], inner != nullptr ? inner[0] : 0};
  alignas(64) double weights[kKlBlock + kLanes];
  alignas(64) double from_reference[kKlBlock];
  const int64_t reference = index_of_largest(golden, count);
  const double golden_0 = golden[reference];
  const double mine_0 = mine[reference];
  // Softmax does not see a constant: where it swallows the digits of the differences, take it out
  // first.
  double constant = 0;
  if (!(std::fabs(difference[reference]) <= kLargeDifference)) {
    constant = difference[reference];
    subtract_from_reference(golden, mine, count, golden_0, mine_0, from_reference);
    difference = from_reference;
  }
  const WeightSums sums = inner == nullptr
                              ? weigh_values(golden, difference, count, golden_0, weights)
                              : weigh_parts(golden, difference, inner, count, golden_0, weights);
  const double log_weight = std::log(sums.weight);
  const double mean = sums.difference / sums.weight;
  const double offset = mean - difference[reference];
  const double excess =
      sum_of_excess(mine, difference, weights, count, mean, mine_0, offset) / sums.weight;
  const double divergence = std::isfinite(excess)
                                ? std::log1p(std::max(excess, 0.0))
                                : log_sum_exp_from(mine, count, mine_0) - log_weight - offset;
  KlPart part;
  part.golden_log_sum = golden_0 + log_weight;
  part.mine_log_sum = mine_0 + (log_weight + offset + divergence);
  part.shift = constant + (mean + divergence);
  part.divergence = divergence + sums.inner / sums.weight;
  return part;
}

void KlReducer::push(const KlPart& part) {
  if (count_ == kCapacity) {
    const KlPart joined = finish();
    push(joined);
  }
  golden_log_sum_[count_] = part.golden_log_sum;
  mine_log_sum_[count_] = part.mine_log_sum;
  shift_[count_] = part.shift;
  divergence_[count_] = part.divergence;
  ++count_;
}

KlPart KlReducer::finish() {
  const KlPart joined = kl_of_values(golden_log_sum_.data(), mine_log_sum_.data(), shift_.data(),
                                     divergence_.data(), static_cast<int64_t>(count_));
  count_ = 0;
  return joined;
}

double kl_divergence(std::span<const double> golden, std::span<const double> mine) {
  std::array<double, kKlBlock> difference;
  KlReducer parts;
  for (size_t first = 0; first < golden.size(); first += kKlBlock) {
    const auto g = golden.subspan(first, std::min<size_t>(kKlBlock, golden.size() - first));
    const auto m = mine.subspan(first, g.size());
    std::ranges::transform(m, g, difference.begin(), std::minus<>());
    parts.push(kl_of_values(g.data(), m.data(), difference.data(), nullptr,
                            static_cast<int64_t>(g.size())));
  }
  return parts.finish().divergence;
}

}  // namespace assay::measure

// SPDX-License-Identifier: Apache-2.0
// One loop of vectors makes all sums, from arrays or straight from the elements of two tensors; it
// is compiled for each rule and for each pair of types that has a reader.
#include "measure/pair_sums.hpp"

#include <cmath>

#include "base/simd.hpp"
#include "tensor/widen.hpp"

namespace assay::measure {
namespace {

using simd::add_lanes;
using simd::f32x8;
using simd::f64x8;
using simd::largest_lane;
using simd::load;
using simd::store;
using simd::u64x8;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kLanes = 8;

/// lane_errors() below is the same, eight at a time.
template <MetricRules kRules>
[[gnu::always_inline]] inline PairErrors errors_by(double golden, double mine, double difference) {
  const double magnitude = std::fabs(golden);
  if constexpr (kRules == MetricRules::Corrected) {
    const double absolute = std::fabs(difference);
    return {absolute,
            absolute / (magnitude > kRelativeErrorFloor ? magnitude : kRelativeErrorFloor)};
  }
  if (!(magnitude > kRelativeErrorFloor)) return {0, 0};
  return {std::fabs(difference), std::fabs(to_float32(to_float32(mine / golden) - 1))};
}

[[gnu::always_inline]] inline f64x8 absolute_of(f64x8 v) {
  return (f64x8)((u64x8)v & 0x7FFFFFFFFFFFFFFFu);
}
[[gnu::always_inline]] inline f64x8 lanes_to_float32(f64x8 v) {
  return simd::to_doubles(__builtin_convertvector(v, f32x8));
}

struct Lanes {
  f64x8 golden;
  f64x8 mine;
  f64x8 difference;
};

struct LaneErrors {
  f64x8 absolute;
  f64x8 relative;
};
/// errors_by() of eight positions. `magnitude` and `safe_magnitude` are |golden| and that or the
/// floor, whichever is more.
template <MetricRules kRules>
[[gnu::always_inline]] inline LaneErrors lane_errors(const Lanes& lanes, f64x8 magnitude,
                                                     f64x8 safe_magnitude) {
  const f64x8 floor = f64x8{} + kRelativeErrorFloor;
  const f64x8 a = absolute_of(lanes.difference);
  if constexpr (kRules == MetricRules::Corrected) {
    return {a, a / safe_magnitude};
  } else {
    // The sign of m / g does not matter to |m / g - 1| once g is replaced by its magnitude and m
    // by m sign(g).
    const f64x8 signed_mine =
        (f64x8)((u64x8)lanes.mine ^ ((u64x8)lanes.golden & 0x8000000000000000u));
    const f64x8 error =
        absolute_of(lanes_to_float32(lanes_to_float32(signed_mine / safe_magnitude) - 1.0));
    return {magnitude > floor ? a : f64x8{}, magnitude > floor ? error : f64x8{}};
  }
}

/// lanes_at(i)   gives values [i, i + 8); only the rest of less than eight is read from the arrays
template <MetricRules kRules, typename LanesAt>
[[gnu::always_inline]] inline PairSums sum_by(const double* golden, const double* mine,
                                              const double* difference, int64_t count,
                                              LanesAt lanes_at) {
  f64x8 sum_g = {}, sum_m = {}, sum_gg = {}, sum_mm = {}, sum_gm = {}, sum_dd = {}, sum_a = {},
        sum_r = {};
  f64x8 max_a = {}, max_r = {};
  f64x8 min_g = f64x8{} + kInfinity, max_g = f64x8{} - kInfinity, min_m = min_g, max_m = max_g;
  f64x8 masked = {};
  const f64x8 floor = f64x8{} + kRelativeErrorFloor;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Lanes lanes = lanes_at(i);
    const auto [g, m, d] = lanes;
    const f64x8 magnitude = absolute_of(g);
    const f64x8 safe_magnitude = magnitude > floor ? magnitude : floor;
    const auto [a, r] = lane_errors<kRules>(lanes, magnitude, safe_magnitude);
    sum_g += g;
    sum_m += m;
    sum_gg += g * g;
    sum_mm += m * m;
    sum_gm += g * m;
    sum_dd += d * d;
    sum_a += a;
    sum_r += r;
    max_a = a > max_a ? a : max_a;
    max_r = r > max_r ? r : max_r;
    min_g = g < min_g ? g : min_g;
    max_g = g > max_g ? g : max_g;
    min_m = m < min_m ? m : min_m;
    max_m = m > max_m ? m : max_m;
    masked += magnitude > floor ? f64x8{} : f64x8{} + 1.0;
  }
  PairSums out;
  out.golden = add_lanes(sum_g);
  out.mine = add_lanes(sum_m);
  out.golden_squared = add_lanes(sum_gg);
  out.mine_squared = add_lanes(sum_mm);
  out.product = add_lanes(sum_gm);
  out.difference_squared = add_lanes(sum_dd);
  out.absolute = add_lanes(sum_a);
  out.relative = add_lanes(sum_r);
  out.max_absolute = largest_lane(max_a);
  out.max_relative = largest_lane(max_r);
  out.golden_min = -largest_lane(-min_g);
  out.golden_max = largest_lane(max_g);
  out.mine_min = -largest_lane(-min_m);
  out.mine_max = largest_lane(max_m);
  out.masked = static_cast<int64_t>(add_lanes(masked));
  for (; i < count; ++i) {
    const double g = golden[i];
    const double m = mine[i];
    const PairErrors errors = errors_by<kRules>(g, m, difference[i]);
    out.golden += g;
    out.mine += m;
    out.golden_squared += g * g;
    out.mine_squared += m * m;
    out.product += g * m;
    out.difference_squared += difference[i] * difference[i];
    out.absolute += errors.absolute;
    out.relative += errors.relative;
    out.max_absolute = std::max(out.max_absolute, errors.absolute);
    out.max_relative = std::max(out.max_relative, errors.relative);
    out.golden_min = std::min(out.golden_min, g);
    out.golden_max = std::max(out.golden_max, g);
    out.mine_min = std::min(out.mine_min, m);
    out.mine_max = std::max(out.mine_max, m);
    out.masked += std::fabs(g) > kRelativeErrorFloor ? 0 : 1;
  }
  out.count = count;
  return out;
}

template <MetricRules kRules>
[[gnu::always_inline]] inline PairSums sum_arrays(const double* golden, const double* mine,
                                                  const double* difference, int64_t count) {
  return sum_by<kRules>(
      golden, mine, difference, count, [=](int64_t i) __attribute__((always_inline)) {
        return Lanes{load<f64x8>(golden + i), load<f64x8>(mine + i), load<f64x8>(difference + i)};
      });
}

template <MetricRules kRules>
[[gnu::always_inline]] inline int64_t find_error_by(const PairValues& pairs,
                                                    double PairErrors::* error, double largest) {
  const f64x8 floor = f64x8{} + kRelativeErrorFloor;
  const auto is_it = [&](int64_t i) {
    const double golden = pairs.golden[i];
    const double mine = pairs.mine[i];
    return std::isfinite(golden) && std::isfinite(mine) &&
           errors_by<kRules>(golden, mine, pairs.difference[i]).*error == largest;
  };
  int64_t i = 0;
  for (; i + kLanes <= pairs.count; i += kLanes) {
    const Lanes lanes{load<f64x8>(pairs.golden + i), load<f64x8>(pairs.mine + i),
                      load<f64x8>(pairs.difference + i)};
    const f64x8 magnitude = absolute_of(lanes.golden);
    const LaneErrors errors =
        lane_errors<kRules>(lanes, magnitude, magnitude > floor ? magnitude : floor);
    const f64x8 looked_at = error == &PairErrors::absolute ? errors.absolute : errors.relative;
    if (add_lanes(looked_at == largest ? f64x8{} + 1.0 : f64x8{}) == 0) continue;
    for (int64_t lane = i; lane < i + kLanes; ++lane) {
      if (is_it(lane)) return lane;
    }
  }
  for (; i < pairs.count; ++i) {
    if (is_it(i)) return i;
  }
  return -1;
}

ASSAY_CLONES int64_t find_error_corrected(const PairValues& pairs, double PairErrors::* error,
                                          double largest) {
  return find_error_by<MetricRules::Corrected>(pairs, error, largest);
}
ASSAY_CLONES int64_t find_error_float32(const PairValues& pairs, double PairErrors::* error,
                                        double largest) {
  return find_error_by<MetricRules::Float32>(pairs, error, largest);
}

ASSAY_CLONES PairSums sum_pairs_corrected(const double* golden, const double* mine,
                                          const double* difference, int64_t count) {
  return sum_arrays<MetricRules::Corrected>(golden, mine, difference, count);
}
ASSAY_CLONES PairSums sum_pairs_float32(const double* golden, const double* mine,
                                        const double* difference, int64_t count) {
  return sum_arrays<MetricRules::Float32>(golden, mine, difference, count);
}

/// Widening, subtraction and sums in one loop: the division of the sums hides the wait for memory.
template <typename Golden, typename Mine>
[[gnu::always_inline]] inline PairSums read_and_sum(const PairRead& read) {
  // Copies: what is stored below could change what the reference names.
  const auto [golden_bytes, mine_bytes, count, golden, mine, difference] = read;
  for (int64_t i = count / kLanes * kLanes; i < count; ++i) {
    golden[i] = Golden::one(golden_bytes + i * Golden::kBytes);
    mine[i] = Mine::one(mine_bytes + i * Mine::kBytes);
    difference[i] = mine[i] - golden[i];
  }
  return sum_by<MetricRules::Corrected>(
      golden, mine, difference, count, [&](int64_t i) __attribute__((always_inline)) {
        Lanes lanes;
        lanes.golden = Golden::eight(golden_bytes + i * Golden::kBytes);
        lanes.mine = Mine::eight(mine_bytes + i * Mine::kBytes);
        lanes.difference = lanes.mine - lanes.golden;
        store(golden + i, lanes.golden);
        store(mine + i, lanes.mine);
        store(difference + i, lanes.difference);
        return lanes;
      });
}

using simd::BFloat16Elements;
using simd::Float16Elements;
using simd::Float32Elements;

ASSAY_CLONES PairSums read_float32(const PairRead& read) {
  return read_and_sum<Float32Elements, Float32Elements>(read);
}
ASSAY_CLONES PairSums read_bfloat16(const PairRead& read) {
  return read_and_sum<BFloat16Elements, BFloat16Elements>(read);
}
ASSAY_CLONES PairSums read_float16(const PairRead& read) {
  return read_and_sum<Float16Elements, Float16Elements>(read);
}
ASSAY_CLONES PairSums read_float32_and_bfloat16(const PairRead& read) {
  return read_and_sum<Float32Elements, BFloat16Elements>(read);
}
ASSAY_CLONES PairSums read_float32_and_float16(const PairRead& read) {
  return read_and_sum<Float32Elements, Float16Elements>(read);
}
ASSAY_CLONES PairSums read_bfloat16_and_float32(const PairRead& read) {
  return read_and_sum<BFloat16Elements, Float32Elements>(read);
}
ASSAY_CLONES PairSums read_float16_and_float32(const PairRead& read) {
  return read_and_sum<Float16Elements, Float32Elements>(read);
}

ASSAY_CLONES void subtract_lanes(const double* golden, const double* mine, int64_t count,
                                 double* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(out + i, load<f64x8>(mine + i) - load<f64x8>(golden + i));
  }
  for (; i < count; ++i) out[i] = mine[i] - golden[i];
}

ASSAY_CLONES void round_lanes(double* values, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(values + i, lanes_to_float32(load<f64x8>(values + i)));
  for (; i < count; ++i) values[i] = to_float32(values[i]);
}

}  // namespace

int64_t find_error(MetricRules rules, const PairValues& pairs, double PairErrors::* error,
                   double largest) {
  return rules == MetricRules::Float32 ? find_error_float32(pairs, error, largest)
                                       : find_error_corrected(pairs, error, largest);
}

PairSums sum_pairs(MetricRules rules, const double* golden, const double* mine,
                   const double* difference, int64_t count) {
  return rules == MetricRules::Float32 ? sum_pairs_float32(golden, mine, difference, count)
                                       : sum_pairs_corrected(golden, mine, difference, count);
}

double cosine_of(double golden_squared, double mine_squared, double product) {
  if (golden_squared == 0 && mine_squared == 0) return 1;
  if (golden_squared == 0 || mine_squared == 0) return 0;
  // Equal (or opposite) values have equal sums; the product of two roots would be a unit or two
  // off.
  if (golden_squared == mine_squared && std::fabs(product) == golden_squared)
    return std::copysign(1.0, product);
  return std::clamp(product / (std::sqrt(golden_squared) * std::sqrt(mine_squared)), -1.0, 1.0);
}

double cosine_like_torch(const PairSums& sums) {
  constexpr double kNormFloor = 1e-8;
  if (sums.golden_squared == 0 && sums.mine_squared == 0) return 1;
  const double cosine = sums.product / (std::max(std::sqrt(sums.golden_squared), kNormFloor) *
                                        std::max(std::sqrt(sums.mine_squared), kNormFloor));
  return std::nearbyint(cosine * 1e10) / 1e10;
}

double distance_of(double golden_squared, double difference_squared) {
  if (difference_squared == 0) return 0;
  return std::sqrt(difference_squared) / std::sqrt(golden_squared);  // +inf when golden is all zero
}

ReadPairs pair_reader(DType golden, DType mine) {
  struct Kernel {
    DType golden;
    DType mine;
    ReadPairs read;
  };
  constexpr Kernel kKernels[] = {
      {DType::Float32, DType::Float32, read_float32},
      {DType::BFloat16, DType::BFloat16, read_bfloat16},
      {DType::Float16, DType::Float16, read_float16},
      {DType::Float32, DType::BFloat16, read_float32_and_bfloat16},
      {DType::Float32, DType::Float16, read_float32_and_float16},
      {DType::BFloat16, DType::Float32, read_bfloat16_and_float32},
      {DType::Float16, DType::Float32, read_float16_and_float32},
  };
  for (const Kernel& kernel : kKernels) {
    if (kernel.golden == golden && kernel.mine == mine) return kernel.read;
  }
  return nullptr;
}

void subtract(const double* golden, const double* mine, int64_t count, double* out) {
  subtract_lanes(golden, mine, count, out);
}
void round_to_float32(double* values, int64_t count) { round_lanes(values, count); }

}  // namespace assay::measure

// SPDX-License-Identifier: Apache-2.0
// Two loops over a block, compiled for each of three formats: errors against golden as it is, and
// what is measured against golden rounded to the format, as legacy standards and units do.
#include "measure/measures_kernel.hpp"

#include <iterator>

#include "base/simd.hpp"

namespace assay::measure {
namespace {

using simd::add_lanes;
using simd::f32x8;
using simd::f64x8;
using simd::i32x8;
using simd::i64x8;
using simd::largest_lane;
using simd::load;
using simd::store;
using simd::u64x8;
typedef uint32_t u32x8 __attribute__((vector_size(32)));

constexpr int64_t kLanes = 8;
constexpr uint64_t kSign = uint64_t{1} << 63;
constexpr int kDoubleFractionBits = 52;
constexpr uint64_t kDoubleBias = 1023;

struct Half {
  static constexpr int kFractionBits = 10;
  static constexpr int kLowestExponent = -14;
  static constexpr bool kIsHalf = true;
};
struct BrainHalf {
  static constexpr int kFractionBits = 7;
  static constexpr int kLowestExponent = -126;
  static constexpr bool kIsHalf = true;
};
struct Single {
  static constexpr int kFractionBits = 23;
  static constexpr int kLowestExponent = -126;
  static constexpr bool kIsHalf = false;
};

#define ASSAY_INLINE [[gnu::always_inline]] inline

ASSAY_INLINE f64x8 magnitude_of(f64x8 v) { return (f64x8)((u64x8)v & ~kSign); }
ASSAY_INLINE f32x8 magnitude_of(f32x8 v) { return (f32x8)((u32x8)v & 0x7FFFFFFFu); }
ASSAY_INLINE f64x8 larger(f64x8 a, f64x8 b) { return a > b ? a : b; }
ASSAY_INLINE f32x8 larger(f32x8 a, f32x8 b) { return a > b ? a : b; }

/// Comparisons give -1 in lanes where they hold; counters subtract them.
template <typename Vector>
ASSAY_INLINE int64_t count_lanes(Vector v) {
  int64_t sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += static_cast<int64_t>(v[i]);
  return sum;
}

/// 2^exponent of a magnitude, as the bits of a double, but at least the format's lowest.
template <typename Format>
ASSAY_INLINE u64x8 power_bits(f64x8 magnitude) {
  const u64x8 bits = (u64x8)magnitude & (uint64_t{0x7FF} << kDoubleFractionBits);
  constexpr uint64_t kLowest =
      (kDoubleBias + static_cast<uint64_t>(int64_t{Format::kLowestExponent}))
      << kDoubleFractionBits;
  return bits > kLowest ? bits : u64x8{} + kLowest;
}
template <typename Format>
ASSAY_INLINE f64x8 unit_of(u64x8 power) {
  return (f64x8)(power - (uint64_t{Format::kFractionBits} << kDoubleFractionBits));
}
/// The nearest value of the format, halves to even: adding 1.5 * 2^52 units leaves whole units.
template <typename Format>
ASSAY_INLINE f64x8 round_magnitude(f64x8 magnitude, u64x8 power) {
  constexpr uint64_t kShift = static_cast<uint64_t>(kDoubleFractionBits - Format::kFractionBits)
                              << kDoubleFractionBits;
  const f64x8 whole_units = (f64x8)(power + kShift) * 1.5;
  return (magnitude + whole_units) - whole_units;
}

/// Number of the value among the format's values, 0 for zero; the sign does not count.
template <typename Format>
ASSAY_INLINE u32x8 place_of(f32x8 value) {
  const f32x8 magnitude = magnitude_of(value);
  if constexpr (Format::kFractionBits == Half::kFractionBits) {
    // Moved to float32's lowest exponents, subnormals become subnormals.
    return (u32x8)(magnitude * 0x1p-112f) >> 13;
  } else if constexpr (Format::kFractionBits == BrainHalf::kFractionBits) {
    return (u32x8)magnitude >> 16;
  } else {
    return (u32x8)magnitude;
  }
}

/// float32 values rounded to the format, as its arithmetic stores them.
template <typename Format>
ASSAY_INLINE f32x8 stored_as(f32x8 value) {
  if constexpr (!Format::kIsHalf) {
    return value;
  } else {
    const u32x8 bits = (u32x8)value;
    const u32x8 sign = bits & 0x80000000u;
    const u32x8 magnitude = bits & 0x7FFFFFFFu;
    constexpr uint32_t kCut = 23 - Format::kFractionBits;
    constexpr uint32_t kBelowHalf = (1u << (kCut - 1)) - 1;
    const u32x8 to_even = (magnitude >> kCut) & 1u;
    const u32x8 rounded = (magnitude + kBelowHalf + to_even) & ~((1u << kCut) - 1);
    if constexpr (Format::kFractionBits == BrainHalf::kFractionBits) {
      return (
          f32x8)(sign |
                 rounded);  // float32's exponents: subnormals and overflow come out by themselves
    } else {
      const f32x8 small = ((f32x8)magnitude + 0.75f) - 0.75f;  // subnormals: whole units of 2^-24
      const u32x8 finite = magnitude < 0x38800000u ? (u32x8)small : rounded;
      return (f32x8)(sign | (finite >= 0x47800000u ? u32x8{} + 0x7F800000u : finite));
    }
  }
}

/// Eight values; behind the end zeros on both sides, which are equal and add nothing but counts.
ASSAY_INLINE f64x8 load_padded(const double* values, int64_t left) {
  if (left >= kLanes) return load<f64x8>(values);
  alignas(64) double lanes[kLanes] = {};
  for (int64_t i = 0; i < left; ++i) lanes[i] = values[i];
  return load<f64x8>(lanes);
}

ASSAY_INLINE int64_t padding_of(int64_t count) { return (kLanes - count % kLanes) % kLanes; }

template <typename Format>
ASSAY_INLINE void measure_errors(const double* golden, const double* mine, int64_t count,
                                 const BlockLimits& limits, BlockSums* sums, Measures* out) {
  f64x8 balances{}, ratio_error{}, max_ratio{}, worst{};
  i64x8 atb{}, mixed{}, far{};
  for (int64_t i = 0; i < count; i += kLanes) {
    const f64x8 g = load_padded(golden + i, count - i);
    const f64x8 m = load_padded(mine + i, count - i);
    const f64x8 magnitude = magnitude_of(g);
    const f64x8 difference = m - g;
    const f64x8 error = magnitude_of(difference);
    const f64x8 scale = larger(magnitude, f64x8{} + 1.0);
    const f64x8 balance = difference / scale;
    const f64x8 ratio = error / (magnitude + kRatioFloor);
    balances += balance;
    ratio_error += ratio;
    max_ratio = larger(ratio, max_ratio);
    worst = larger(magnitude_of(balance), worst);
    atb -= error <= limits.atb_error * scale;
    mixed -= error <= limits.mixed_tolerance * (1.0 + magnitude);
    const f64x8 units = kMixedUnits * unit_of<Format>(power_bits<Format>(magnitude));
    far -= error > larger(units, f64x8{} + limits.mixed_floor);
  }
  sums->balance = add_lanes(balances);
  sums->ratio_error = add_lanes(ratio_error);
  sums->worst = largest_lane(worst);
  raise(largest_lane(max_ratio), &out->mare);
  // The padding counts as equal.
  const int64_t padding = padding_of(count);
  out->atb_within += count_lanes(atb) - padding;
  out->mixed_within += count_lanes(mixed) - padding;
  out->mixed_too_far += count_lanes(far);
}

template <typename Format>
ASSAY_INLINE void measure_stored(const double* golden, const double* mine, int64_t count,
                                 const BlockLimits& limits, Measures* out) {
  f64x8 max_abs{}, o1_max_abs{};
  f32x8 o4_max{}, o1_max{};
  i64x8 absolute_within{}, o1_absolute_within{};
  i32x8 o4_within{}, o1_within{};
  i32x8 at_most_0{}, at_most_1{}, at_most_2{}, at_most_4{}, at_most_8{};
  i32x8 inexact_count{}, truncated_count{}, away_count{}, away_truncated_count{};
  u64x8 away_values{};
  const auto o4_etol = static_cast<float>(limits.o4_etol);
  const auto o1_etol = static_cast<float>(limits.o1_etol);
  for (int64_t i = 0; i < count; i += kLanes) {
    const f64x8 g = load_padded(golden + i, count - i);
    const f64x8 m = load_padded(mine + i, count - i);
    const f64x8 magnitude = magnitude_of(g);
    const u64x8 golden_sign = (u64x8)g & kSign;
    const f64x8 rounded = round_magnitude<Format>(magnitude, power_bits<Format>(magnitude));
    const f64x8 stored = (f64x8)((u64x8)rounded | golden_sign);
    const f32x8 s = __builtin_convertvector(stored, f32x8);
    const f32x8 o = __builtin_convertvector(m, f32x8);

    // Legacy.
    const i64x8 counts = rounded > kMeasureEpsilon;
    const i32x8 counts32 = magnitude_of(s) > static_cast<float>(kMeasureEpsilon);
    const f32x8 quotient = o / (counts32 ? s : f32x8{} + 1.0f);
    const f32x8 o4 = magnitude_of(stored_as<Format>(stored_as<Format>(quotient) - 1.0f));
    const f32x8 o4_relative = counts32 ? o4 : f32x8{};
    o4_within -= o4_relative <= o4_etol;
    o4_max = larger(o4_relative, o4_max);
    const f64x8 from_stored = magnitude_of(m - stored);
    const f64x8 absolute = counts ? from_stored : f64x8{};
    absolute_within -= absolute <= limits.o4_etol;
    max_abs = larger(absolute, max_abs);
    o1_absolute_within -= from_stored <= limits.o1_etol;
    o1_max_abs = larger(from_stored, o1_max_abs);
    const f32x8 divisor = s == 0.0f ? f32x8{} + static_cast<float>(kO1ZeroStandIn) : s;
    o1_within -= magnitude_of((o - s) / divisor) <= o1_etol;
    o1_max = larger(counts32 ? magnitude_of(quotient - 1.0f) : f32x8{}, o1_max);

    // Units of the last place.
    const u32x8 golden_place = place_of<Format>(s);
    const u32x8 mine_place = place_of<Format>(o);
    const i32x8 other_sign = (i32x8)(((u32x8)s ^ (u32x8)o) >> 31) != 0;
    const u32x8 apart =
        golden_place > mine_place ? golden_place - mine_place : mine_place - golden_place;
    const u32x8 distance = other_sign ? golden_place + mine_place : apart;
    at_most_0 -= distance == 0u;
    at_most_1 -= distance <= 1u;
    at_most_2 -= distance <= 2u;
    at_most_4 -= distance <= 4u;
    at_most_8 -= distance <= 8u;
    if constexpr (Format::kIsHalf) {
      const i32x8 inexact = __builtin_convertvector(rounded != magnitude, i32x8);
      const i32x8 away = __builtin_convertvector(rounded > magnitude, i32x8);
      const u32x8 cut = golden_place + (u32x8)away;  // one less where golden was rounded away
      const i32x8 cut_off = inexact & (mine_place == cut) & (~other_sign | (mine_place == 0u));
      inexact_count -= inexact;
      truncated_count -= cut_off;
      away_count -= away;
      away_truncated_count -= cut_off & away;
      const u64x8 classes = (u64x8{} + 1u) << __builtin_convertvector(golden_place & 63u, u64x8);
      away_values |= classes & (u64x8) __builtin_convertvector(away, i64x8);
    }
  }
  const int64_t padding = padding_of(count);
  out->legacy_abs_within += count_lanes(absolute_within) - padding;
  out->legacy_o4_within += count_lanes(o4_within) - padding;
  out->legacy_o1_within += count_lanes(o1_within) - padding;
  out->legacy_o1_abs_within += count_lanes(o1_absolute_within) - padding;
  raise(largest_lane(max_abs), &out->legacy_max_abs);
  raise(largest_lane(o4_max), &out->legacy_o4_max_rel);
  raise(largest_lane(o1_max), &out->legacy_o1_max_rel);
  raise(largest_lane(o1_max_abs), &out->legacy_o1_max_abs);
  int64_t counted = padding;
  const i32x8 at_most[] = {at_most_0, at_most_1, at_most_2, at_most_4, at_most_8};
  for (size_t bin = 0; bin < std::size(at_most); ++bin) {
    const int64_t nearer = counted;
    counted = count_lanes(at_most[bin]);
    out->ulp_histogram[bin] += counted - nearer;
  }
  out->ulp_histogram.back() += count + padding - counted;
  out->inexact += count_lanes(inexact_count);
  out->truncated += count_lanes(truncated_count);
  out->away += count_lanes(away_count);
  out->away_truncated += count_lanes(away_truncated_count);
  for (int lane = 0; lane < kLanes; ++lane) out->away_values |= away_values[lane];
}

template <typename Format>
ASSAY_INLINE void measure_format(const double* golden, const double* mine, int64_t count,
                                 const BlockLimits& limits, BlockSums* sums, Measures* out) {
  measure_errors<Format>(golden, mine, count, limits, sums, out);
  measure_stored<Format>(golden, mine, count, limits, out);
}

ASSAY_CLONES void measure_half(const Block& block, const BlockLimits& limits, BlockSums* sums,
                               Measures* out) {
  return measure_format<Half>(block.golden, block.mine, block.count, limits, sums, out);
}
ASSAY_CLONES void measure_brain_half(const Block& block, const BlockLimits& limits, BlockSums* sums,
                                     Measures* out) {
  return measure_format<BrainHalf>(block.golden, block.mine, block.count, limits, sums, out);
}
ASSAY_CLONES void measure_single(const Block& block, const BlockLimits& limits, BlockSums* sums,
                                 Measures* out) {
  return measure_format<Single>(block.golden, block.mine, block.count, limits, sums, out);
}

}  // namespace

void measure_block(const Block& block, const BlockLimits& limits, BlockSums* sums, Measures* out) {
  const auto measure = out->dtype == DType::Float16    ? measure_half
                       : out->dtype == DType::BFloat16 ? measure_brain_half
                                                       : measure_single;
  measure(block, limits, sums, out);
}

}  // namespace assay::measure

// SPDX-License-Identifier: Apache-2.0
// The loops of the statistics of one block, as templates over how elements are loaded:
// block_stats.cpp makes kernels of them for floating point, block_stats_integer.cpp for integers.
//
// Each kernel exists twice in one template: the fast form, which assumes finite values, and the
// masked form, which leaves NaN and infinities out and counts them. A square of a float32 or an
// integer cannot overflow a double, so the sum of squares of the fast form is finite exactly when
// every value was; if it is not, the masked form runs.
#pragma once
#include <cmath>
#include <cstring>

#include "base/simd.hpp"
#include "stats/block_stats.hpp"
#include "tensor/half.hpp"
#include "tensor/widen.hpp"

namespace assay::stats::kernels {

using simd::f32x16;
using simd::f32x8;
using simd::f64x8;
using simd::i32x8;
using simd::i64x8;
using simd::load;
using simd::u16x16;
using simd::u32x16;
using simd::u64x8;

typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef int8_t i8x8 __attribute__((vector_size(8)));
typedef uint8_t u8x8 __attribute__((vector_size(8)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef double f64x4 __attribute__((vector_size(32)));
typedef double f64x2 __attribute__((vector_size(16)));

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Lanes added in a fixed tree, so that the order does not depend on the instruction set.
[[gnu::always_inline]] inline double reduce_sum(f64x8 v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

template <typename Half, typename Full>
[[gnu::always_inline]] inline Half lower_of(Full v) {
  Half halves[2];
  std::memcpy(halves, &v, sizeof(v));
  return halves[0] < halves[1] ? halves[0] : halves[1];
}
[[gnu::always_inline]] inline double reduce_min(f32x16 v) {
  const f32x4 quarter = lower_of<f32x4>(lower_of<f32x8>(v));
  const float first = quarter[0] < quarter[1] ? quarter[0] : quarter[1];
  const float second = quarter[2] < quarter[3] ? quarter[2] : quarter[3];
  return static_cast<double>(first < second ? first : second);
}
[[gnu::always_inline]] inline double reduce_min(f64x8 v) {
  const f64x2 quarter = lower_of<f64x2>(lower_of<f64x4>(v));
  return quarter[0] < quarter[1] ? quarter[0] : quarter[1];
}
template <typename Vector>
[[gnu::always_inline]] inline double reduce_max(Vector v) {
  return -reduce_min(-v);
}

// ---- Types that widen to float32: extremes in 16 float lanes, sums in 8 double lanes ------------

struct FloatPair {
  f32x16 first;
  f32x16 second;
};

struct LoadFloat32 {
  static constexpr int64_t kSize = 4;
  static constexpr bool kPairs = false;
  [[gnu::always_inline]] static FloatPair load32(const std::byte* p) {
    return {load<f32x16>(p), load<f32x16>(p + 64)};
  }
  static float load1(const std::byte* p) { return load<float>(p); }
};

struct LoadBFloat16 {
  static constexpr int64_t kSize = 2;
  static constexpr bool kPairs = true;
  // Even and odd elements: a shift and a mask instead of a shuffle. The order of a sum's lanes is
  // ours to choose.
  [[gnu::always_inline]] static FloatPair load32(const std::byte* p) {
    const u32x16 pairs = load<u32x16>(p);
    return {(f32x16)(pairs << 16), (f32x16)(pairs & 0xFFFF0000u)};
  }
  static float load1(const std::byte* p) { return bfloat16_to_float(load<uint16_t>(p)); }
};

struct LoadFloat16 {
  static constexpr int64_t kSize = 2;
  static constexpr bool kPairs = true;
  [[gnu::always_inline]] static FloatPair load32(const std::byte* p) {
    const u32x16 pairs = load<u32x16>(p);
    return {simd::widen_float16(pairs & 0xFFFFu), simd::widen_float16(pairs >> 16)};
  }
  static float load1(const std::byte* p) { return float16_to_float(load<uint16_t>(p)); }
};

/// Values of a sketch group that count against the others of their bucket: the second sixteen of
/// four.
inline constexpr int kNegativeSixteen = 1;

/// Two sums for each of sixteen buckets: of the values with the sign of their bucket, and of those
/// against it. Their sum is needed anyway, so the sketch costs an exchange where the sign of a
/// bucket changes.
///
/// kStep, kSecond  lane j of vector k is bucket kStep * j + kSecond * k
template <int kStep, int kSecond>
struct SketchSums {
  f64x8 along[2] = {};
  f64x8 against[2] = {};
  uint64_t signs = 0;  // bit l: the sign of bucket l is negative

  template <int kVector>
  [[gnu::always_inline]] static u64x8 bits() {
    constexpr uint64_t kFirst = uint64_t{1} << (kSecond * kVector);
    return u64x8{kFirst,
                 kFirst << kStep,
                 kFirst << (2 * kStep),
                 kFirst << (3 * kStep),
                 kFirst << (4 * kStep),
                 kFirst << (5 * kStep),
                 kFirst << (6 * kStep),
                 kFirst << (7 * kStep)};
  }
  template <int kVector>
  [[gnu::always_inline]] void exchange(uint64_t buckets) {
    const auto chosen = ((u64x8{} + buckets) & bits<kVector>()) != 0;
    const f64x8 before = along[kVector];
    along[kVector] = chosen ? against[kVector] : before;
    against[kVector] = chosen ? before : against[kVector];
  }
  [[gnu::always_inline]] void begin_group(uint64_t group) {
    const uint64_t next = sketch_signs(group);
    exchange<0>(next ^ signs);
    exchange<1>(next ^ signs);
    signs = next;
  }
  /// Eight values: vector k of a sixteen of the group.
  template <int kSixteen>
  [[gnu::always_inline]] void add(int k, f64x8 values) {
    if constexpr (kSixteen == kNegativeSixteen) {
      against[k] += values;
    } else {
      along[k] += values;
    }
  }
  [[gnu::always_inline]] void finish(BlockStats* out) const {
    out->sum = reduce_sum((along[0] + along[1]) + (against[0] + against[1]));
    finish_vector<0>(out);
    finish_vector<1>(out);
  }

 private:
  template <int kVector>
  [[gnu::always_inline]] void finish_vector(BlockStats* out) const {
    const auto negative = ((u64x8{} + signs) & bits<kVector>()) != 0;
    const f64x8 difference = along[kVector] - against[kVector];
    const f64x8 sketch = negative ? -difference : difference;
    for (int j = 0; j < 8; ++j) out->sketch[kStep * j + kSecond * kVector] = sketch[j];
  }
};

template <typename Load, bool kMasked>
struct FloatAccumulator {
  // Neighbours in pairs: vector k holds the even or odd values of 16. Otherwise the first or last
  // eight.
  SketchSums<Load::kPairs ? 2 : 1, Load::kPairs ? 1 : 8> sums;
  f64x8 squares[4] = {};
  f32x16 minima[2];
  f32x16 maxima[2];
  int64_t nan_count = 0;
  int64_t positive_inf_count = 0;
  int64_t negative_inf_count = 0;

  [[gnu::always_inline]] FloatAccumulator() {
    for (int i = 0; i < 2; ++i) {
      minima[i] = f32x16{} + std::numeric_limits<float>::infinity();
      maxima[i] = f32x16{} - std::numeric_limits<float>::infinity();
    }
  }

  static constexpr uint32_t kExponent = 0x7F800000u;
  [[gnu::always_inline]] static u32x16 exponent_of(f32x16 v) { return (u32x16)v & kExponent; }

  template <int kSlot>
  [[gnu::always_inline]] void add_extremes(f32x16 v) {
    f32x16 low = v;
    f32x16 high = v;
    if constexpr (kMasked) {
      const f32x16 infinity = f32x16{} + std::numeric_limits<float>::infinity();
      low = exponent_of(v) != kExponent ? v : infinity;
      high = exponent_of(v) != kExponent ? v : -infinity;
    }
    minima[kSlot] = low < minima[kSlot] ? low : minima[kSlot];
    maxima[kSlot] = high > maxima[kSlot] ? high : maxima[kSlot];
  }

  /// kHalf  which 32 values of the sketch group; kSlot  which vector of these
  template <int kHalf, int kSlot>
  [[gnu::always_inline]] void add_sums(f32x16 v) {
    if constexpr (kMasked) {
      for (int i = 0; i < 16; ++i) {
        if (std::isfinite(v[i])) continue;
        if (std::isnan(v[i]))
          ++nan_count;
        else if (v[i] > 0)
          ++positive_inf_count;
        else
          ++negative_inf_count;
      }
      v = exponent_of(v) != kExponent ? v : f32x16{};
    }
    f32x8 halves[2];
    std::memcpy(halves, &v, sizeof(v));
    const f64x8 first = __builtin_convertvector(halves[0], f64x8);
    const f64x8 second = __builtin_convertvector(halves[1], f64x8);
    if constexpr (Load::kPairs) {
      sums.template add<2 * kHalf>(kSlot, first);
      sums.template add<2 * kHalf + 1>(kSlot, second);
    } else {
      sums.template add<2 * kHalf + kSlot>(0, first);
      sums.template add<2 * kHalf + kSlot>(1, second);
    }
    squares[2 * kSlot] += first * first;
    squares[2 * kSlot + 1] += second * second;
  }
  template <int kHalf>
  [[gnu::always_inline]] void add(const FloatPair& extremes, const FloatPair& v) {
    add_extremes<0>(extremes.first);
    add_extremes<1>(extremes.second);
    add_sums<kHalf, 0>(v.first);
    add_sums<kHalf, 1>(v.second);
  }

  [[gnu::always_inline]] BlockStats finish() const {
    BlockStats out;
    sums.finish(&out);
    out.sum_of_squares = reduce_sum((squares[0] + squares[1]) + (squares[2] + squares[3]));
    out.min = reduce_min(minima[0] < minima[1] ? minima[0] : minima[1]);
    out.max = reduce_max(maxima[0] > maxima[1] ? maxima[0] : maxima[1]);
    out.nan_count = nan_count;
    out.positive_inf_count = positive_inf_count;
    out.negative_inf_count = negative_inf_count;
    return out;
  }
};

/// Up to 32 values, padded to as many.
struct PaddedFloats {
  FloatPair for_sums;      // with zeros
  FloatPair for_extremes;  // with the last one
};
template <typename Load>
[[gnu::always_inline]] inline PaddedFloats load_rest(const std::byte* elements, int64_t count) {
  alignas(64) float for_sums[32] = {};
  alignas(64) float for_extremes[32];
  const float last = Load::load1(elements + (count - 1) * Load::kSize);
  for (float& value : for_extremes) value = last;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = Load::kPairs ? (i % 2) * 16 + i / 2 : i;
    for_sums[place] = for_extremes[place] = Load::load1(elements + i * Load::kSize);
  }
  return {{load<f32x16>(for_sums), load<f32x16>(for_sums + 16)},
          {load<f32x16>(for_extremes), load<f32x16>(for_extremes + 16)}};
}

template <typename Load, bool kMasked>
[[gnu::always_inline]] inline BlockStats float_block(const std::byte* elements, int64_t count,
                                                     uint64_t group) {
  FloatAccumulator<Load, kMasked> acc;
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    acc.sums.begin_group(group++);
    const FloatPair first = Load::load32(elements + i * Load::kSize);
    acc.template add<0>(first, first);
    const FloatPair second = Load::load32(elements + (i + 32) * Load::kSize);
    acc.template add<1>(second, second);
  }
  if (i < count) {
    acc.sums.begin_group(group);
    const int64_t rest = count - i;
    const PaddedFloats first = load_rest<Load>(elements + i * Load::kSize, rest < 32 ? rest : 32);
    acc.template add<0>(first.for_extremes, first.for_sums);
    if (rest > 32) {
      const PaddedFloats second = load_rest<Load>(elements + (i + 32) * Load::kSize, rest - 32);
      acc.template add<1>(second.for_extremes, second.for_sums);
    }
  }
  return acc.finish();
}

// ---- Types that widen to float64 ----------------------------------------------------------------

template <typename T, typename Vector>
struct LoadWide {
  static constexpr int64_t kSize = sizeof(T);
  [[gnu::always_inline]] static f64x8 load8(const std::byte* p) {
    return __builtin_convertvector(load<Vector>(p), f64x8);
  }
  static double load1(const std::byte* p) { return static_cast<double>(load<T>(p)); }
};
struct LoadFloat64 {
  static constexpr int64_t kSize = 8;
  [[gnu::always_inline]] static f64x8 load8(const std::byte* p) { return load<f64x8>(p); }
  static double load1(const std::byte* p) { return load<double>(p); }
};

struct LoadBool {
  static constexpr int64_t kSize = 1;
  [[gnu::always_inline]] static f64x8 load8(const std::byte* p) {
    return __builtin_convertvector(load<u8x8>(p) != 0 ? u8x8{} + uint8_t{1} : u8x8{}, f64x8);
  }
  static double load1(const std::byte* p) { return *p != std::byte{0} ? 1 : 0; }
};

template <bool kMasked>
struct DoubleAccumulator {
  f64x8 scale;
  SketchSums<1, 8> sums;
  f64x8 squares[2] = {};
  f64x8 minima[2];
  f64x8 maxima[2];
  int64_t nan_count = 0;
  int64_t positive_inf_count = 0;
  int64_t negative_inf_count = 0;

  [[gnu::always_inline]] explicit DoubleAccumulator(double factor) {
    scale = f64x8{} + factor;
    for (int i = 0; i < 2; ++i) {
      minima[i] = f64x8{} + kInfinity;
      maxima[i] = f64x8{} - kInfinity;
    }
  }
  static constexpr uint64_t kExponent = 0x7FF0000000000000u;
  [[gnu::always_inline]] static u64x8 exponent_of(f64x8 v) { return (u64x8)v & kExponent; }
  template <int kSlot>
  [[gnu::always_inline]] void add_extremes(f64x8 v) {
    f64x8 low = v;
    f64x8 high = v;
    if constexpr (kMasked) {
      const f64x8 infinity = f64x8{} + kInfinity;
      low = exponent_of(v) != kExponent ? v : infinity;
      high = exponent_of(v) != kExponent ? v : -infinity;
    }
    minima[kSlot] = low < minima[kSlot] ? low : minima[kSlot];
    maxima[kSlot] = high > maxima[kSlot] ? high : maxima[kSlot];
  }
  template <int kSixteen, int kSlot>
  [[gnu::always_inline]] void add_sums(f64x8 v) {
    if constexpr (kMasked) {
      for (int i = 0; i < 8; ++i) {
        if (std::isfinite(v[i])) continue;
        if (std::isnan(v[i]))
          ++nan_count;
        else if (v[i] > 0)
          ++positive_inf_count;
        else
          ++negative_inf_count;
      }
      v = exponent_of(v) != kExponent ? v * scale : f64x8{};
    }
    sums.template add<kSixteen>(kSlot, v);
    squares[kSlot] += v * v;
  }
  template <int kSixteen>
  [[gnu::always_inline]] void add(const f64x8 (&extremes)[2], const f64x8 (&values)[2]) {
    add_extremes<0>(extremes[0]);
    add_extremes<1>(extremes[1]);
    add_sums<kSixteen, 0>(values[0]);
    add_sums<kSixteen, 1>(values[1]);
  }
  /// For a number of the sixteen that is known at run time.
  [[gnu::always_inline]] void add_to(int64_t sixteen, const f64x8 (&extremes)[2],
                                     const f64x8 (&values)[2]) {
    if (sixteen == kNegativeSixteen) {
      add<kNegativeSixteen>(extremes, values);
    } else {
      add<0>(extremes, values);
    }
  }
  [[gnu::always_inline]] BlockStats finish() const {
    BlockStats out;
    sums.finish(&out);
    out.sum_of_squares = reduce_sum(squares[0] + squares[1]);
    out.min = reduce_min(minima[0] < minima[1] ? minima[0] : minima[1]);
    out.max = reduce_max(maxima[0] > maxima[1] ? maxima[0] : maxima[1]);
    out.nan_count = nan_count;
    out.positive_inf_count = positive_inf_count;
    out.negative_inf_count = negative_inf_count;
    return out;
  }
};

template <typename Load>
[[gnu::always_inline]] inline void load16(const std::byte* p, f64x8 (&out)[2]) {
  out[0] = Load::load8(p);
  out[1] = Load::load8(p + 8 * Load::kSize);
}

template <typename Load, bool kMasked>
[[gnu::always_inline]] inline BlockStats double_block(const std::byte* elements, int64_t count,
                                                      uint64_t group, double scale) {
  DoubleAccumulator<kMasked> acc(scale);
  const auto add_sixteen = [&]<int kSixteen>(const std::byte* p) __attribute__((always_inline)) {
    f64x8 values[2];
    load16<Load>(p + 16 * kSixteen * Load::kSize, values);
    acc.template add<kSixteen>(values, values);
  };
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    acc.sums.begin_group(group++);
    const std::byte* p = elements + i * Load::kSize;
    add_sixteen.template operator()<0>(p);
    add_sixteen.template operator()<1>(p);
    add_sixteen.template operator()<2>(p);
    add_sixteen.template operator()<3>(p);
  }
  if (i == count) return acc.finish();
  acc.sums.begin_group(group);
  f64x8 values[2];
  for (; i + 16 <= count; i += 16) {
    load16<Load>(elements + i * Load::kSize, values);
    acc.add_to(i / 16 % 4, values, values);
  }
  if (i < count) {
    alignas(64) double for_sums[16] = {};
    alignas(64) double for_extremes[16];
    const double last = Load::load1(elements + (count - 1) * Load::kSize);
    for (double& value : for_extremes) value = last;
    for (int64_t k = i; k < count; ++k) {
      for_sums[k - i] = for_extremes[k - i] = Load::load1(elements + k * Load::kSize);
    }
    load16<LoadFloat64>(reinterpret_cast<const std::byte*>(for_sums), values);
    f64x8 extremes[2];
    load16<LoadFloat64>(reinterpret_cast<const std::byte*>(for_extremes), extremes);
    acc.add_to(i / 16 % 4, extremes, values);
  }
  return acc.finish();
}

}  // namespace assay::stats::kernels

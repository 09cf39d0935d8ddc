// SPDX-License-Identifier: Apache-2.0
// Vector types of the compiler, and run-time choice of the instruction set: the whole of our SIMD
// layer.
//
// A kernel is written once with f64x8 and friends inside a function marked ASSAY_CLONES; the
// compiler emits it for AVX-512, AVX2 and the baseline and picks one at load time. The arithmetic
// is element by element in all of them and
// -ffp-contract=off keeps multiply-adds separate, so every clone returns the same bits.
#pragma once
#include <cstdint>
#include <cstring>

namespace assay::simd {

typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x16 __attribute__((vector_size(64)));
typedef double f64x8 __attribute__((vector_size(64)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef int64_t i64x8 __attribute__((vector_size(64)));
typedef uint64_t u64x8 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x32 __attribute__((vector_size(64)));

/// Loads a vector from memory of any alignment.
template <typename Vector>
[[gnu::always_inline]] inline Vector load(const void* source) {
  Vector value;
  std::memcpy(&value, source, sizeof(value));
  return value;
}
template <typename Vector>
[[gnu::always_inline]] inline void store(void* target, Vector value) {
  std::memcpy(target, &value, sizeof(value));
}

/// The sum of the lanes in a fixed order: halves, quarters, neighbours.
[[gnu::always_inline]] inline double add_lanes(f64x8 v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
template <typename Vector>
[[gnu::always_inline]] inline double largest_lane(Vector v) {
  constexpr int kLanes = sizeof(Vector) / sizeof(v[0]);
  double largest = static_cast<double>(v[0]);
  for (int i = 1; i < kLanes; ++i) {
    const auto lane = static_cast<double>(v[i]);
    largest = lane > largest ? lane : largest;
  }
  return largest;
}

}  // namespace assay::simd

// The resolvers of target_clones run before a sanitizer's runtime is ready, so sanitized builds use
// the baseline.
#if defined(__x86_64__) && !defined(ASSAY_SANITIZED) && defined(__GNUC__) && !defined(__clang__)
#define ASSAY_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ASSAY_CLONES
#endif

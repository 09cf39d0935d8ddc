// SPDX-License-Identifier: Apache-2.0
// Kernels of the floating-point types and of those that a table of 256 bytes serves, and the choice
// of a kernel.
#include <array>

#include "stats/block_kernels.hpp"

namespace assay::stats {
namespace {

using namespace kernels;

// ---- One clone family per type ------------------------------------------------------------------

#define ASSAY_FLOAT_KERNEL(function, loader)                                                     \
  ASSAY_CLONES BlockStats function##_fast(const std::byte* elements, int64_t count,              \
                                          uint64_t group) {                                      \
    return float_block<loader, false>(elements, count, group);                                   \
  }                                                                                              \
  ASSAY_CLONES BlockStats function##_masked(const std::byte* elements, int64_t count,            \
                                            uint64_t group) {                                    \
    return float_block<loader, true>(elements, count, group);                                    \
  }                                                                                              \
  BlockStats function(const std::byte* elements, int64_t count, uint64_t group) {                \
    BlockStats stats = function##_fast(elements, count, group);                                  \
    if (!std::isfinite(stats.sum_of_squares)) stats = function##_masked(elements, count, group); \
    return stats;                                                                                \
  }

ASSAY_FLOAT_KERNEL(float32_block, LoadFloat32)
ASSAY_FLOAT_KERNEL(bfloat16_block, LoadBFloat16)
ASSAY_FLOAT_KERNEL(float16_block, LoadFloat16)
#undef ASSAY_FLOAT_KERNEL

ASSAY_CLONES BlockStats float64_fast(const std::byte* elements, int64_t count, uint64_t group) {
  return double_block<LoadFloat64, false>(elements, count, group, 1.0);
}
ASSAY_CLONES BlockStats float64_masked(const std::byte* elements, int64_t count, uint64_t group,
                                       double scale) {
  return double_block<LoadFloat64, true>(elements, count, group, scale);
}
BlockStats float64_block(const std::byte* elements, int64_t count, uint64_t group) {
  BlockStats stats = float64_fast(elements, count, group);
  if (!std::isfinite(stats.sum_of_squares)) stats = float64_masked(elements, count, group, 1.0);
  return stats;
}

// ---- Small floats and packed types: count how often each byte occurs, then weigh the 256 possible
// values --------------------------------

/// The numbers one byte stands for: `count` of them, all of one type.
struct ByteValues {
  int count;
  float values[8];
};

template <DType kDType>
ByteValues byte_values(uint8_t byte) {
  const auto unpack = [byte](int bits) {
    ByteValues out{8 / bits, {}};
    for (int i = 0; i < out.count; ++i) {
      out.values[i] = static_cast<float>((byte >> (i * bits)) & ((1 << bits) - 1));
    }
    return out;
  };
  switch (kDType) {
    case DType::Float8E4M3FN:
      return {1, {float8_e4m3fn_to_float(byte)}};
    case DType::Float8E5M2:
      return {1, {float8_e5m2_to_float(byte)}};
    case DType::Float8E4M3FNUZ:
      return {1, {float8_e4m3fnuz_to_float(byte)}};
    case DType::Float8E5M2FNUZ:
      return {1, {float8_e5m2fnuz_to_float(byte)}};
    case DType::Float8E8M0FNU:
      return {1, {float8_e8m0fnu_to_float(byte)}};
    case DType::HiFloat8:
      return {1, {hifloat8_to_float(byte)}};
    case DType::Float4E2M1FNx2:
      return {2, {float4_e2m1fn_to_float(byte & 15), float4_e2m1fn_to_float(byte >> 4)}};
    case DType::QUInt4x2:
      return unpack(4);
    case DType::QUInt2x4:
      return unpack(2);
    default:
      return {1, {static_cast<float>(byte)}};
  }
}

void add_value(BlockStats& stats, float value, int64_t times) {
  const double wide = static_cast<double>(value);
  if (std::isnan(wide)) {
    stats.nan_count += times;
  } else if (std::isinf(wide)) {
    (wide > 0 ? stats.positive_inf_count : stats.negative_inf_count) += times;
  } else {
    const auto weight = static_cast<double>(times);
    stats.sum += wide * weight;
    stats.sum_of_squares += wide * wide * weight;
    if (wide < stats.min) stats.min = wide;
    if (wide > stats.max) stats.max = wide;
  }
}

/// A table is filled once per type; below this many bytes counting costs more than adding.
constexpr int64_t kMinHistogramBytes = 1024;

template <DType kDType>
BlockStats byte_block(const std::byte* elements, int64_t count, uint64_t /*group*/) {
  static const std::array<ByteValues, 256> table = [] {
    std::array<ByteValues, 256> values{};
    for (size_t i = 0; i < 256; ++i) values[i] = byte_values<kDType>(static_cast<uint8_t>(i));
    return values;
  }();
  BlockStats stats;
  if (count < kMinHistogramBytes) {
    for (int64_t i = 0; i < count; ++i) {
      const ByteValues& entry = table[static_cast<uint8_t>(elements[i])];
      for (int k = 0; k < entry.count; ++k) add_value(stats, entry.values[k], 1);
    }
    return stats;
  }
  // Four histograms side by side: equal neighbours would otherwise wait for each other's increment.
  uint32_t histogram[4][256] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const auto bytes = load<uint64_t>(elements + i);
    ++histogram[0][bytes & 0xFFu];
    ++histogram[1][(bytes >> 8) & 0xFFu];
    ++histogram[2][(bytes >> 16) & 0xFFu];
    ++histogram[3][(bytes >> 24) & 0xFFu];
    ++histogram[0][(bytes >> 32) & 0xFFu];
    ++histogram[1][(bytes >> 40) & 0xFFu];
    ++histogram[2][(bytes >> 48) & 0xFFu];
    ++histogram[3][bytes >> 56];
  }
  for (; i < count; ++i) ++histogram[0][static_cast<uint8_t>(elements[i])];
  for (size_t byte = 0; byte < 256; ++byte) {
    const int64_t times =
        int64_t{histogram[0][byte]} + histogram[1][byte] + histogram[2][byte] + histogram[3][byte];
    if (times == 0) continue;
    for (int k = 0; k < table[byte].count; ++k) add_value(stats, table[byte].values[k], times);
  }
  return stats;
}

}  // namespace

BlockKernel block_kernel(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return float64_block;
    case DType::Float32:
      return float32_block;
    case DType::Float16:
      return float16_block;
    case DType::BFloat16:
      return bfloat16_block;
    case DType::Float8E4M3FN:
      return byte_block<DType::Float8E4M3FN>;
    case DType::Float8E5M2:
      return byte_block<DType::Float8E5M2>;
    case DType::Float8E4M3FNUZ:
      return byte_block<DType::Float8E4M3FNUZ>;
    case DType::Float8E5M2FNUZ:
      return byte_block<DType::Float8E5M2FNUZ>;
    case DType::Float8E8M0FNU:
      return byte_block<DType::Float8E8M0FNU>;
    case DType::HiFloat8:
      return byte_block<DType::HiFloat8>;
    case DType::Float4E2M1FNx2:
      return byte_block<DType::Float4E2M1FNx2>;
    case DType::QUInt4x2:
      return byte_block<DType::QUInt4x2>;
    case DType::QUInt2x4:
      return byte_block<DType::QUInt2x4>;
    case DType::Int8:
    case DType::QInt8:
    case DType::UInt8:
    case DType::QUInt8:
    case DType::Bool:
    case DType::Int64:
    case DType::UInt64:
    case DType::Int32:
    case DType::QInt32:
    case DType::UInt32:
    case DType::Int16:
    case DType::UInt16:
      return integer_kernel(dtype);
    case DType::Complex128:
    case DType::Complex64:
    case DType::Complex32:
    case DType::Int4:
    case DType::UInt4:
    case DType::Bits8:
    case DType::Bits16:
    case DType::Bits1x8:
    case DType::Bits2x4:
    case DType::Bits4x2:
      return nullptr;
  }
  return nullptr;
}

bool has_sketch(DType dtype) {
  switch (dtype) {
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
    case DType::Float8E4M3FNUZ:
    case DType::Float8E5M2FNUZ:
    case DType::Float8E8M0FNU:
    case DType::HiFloat8:
    case DType::Float4E2M1FNx2:
    case DType::QUInt4x2:
    case DType::QUInt2x4:
      return false;
    default:
      return info(dtype).kind != DTypeKind::Bits;
  }
}

BlockStats scaled_float64_block(const std::byte* elements, int64_t count, uint64_t group,
                                double scale) {
  return float64_masked(elements, count, group, scale);
}

}  // namespace assay::stats

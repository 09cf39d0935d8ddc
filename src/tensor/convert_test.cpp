// SPDX-License-Identifier: Apache-2.0
#include "tensor/convert.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <numeric>
#include <set>
#include <vector>

#include "tensor/half.hpp"

namespace assay {
namespace {

std::vector<double> values_of(const TensorView& view) {
  const int64_t count = view.element_count();
  std::vector<double> out(static_cast<size_t>(count * values_per_element(view.dtype)));
  read_values(view, 0, count, out);
  return out;
}

template <typename T>
ByteSpan bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <typename T>
std::vector<double> values_of(DType dtype, const std::vector<T>& storage, const Dims& shape) {
  return values_of(*make_view(dtype, shape, bytes_of(storage)));
}

/// FNV-1a over the float32 bytes of the values, every NaN as 0x7FC00000.
uint64_t fnv_of_floats(const std::vector<double>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const double value : values) {
    const uint32_t bits =
        std::isnan(value) ? 0x7FC00000u : std::bit_cast<uint32_t>(static_cast<float>(value));
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((bits >> shift) & 0xFFu)) * 0x100000001b3u;
    }
  }
  return hash;
}

template <typename T>
std::vector<T> all_patterns() {
  std::vector<T> patterns(size_t{1} << (8 * sizeof(T)));
  std::iota(patterns.begin(), patterns.end(), T{0});
  return patterns;
}

// Hashes of torch 2.13: arange(256).to(uint8).view(dtype).to(float32), and the same over 65536
// patterns of the 16-bit types (float16 gave the same hash in NumPy).
TEST(ReadValues, AgreesWithTorchOnEveryBitPattern) {
  const auto bytes = all_patterns<uint8_t>();
  const auto words = all_patterns<uint16_t>();
  const auto hash8 = [&](DType dtype) { return fnv_of_floats(values_of(dtype, bytes, {256})); };
  const auto hash16 = [&](DType dtype) { return fnv_of_floats(values_of(dtype, words, {65536})); };
  EXPECT_EQ(hash8(DType::Float8E4M3FN), 0xdad1d9c50f749ca5u);
  EXPECT_EQ(hash8(DType::Float8E5M2), 0x6c1e56b6fb09c905u);
  EXPECT_EQ(hash8(DType::Float8E4M3FNUZ), 0xf51851cb11c63018u);
  EXPECT_EQ(hash8(DType::Float8E5M2FNUZ), 0x94ae6fc493d49818u);
  EXPECT_EQ(hash8(DType::Float8E8M0FNU), 0x6d2c8b41c3f0e5a5u);
  EXPECT_EQ(hash16(DType::Float16), 0x1f87f165810ea7c5u);
  EXPECT_EQ(hash16(DType::BFloat16), 0xcf8e09175d8f5ba5u);
}

// arXiv 2409.16626: 38 exponents from -22 to 15, one zero, one NaN, two infinities, largest value
// 2^15.
TEST(ReadValues, DecodesHiFloat8AsPublished) {
  const auto values = values_of(DType::HiFloat8, all_patterns<uint8_t>(), {256});
  std::set<int> exponents;
  std::set<double> distinct;
  int nan_count = 0;
  for (const double value : values) {
    if (std::isnan(value)) ++nan_count;
    if (!std::isfinite(value)) continue;
    distinct.insert(value);
    if (value != 0) exponents.insert(std::ilogb(value));
  }
  EXPECT_EQ(nan_count, 1);
  EXPECT_EQ(exponents.size(), 38u);
  EXPECT_EQ(*exponents.begin(), -22);
  EXPECT_EQ(*exponents.rbegin(), 15);
  EXPECT_EQ(distinct.size(), 253u);  // no two patterns share a value
  EXPECT_EQ(values[0x6E], 0x1p15);
  EXPECT_TRUE(std::isinf(values[0x6F]));
  EXPECT_LT(values[0xEF], 0);
  EXPECT_EQ(values[0x01], 0x1p-22);
  EXPECT_EQ(values[0x08], 1.0);        // 0 0001 000
  EXPECT_EQ(values[0x0F], 1.875);      // 0 0001 111
  EXPECT_EQ(values[0x10], 2.0);        // 0 001 0 000
  EXPECT_EQ(values[0x18], 0.5);        // 0 001 1 000
  EXPECT_EQ(values[0x29], 8 * 1.125);  // 0 01 01 001: exponent +3
}

TEST(ReadValues, UnpacksSubByteTypesLowBitsFirst) {
  EXPECT_EQ(values_of(DType::Int4, std::vector<uint8_t>{0x8F, 0x07}, {3}),
            (std::vector<double>{-1, -8, 7}));
  EXPECT_EQ(values_of(DType::UInt4, std::vector<uint8_t>{0x8F, 0x07}, {3}),
            (std::vector<double>{15, 8, 7}));
  EXPECT_EQ(values_of(DType::Float4E2M1FNx2, std::vector<uint8_t>{0x79}, {1}),
            (std::vector<double>{-0.5, 6}));
  EXPECT_EQ(values_of(DType::QUInt4x2, std::vector<uint8_t>{0x2A}, {1}),
            (std::vector<double>{10, 2}));
  EXPECT_EQ(values_of(DType::QUInt2x4, std::vector<uint8_t>{0b11'10'01'00}, {1}),
            (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(values_of(DType::Bits1x8, std::vector<uint8_t>{0b10000001}, {1}),
            (std::vector<double>{1, 0, 0, 0, 0, 0, 0, 1}));
}

TEST(ReadValues, ReadsNumbersOfEveryWidth) {
  EXPECT_EQ(values_of(DType::Int64, std::vector<int64_t>{INT64_MIN, (int64_t{1} << 53) + 1}, {2}),
            (std::vector<double>{-0x1p63, 0x1p53}));
  EXPECT_EQ(values_of(DType::UInt64, std::vector<uint64_t>{UINT64_MAX}, {1}),
            (std::vector<double>{0x1p64}));
  EXPECT_EQ(values_of(DType::Int32, std::vector<int32_t>{INT32_MIN}, {1}),
            (std::vector<double>{-0x1p31}));
  EXPECT_EQ(values_of(DType::UInt32, std::vector<uint32_t>{UINT32_MAX}, {}),
            (std::vector<double>{4294967295.0}));
  EXPECT_EQ(values_of(DType::Int16, std::vector<int16_t>{-5}, {1}), (std::vector<double>{-5}));
  EXPECT_EQ(values_of(DType::UInt16, std::vector<uint16_t>{65535}, {1}),
            (std::vector<double>{65535}));
  EXPECT_EQ(values_of(DType::Int8, std::vector<uint8_t>{0x80}, {1}), (std::vector<double>{-128}));
  EXPECT_EQ(values_of(DType::UInt8, std::vector<uint8_t>{0x80}, {1}), (std::vector<double>{128}));
  EXPECT_EQ(values_of(DType::Bool, std::vector<uint8_t>{0, 1, 2}, {3}),
            (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(values_of(DType::Float64, std::vector<double>{5e-324, 1e308}, {2}),
            (std::vector<double>{5e-324, 1e308}));
  EXPECT_TRUE(values_of(DType::Float32, std::vector<float>{}, {0, 3}).empty());
}

TEST(ReadValues, AppliesLazyBits) {
  const std::vector<std::complex<float>> storage = {{1, 2}, {3, -4}};
  TensorView view = *make_view(DType::Complex64, {2}, bytes_of(storage));
  EXPECT_EQ(values_of(view), (std::vector<double>{1, 2, 3, -4}));
  view.conjugate = true;
  EXPECT_EQ(values_of(view), (std::vector<double>{1, -2, 3, 4}));
  view.negative = true;
  EXPECT_EQ(values_of(view), (std::vector<double>{-1, 2, -3, -4}));
}

/// Random shape, permuted or broken or negative or zero strides, over a storage of the numbers 0,
/// 1, 2 ...
struct StridedCase {
  Dims shape;
  Dims strides;
  int64_t offset = 0;
  int64_t storage_elements = 0;
};

StridedCase random_strided_case() {
  StridedCase result;
  const int rank = *rc::gen::inRange(0, 5);
  int64_t step = 1;
  int64_t low = 0;
  int64_t high = 0;
  for (int i = 0; i < rank; ++i) {
    const auto size = *rc::gen::inRange<int64_t>(1, 6);
    const int kind = *rc::gen::inRange(0, 6);
    int64_t stride = step + (kind == 1 ? 1 : 0);
    if (kind == 2) stride = 0;
    if (kind == 3) stride = -stride;
    result.shape.push_back(size);
    result.strides.push_back(stride);
    (stride < 0 ? low : high) += stride * (size - 1);
    step = std::max<int64_t>(step, std::abs(stride) * size);
  }
  // Dimensions were made from the innermost out; half of the cases keep that (transposed) order.
  if (*rc::gen::arbitrary<bool>()) {
    std::reverse(result.shape.data(), result.shape.data() + result.shape.size());
    std::reverse(result.strides.data(), result.strides.data() + result.strides.size());
  }
  result.offset = -low;
  result.storage_elements = high - low + 1;
  return result;
}

/// Storage offset of every element in C order, by nested counting.
std::vector<int64_t> element_offsets(const TensorView& view) {
  std::vector<int64_t> offsets;
  std::vector<int64_t> index(view.shape.size(), 0);
  const int64_t count = view.element_count();
  for (int64_t n = 0; n < count; ++n) {
    int64_t offset = view.offset_elements;
    for (size_t i = 0; i < index.size(); ++i) offset += index[i] * view.strides[i];
    offsets.push_back(offset);
    for (size_t i = index.size(); i-- > 0;) {
      if (++index[i] < view.shape[i]) break;
      index[i] = 0;
    }
  }
  return offsets;
}

RC_GTEST_PROP(ReadValues, VisitsStridedElementsInCOrder, ()) {
  const StridedCase given = random_strided_case();
  std::vector<int16_t> storage(static_cast<size_t>(given.storage_elements));
  std::iota(storage.begin(), storage.end(), int16_t{0});
  const TensorView view =
      *make_view(DType::Int16, given.shape, given.strides, bytes_of(storage), given.offset);
  const std::vector<int64_t> offsets = element_offsets(view);
  const auto first = *rc::gen::inRange<size_t>(0, offsets.size());
  const auto count = *rc::gen::inRange<size_t>(0, offsets.size() - first + 1);

  std::vector<double> values(count);
  read_values(view, static_cast<int64_t>(first), static_cast<int64_t>(count), values);
  std::vector<int16_t> copied(count);
  gather_bytes(view, static_cast<int64_t>(first), static_cast<int64_t>(count),
               std::as_writable_bytes(std::span(copied)));

  for (size_t i = 0; i < count; ++i) {
    RC_ASSERT(values[i] == static_cast<double>(offsets[first + i]));
    RC_ASSERT(copied[i] == offsets[first + i]);
  }
}

TEST(GatherBytes, CopiesElementsOfEverySize) {
  std::vector<uint8_t> storage(16 * 6);
  std::iota(storage.begin(), storage.end(), uint8_t{0});
  for (const DType dtype :
       {DType::Int8, DType::Int16, DType::Int32, DType::Int64, DType::Complex128}) {
    const size_t size = info(dtype).element_bits / 8;
    const TensorView view = *make_view(dtype, {2, 3}, {1, 2}, bytes_of(storage));
    std::vector<std::byte> out(6 * size);
    gather_bytes(view, 0, 6, out);
    const size_t order[] = {0, 2, 4, 1, 3, 5};
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(out[i * size], static_cast<std::byte>(order[i] * size));
      EXPECT_EQ(out[i * size + size - 1], static_cast<std::byte>(order[i] * size + size - 1));
    }
  }
}

TEST(ApplyLazyBits, GivesWhatTheBitsStandFor) {
  // 1 + 2i with both bits: -(1 - 2i) = -1 + 2i.
  std::vector<float> complex = {1, 2};
  TensorView view;
  view.dtype = DType::Complex64;
  view.conjugate = view.negative = true;
  apply_lazy_bits(view, std::as_writable_bytes(std::span(complex)));
  EXPECT_EQ(complex, (std::vector<float>{-1, 2}));

  std::vector<int32_t> integers = {5, 0, -70000};
  TensorView negative;
  negative.dtype = DType::Int32;
  negative.negative = true;
  apply_lazy_bits(negative, std::as_writable_bytes(std::span(integers)));
  EXPECT_EQ(integers, (std::vector<int32_t>{-5, 0, 70000}));
}

}  // namespace
}  // namespace assay

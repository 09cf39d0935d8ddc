// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tensor/dims.hpp"
#include "tensor/dtype.hpp"
#include "tensor/half.hpp"
#include "tensor/tensor_view.hpp"

namespace assay {
namespace {

TEST(DType, NamesReadBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name(dtype)), dtype);
    EXPECT_EQ(dtype_from_name(torch_name(dtype)), dtype);
    if (info(dtype).safetensors.empty()) continue;
    EXPECT_EQ(dtype_from_safetensors(info(dtype).safetensors), dtype);
  }
  EXPECT_EQ(dtype_from_name("object"), std::nullopt);
}

TEST(DType, ReadsDlpackCodesOfTorch) {
  EXPECT_EQ(dtype_from_dlpack(2, 32, 1), DType::Float32);
  EXPECT_EQ(dtype_from_dlpack(4, 16, 1), DType::BFloat16);
  EXPECT_EQ(dtype_from_dlpack(5, 64, 1), DType::Complex64);
  EXPECT_EQ(dtype_from_dlpack(5, 128, 1), DType::Complex128);
  EXPECT_EQ(dtype_from_dlpack(5, 32, 1), DType::Complex32);
  EXPECT_EQ(dtype_from_dlpack(6, 8, 1), DType::Bool);
  EXPECT_EQ(dtype_from_dlpack(17, 4, 2), DType::Float4E2M1FNx2);
  EXPECT_EQ(dtype_from_dlpack(2, 32, 4), std::nullopt);
  EXPECT_EQ(dtype_from_dlpack(2, 8, 1), std::nullopt);
}

TEST(StorageBytes, CountsNibblesAndDetectsOverflow) {
  EXPECT_EQ(storage_bytes(DType::Int4, 3), 2u);  // 12 bits
  EXPECT_EQ(storage_bytes(DType::Complex128, 2), 32u);
  EXPECT_EQ(storage_bytes(DType::Float64, UINT64_MAX / 8), UINT64_MAX / 8 * 8);
  EXPECT_EQ(storage_bytes(DType::Float64, UINT64_MAX / 4), std::nullopt);
}

TEST(Dims, KeepsValuesWhenGrowingPastTheInlinePart) {
  Dims dims;
  for (int64_t i = 0; i < 20; ++i) dims.push_back(i);
  Dims copy = dims;
  dims.resize(3);
  EXPECT_EQ(dims, (Dims{0, 1, 2}));
  EXPECT_EQ(copy[19], 19);
}

TEST(ElementCount, RejectsNegativeAndOverflowingShapes) {
  EXPECT_EQ(element_count(Dims{}), 1);
  EXPECT_EQ(element_count(Dims{3, 0, INT64_MAX, 2}), 0);
  EXPECT_EQ(element_count(Dims{-1, 0}), std::nullopt);
  EXPECT_EQ(element_count(Dims{INT64_MAX, 2}), std::nullopt);
}

TEST(TupleText, LooksLikePython) {
  EXPECT_EQ(tuple_text(Dims{}.span()), "()");
  EXPECT_EQ(tuple_text(Dims{5}.span()), "(5,)");
  EXPECT_EQ(tuple_text(Dims{1, 5}.span()), "(1, 5)");
  EXPECT_EQ(list_text(Dims{1, 5}.span()), "[1, 5]");
}

TEST(MakeView, RejectsElementsOutsideTheStorage) {
  const std::array<std::byte, 24> storage{};
  EXPECT_TRUE(make_view(DType::Float32, {2, 3}, storage));
  EXPECT_EQ(make_view(DType::Float32, {2, 4}, storage).error().code, Errc::Truncated);
  EXPECT_TRUE(make_view(DType::Float32, {3, 2}, {1, 3}, storage,
                        0));  // transposed: last element at 2 + 3 = 5
  EXPECT_FALSE(make_view(DType::Float32, {3, 2}, {1, 3}, storage, 1));  // one further
  EXPECT_TRUE(make_view(DType::Float32, {6}, {-1}, storage, 5));        // reversed
  EXPECT_FALSE(make_view(DType::Float32, {6}, {-1}, storage, 4));
  EXPECT_TRUE(make_view(DType::Float32, {1000, 6}, {0, 1}, storage, 0));  // expanded
  EXPECT_EQ(make_view(DType::Float32, {INT64_MAX}, {INT64_MAX}, storage, 0).error().code,
            Errc::TooLarge);
  EXPECT_TRUE(make_view(DType::Float32, {0, 5}, {5, 1}, {}, 0));
  EXPECT_FALSE(make_view(DType::Float32, {2}, {1, 1}, storage, 0));
}

TEST(TensorView, ContiguityIgnoresSizeOneDimensions) {
  const std::array<std::byte, 24> storage{};
  EXPECT_TRUE(make_view(DType::Float32, {1, 6}, {99, 1}, storage, 0)->is_contiguous());
  EXPECT_FALSE(make_view(DType::Float32, {3, 2}, {1, 3}, storage, 0)->is_contiguous());
  EXPECT_EQ(make_view(DType::Float32, {2}, {1}, storage, 4)->contiguous_bytes().data(),
            storage.data() + 16);
}

TEST(Half, WidensKnownBitPatterns) {
  EXPECT_EQ(bfloat16_to_float(0x3F80), 1.0f);
  EXPECT_EQ(float16_to_float(0x3C00), 1.0f);
  EXPECT_EQ(float16_to_float(0x7BFF), 65504.0f);
  EXPECT_EQ(float16_to_float(0x0001), 0x1p-24f);
  EXPECT_TRUE(std::isinf(float16_to_float(0xFC00)));
  EXPECT_EQ(float8_e4m3fn_to_float(0x7E), 448.0f);  // largest: 1.75 * 2^8
  EXPECT_TRUE(std::isnan(float8_e4m3fn_to_float(0xFF)));
  EXPECT_EQ(float8_e5m2_to_float(0x7B), 57344.0f);  // largest: 1.75 * 2^15
  EXPECT_EQ(float8_e4m3fnuz_to_float(0x7F), 240.0f);
  EXPECT_EQ(float8_e5m2fnuz_to_float(0x7F), 57344.0f);
  EXPECT_EQ(float8_e8m0fnu_to_float(127), 1.0f);
  EXPECT_EQ(float4_e2m1fn_to_float(0x7), 6.0f);
  EXPECT_EQ(float4_e2m1fn_to_float(0x9), -0.5f);
}

}  // namespace
}  // namespace assay

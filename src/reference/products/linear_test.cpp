// SPDX-License-Identifier: Apache-2.0
#include "reference/products/linear.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace assay::reference {
namespace {

template <typename T>
TensorView view_of(const std::vector<T>& values, DType dtype, const Dims& shape) {
  return make_view(dtype, shape, std::as_bytes(std::span(values))).value();
}
TensorView floats(const std::vector<float>& values, const Dims& shape) {
  return view_of(values, DType::Float32, shape);
}
TensorView bytes(const std::vector<int8_t>& values, const Dims& shape) {
  return view_of(values, DType::Int8, shape);
}
std::vector<double> list(const Wide& wide) { return {wide.values.begin(), wide.values.end()}; }

const std::vector<float> kX = {1, 2, 3, 4, 5, 6};    // [2, 3]
const std::vector<float> kW = {1, 0, 0, 0, 10, 0};   // [2, 3]: x0 and 10 x1
const std::vector<int8_t> kX8 = {1, 2, 3, 4, 5, 6};  // the same as int8
const std::vector<int8_t> kW8 = {1, 0, 0, 0, 10, 0};

TEST(Linear, AddsItsBiasToEveryRow) {
  const std::vector<float> bias = {100, 200};
  const TensorView b = floats(bias, {2});
  EXPECT_EQ(list(linear(floats(kX, {2, 3}), floats(kW, {2, 3}), &b).value()),
            (std::vector<double>{101, 220, 104, 250}));
}

TEST(Linear, RoundsTheProductWhereAKernelStoresIt) {
  // 257 lies half way between the bfloat16 values 256 and 258; halves go to the even one.
  const std::vector<float> x = {257, 259, -1e-40F, 3e38F};
  const std::vector<float> one = {1};
  const std::vector<float> bias = {1};
  const TensorView b = floats(bias, {1});
  const Wide out =
      linear(floats(x, {4, 1}), floats(one, {1, 1}), &b, {.product_type = DType::BFloat16}).value();
  EXPECT_EQ(out.values[0], 257);  // 256 + 1
  EXPECT_EQ(out.values[1], 261);  // 260 + 1
  EXPECT_EQ(out.values[2], 1 + round_to(-1e-40F, DType::BFloat16));
  EXPECT_EQ(out.values[3], 1 + round_to(3e38F, DType::BFloat16));
}

TEST(Linear, RoundsAsTheGeneralFunctionDoes) {
  // The fast way of bfloat16 beside round_to(), around every exponent that float32 has.
  std::vector<float> x;
  for (uint32_t exponent = 0; exponent < 255; ++exponent)
    for (const uint32_t fraction : {0u, 0x7FFFu, 0x8000u, 0x8001u, 0x17FFFu, 0x18000u, 0x7FFFFFu})
      x.push_back(std::bit_cast<float>(exponent << 23 | fraction));
  const auto count = static_cast<int64_t>(x.size());
  const std::vector<float> minus = {-1};
  const Wide out = linear(floats(x, {count, 1}), floats(minus, {1, 1}), nullptr,
                          {.product_type = DType::BFloat16})
                       .value();
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(out.values[i], round_to(-static_cast<double>(x[i]), DType::BFloat16)) << x[i];
}

TEST(Linear, PerBatchKeepsTheBatchInTheMiddle) {
  // x [m = 2, b = 2, k = 1], w [b = 2, k = 1, n = 1]: batch 0 times 10, batch 1 times 100.
  const std::vector<float> x = {1, 2, 3, 4};
  const std::vector<float> w = {10, 100};
  const Wide out =
      linear_per_batch(floats(x, {2, 2, 1}), floats(w, {2, 1, 1}), nullptr, {.transpose_w = false})
          .value();
  EXPECT_EQ(out.shape, (Dims{2, 2, 1}));
  EXPECT_EQ(list(out), (std::vector<double>{10, 200, 30, 400}));
}

TEST(QuantisedLinear, ScalesColumnsAndRows) {
  const std::vector<int32_t> bias = {1, -1};
  const std::vector<float> scale = {0.5F, 2};
  const std::vector<float> rows = {1, 10};
  const TensorView b = view_of(bias, DType::Int32, {2});
  const TensorView r = floats(rows, {2});
  const Wide out =
      quantised_linear(bytes(kX8, {2, 3}), bytes(kW8, {2, 3}), &b, floats(scale, {2}), &r).value();
  // (1 + 1) / 2, (20 - 1) * 2; (4 + 1) / 2 * 10, (50 - 1) * 2 * 10
  EXPECT_EQ(list(out), (std::vector<double>{1, 38, 25, 980}));
}

TEST(QuantisedLinear, ReadsScalesFromTheLowHalf) {
  const std::vector<uint64_t> scales = {std::bit_cast<uint32_t>(0.25F) | uint64_t{0xABCD} << 48};
  const Wide out = dequantisation_scales(view_of(scales, DType::UInt64, {1})).value();
  EXPECT_EQ(out.values[0], 0.25);
}

TEST(WeightQuantisedLinear, HasAScaleForEachGroupOfRows) {
  // One column: k = 3 in groups of two rows; offsets 1 and 2, scales 10 and 100.
  const std::vector<int8_t> w = {1, 2, 3};
  const std::vector<float> scale = {10, 100};
  const std::vector<float> offset = {1, 2};
  const TensorView shift = floats(offset, {2, 1});
  const Wide out = weight_quantised_linear(floats(kX, {2, 3}), bytes(w, {1, 3}), &shift,
                                           floats(scale, {2, 1}), 2)
                       .value();
  // 1 (1 + 1) 10 + 2 (2 + 1) 10 + 3 (3 + 2) 100
  EXPECT_EQ(out.values[0], 20 + 60 + 1500);
  EXPECT_EQ(out.values[1], 80 + 150 + 3000);
}

TEST(WeightQuantisedLinear, AGroupOfAnySizeHoldsAllRows) {
  const std::vector<int8_t> w = {1, 2, 3};
  const std::vector<float> scale = {10};
  const Wide out = weight_quantised_linear(floats(kX, {2, 3}), bytes(w, {1, 3}), nullptr,
                                           floats(scale, {1}), INT64_MAX)
                       .value();
  EXPECT_EQ(list(out), (std::vector<double>{140, 320}));
}

TEST(DynamicQuantisedLinear, ABiasOfTwoDimensionsBelongsToTheBatches) {
  // given as many batches as rows: x [b = 2, m = 2, k = 1] of ones, w [b = 2, n = 1, k = 1]
  const std::vector<float> x = {1, 1, 1, 1};
  const std::vector<int8_t> w = {10, 100};
  const std::vector<float> scale = {1};
  const std::vector<float> bias = {1000, 2000};
  const TensorView b = floats(bias, {2, 1});
  const Wide out =
      dynamic_quantised_linear(floats(x, {2, 2, 1}), bytes(w, {2, 1, 1}), floats(scale, {1}), &b)
          .value();
  // then it is added to all rows of its batch
  EXPECT_EQ(out.shape, (Dims{2, 2, 1}));
  EXPECT_NEAR(out.values[0], 1010, 1e-9);
  EXPECT_NEAR(out.values[1], 1010, 1e-9);
  EXPECT_NEAR(out.values[2], 2100, 1e-9);
  EXPECT_NEAR(out.values[3], 2100, 1e-9);
}

TEST(DynamicQuantisedLinear, GivesEachRowAScale) {
  // Scale 2 / 127: 1 becomes 63.5, which goes to the even 64.
  const std::vector<float> x = {1, 2};
  const std::vector<int8_t> w = {1, 1};
  const std::vector<float> scale = {127};
  const Wide out =
      dynamic_quantised_linear(floats(x, {1, 2}), bytes(w, {1, 2}), floats(scale, {1}), nullptr)
          .value();
  EXPECT_NEAR(out.values[0], (64 + 127) * 2.0, 1e-9);
}

TEST(Linear, NamesWhatDoesNotFit) {
  const TensorView x = floats(kX, {2, 3});
  const TensorView b = floats(kX, {3});
  EXPECT_EQ(linear(x, x, &b).error().message, "bias [3] does not fit a product of shape [2, 2]");
  EXPECT_EQ(quantised_linear(x, x, nullptr, b, nullptr).error().message,
            "scale [3] does not fit a product of shape [2, 2]");
  EXPECT_EQ(quantised_linear(x, x, nullptr, floats(kX, {1}), &b).error().message,
            "scales of rows [3] do not fit a product of shape [2, 2]");
  EXPECT_EQ(linear_per_batch(x, x, nullptr).error().code, Errc::Invalid);
  EXPECT_EQ(weight_quantised_linear(x, x, nullptr, floats(kX, {6}), 0).error().code, Errc::Invalid);
}

}  // namespace
}  // namespace assay::reference

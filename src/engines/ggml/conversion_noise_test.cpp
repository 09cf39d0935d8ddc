// SPDX-License-Identifier: Apache-2.0
#include "locate/noise/conversion_noise.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engines/ggml/engine.hpp"
#include "reference/wide.hpp"

namespace assay::locate {
namespace {

using testing::DoubleNear;

const engines::ggml::Engine engine;

Tensor tensor_of(Dims shape, std::vector<double> values) {
  reference::Wide wide(shape);
  std::ranges::copy(values, wide.values.begin());
  return reference::to_tensor(std::move(wide));
}

std::vector<double> values_of(const Tensor& tensor) {
  const reference::Wide wide = *reference::widen(tensor.view);
  return {wide.values.begin(), wide.values.end()};
}

/// Largest distance and root of the mean square, of `count` values from `begin` on.
struct Moved {
  double most = 0, rms = 0;
};
Moved moved(const Tensor& a, const Tensor& b, size_t begin, size_t count) {
  const std::vector<double> x = values_of(a), y = values_of(b);
  Moved result;
  for (size_t i = begin; i < begin + count; ++i) {
    result.most = std::max(result.most, std::abs(x[i] - y[i]));
    result.rms += (x[i] - y[i]) * (x[i] - y[i]) / static_cast<double>(count);
  }
  result.rms = std::sqrt(result.rms);
  return result;
}

Tensor numbered(Dims shape, double size) {
  reference::Wide wide(shape);
  for (size_t i = 0; i < wide.values.size(); ++i)
    wide.values[i] = size * std::sin(static_cast<double>(i) * 0.7 + 1);
  return reference::to_tensor(std::move(wide));
}

StoredWeight stored_as(std::vector<std::pair<std::string, int64_t>> parts) {
  StoredWeight stored;
  for (const auto& [type, first_row] : parts) {
    StoredWeight::Part& part = stored.parts.emplace_back();
    part.type = type;
    part.first_row = first_row;
  }
  return stored;
}

Tensor whole_numbers(std::vector<int64_t> values) {
  reference::Whole whole(Dims{static_cast<int64_t>(values.size())});
  std::ranges::copy(values, whole.values.begin());
  return reference::to_tensor(std::move(whole));
}

TEST(ConversionNoise, OfOneExpertIsThatOfItsMatrixAlone) {
  // Experts 0 and 2 have two rows of six and four; expert 2's numbers are ten times as large.
  Tensor weight = numbered({3, 64, 256}, 0.1);
  reference::Wide larger = *reference::widen(weight.view);
  for (int64_t i = 2 * 64 * 256; i < larger.size(); ++i) larger.data()[i] *= 10;
  weight = reference::to_tensor(std::move(larger));
  const Tensor x = numbered({6, 256}, 1);
  reference::aten::Call call{"aten._grouped_mm.default", {}};
  call.arguments["self"].value = x;
  call.arguments["mat2"].value = weight;  // [experts, in, out]: with the last axes exchanged
  auto& mat2 = std::get<Tensor>(call.arguments["mat2"].value).view;
  std::swap(mat2.shape[1], mat2.shape[2]);
  std::swap(mat2.strides[1], mat2.strides[2]);
  call.arguments["offs"].value = whole_numbers({2, 2, 6});

  const std::optional<WeightProduct> product = weight_product(call, "mat2");

  ASSERT_TRUE(product);
  EXPECT_THAT(product->matrices, testing::ElementsAre(0, 0, 2, 2, 2, 2));
  const Tensor zero = reference::to_tensor(reference::Wide(Dims{6, 64}, 0.0));
  Tensor noisy = zero;
  ASSERT_TRUE(add_conversion_noise(engine, stored_as({{"q8_0", 0}}), *product, &noisy));
  // A step of x is 1/127, its error of variance 1/127^2 / 12, in a sum of 256 products with numbers
  // of variance 0.01 / 2: 0.0026, give or take what is random in it.
  const double expected = std::sqrt(256 * 0.01 / 2 / 12) / 127;
  EXPECT_THAT(moved(noisy, zero, 0, 2 * 64).rms, DoubleNear(expected, 0.25 * expected));
  EXPECT_THAT(moved(noisy, zero, 2 * 64, 4 * 64).rms, DoubleNear(10 * expected, 2.5 * expected));
}

TEST(ConversionNoise, IsOfThePartThatAKernelConverts) {
  const WeightProduct product{numbered({64, 256}, 0.1), numbered({5, 256}, 1), {}};
  const Tensor zero = reference::to_tensor(reference::Wide(Dims{5, 64}, 0.0));
  Tensor noisy = zero;

  ASSERT_TRUE(add_conversion_noise(engine, stored_as({{"f32", 0}, {"q8_0", 48}}), product, &noisy));

  for (size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(moved(noisy, zero, row * 64, 48).most, 0);
    EXPECT_GT(moved(noisy, zero, row * 64 + 48, 16).rms, 0);
  }
}

TEST(ConversionNoise, KnowsNoProductWhoseShapesDoNotFit) {
  reference::aten::Call call{"aten.bmm.default", {}};
  call.arguments["self"].value = numbered({6, 4, 8}, 1);
  call.arguments["mat2"].value = numbered({6, 8, 1}, 1);

  // Six matrices, each with its column; then columns of two, which lie otherwise in the result.
  ASSERT_TRUE(weight_product(call, "self"));
  EXPECT_THAT(weight_product(call, "self")->matrices, testing::ElementsAre(0, 1, 2, 3, 4, 5));
  call.arguments["mat2"].value = numbered({6, 8, 2}, 1);
  EXPECT_FALSE(weight_product(call, "self"));
  call.arguments["offs"].value = whole_numbers({2, 9});
  EXPECT_FALSE(weight_product(call, "mat2"));
  EXPECT_FALSE(weight_product(call, "bias"));
}

TEST(AttentionNoise, LeavesQueriesAndKeysBesideValuesAsTheyAre) {
  const Tensor x = numbered({3, 160}, 1);

  const Tensor noisy = *with_attention_noise({.blocks = "q4_0", .first_channel = 96}, x, 3);

  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(moved(x, noisy, row * 160, 96).most, 0);
    EXPECT_GT(moved(x, noisy, row * 160 + 96, 32).rms, 0);
    EXPECT_GT(moved(x, noisy, row * 160 + 128, 32).rms, 0);
  }
}

TEST(AttentionNoise, IsTheStepOfEachBlock) {
  // 64 rows of two blocks: of values up to 1 and up to 10.
  std::vector<double> values;
  for (int row = 0; row < 64; ++row) {
    for (int i = 0; i < 64; ++i) values.push_back((i < 32 ? 1 : 10) * std::sin(row * 64 + i));
    values[values.size() - 64] = 1;
    values[values.size() - 1] = -10;
  }
  const Tensor x = tensor_of({64, 64}, values);

  const Tensor noisy = *with_attention_noise({.blocks = "q8_0"}, x, 3);

  for (size_t row = 0; row < 64; ++row) {
    EXPECT_LE(moved(x, noisy, row * 64, 32).most, 0.5 / 127);
    EXPECT_LE(moved(x, noisy, row * 64 + 32, 32).most, 5.0 / 127);
  }
  // A uniform number of width w deviates by w / sqrt(12); both blocks, squares of which the first's
  // are 1 %.
  EXPECT_THAT(moved(x, noisy, 0, 4096).rms, DoubleNear(10.0 / 127 / std::sqrt(24.0), 0.0008));
  EXPECT_EQ(values_of(*with_attention_noise({.blocks = "q8_0"}, x, 3)), values_of(noisy));
  EXPECT_NE(values_of(*with_attention_noise({.blocks = "q8_0"}, x, 4)), values_of(noisy));
}

TEST(AttentionNoise, OfTypesWithAMinimumGoesByTheRange) {
  std::vector<double> values(32, 5.0);  // between 5 and 5.31 a step of 0.01
  values[7] = 5.31;
  const Tensor x = tensor_of({1, 32}, values);

  EXPECT_LE(moved(x, *with_attention_noise({.blocks = "q5_1"}, x, 1), 0, 32).most, 0.005);
  EXPECT_GT(moved(x, *with_attention_noise({.blocks = "q5_0"}, x, 1), 0, 32).most, 0.05);
}

TEST(AttentionNoise, OfSumsInHalvesIsRelative) {
  const Tensor x = tensor_of({2, 1024}, std::vector<double>(2048, 3.0));

  const Tensor noisy = *with_attention_noise({.blocks = {}, .roundoffs = 4}, x, 1);

  EXPECT_THAT(moved(x, noisy, 0, 2048).rms, DoubleNear(4 * 0x1p-11 * 3, 0.0002));
}

TEST(AttentionNoise, LeavesInfinitiesAndSaysWhatItDoesNotKnow) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = tensor_of({1, 2}, {1, -infinity});

  EXPECT_EQ(values_of(*with_attention_noise({.blocks = "q4_0"}, x, 1)),
            (std::vector<double>{1, -infinity}));
  EXPECT_EQ(values_of(*with_attention_noise({.blocks = "q4_0"}, tensor_of({0, 32}, {}), 1)),
            std::vector<double>());
  EXPECT_EQ(with_attention_noise({.blocks = "q2_K"}, x, 1).error().code, Errc::Unsupported);
  EXPECT_FALSE(has_block_steps("f16"));
}

/// cos of angles p / 2^i, i in 0..3, each twice: in halves or in neighbours.
struct Rotation {
  reference::aten::Call call{"aten.cos.default", {}};
  Tensor result;
};
Rotation rotation_of(bool neighbours) {
  std::vector<double> angles, values;
  for (int position = 0; position < 100; ++position)
    for (int i = 0; i < 8; ++i) angles.push_back(position / std::exp2(neighbours ? i / 2 : i % 4));
  for (const double angle : angles) values.push_back(std::cos(angle));
  Rotation rotation;
  rotation.call.arguments["self"].value = tensor_of({100, 8}, angles);
  rotation.result = tensor_of({100, 8}, values);
  return rotation;
}

TEST(AngleNoise, GrowsWithTheAngleAndItsFactors) {
  for (const bool neighbours : {false, true}) {
    Rotation rotation = rotation_of(neighbours);
    const Tensor before = rotation.result;

    ASSERT_TRUE(add_angle_noise(rotation.call, &rotation.result));

    double largest = 0;
    for (size_t row = 0; row < 100; ++row) {
      for (size_t column = 0; column < 8; ++column) {
        const size_t i = neighbours ? column / 2 : column % 4;
        // Half of 4 roundoffs for each factor, of the angle.
        const double bound =
            2 * 0x1p-24 * static_cast<double>(i + 1) * (static_cast<double>(row) / std::exp2(i));
        const double most = moved(before, rotation.result, row * 8 + column, 1).most;
        EXPECT_LE(most, bound + 1e-15);
        largest = std::max(largest, most);
      }
    }
    EXPECT_GT(largest, 0.5 * 2 * 0x1p-24 * 99);  // about the first angle of the last rows
  }
}

}  // namespace
}  // namespace assay::locate

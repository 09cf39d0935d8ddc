// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "reference/norms/block_softmax.hpp"
#include "reference/norms/layer_norm.hpp"
#include "reference/norms/rms_norm.hpp"
#include "reference/norms/rope.hpp"

namespace assay::reference {
namespace {

Tensor random_tensor(const Dims& shape, DType dtype, unsigned seed) {
  Wide wide(shape);
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.3, 2.0);
  for (double& value : wide.values) value = normal(generator);
  return narrow(to_tensor(std::move(wide)).view, dtype).value();
}

Tensor values_tensor(const Dims& shape, std::initializer_list<double> values) {
  Wide wide(shape);
  wide.values = values;
  return to_tensor(std::move(wide));
}

double value_at(const Tensor& tensor, int64_t flat_index) {
  return widen(tensor.view).value().values[static_cast<size_t>(flat_index)];
}

// ---- Rows -------------------------------------------------------------------------------------

TEST(Rows, SumsEqualThePlainLoopWhateverTheLength) {
  for (int64_t count = 0; count < 70; ++count) {
    const Wide a = widen(random_tensor({count}, DType::Float64, 1).view).value();
    const Wide b = widen(random_tensor({count}, DType::Float64, 2).view).value();
    long double sum = 0, squares = 0, dot = 0;
    for (size_t i = 0; i < a.values.size(); ++i) {
      sum += a.values[i];
      squares += (a.values[i] - 0.5L) * (a.values[i] - 0.5L);
      dot += static_cast<long double>(a.values[i]) * b.values[i];
    }
    EXPECT_NEAR(row_sum(a.data(), count), static_cast<double>(sum), 1e-12);
    EXPECT_NEAR(row_sum_of_squares(a.data(), count, 0.5), static_cast<double>(squares), 1e-11);
    EXPECT_NEAR(row_dot(a.data(), b.data(), count), static_cast<double>(dot), 1e-11);
  }
}

TEST(Rows, RoundingARowEqualsRoundingEachValue) {
  std::vector<double> values = {0.0,           -0.0,          65504,       65519.999, 65520,
                                -65520,        1e9,           0x1p-14,     0x1p-24,   0x1p-25,
                                0x1.8p-25,     -0x1.8p-24,    0x1.ffcp-15, INFINITY,  NAN,
                                1.00048828125, 1.00146484375, 2047.5,      0.1};
  std::mt19937 generator(3);
  std::uniform_real_distribution<double> exponent(-30, 17);
  for (int i = 0; i < 20000; ++i)
    values.push_back(std::exp2(exponent(generator)) * (i % 2 ? 1 : -1));
  std::vector<double> rounded = values;
  round_row_to_float16(rounded.data(), static_cast<int64_t>(rounded.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = round_to(values[i], DType::Float16);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(rounded[i]));
    } else {
      ASSERT_EQ(rounded[i], expected) << values[i];
      ASSERT_EQ(std::signbit(rounded[i]), std::signbit(expected)) << values[i];
    }
  }
}

TEST(SumOf, AddsABiasToEveryRowAndScalesTerms) {
  const Tensor x = values_tensor({2, 2}, {1, 2, 3, 4});
  const Tensor bias = values_tensor({1, 2}, {10, 20});
  const Tensor res = values_tensor({1, 2, 2}, {1, 1, 1, 1});
  const Term terms[] = {{x.view}, {bias.view}, {res.view, 0.5}};
  const Result<Wide> sum = sum_of(terms);
  ASSERT_TRUE(sum) << sum.error().message;
  EXPECT_EQ((std::vector<double>(sum->values.begin(), sum->values.end())),
            (std::vector<double>{11.5, 22.5, 13.5, 24.5}));
}

TEST(SumOf, NamesShapesThatDoNotFit) {
  const Tensor x = values_tensor({2, 2}, {1, 2, 3, 4});
  const Tensor bias = values_tensor({3}, {1, 2, 3});
  const Term terms[] = {{x.view}, {bias.view}};
  EXPECT_EQ(sum_of(terms).error().message, "an addend has shape [3], x has shape [2, 2]");
  EXPECT_EQ(sum_of({}).error().code, Errc::Invalid);
}

// ---- RMS norm ---------------------------------------------------------------------------------

TEST(RmsNorm, GivesTheWorkedExample) {
  // docs: mean of squares (1 + 4 + 9 + 16) / 4 = 7.5; 1 / sqrt(7.5 + 1e-5) = 0.36514812823.
  const Tensor x = values_tensor({1, 4}, {1, 2, -3, 4});
  const Tensor gamma = values_tensor({4}, {1, 1, 1, 0.5});
  const Term terms[] = {{x.view}};
  const Wide y = rms_norm(terms, gamma.view, {.eps = 0.000009999999747378752}).value();
  const double expected[] = {0.36514813, 0.73029626, -1.09544438, 0.73029626};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y.values[i], expected[i], 5e-9);
}

TEST(RmsNorm, EqualsThePlainLoop) {
  const Tensor x = random_tensor({37, 131}, DType::Float16, 1);
  const Tensor gamma = random_tensor({1, 131}, DType::BFloat16, 2);
  const Tensor res = random_tensor({37, 131}, DType::Float16, 3);
  const Term terms[] = {{x.view}, {res.view}};
  const Wide y = rms_norm(terms, gamma.view, {.eps = 1e-3, .unit_offset = true}).value();
  ASSERT_EQ(y.shape, (Dims{37, 131}));
  const Wide xs = widen(x.view).value(), rs = widen(res.view).value(),
             g = widen(gamma.view).value();
  for (size_t row = 0; row < 37; ++row) {
    double squares = 0;
    for (size_t i = 0; i < 131; ++i) {
      const double s = xs.values[row * 131 + i] + rs.values[row * 131 + i];
      squares += s * s;
    }
    for (size_t i = 0; i < 131; ++i) {
      const double s = xs.values[row * 131 + i] + rs.values[row * 131 + i];
      const double expected = s / std::sqrt(squares / 131 + 1e-3) * (1 + g.values[i]);
      EXPECT_NEAR(y.values[row * 131 + i], expected, 1e-13 * (1 + std::fabs(expected)));
    }
  }
}

TEST(RmsNorm, ManyDimensionsAreNormalisedTogether) {
  const Tensor x = random_tensor({3, 2, 4}, DType::Float32, 4);
  const Tensor gamma = random_tensor({2, 4}, DType::Float32, 5);
  const Wide rstd = reciprocal_rms(x.view, 2, 1e-6).value();
  ASSERT_EQ(rstd.shape, (Dims{3, 1, 1}));
  const Term terms[] = {{x.view}};
  const Wide y = rms_norm(terms, gamma.view, {.eps = 1e-6}).value();
  for (int64_t i = 0; i < 24; ++i) {
    EXPECT_NEAR(y.values[static_cast<size_t>(i)],
                value_at(x, i) * rstd.values[static_cast<size_t>(i / 8)] * value_at(gamma, i % 8),
                1e-13);
  }
}

TEST(RmsNorm, RefusesShapesThatDoNotFitAndStaysCalmAtEmptyOnes) {
  const Tensor x = random_tensor({2, 4}, DType::Float32, 6);
  const Tensor gamma = random_tensor({3}, DType::Float32, 7);
  const Term terms[] = {{x.view}};
  EXPECT_EQ(rms_norm(terms, gamma.view).error().message, "gamma has shape [3], x has shape [2, 4]");
  const Tensor scalar = random_tensor({}, DType::Float32, 8);
  const Term scalar_terms[] = {{scalar.view}};
  EXPECT_EQ(rms_norm(scalar_terms, std::nullopt).error().code, Errc::Invalid);
  EXPECT_EQ(rms_norm(terms, scalar.view).error().code, Errc::Invalid);
  const Tensor empty = random_tensor({0, 4}, DType::Float32, 9);
  const Term empty_terms[] = {{empty.view}};
  EXPECT_EQ(rms_norm(empty_terms, std::nullopt).value().size(), 0);
  const Tensor hollow = random_tensor({4, 0}, DType::Float32, 9);
  const Term hollow_terms[] = {{hollow.view}};
  EXPECT_EQ(rms_norm(hollow_terms, std::nullopt).value().size(), 0);
  EXPECT_EQ(reciprocal_rms(x.view, 3).error().code, Errc::Invalid);
}

TEST(RmsNorm, GradientIsTheDerivative) {
  // Central differences of sum(dy * y) in x and gamma.
  const Tensor x = random_tensor({3, 5}, DType::Float64, 10);
  const Tensor dy = random_tensor({3, 5}, DType::Float64, 11);
  const Tensor gamma = random_tensor({5}, DType::Float64, 12);
  const Tensor rstd = to_tensor(reciprocal_rms(x.view, 1, 1e-6).value());
  const RmsNormGradient gradient =
      rms_norm_gradient(dy.view, x.view, rstd.view, gamma.view).value();
  const Wide weights = widen(dy.view).value();
  const auto loss = [&](const Tensor& at_x, const Tensor& at_gamma) {
    const Term terms[] = {{at_x.view}};
    const Wide y = rms_norm(terms, at_gamma.view, {.eps = 1e-6}).value();
    return std::inner_product(y.values.begin(), y.values.end(), weights.values.begin(), 0.0);
  };
  const auto moved = [](const Tensor& tensor, size_t index, double by) {
    Wide wide = widen(tensor.view).value();
    wide.values[index] += by;
    return to_tensor(std::move(wide));
  };
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < 15; ++i) {
    const double slope =
        (loss(moved(x, i, kStep), gamma) - loss(moved(x, i, -kStep), gamma)) / (2 * kStep);
    EXPECT_NEAR(gradient.dx.values[i], slope, 1e-7);
  }
  for (size_t i = 0; i < 5; ++i) {
    const double slope =
        (loss(x, moved(gamma, i, kStep)) - loss(x, moved(gamma, i, -kStep))) / (2 * kStep);
    EXPECT_NEAR(gradient.dgamma.values[i], slope, 1e-7);
  }
  EXPECT_FALSE(rms_norm_gradient(dy.view, x.view, gamma.view, gamma.view));
}

// ---- Layer norm -------------------------------------------------------------------------------

TEST(LayerNorm, NormalisesByHand) {
  // Row (1, 3): mean 2, variance 1; row (0, 4): mean 2, variance 4.
  const Tensor x = values_tensor({2, 2}, {1, 3, 0, 4});
  const Tensor gamma = values_tensor({2}, {2, 3});
  const Tensor beta = values_tensor({2}, {10, 20});
  const Term terms[] = {{x.view}};
  const Wide y = layer_norm(terms, gamma.view, beta.view, {.eps = 0}).value();
  EXPECT_EQ((std::vector<double>(y.values.begin(), y.values.end())),
            (std::vector<double>{8, 23, 8, 23}));
}

TEST(LayerNorm, GammaMayCoverMoreOrLessThanIsNormalised) {
  const Tensor x = random_tensor({5, 3, 8}, DType::BFloat16, 1);
  const Tensor head_gamma = random_tensor({3, 8}, DType::Float32, 2);
  const Term terms[] = {{x.view}};
  const Wide plain = layer_norm(terms, std::nullopt, std::nullopt, {.eps = 1e-5}).value();
  const Wide heads = layer_norm(terms, head_gamma.view, std::nullopt, {.eps = 1e-5}).value();
  for (int64_t i = 0; i < 120; ++i)
    EXPECT_NEAR(heads.values[static_cast<size_t>(i)],
                plain.values[static_cast<size_t>(i)] * value_at(head_gamma, i % 24), 1e-13);

  const Tensor last_gamma = random_tensor({8}, DType::Float32, 3);
  const Wide together =
      layer_norm(terms, std::nullopt, std::nullopt, {.eps = 1e-5, .dims = 2}).value();
  const Wide scaled =
      layer_norm(terms, last_gamma.view, last_gamma.view, {.eps = 1e-5, .dims = 2}).value();
  for (int64_t i = 0; i < 120; ++i)
    EXPECT_NEAR(scaled.values[static_cast<size_t>(i)],
                together.values[static_cast<size_t>(i)] * value_at(last_gamma, i % 8) +
                    value_at(last_gamma, i % 8),
                1e-12);
  EXPECT_FALSE(layer_norm(terms, std::nullopt, std::nullopt, {.dims = 4}));
}

// ---- Rotary embeddings ------------------------------------------------------------------------

TEST(Rope, RotatesHalvesAndPairsByHand) {
  // One head (1, 2, 3, 4), cos (1, 2, 3, 4), sin (10, 20, 30, 40).
  const Tensor x = values_tensor({1, 4}, {1, 2, 3, 4});
  const Tensor cos = values_tensor({1, 4}, {1, 2, 3, 4});
  const Tensor sin = values_tensor({1, 4}, {10, 20, 30, 40});
  const auto rotated = [&](const RopeOptions& options) {
    const Wide y = rope(x.view, cos.view, sin.view, options).value();
    return std::vector<double>(y.values.begin(), y.values.end());
  };
  EXPECT_EQ(rotated({}), (std::vector<double>{1 - 30, 4 - 80, 9 + 30, 16 + 80}));
  EXPECT_EQ(rotated({.groups = 2}), (std::vector<double>{1 - 20, 4 + 20, 9 - 120, 16 + 120}));
  EXPECT_EQ(rotated({.interleaved = true}),
            (std::vector<double>{1 - 20, 2 + 10, 9 - 120, 12 + 90}));
}

TEST(Rope, EveryLayoutGivesTheSameNumbers) {
  const Tensor flat = random_tensor({6, 3 * 8}, DType::Float16, 1);
  const Tensor cos = random_tensor({6, 8}, DType::Float32, 2);
  const Tensor sin = random_tensor({6, 8}, DType::Float32, 3);
  const Wide expected = rope(flat.view, cos.view, sin.view).value();
  for (const Dims& shape : {Dims{6, 3, 8}, Dims{2, 3, 3, 8}, Dims{2, 3, 24}, Dims{1, 6, 3, 8}}) {
    const Result<Wide> y = rope(reshaped(flat, shape)->view, cos.view, sin.view);
    ASSERT_TRUE(y) << y.error().message;
    EXPECT_EQ(y->values, expected.values);
    EXPECT_EQ(y->shape, shape);
  }
  // The tables of three positions serve both sequences of a batch.
  Tensor three_cos = reshaped(cos, {2, 3, 8}).value();
  TensorView first_cos = make_view(DType::Float32, {3, 8}, {8, 1}, three_cos.view.storage).value();
  TensorView first_sin = make_view(DType::Float32, {3, 8}, {8, 1}, sin.view.storage).value();
  const Wide shared = rope(reshaped(flat, {2, 3, 3, 8})->view, first_cos, first_sin).value();
  for (size_t i = 0; i < 72; ++i) EXPECT_EQ(shared.values[i], expected.values[i]);
}

TEST(Rope, RefusesTablesThatDoNotFit) {
  const Tensor x = random_tensor({6, 24}, DType::Float16, 1);
  const Tensor cos = random_tensor({5, 8}, DType::Float32, 2);
  EXPECT_EQ(rope(x.view, cos.view, cos.view).error().message,
            "x has shape [6, 24], cos has shape [5, 8]");
  const Tensor wide = random_tensor({6, 7}, DType::Float32, 2);
  EXPECT_FALSE(rope(x.view, wide.view, wide.view));
  EXPECT_FALSE(rope(x.view, cos.view, wide.view));
  const Tensor odd = random_tensor({6, 3}, DType::Float32, 2);
  EXPECT_EQ(rope(x.view, odd.view, odd.view).error().code, Errc::Invalid);
  const Tensor scalar = random_tensor({}, DType::Float32, 2);
  EXPECT_FALSE(rope(x.view, scalar.view, scalar.view));
}

TEST(RopeGradient, EverySequenceStartsAtTheFirstRow) {
  // d = 2: factor of row p is (cos0 + sin1, cos1 - sin0).
  const Tensor cos = values_tensor({2, 2}, {1, 2, 3, 4});
  const Tensor sin = values_tensor({2, 2}, {10, 20, 30, 40});
  const Tensor gradient = values_tensor({3, 4}, {1, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1});
  const int64_t lengths[] = {1, 2};
  const Wide dx = rope_gradient(gradient.view, cos.view, sin.view, lengths).value();
  EXPECT_EQ((std::vector<double>(dx.values.begin(), dx.values.end())),
            (std::vector<double>{21, -8, 42, -16, 21, -8, 21, -8, 43, -26, 43, -26}));
  const int64_t wrong[] = {1, 1};
  EXPECT_FALSE(rope_gradient(gradient.view, cos.view, sin.view, wrong));
  const int64_t huge[] = {INT64_MAX, 4};
  EXPECT_FALSE(rope_gradient(gradient.view, cos.view, sin.view, huge));
}

TEST(RopeConcat, PutsTheRotatedHeadInFront) {
  const Tensor q = values_tensor({1, 4}, {1, 2, 3, 4});
  const Tensor cos = values_tensor({1, 2}, {1, 1});
  const Tensor sin = values_tensor({1, 2}, {0, 0});
  const Tensor other = values_tensor({1, 2, 1}, {7, 8});
  const Wide y = rope_concat(q.view, cos.view, sin.view, other.view).value();
  EXPECT_EQ(y.shape, (Dims{1, 2, 3}));
  EXPECT_EQ((std::vector<double>(y.values.begin(), y.values.end())),
            (std::vector<double>{1, 2, 7, 3, 4, 8}));
}

TEST(RotaryTables, AnglesArePositionTimesFrequency) {
  Whole positions(Dims{3});
  positions.values = {0, 5, 100000};
  Whole lengths(Dims{2});
  lengths.values = {2, 1};
  const Tensor frequencies = values_tensor({2, 1}, {0.5, 0.1});
  const RotaryTables tables =
      rotary_tables(to_tensor(positions).view, frequencies.view, to_tensor(lengths).view).value();
  EXPECT_EQ(tables.cos.values[0], 1.0);
  EXPECT_DOUBLE_EQ(tables.cos.values[2], std::cos(2.5));
  EXPECT_DOUBLE_EQ(tables.sin.values[5], std::sin(static_cast<double>(100000.0f * 0.1f)));
  lengths.values = {2, 2};
  EXPECT_FALSE(rotary_tables(to_tensor(positions).view, frequencies.view, to_tensor(lengths).view));
}

// ---- Softmax of blocks ------------------------------------------------------------------------

TEST(BlockSoftmax, RowsSumToOneAndTheGradientIsTheDerivative) {
  const int64_t lengths[] = {2, 3, 0, 1};
  const Tensor x = random_tensor({2 * (4 + 9 + 1)}, DType::Float64, 1);
  const Tensor dy = random_tensor(x.view.shape, DType::Float64, 2);
  const Tensor y = to_tensor(block_softmax(x.view, 2, lengths).value());
  const Wide values = widen(y.view).value();
  EXPECT_NEAR(values.values[0] + values.values[1], 1.0, 1e-15);
  EXPECT_NEAR(values.values[8] + values.values[9] + values.values[10], 1.0, 1e-15);
  EXPECT_EQ(values.values[27], 1.0);
  EXPECT_NEAR(values.values[0], 1 / (1 + std::exp(value_at(x, 1) - value_at(x, 0))), 1e-15);

  const Wide dx = block_softmax_gradient(y.view, dy.view, 2, lengths).value();
  const Wide weights = widen(dy.view).value();
  const auto loss = [&](size_t index, double by) {
    Wide moved = widen(x.view).value();
    moved.values[index] += by;
    const Wide at = block_softmax(to_tensor(std::move(moved)).view, 2, lengths).value();
    return std::inner_product(at.values.begin(), at.values.end(), weights.values.begin(), 0.0);
  };
  for (size_t i = 0; i < 28; ++i)
    EXPECT_NEAR(dx.values[i], (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5, 1e-8);
}

TEST(BlockSoftmax, RefusesSequencesThatDoNotAddUp) {
  const Tensor x = random_tensor({8}, DType::Float32, 1);
  for (const int64_t length : {int64_t{1}, int64_t{3}, int64_t{-2}, INT64_MAX}) {
    const int64_t lengths[] = {length};
    EXPECT_FALSE(block_softmax(x.view, 2, lengths)) << length;
  }
  const int64_t lengths[] = {2};
  EXPECT_FALSE(block_softmax(x.view, -2, lengths));
  EXPECT_FALSE(block_softmax(x.view, INT64_MAX, lengths));
}

}  // namespace
}  // namespace assay::reference

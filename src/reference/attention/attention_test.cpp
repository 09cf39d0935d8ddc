// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "reference/attention/softmax_row.hpp"

namespace assay::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor tensor_of(const Dims& shape, const std::vector<double>& values) {
  Wide wide(shape);
  std::copy(values.begin(), values.end(), wide.values.begin());
  return to_tensor(std::move(wide));
}

Tensor random_tensor(const Dims& shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Wide wide(shape);
  for (double& value : wide.values) value = normal(generator);
  return to_tensor(std::move(wide));
}

double at(const TensorView& view, int64_t i, int64_t j, int64_t k) {
  const auto* values = reinterpret_cast<const double*>(view.storage.data());
  return values[view.offset_elements + i * view.strides[0] + j * view.strides[1] +
                k * view.strides[2]];
}

TensorView rows_of(const TensorView& view, int64_t first, int64_t count) {
  TensorView part = view;
  part.offset_elements += first * view.strides[0];
  part.shape[0] = count;
  return part;
}

/// One sequence of m queries and n keys, keys in two parts.
Attention one_sequence(int64_t m, int64_t n, int64_t heads, int64_t kv_heads, int64_t d,
                       int64_t dv) {
  Attention attention;
  attention.heads = heads;
  attention.kv_heads = kv_heads;
  attention.head_size = d;
  attention.value_size = dv;
  attention.scale = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(d, 1)));
  attention.owners = {random_tensor({m, heads, d}, 1), random_tensor({n, kv_heads, d}, 2),
                      random_tensor({n, kv_heads, dv}, 3)};
  AttentionSequence one;
  one.query = attention.owners[0].view;
  one.keys = {rows_of(attention.owners[1].view, 0, n / 3),
              rows_of(attention.owners[1].view, n / 3, n - n / 3)};
  one.values = {attention.owners[2].view};
  one.bias.offset = n - m;
  attention.sequences = {one};
  attention.output_shape = {m, heads, dv};
  attention.output_row_stride = heads * dv;
  attention.output_head_stride = dv;
  return attention;
}

/// The formula, element by element; `bias(head, row, column)` is what the sequence's bias stands
/// for.
template <typename Bias>
std::vector<double> by_hand(const Attention& attention, Bias bias) {
  const TensorView& q = attention.owners[0].view;
  const TensorView& k = attention.owners[1].view;
  const TensorView& v = attention.owners[2].view;
  const int64_t group = attention.heads / attention.kv_heads;
  std::vector<double> out;
  for (int64_t i = 0; i < q.shape[0]; ++i) {
    for (int64_t h = 0; h < attention.heads; ++h) {
      std::vector<double> weights;
      double sum = 0;
      for (int64_t j = 0; j < k.shape[0]; ++j) {
        double score = 0;
        for (int64_t c = 0; c < attention.head_size; ++c)
          score += at(q, i, h, c) * at(k, j, h / group, c);
        score *= attention.scale;
        if (attention.clamp)
          score = std::clamp(score, attention.clamp->first, attention.clamp->second);
        weights.push_back(std::exp(score + bias(h, i, j)));
        sum += weights.back();
      }
      for (int64_t c = 0; c < attention.value_size; ++c) {
        double total = 0;
        for (int64_t j = 0; j < v.shape[0]; ++j)
          total += weights[static_cast<size_t>(j)] * at(v, j, h / group, c);
        out.push_back(sum == 0 ? 0 : total / sum);
      }
    }
  }
  return out;
}

void expect_close(const Wide& found, const std::vector<double>& expected, double bound) {
  ASSERT_EQ(found.values.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(found.values[i], expected[i], bound) << "element " << i;
}

double no_bias(int64_t, int64_t, int64_t) { return 0; }

TEST(Attention, EqualScoresGiveTheMeanOfTheValues) {
  Attention attention;
  attention.heads = attention.kv_heads = attention.head_size = 1;
  attention.value_size = 2;
  attention.owners = {tensor_of({1, 1, 1}, {3}), tensor_of({2, 1, 1}, {5, 5}),
                      tensor_of({2, 1, 2}, {1, 10, 3, 30})};
  AttentionSequence one;
  one.query = attention.owners[0].view;
  one.keys = {attention.owners[1].view};
  one.values = {attention.owners[2].view};
  attention.sequences = {one};
  attention.output_shape = {1, 1, 2};
  attention.output_row_stride = attention.output_head_stride = 2;
  const Result<Wide> out = reference::attention(attention);
  ASSERT_TRUE(out);
  EXPECT_DOUBLE_EQ(out->values[0], 2);
  EXPECT_DOUBLE_EQ(out->values[1], 20);
}

TEST(Attention, AgreesWithTheFormulaForManyShapes) {
  const int64_t shapes[][6] = {{1, 1, 1, 1, 1, 1},   {1, 300, 8, 2, 16, 16}, {5, 5, 4, 4, 8, 3},
                               {17, 40, 6, 3, 7, 5}, {33, 700, 4, 1, 9, 12}, {3, 0, 2, 1, 4, 4},
                               {0, 4, 2, 2, 4, 4},   {2, 3, 2, 2, 0, 4}};
  for (const auto& s : shapes) {
    const Attention given = one_sequence(s[0], s[1], s[2], s[3], s[4], s[5]);
    const Result<Wide> out = reference::attention(given);
    ASSERT_TRUE(out) << out.error().message;
    expect_close(*out, by_hand(given, no_bias), 1e-12);
  }
}

TEST(Attention, CausalAndWindowForbidColumns) {
  Attention given = one_sequence(9, 14, 2, 1, 6, 4);  // query row i stands at position i + 5
  given.sequences[0].bias.causal = true;
  const auto causal = [](int64_t, int64_t i, int64_t j) { return j <= i + 5 ? 0.0 : -kInfinity; };
  expect_close(*reference::attention(given), by_hand(given, causal), 1e-12);
  given.sequences[0].bias.window = 3;
  const auto window = [](int64_t, int64_t i, int64_t j) {
    return j <= i + 5 && j > i + 5 - 3 ? 0.0 : -kInfinity;
  };
  expect_close(*reference::attention(given), by_hand(given, window), 1e-12);
}

TEST(Attention, AddsSlopesAndMasksAfterTheScale) {
  Attention given = one_sequence(4, 6, 2, 2, 5, 5);
  given.clamp = {-0.3, 0.4};
  ScoreBias& bias = given.sequences[0].bias;
  bias.slopes = {-0.5, 0.25};
  bias.distance = ScoreBias::Distance::SquareRoot;
  bias.causal = true;
  const auto root = [](int64_t h, int64_t i, int64_t j) {
    return j <= i + 2 ? (h == 0 ? -0.5 : 0.25) * std::sqrt(static_cast<double>(i + 2 - j))
                      : -kInfinity;
  };
  expect_close(*reference::attention(given), by_hand(given, root), 1e-12);

  bias = {};
  const Tensor mask = random_tensor({1, 4, 6}, 9);
  bias.dense = mask.view;
  bias.dense->shape[0] = 2;
  bias.dense->strides[0] = 0;
  bias.coefficient = -2;
  const auto dense = [&](int64_t, int64_t i, int64_t j) { return -2 * at(mask.view, 0, i, j); };
  expect_close(*reference::attention(given), by_hand(given, dense), 1e-12);
}

TEST(Attention, ARowThatSeesNothingIsZero) {
  Attention given = one_sequence(2, 3, 1, 1, 2, 2);
  given.sequences[0].bias.offset = -1;  // row 0 stands before the first key
  given.sequences[0].bias.causal = true;
  const Result<Wide> out = reference::attention(given);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->values[0], 0);
  EXPECT_EQ(out->values[1], 0);
  EXPECT_NEAR(out->values[2], at(given.owners[2].view, 0, 0, 0), 1e-15);
}

TEST(Attention, DoesNotDependOnThreads) {
  Attention given = one_sequence(20, 65, 8, 4, 16, 16);
  given.sequences.push_back(given.sequences[0]);
  given.sequences[1].output_offset = 20 * 8 * 16;
  given.output_shape = {40, 8, 16};
  EXPECT_EQ(reference::attention(given, 1)->values, reference::attention(given, 3)->values);
}

TEST(Attention, RoundedWeightsFollowTheirDefinition) {
  // Scores 0 and -ln 2: weights 1 and 1/2, sum 1.5; rne(127 / 2) = 64.
  Attention attention;
  attention.heads = attention.kv_heads = attention.head_size = attention.value_size = 1;
  attention.scale = std::log(2.0);
  attention.owners = {tensor_of({1, 1, 1}, {1}), tensor_of({2, 1, 1}, {0, -1}),
                      tensor_of({2, 1, 1}, {10, 4})};
  AttentionSequence one;
  one.query = attention.owners[0].view;
  one.keys = {attention.owners[1].view};
  one.values = {attention.owners[2].view};
  attention.sequences = {one};
  attention.output_shape = {1, 1, 1};
  attention.output_row_stride = attention.output_head_stride = 1;
  attention.rounding = WeightRounding::Online;
  attention.value_scale = {0.5};
  EXPECT_NEAR(reference::attention(attention)->values[0], (127 * 10 + 64 * 4) / 127.0 * 0.5 / 1.5,
              1e-12);
  attention.rounding = WeightRounding::OfflineDivide;
  attention.weight_scale = {0.3};  // 1 / 0.3 -> 3, 0.5 / 0.3 -> 2
  EXPECT_NEAR(reference::attention(attention)->values[0], (3 * 10 + 2 * 4) * 0.3 * 0.5 / 1.5,
              1e-12);
  attention.rounding = WeightRounding::OfflineMultiply;
  attention.weight_scale = {5};  // 5, rne(2.5) = 2
  EXPECT_NEAR(reference::attention(attention)->values[0], (5 * 10 + 2 * 4) * 0.5 / 1.5, 1e-12);
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  Attention given = one_sequence(2, 3, 4, 2, 2, 2);
  given.kv_heads = 3;
  EXPECT_EQ(reference::attention(given).error().message, "3 kv heads do not divide 4 query heads");
  given = one_sequence(2, 3, 4, 2, 2, 2);
  given.sequences[0].keys.pop_back();
  EXPECT_EQ(reference::attention(given).error().message, "1 keys, but 3 values");
  given = one_sequence(2, 3, 4, 2, 2, 2);
  given.output_shape = {1, 4, 2};
  EXPECT_EQ(reference::attention(given).error().code, Errc::Invalid);
  given = one_sequence(2, 3, 4, 2, 2, 2);
  given.head_size = 3;
  EXPECT_EQ(reference::attention(given).error().code, Errc::Invalid);
  given = one_sequence(2, 3, 4, 2, 2, 2);
  given.sequences[0].bias.slopes = {1, 2, 3};
  EXPECT_EQ(reference::attention(given).error().message, "slopes has 3 values, not 4");
}

TEST(FlashAttentionModel, StaysWithinTheRoundingOfItsType) {
  for (const int64_t n : {5, 128, 129, 700}) {
    Attention given = one_sequence(5, n, 4, 2, 16, 16);
    given.sequences[0].bias.causal = true;
    const Result<Wide> exact = reference::attention(given);
    for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32}) {
      const Result<Tensor> model = flash_attention_model(given, dtype);
      ASSERT_TRUE(model);
      EXPECT_EQ(model->view.dtype, dtype);
      const Wide values = *widen(model->view);
      const double bound = dtype == DType::Float16    ? 0x1p-9
                           : dtype == DType::BFloat16 ? 0x1p-6
                                                      : 0x1p-18;
      double largest = 0;
      for (size_t i = 0; i < values.values.size(); ++i)
        largest = std::max(largest, std::fabs(values.values[i] - exact->values[i]));
      EXPECT_LT(largest, bound) << n;
      if (dtype != DType::Float32) {
        EXPECT_GT(largest, bound / 512) << "it must round";
      }
    }
  }
}

TEST(SoftmaxRow, ExponentialsAgreeWithTheirPlainTwin) {
  std::mt19937 generator(7);
  std::uniform_real_distribution<double> uniform(-740, 0);
  for (const size_t count : {1u, 7u, 8u, 9u, 1000u}) {
    std::vector<double> fast(count);
    for (double& value : fast) value = uniform(generator) * std::pow(uniform(generator) / 740, 6);
    std::vector<double> plain = fast;
    const auto length = static_cast<int64_t>(count);
    const double sum = exponentials(fast.data(), length, 0.25);
    EXPECT_NEAR(exponentials_plain(plain.data(), length, 0.25) / sum, 1, 1e-14);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(fast[i], plain[i], 4e-16 * plain[i] + 3e-308);
    }
  }
}

TEST(SoftmaxRow, SpecialValues) {
  std::vector<double> values = {-kInfinity, NAN, 0, -800, 1, 1, 1, 1, -kInfinity, NAN};
  EXPECT_EQ(row_maximum(values.data(), 10), 1);
  EXPECT_TRUE(std::isnan(exponentials(values.data(), 10, 1)));
  EXPECT_EQ(values[0], 0);
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_NEAR(values[2], std::exp(-1), 1e-16);
  EXPECT_EQ(values[3], 0);
  EXPECT_EQ(values[4], 1);
  EXPECT_EQ(values[8], 0);
  EXPECT_TRUE(std::isnan(values[9]));
}

TEST(ScoreBias, SlopesOfHeadsThatAreNoPowerOfTwo) {
  const std::vector<double> slopes = alibi_slopes(6);  // 4 heads 2^-2..2^-8, then 2^-1, 2^-3
  EXPECT_EQ(slopes, (std::vector<double>{0.25, 0.0625, 0x1p-6, 0x1p-8, 0.5, 0.125}));
  EXPECT_TRUE(alibi_slopes(0).empty());
}

TEST(ScoreBias, CompressedColumnsMoveDownBlockByBlock) {
  // given a block of 2 columns of a 5 x 5 mask whose value is 10 (i - j) + j % 2
  ScoreBias bias;
  std::vector<double> values;
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 2; ++j) values.push_back(10 * (i - j) + j % 2);
  }
  const Tensor block = tensor_of({1, 5, 2}, values);
  bias.dense = block.view;
  bias.block_columns = 2;
  std::vector<double> scores(5, 0.0);
  std::vector<double> scratch(5);
  add_bias(bias, 0, 3, scores, scratch);
  EXPECT_EQ(scores, (std::vector<double>{30, 21, 10, 1, -kInfinity}));
}

}  // namespace
}  // namespace assay::reference

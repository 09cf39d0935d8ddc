// SPDX-License-Identifier: Apache-2.0
#include "reference/aten/magnitudes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

Tensor tensor_of(const Dims& shape, std::initializer_list<double> values) {
  Wide wide(shape);
  std::copy(values.begin(), values.end(), wide.values.begin());
  return to_tensor(std::move(wide));
}

Tensor random_tensor(DType dtype, const Dims& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> value(0, 1);
  Wide wide(shape);
  for (double& each : wide.values) each = value(random);
  return narrow(to_tensor(std::move(wide)).view, dtype).value();
}

Call call_of(std::string name, std::map<std::string, Argument, std::less<>> arguments) {
  return {std::move(name), std::move(arguments)};
}
Argument list_of(std::initializer_list<int64_t> values) {
  ArgumentList list;
  for (const int64_t value : values) list.push_back({value});
  return {list};
}

std::vector<double> values_of(const Wide& wide) { return {wide.values.begin(), wide.values.end()}; }

TEST(Magnitudes, OfAProductAreThoseOfItsTerms) {
  const Call call = call_of("aten.addmm.default", {{"self", {tensor_of({2}, {-1, 10})}},
                                                   {"mat1", {tensor_of({2, 2}, {1, -2, 3, 4})}},
                                                   {"mat2", {tensor_of({2, 2}, {5, 6, -7, 8})}},
                                                   {"alpha", {int64_t{-2}}},
                                                   {"beta", {0.5}}});
  const Magnitudes all = magnitudes(call).value();
  // |1| 5 + |-2| 7 = 19, twice, and half of |-1|.
  EXPECT_EQ(values_of(all.c), (std::vector<double>{38.5, 49, 86.5, 105}));
  EXPECT_EQ(all.terms, 2);

  const std::vector<int64_t> rows{1};
  const Magnitudes one = magnitudes(call, 0, {.rows = rows}).value();
  EXPECT_EQ(values_of(one.c), (std::vector<double>{86.5, 105}));
  // -2 (3 5 - 4 7) - 0.5 = 25.5,  -2 (18 + 32) + 5 = -95
  EXPECT_EQ(values_of(product_rows(call, rows).value()), (std::vector<double>{25.5, -95}));
}

TEST(Magnitudes, OfReductions) {
  const Tensor x = tensor_of({2, 4}, {1, -1, 2, -4, 3, 3, 3, 3});
  const auto of = [&](const std::string& name) {
    return magnitudes(call_of(name, {{"self", {x}}, {"dim", list_of({1})}})).value();
  };
  EXPECT_EQ(values_of(of("aten.mean.dim").c), (std::vector<double>{2, 3}));
  EXPECT_EQ(of("aten.mean.dim").terms, 4);
  EXPECT_EQ(values_of(of("aten.sum.dim_IntList").c), (std::vector<double>{8, 12}));
  // Mean -0.5, mean |x| 2; sum (x - mean)^2 = 2.25 + 0.25 + 6.25 + 12.25 = 21;
  // sum |x - mean| (|x| + 2) = 1.5 3 + 0.5 3 + 2.5 4 + 3.5 6 = 37. Constant rows have no variance.
  EXPECT_EQ(values_of(of("aten.var.correction").c), (std::vector<double>{(21 + 2 * 37.0) / 3, 0}));
  const Magnitudes running =
      magnitudes(call_of("aten.cumsum.default", {{"self", {x}}, {"dim", {int64_t{1}}}})).value();
  EXPECT_EQ(values_of(running.c), (std::vector<double>{1, 2, 4, 8, 3, 6, 9, 12}));
}

TEST(Magnitudes, OfALayerNormCountTheMeanOfMagnitudes) {
  const Call call =
      call_of("aten.native_layer_norm.default", {{"input", {tensor_of({1, 2}, {3, -1})}},
                                                 {"normalized_shape", list_of({2})},
                                                 {"weight", {tensor_of({2}, {-2, 1})}},
                                                 {"bias", {tensor_of({2}, {0.5, -4})}},
                                                 {"eps", {0.0}}});
  // Mean 1, variance 4, rstd 1/2, mean |x| = 2: (3 + 2) / 2 * 2 + 0.5, (1 + 2) / 2 + 4.
  EXPECT_EQ(values_of(magnitudes(call).value().c), (std::vector<double>{5.5, 5.5}));
  const Magnitudes mean = magnitudes(call, 1).value();
  EXPECT_EQ(values_of(mean.c), (std::vector<double>{2}));
  EXPECT_EQ(mean.terms, 2);
  EXPECT_FALSE(magnitudes(call, 3).has_value());
}

TEST(Magnitudes, OfAttentionAreItsFormula) {
  constexpr int64_t kHeads = 4, kKvHeads = 2, kQueries = 5, kKeys = 7, kSize = 3, kValue = 2;
  const Tensor q = random_tensor(DType::BFloat16, {2, kHeads, kQueries, kSize}, 1);
  const Tensor k = random_tensor(DType::BFloat16, {2, kKvHeads, kKeys, kSize}, 2);
  const Tensor v = random_tensor(DType::BFloat16, {2, kKvHeads, kKeys, kValue}, 3);
  const Call call = call_of("aten.scaled_dot_product_attention.default", {{"query", {q}},
                                                                          {"key", {k}},
                                                                          {"value", {v}},
                                                                          {"is_causal", {true}},
                                                                          {"scale", {0.7}},
                                                                          {"enable_gqa", {true}}});
  const Magnitudes found = magnitudes(call).value();
  const Wide queries = widen(q.view).value(), keys = widen(k.view).value(),
             values = widen(v.view).value();
  ASSERT_EQ(found.c.shape, (Dims{2, kHeads, kQueries, kValue}));
  ASSERT_EQ(found.score_bound.size(), 2 * kHeads * kQueries);
  for (int64_t line = 0; line < 2 * kHeads * kQueries; ++line) {
    const int64_t head = line / kQueries;  // of all batches
    const int64_t row = line % kQueries;
    const double* key = keys.data() + head / (kHeads / kKvHeads) * kKeys * kSize;
    const double* value = values.data() + head / (kHeads / kKvHeads) * kKeys * kValue;
    double sum = 0, most_q = 0, most_k = 0;
    std::vector<double> weights;
    for (int64_t j = 0; j < kKeys; ++j) {
      double score = 0, length = 0;
      for (int64_t c = 0; c < kSize; ++c) {
        score += queries.data()[line * kSize + c] * key[j * kSize + c];
        length += key[j * kSize + c] * key[j * kSize + c];
      }
      weights.push_back(j <= row ? std::exp(0.7 * score) : 0);
      sum += weights.back();
      most_k = std::fmax(most_k, std::sqrt(length));
    }
    for (int64_t i = 0; i < kQueries; ++i) {
      double length = 0;
      for (int64_t c = 0; c < kSize; ++c)
        length += std::pow(queries.data()[(head * kQueries + i) * kSize + c], 2);
      most_q = std::fmax(most_q, std::sqrt(length));
    }
    EXPECT_NEAR(found.score_bound.data()[line], 0.7 * most_q * most_k, 1e-12);
    for (int64_t c = 0; c < kValue; ++c) {
      double size = 0, squares = 0;
      for (int64_t j = 0; j < kKeys; ++j) {
        const double p = weights[static_cast<size_t>(j)] / sum;
        size += p * std::fabs(value[j * kValue + c]);
        squares += std::pow(p * value[j * kValue + c], 2);
      }
      EXPECT_NEAR(found.c.data()[line * kValue + c], size, 1e-13);
      EXPECT_NEAR(found.variance.data()[line * kValue + c], squares, 1e-13);
    }
  }
  const std::vector<int64_t> rows{3, 17};
  const Magnitudes some = magnitudes(call, 0, {.rows = rows}).value();
  EXPECT_EQ(some.c.shape, (Dims{2, kValue}));
  EXPECT_EQ(some.c.data()[3], found.c.data()[17 * kValue + 1]);
  EXPECT_EQ(some.score_bound.data()[1], found.score_bound.data()[17]);
}

TEST(Magnitudes, OfKernelsWithHeadsBehindRowsFollowTheirOwnLayout) {
  const Tensor q = random_tensor(DType::Float32, {1, 2, 3, 4}, 5);  // [batch, rows, heads, size]
  const auto turned = [](Tensor tensor) {
    std::swap(tensor.view.shape[1], tensor.view.shape[2]);
    std::swap(tensor.view.strides[1], tensor.view.strides[2]);
    return tensor;
  };
  const Magnitudes flash =
      magnitudes(call_of("aten._flash_attention_forward.default",
                         {{"query", {q}}, {"key", {q}}, {"value", {q}}, {"is_causal", {false}}}))
          .value();
  const Tensor t = turned(q);
  const Magnitudes plain = magnitudes(call_of("aten.scaled_dot_product_attention.default",
                                              {{"query", {t}}, {"key", {t}}, {"value", {t}}}))
                               .value();
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t head = 0; head < 3; ++head) {
      const int64_t here = row * 3 + head, there = head * 2 + row;
      EXPECT_EQ(flash.score_bound.data()[here], plain.score_bound.data()[there]);
      EXPECT_EQ(flash.c.data()[here * 4 + 1], plain.c.data()[there * 4 + 1]);
    }
  }
}

TEST(Magnitudes, OfSoftmaxCountTheDifferencesThatAreRounded) {
  const Tensor x = tensor_of({1, 2}, {100, 68});
  const double log_sum = std::log1p(std::exp(-32.0));
  const auto of = [&](const std::string& name, Argument dim) {
    return values_of(magnitudes(call_of(name, {{"self", {x}}, {"dim", dim}})).value().c);
  };
  const std::vector<double> each = of("aten.log_softmax.int", {int64_t{1}});
  EXPECT_NEAR(each[0], 1 + log_sum, 1e-15);
  EXPECT_NEAR(each[1], 33 + log_sum, 1e-13);
  EXPECT_NEAR(of("aten.logsumexp.default", list_of({1}))[0], 101 + log_sum, 1e-13);
  const std::vector<double> share = of("aten.softmax.int", {int64_t{1}});
  EXPECT_NEAR(share[0], 1, 1e-13);
  EXPECT_NEAR(share[1], 3 * std::exp(-32.0), 1e-26);
}

TEST(Magnitudes, RefuseWhatHasNoneAndRowsThatAreNotThere) {
  const Tensor x = tensor_of({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(magnitudes(call_of("aten.relu.default", {{"self", {x}}})).error().code,
            Errc::Unsupported);
  const Call product = call_of("aten.mm.default", {{"self", {x}}, {"mat2", {x}}});
  for (const std::vector<int64_t>& rows :
       {std::vector<int64_t>{2}, std::vector<int64_t>{-1}, std::vector<int64_t>{1, 0}}) {
    EXPECT_EQ(magnitudes(product, 0, {.rows = rows}).error().code, Errc::Invalid);
    EXPECT_EQ(product_rows(product, rows).error().code, Errc::Invalid);
  }
  EXPECT_EQ(magnitudes(product, 1).error().code, Errc::Unsupported);
}

/// Calls of products of all forms: rows alone are those of the whole result, and C is no smaller
/// than the result.
TEST(ProductRows, AreRowsOfTheWholeResult) {
  auto random = [seed = 10u](DType dtype, const Dims& shape) mutable {
    return random_tensor(dtype, shape, ++seed);
  };
  const Tensor x = random(DType::BFloat16, {6, 5}), w = random(DType::Float16, {5, 20});
  const Tensor batch = random(DType::Float32, {3, 1, 4, 5}),
               other = random(DType::Float32, {2, 5, 7});
  const std::vector<Call> calls = {
      call_of("aten.mm.default", {{"self", {x}}, {"mat2", {w}}}),
      call_of("aten.linear.default", {{"input", {batch}},
                                      {"weight", {random(DType::BFloat16, {9, 5})}},
                                      {"bias", {random(DType::BFloat16, {9})}}}),
      call_of("aten.matmul.default", {{"self", {batch}}, {"other", {other}}}),
      call_of("aten.matmul.default", {{"self", {random(DType::Float32, {5})}}, {"other", {other}}}),
      call_of("aten.matmul.default", {{"self", {batch}}, {"other", {random(DType::Float32, {5})}}}),
      call_of("aten.baddbmm.default", {{"self", {random(DType::Float32, {2, 1, 7})}},
                                       {"batch1", {random(DType::Float32, {2, 4, 5})}},
                                       {"batch2", {other}},
                                       {"beta", {0.25}}}),
      call_of("aten.addmm_.default",
              {{"self", {random(DType::Float32, {6, 20})}}, {"mat1", {x}}, {"mat2", {w}}}),
      call_of("aten.einsum.default",
              {{"equation", {std::string("abcd,ed->bcae")}},
               {"tensors", {ArgumentList{{batch}, {random(DType::Float32, {3, 5})}}}}}),
      call_of("aten.conv1d.default", {{"input", {random(DType::Float32, {2, 4, 9})}},
                                      {"weight", {random(DType::Float32, {4, 1, 3})}},
                                      {"groups", {int64_t{4}}}}),
  };
  for (const Call& call : calls) {
    SCOPED_TRACE(call.name);
    const Tensor whole_result = evaluate(call).value()[0];
    const Wide values = widen(whole_result.view).value();
    const int64_t last = values.shape[values.shape.size() - 1];
    const int64_t count = values.size() / last;
    std::vector<int64_t> rows{0, count / 2, count - 1};
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    for (const int jobs : {1, 3}) {
      const Wide some = product_rows(call, rows, jobs).value();
      ASSERT_EQ(some.size(), static_cast<int64_t>(rows.size()) * last);
      for (size_t i = 0; i < rows.size(); ++i)
        for (int64_t j = 0; j < last; ++j)
          EXPECT_NEAR(some.data()[static_cast<int64_t>(i) * last + j],
                      values.data()[rows[i] * last + j], 1e-13);
    }
    const Wide c = magnitudes(call).value().c;
    ASSERT_EQ(c.size(), values.size());
    const Wide c_rows = magnitudes(call, 0, {.rows = rows}).value().c;
    for (int64_t i = 0; i < c.size(); ++i)
      EXPECT_LE(std::fabs(values.data()[i]), c.data()[i] * (1 + 1e-14));
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_NEAR(c_rows.data()[static_cast<int64_t>(i) * last], c.data()[rows[i] * last], 1e-13);
  }
}

}  // namespace
}  // namespace assay::reference::aten

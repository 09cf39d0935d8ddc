// SPDX-License-Identifier: Apache-2.0
#include "locate/judge/judge_sums.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "locate/judge/judge_output.hpp"
#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using reference::Wide;
using reference::aten::Argument;
using reference::aten::Call;

constexpr int64_t kRows = 32, kDepth = 768, kColumns = 200;

/// x [32, 768] . w [768, 200] as a float32 kernel adds it up: one multiply-add after the other.
struct Product {
  Call call;
  std::vector<float> x, w, y;

  explicit Product(uint32_t seed, double mean = 0) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < kRows * kDepth; ++i)
      x.push_back(static_cast<float>(mean + normal(random)));
    for (int64_t i = 0; i < kDepth * kColumns; ++i)
      w.push_back(static_cast<float>(0.05 * (mean + normal(random))));
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < kDepth; ++k) sum = std::fma(of(x, i, k, kDepth), of(w, k, j), sum);
        y.push_back(sum);
      }
    }
    call.name = "aten.mm.default";
    call.arguments["self"] = Argument{tensor(x, {kRows, kDepth})};
    call.arguments["mat2"] = Argument{tensor(w, {kDepth, kColumns})};
  }

  static float of(const std::vector<float>& values, int64_t i, int64_t j,
                  int64_t columns = kColumns) {
    return values[static_cast<size_t>(i * columns + j)];
  }
  float& at(int64_t i, int64_t j) { return y[static_cast<size_t>(i * kColumns + j)]; }
  static Tensor tensor(const std::vector<float>& values, const Dims& shape) {
    Wide wide(shape);
    std::copy(values.begin(), values.end(), wide.values.begin());
    return reference::narrow(reference::to_tensor(std::move(wide)).view, DType::Float32).value();
  }
  /// 2 sqrt(K) u C of an element.
  [[nodiscard]] double allowed(int64_t i, int64_t j) const {
    double c = 0;
    for (int64_t k = 0; k < kDepth; ++k)
      c += std::fabs(static_cast<double>(of(x, i, k, kDepth)) * of(w, k, j));
    return 2 * std::sqrt(static_cast<double>(kDepth)) * 0x1p-24 * c;
  }
  [[nodiscard]] OwnError exactly() const {
    const Tensor mine = tensor(y, {kRows, kColumns});
    return judge_output(call, reference::aten::evaluate(call).value(), 0, mine.view).value();
  }
  [[nodiscard]] std::optional<OwnError> by_sums() const {
    return judge_by_sums(call, tensor(y, {kRows, kColumns}).view, 1).value();
  }
};

TEST(JudgeBySums, PassesAHealthyKernelAsTheProductDoes) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    const Product product(seed);
    const std::optional<OwnError> judged = product.by_sums();
    ASSERT_TRUE(judged);
    EXPECT_TRUE(judged->by_sums);
    EXPECT_EQ(judged->state, OwnError::State::Judged);
    EXPECT_LE(judged->e, 0.5);
    EXPECT_LT(judged->z, 1);
    // The energy of the errors is estimated from 32 * 4 * 2 sums.
    const OwnError exact = product.exactly();
    EXPECT_LE(exact.e, 1.05);
    EXPECT_NEAR(judged->relative_l2, exact.relative_l2, 0.4 * exact.relative_l2);
  }
}

TEST(JudgeBySums, LeavesEveryElementToTheProductThatItWouldCallWrong) {
  const Product healthy(4);
  std::mt19937 random(9);
  for (int draw = 0; draw < 200; ++draw) {
    Product spoilt = healthy;
    const auto i = static_cast<int64_t>(random() % kRows);
    const auto j = static_cast<int64_t>(random() % kColumns);
    const double sign = random() % 2 == 0 ? 1 : -1;
    // The limit of e is 2; the healthy error of the element may point the other way.
    spoilt.at(i, j) += static_cast<float>(sign * 2.3 * healthy.allowed(i, j));
    ASSERT_FALSE(spoilt.by_sums()) << i << ' ' << j;
  }
}

TEST(JudgeBySums, SeesExchangedColumnsAndWrongRows) {
  const Product healthy(5);
  Product exchanged = healthy;
  for (int64_t i = 0; i < kRows; ++i) std::swap(exchanged.at(i, 70), exchanged.at(i, 90));
  EXPECT_FALSE(exchanged.by_sums());
  Product scaled = healthy;  // by a thousandth, in one row
  for (int64_t j = 0; j < kColumns; ++j) scaled.at(3, j) *= 1.001F;
  EXPECT_FALSE(scaled.by_sums());
  Product zero = healthy;
  for (int64_t j = 0; j < kColumns; ++j) zero.at(15, j) = 0;
  EXPECT_FALSE(zero.by_sums());
}

TEST(JudgeBySums, LeavesNaNAndInfinityToTheProduct) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Product product(6);
    product.at(2, 199) = value;
    EXPECT_FALSE(product.by_sums());
  }
}

TEST(JudgeBySums, DoesNotDependOnThreads) {
  const Product product(7);
  const Tensor mine = Product::tensor(product.y, {kRows, kColumns});
  const OwnError one = judge_by_sums(product.call, mine.view, 1).value().value();
  const OwnError three = judge_by_sums(product.call, mine.view, 3).value().value();
  EXPECT_EQ(std::bit_cast<uint64_t>(one.z), std::bit_cast<uint64_t>(three.z));
  EXPECT_EQ(one.e, three.e);
}

TEST(JudgeBySums, IsForLargeFloat32Products) {
  const Product product(8);
  const Tensor mine = Product::tensor(product.y, {kRows, kColumns});
  const auto work = static_cast<double>(uint64_t{1} << 24);
  EXPECT_TRUE(can_judge_by_sums(product.call, mine.view, work));
  EXPECT_FALSE(can_judge_by_sums(product.call, mine.view, 1000));
  const Tensor half = reference::narrow(mine.view, DType::BFloat16).value();
  EXPECT_FALSE(can_judge_by_sums(product.call, half.view, work));
}

/// One product as a program.
Program program_of(const Product& product, test::TestRun* made) {
  const auto value = [&](const std::vector<float>& values, const Dims& shape) {
    return made->value(DType::Float32, shape, std::vector<double>(values.begin(), values.end()));
  };
  made->op(
      "proj", "aten.mm.default",
      {{"self", value(product.x, {kRows, kDepth})}, {"mat2", value(product.w, {kDepth, kColumns})}},
      R"({"self":{"tensor":"self"},"mat2":{"tensor":"mat2"}})",
      value(product.y, {kRows, kColumns}));
  return made->program();
}

TEST(OwnErrors, BySumsFindTheSameFaultWithTheSameMeasures) {
  // 32 * 768 * 200 = 4.9 M multiplications: more than the 4.2 M from which on sums are tried
  Product product(10);
  product.at(7, 33) += static_cast<float>(5 * product.allowed(7, 33));
  test::TestRun made;
  const Program program = program_of(product, &made);
  OwnErrorOptions options;
  options.by_sums = true;
  const OwnErrors exact = own_errors(program, {}).value();
  const OwnErrors sums = own_errors(program, options).value();
  ASSERT_EQ(exact.findings.size(), 1u);
  ASSERT_EQ(sums.findings.size(), 1u);
  EXPECT_EQ(sums.findings[0].ratio, exact.findings[0].ratio);
  EXPECT_EQ(sums.findings[0].detail, exact.findings[0].detail);
}

TEST(OwnErrors, LargeViewsAreCheckedInParts) {
  // Given  a transposed matrix of 512 rows; captured as it is, with a wrong row among those looked
  //        at, and with another one
  constexpr int64_t kSize = 512;
  std::vector<double> values, turned;
  for (int64_t i = 0; i < kSize * kSize; ++i) values.push_back(static_cast<double>(i % 8191));
  for (int64_t i = 0; i < kSize; ++i) {
    for (int64_t j = 0; j < kSize; ++j)
      turned.push_back(values[static_cast<size_t>(j * kSize + i)]);
  }
  const auto judged = [&](int64_t wrong_row) {
    std::vector<double> captured = turned;
    if (wrong_row >= 0) captured[static_cast<size_t>(wrong_row * kSize + 5)] += 1;
    test::TestRun made;
    made.op("proj", "aten.t.default",
            {{"self", made.value(DType::Float32, {kSize, kSize}, values)}},
            R"({"self":{"tensor":"self"}})", made.value(DType::Float32, {kSize, kSize}, captured));
    OwnErrorOptions options;
    options.by_sums = true;
    return own_errors(made.program(), options).value();
  };
  const OwnErrors healthy = judged(-1);
  EXPECT_TRUE(healthy.outputs[0].sampled);
  EXPECT_EQ(healthy.outputs[0].state, OwnError::State::Exact);
  EXPECT_EQ(judged(260).findings.size(), 1u);
  EXPECT_TRUE(judged(100).findings.empty());  // the price: between the parts nobody looks
}

}  // namespace
}  // namespace assay::locate

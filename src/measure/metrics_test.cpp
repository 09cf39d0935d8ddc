// SPDX-License-Identifier: Apache-2.0
#include "measure/metrics.hpp"
#include "measure/pair_sums.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "measure/kl_divergence.hpp"
#include "measure/test_metrics_reference.hpp"
#include "measure/test_random_views.hpp"
#include "measure/vector_exp.hpp"
#include "tensor/convert.hpp"
#include "tensor/half.hpp"

namespace assay::measure {
namespace {

/// The divergence of values given as golden and mine - golden.
KlPart kl_of(const std::vector<double>& golden, const std::vector<double>& difference, size_t begin,
             size_t count) {
  std::vector<double> mine;
  for (size_t i = 0; i < count; ++i) mine.push_back(golden[begin + i] + difference[begin + i]);
  return kl_of_values(golden.data() + begin, mine.data(), difference.data() + begin, nullptr,
                      static_cast<int64_t>(count));
}

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr MetricOptions kFloat32{MetricRules::Float32, true, 1};

template <typename T>
TensorView view_of(DType dtype, const std::vector<T>& values, const Dims& shape) {
  return *make_view(dtype, shape, std::as_bytes(std::span(values)));
}
TensorView floats(const std::vector<float>& values) {
  return view_of(DType::Float32, values, {static_cast<int64_t>(values.size())});
}
TensorView doubles(const std::vector<double>& values) {
  return view_of(DType::Float64, values, {static_cast<int64_t>(values.size())});
}
std::string ten_digits(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.10f", value);
  return text;
}

// ---- The exponential ----------------------------------------------------------------------------

double exp_of_one(double x) { return exp_of(exp_parts(simd::f64x8{} + x))[0]; }

TEST(VectorExp, IsWithin5e16OfTheTrueValue) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform(kExpUnderflow, 709.0);
  long double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 == 0 ? uniform(random) : uniform(random) * 1e-3;
    const long double expected = std::exp(static_cast<long double>(x));
    worst = std::max(worst, std::fabs(exp_of_one(x) - expected) / expected);
  }
  EXPECT_LT(worst, 5e-16L);
}

TEST(VectorExp, EndsOfTheRange) {
  EXPECT_EQ(exp_of_one(0), 1);
  EXPECT_EQ(exp_of_one(-0.0), 1);
  EXPECT_EQ(exp_of_one(-708.5), 0);
  EXPECT_EQ(exp_of_one(-kInf), 0);
  EXPECT_EQ(exp_of_one(-1e300), 0);
  EXPECT_EQ(exp_of_one(1e300), kInf);
  EXPECT_EQ(exp_of_one(kInf), kInf);
}

TEST(VectorExp, SeveralVectorsHaveTheBitsOfOne) {
  std::mt19937_64 random(6);
  std::uniform_real_distribution<double> uniform(-760, 0);
  for (int i = 0; i < 20000; ++i) {
    Vectors<2> x{};
    for (simd::f64x8& vector : x.at) {
      for (int lane = 0; lane < 8; ++lane) vector[lane] = uniform(random) * (lane < 4 ? 1 : 1e-2);
    }
    if (i == 0) x.at[0] = simd::f64x8{0, -0.0, -708, -708.5, -kInf, -1e300, -5e-324, -1};
    const Vectors<2> together = exp_of_nonpositive(x);
    for (int v = 0; v < 2; ++v) {
      const simd::f64x8 alone = exp_of(exp_parts(x.at[v]));
      ASSERT_EQ(std::memcmp(&together.at[v], &alone, sizeof(alone)), 0) << i;
    }
  }
}

TEST(VectorExp, ExcessKeepsItsDigitsNearZero) {
  long double worst = 0;
  for (double x = 1e-150; x < 0.34; x *= 1.37) {
    for (const double signed_x : {x, -x}) {
      // exp(x) - 1 - x by its series in long double.
      const auto wide = static_cast<long double>(signed_x);
      long double term = wide * wide / 2;
      long double expected = 0;
      for (int n = 3; n < 40; ++n) {
        expected += term;
        term *= wide / n;
      }
      const double excess = exp_parts(simd::f64x8{} + signed_x).excess[0];
      worst = std::max(worst, std::fabs(excess - expected) / expected);
    }
  }
  EXPECT_LT(worst, 6e-16L);
}

// ---- The divergence -----------------------------------------------------------------------------

/// Exact to about 30 digits: positive terms q - p - p log(q / p) in quadruple precision where they
/// would cancel.
double divergence_by_hand(const std::vector<double>& g, const std::vector<double>& d) {
#if defined(__SIZEOF_FLOAT128__)
  using Quad = __float128;
#else
  using Quad = long double;  // of 113 bits on 64-bit ARM
  static_assert(std::numeric_limits<long double>::digits == 113);
#endif
  const double largest = *std::max_element(g.begin(), g.end());
  std::vector<long double> p;
  long double total = 0;
  for (const double value : g) {
    p.push_back(std::exp(static_cast<long double>(value) - largest));
    total += p.back();
  }
  long double mean = 0;
  for (size_t i = 0; i < g.size(); ++i) mean += (p[i] /= total) * d[i];
  // KL = log(1 + sum p (exp(x) - 1 - x) + sum p x) - sum p x,  x = d - mean
  Quad excess = 0;
  Quad rest = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    const long double x = d[i] - mean;
    rest += static_cast<Quad>(p[i]) * x;
    if (std::fabs(x) > 0.1L) {
      excess += static_cast<Quad>(std::exp(std::log(p[i]) + x)) - static_cast<Quad>(p[i]) * (1 + x);
      continue;
    }
    Quad term = static_cast<Quad>(x) * x / 2;
    for (int n = 3; n < 25; ++n) {
      excess += static_cast<Quad>(p[i]) * term;
      term *= static_cast<Quad>(x) / n;
    }
  }
  const auto first_order = static_cast<long double>(rest);
  return static_cast<double>(std::log1p(static_cast<long double>(excess) + first_order) -
                             first_order);
}

TEST(KlDivergence, OfTwoPointsByHand) {
  // p = (1/2, 1/2), q = (1/4, 3/4): (log 2 + log 2/3) / 2 = 0.1438410362
  const std::vector<double> g = {0, 0};
  const std::vector<double> d = {0, std::log(3.0)};
  EXPECT_NEAR(kl_of(g, d, 0, 2).divergence, 0.14384103622589045, 1e-16);
}

TEST(KlDivergence, OfNearlyEqualTensorsKeepsTwelveDigits) {
  std::mt19937 random(9);
  std::normal_distribution<double> normal;
  for (const double noise : {1.0, 1e-2, 1e-4, 1e-6, 1e-9, 1e-12}) {
    std::vector<double> g(2000);
    std::vector<double> d(2000);
    for (size_t i = 0; i < g.size(); ++i) {
      g[i] = 3 * normal(random);
      d[i] = noise * normal(random);
    }
    const double expected = divergence_by_hand(g, d);
    const double divergence = kl_of(g, d, 0, 2000).divergence;
    EXPECT_NEAR(divergence / expected, 1, 1e-12) << noise;
    EXPECT_NEAR(divergence / (noise * noise), 0.7, 0.6) << noise;  // half the weighted variance
  }
}

/// Random elements of a type at an odd address, and what they are as doubles.
struct Elements {
  std::vector<std::byte> storage;
  std::vector<double> values;

  Elements(DType dtype, int64_t count, std::mt19937& random) {
    std::normal_distribution<float> normal;
    const size_t size = dtype == DType::Float32 ? 4 : 2;
    storage.resize(1 + static_cast<size_t>(count) * size);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const auto bits = std::bit_cast<uint32_t>(normal(random));
      // Any upper half is a bf16; as fp16 its exponents are all between 2^-15 and 2^1.
      const uint32_t stored = dtype == DType::Float32 ? bits : bits >> 16;
      std::memcpy(storage.data() + 1 + i * size, &stored, size);
      const auto half = static_cast<uint16_t>(stored);
      values.push_back(static_cast<double>(dtype == DType::Float32    ? std::bit_cast<float>(bits)
                                           : dtype == DType::BFloat16 ? bfloat16_to_float(half)
                                                                      : float16_to_float(half)));
    }
  }
};

TEST(PairSums, ReadingElementsGivesTheBitsOfSeparateSteps) {
  std::mt19937 random(4);
  constexpr DType kTypes[] = {DType::Float32, DType::BFloat16, DType::Float16};
  int kernels = 0;
  for (const DType golden_type : kTypes) {
    for (const DType mine_type : kTypes) {
      const ReadPairs read_pairs = pair_reader(golden_type, mine_type);
      if (read_pairs == nullptr) continue;
      ++kernels;
      for (const int64_t count : {0, 1, 7, 8, 27, 1024}) {
        const Elements golden(golden_type, count, random);
        const Elements mine(mine_type, count, random);
        std::vector<double> d(golden.values.size());
        std::ranges::transform(mine.values, golden.values, d.begin(), std::minus<>());
        std::vector<double> read_g(d.size()), read_m(d.size()), read_d(d.size());
        const PairSums read = read_pairs({golden.storage.data() + 1, mine.storage.data() + 1, count,
                                          read_g.data(), read_m.data(), read_d.data()});
        const PairSums sums = sum_pairs(MetricRules::Corrected, golden.values.data(),
                                        mine.values.data(), d.data(), count);
        EXPECT_EQ(read_g, golden.values);
        EXPECT_EQ(read_m, mine.values);
        EXPECT_EQ(read_d, d);
        EXPECT_EQ(read.count, count);
        EXPECT_EQ(read.product, sums.product);
        EXPECT_EQ(read.relative, sums.relative);
        EXPECT_EQ(read.difference_squared, sums.difference_squared);
        EXPECT_EQ(read.golden_max, sums.golden_max);
        EXPECT_EQ(read.max_relative, sums.max_relative);
      }
    }
  }
  EXPECT_EQ(kernels, 7);  // two types of 16 bits against each other are read apart
}

TEST(KlDivergence, SurvivesMasksAndHugeValues) {
  // A masked logit: -65504 on one side, -1e9 on the other, no weight on either.
  const std::vector<double> g = {1, 2, -65504};
  const std::vector<double> d = {1e-3, 0, -1e9 + 65504};
  const std::vector<double> g2 = {1, 2};
  EXPECT_NEAR(kl_of(g, d, 0, 3).divergence / kl_of(g2, d, 0, 2).divergence, 1, 1e-12);
  // All weight of mine where golden has half: log(1/2) / 2 + (1000 - log 2 ... ) = 500 - log 2
  const std::vector<double> flat = {0, 0};
  const std::vector<double> jump = {0, 1000};
  EXPECT_NEAR(kl_of(flat, jump, 0, 2).divergence, 500 - std::log(2.0), 1e-10);
}

TEST(CompareTensors, DivergenceOfHugeValues) {
  // p = (0, 1, 0); q = softmax(1, -65504, 0): -log q_1 = 65505 + log(1 + 1/e)
  const PairMetrics peaked =
      compare_tensors(floats({-65504, 1e38f, 3e37f}), floats({1, -65504, 0}));
  EXPECT_DOUBLE_EQ(peaked.kl_divergence, 65505 + std::log1p(std::exp(-1.0)));
  // p = (1/2, 1/2), q = (0, 1)
  const PairMetrics masked = compare_tensors(floats({-3.4e38f, -3.4e38f}), floats({-1e30f, 5e36f}));
  EXPECT_NEAR(masked.kl_divergence / 2.5e36, 1, 1e-6);
  // A constant of 1e38 between the sides is invisible: softmax(0, 0) against softmax(0, log 3).
  const PairMetrics shifted = compare_tensors(doubles({1e38, 1e38}), doubles({0, std::log(3.0)}));
  EXPECT_NEAR(shifted.kl_divergence, 0.14384103622589045, 1e-15);
}

RC_GTEST_PROP(KlReducer, CutsDoNotMatter, ()) {
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  std::normal_distribution<double> normal;
  const auto count = *rc::gen::inRange<size_t>(1, 2000);
  const double noise = std::pow(10.0, *rc::gen::inRange(-9, 2));
  std::vector<double> g(count);
  std::vector<double> d(count);
  for (size_t i = 0; i < count; ++i) {
    g[i] = 5 * normal(random);
    d[i] = noise * normal(random);
  }
  KlReducer reducer;
  for (size_t at = 0; at < count;) {
    const size_t length = std::min<size_t>(count - at, 1 + random() % 40);
    reducer.push(kl_of(g, d, at, length));
    at += length;
  }
  const KlPart whole = kl_of(g, d, 0, count);
  const KlPart joined = reducer.finish();
  RC_ASSERT(reducer.empty());
  RC_ASSERT(std::fabs(joined.divergence - whole.divergence) <= 1e-11 * whole.divergence);
  RC_ASSERT(std::fabs(joined.golden_log_sum - whole.golden_log_sum) <=
            1e-13 * (1 + std::fabs(whole.golden_log_sum)));
}

// ---- The original's numbers ---------------------------------------------------------------------

const std::vector<float> kExampleGolden = {1, 2, 0, -4};
const std::vector<float> kExampleMine = {1.001f, 1.998f, 0.5f, -4.01f};

TEST(CompareTensors, Float32RulesGiveTheOriginalsDigits) {
  const PairMetrics metrics =
      compare_tensors(floats(kExampleGolden), floats(kExampleMine), kFloat32);
  EXPECT_EQ(ten_digits(metrics.cosine_similarity), "0.9941198684");
  EXPECT_EQ(ten_digits(metrics.max_relative_error), "0.0025000572");
  EXPECT_EQ(ten_digits(metrics.mean_relative_error), "0.0011250228");
  EXPECT_EQ(ten_digits(metrics.max_absolute_error), "0.0100002289");
  EXPECT_EQ(ten_digits(metrics.mean_absolute_error), "0.0032500625");
  EXPECT_EQ(ten_digits(metrics.kl_divergence), "0.0117923277");
  EXPECT_EQ(ten_digits(metrics.relative_euclidean_distance), "0.1091318566");
  EXPECT_EQ(metrics.golden.max, 2);
  EXPECT_EQ(metrics.golden.min, -4);
  EXPECT_EQ(metrics.golden.mean, -0.25);
  EXPECT_EQ(ten_digits(metrics.mine.max), "1.9980000257");
  EXPECT_EQ(ten_digits(metrics.mine.min), "-4.0100002289");
  EXPECT_EQ(ten_digits(metrics.mine.mean), "-0.1277500391");
  EXPECT_EQ(fail_reason(metrics), "");
}

TEST(CompareTensors, CorrectedRulesMaskNothing) {
  const PairMetrics metrics = compare_tensors(floats(kExampleGolden), floats(kExampleMine));
  EXPECT_EQ(metrics.max_absolute_error, 0.5);
  EXPECT_EQ(ten_digits(metrics.mean_absolute_error), "0.1282500625");
  EXPECT_EQ(metrics.max_relative_error, 4194304.0);  // 0.5 / 2^-23
  EXPECT_EQ(metrics.masked_count, 1);
  EXPECT_EQ(metrics.worst_absolute_index, 2);
  EXPECT_EQ(metrics.worst_relative_index, 2);
  EXPECT_EQ(ten_digits(metrics.cosine_similarity), "0.9941198684");
  EXPECT_EQ(ten_digits(metrics.relative_euclidean_distance), "0.1091318566");
  EXPECT_EQ(metrics.kl_row_mean, metrics.kl_divergence);
}

TEST(CompareTensors, Float32RulesOverflowAsFloat32Did) {
  const PairMetrics metrics =
      compare_tensors(floats({3e38f, -3e38f}), floats({-3e38f, 3e38f}), kFloat32);
  EXPECT_EQ(metrics.max_absolute_error, kInf);
  EXPECT_TRUE(std::isnan(metrics.relative_euclidean_distance));
}

TEST(CompareTensors, Float32ReasonsForNoMetrics) {
  const float nan = NAN;
  const float inf = INFINITY;
  const auto reason = [](const PairMetrics& metrics) { return fail_reason(metrics); };
  EXPECT_EQ(reason(compare_tensors(floats({1, 2}), floats({1, 2, 3}), kFloat32)),
            "data shape doesn't match.");
  EXPECT_EQ(
      reason(compare_tensors(floats({1, inf}), floats({1, 2, nan}), kFloat32)),
      "data shape doesn't match. golden_data includes NAN or inf. my_data includes NAN or inf.");
  const PairMetrics both = compare_tensors(floats({nan, 2}), floats({1, inf}), kFloat32);
  EXPECT_EQ(both.state, PairState::NonFinite);
  EXPECT_TRUE(std::isnan(both.cosine_similarity));
  EXPECT_TRUE(std::isnan(both.golden.max));
  EXPECT_EQ(both.mine.max, kInf);
  EXPECT_EQ(reason(both), "golden_data includes NAN or inf. my_data includes NAN or inf.");
  // float64 beyond float32 becomes infinite on conversion.
  EXPECT_EQ(reason(compare_tensors(floats({1}), doubles({1e300}), kFloat32)),
            "my_data includes NAN or inf.");
}

// ---- Edge cases ---------------------------------------------------------------------------------

TEST(CompareTensors, SpecialCasesOfCosineAndDistance) {
  const PairMetrics zeros = compare_tensors(floats({0, 0}), floats({0, 0}));
  EXPECT_EQ(zeros.cosine_similarity, 1);
  EXPECT_EQ(zeros.relative_euclidean_distance, 0);
  EXPECT_TRUE(zeros.is_identical());
  EXPECT_EQ(zeros.worst_absolute_index, -1);
  const PairMetrics one_zero = compare_tensors(floats({0, 0}), floats({0, 1}));
  EXPECT_EQ(one_zero.cosine_similarity, 0);
  EXPECT_EQ(one_zero.relative_euclidean_distance, kInf);
  EXPECT_FALSE(one_zero.is_identical());
  const PairMetrics as_float32 = compare_tensors(floats({0, 0}), floats({0, 1}), kFloat32);
  EXPECT_EQ(as_float32.cosine_similarity, 0);
  EXPECT_EQ(as_float32.relative_euclidean_distance, 0);
  const PairMetrics opposite = compare_tensors(floats({1, 2}), floats({-1, -2}));
  EXPECT_DOUBLE_EQ(opposite.cosine_similarity, -1);
}

TEST(CompareTensors, EmptyAndScalarTensors) {
  const PairMetrics empty = compare_tensors(view_of(DType::Float32, std::vector<float>{}, {0, 3}),
                                            view_of(DType::Float64, std::vector<double>{}, {0}));
  EXPECT_EQ(empty.state, PairState::Empty);
  EXPECT_TRUE(empty.is_identical());
  EXPECT_TRUE(std::isnan(empty.max_absolute_error));
  const PairMetrics scalar = compare_tensors(view_of(DType::Float32, std::vector<float>{2}, {}),
                                             view_of(DType::Int32, std::vector<int32_t>{3}, {}));
  EXPECT_EQ(scalar.max_absolute_error, 1);
  EXPECT_EQ(scalar.mean_relative_error, 0.5);
  EXPECT_EQ(scalar.kl_divergence, 0);
  EXPECT_EQ(scalar.kl_row_max, 0);
}

TEST(CompareTensors, CountsPatternsAndComparesTheRest) {
  const float nan = NAN;
  const float inf = INFINITY;
  const PairMetrics metrics = compare_tensors(floats({nan, nan, 1, inf, inf, -inf, 5, 2}),
                                              floats({nan, 7, nan, inf, -inf, 9, inf, 3}));
  EXPECT_EQ(metrics.state, PairState::Compared);
  EXPECT_EQ(metrics.compared_count, 1);
  EXPECT_EQ(metrics.max_absolute_error, 1);
  EXPECT_EQ(metrics.worst_absolute_index, 7);
  EXPECT_EQ(metrics.nan_in_both, 1);
  EXPECT_EQ(metrics.nan_only_in_golden, 1);
  EXPECT_EQ(metrics.nan_only_in_mine, 1);
  EXPECT_EQ(metrics.inf_in_both, 2);
  EXPECT_EQ(metrics.inf_sign_mismatches, 1);
  EXPECT_EQ(metrics.inf_only_in_golden, 1);
  EXPECT_EQ(metrics.inf_only_in_mine, 1);
  EXPECT_EQ(metrics.golden.max, 5);
  EXPECT_EQ(metrics.golden.finite_count(), 3);
  EXPECT_EQ(metrics.mine.max, 9);
  EXPECT_TRUE(metrics.has_pattern_mismatch());
  const PairMetrics same = compare_tensors(floats({nan, inf}), floats({nan, inf}));
  EXPECT_EQ(same.state, PairState::NonFinite);
  EXPECT_TRUE(same.is_identical());
}

TEST(CompareTensors, SixtyFourBitIntegersAreExact) {
  const int64_t big = (int64_t{1} << 62) + 1;
  const std::vector<int64_t> golden = {big, INT64_MIN, 7};
  const std::vector<int64_t> mine = {big + 1, INT64_MAX, 7};
  const PairMetrics metrics =
      compare_tensors(view_of(DType::Int64, golden, {3}), view_of(DType::Int64, mine, {3}));
  EXPECT_EQ(metrics.max_absolute_error, 0x1p64);
  const PairMetrics one =
      compare_tensors(view_of(DType::Int64, golden, {1}), view_of(DType::Int64, mine, {1}));
  EXPECT_EQ(one.max_absolute_error, 1);  // both are the same double
  const std::vector<int64_t> beyond_double = {(int64_t{1} << 53) + 1};
  const std::vector<int32_t> narrow = {1};
  EXPECT_EQ(
      compare_tensors(view_of(DType::Int64, beyond_double, {1}), view_of(DType::Int32, narrow, {1}))
          .max_absolute_error,
      0x1p53);
  const std::vector<uint64_t> unsigned_mine = {UINT64_MAX};
  const std::vector<int64_t> minus_one = {-1};
  EXPECT_EQ(compare_tensors(view_of(DType::Int64, minus_one, {1}),
                            view_of(DType::UInt64, unsigned_mine, {1}))
                .max_absolute_error,
            0x1p64);
}

TEST(CompareTensors, DoublesBeyondFloat32) {
  const PairMetrics large = compare_tensors(doubles({3e200, 4e200}), doubles({3e200, 4.4e200}));
  EXPECT_NEAR(large.relative_euclidean_distance, 0.08, 1e-14);  // 0.4 / 5
  EXPECT_NEAR(large.golden.l2_norm / 1e200, 5, 1e-14);
  EXPECT_NEAR(large.cosine_similarity, (9 + 17.6) / (5 * std::sqrt(9 + 19.36)), 1e-14);
  const PairMetrics mixed = compare_tensors(doubles({3e-200, 4e-200}), doubles({3e200, 4e200}));
  EXPECT_NEAR(mixed.cosine_similarity, 1, 1e-14);
  // The last bit of a double is seen.
  EXPECT_EQ(compare_tensors(doubles({1}), doubles({1 + 0x1p-52})).max_absolute_error, 0x1p-52);
}

TEST(CompareTensors, ComplexSidesCompareByParts) {
  const std::vector<float> golden = {1, 2, 3, 4};
  const std::vector<float> mine = {1, 2.5f, 3, 4};
  const PairMetrics metrics =
      compare_tensors(view_of(DType::Complex64, golden, {2}), view_of(DType::Complex64, mine, {2}));
  EXPECT_EQ(metrics.value_count, 4);
  EXPECT_EQ(metrics.worst_absolute_index, 1);
  EXPECT_EQ(metrics.golden.max, 5);
  const std::vector<float> real = {1, 3};
  const PairMetrics against_real =
      compare_tensors(view_of(DType::Complex64, golden, {2}), view_of(DType::Float32, real, {2}));
  EXPECT_EQ(against_real.max_absolute_error, 4);  // imaginary 4 against none
  const PairMetrics as_float32 = compare_tensors(view_of(DType::Complex64, golden, {2}),
                                                 view_of(DType::Float32, real, {2}), kFloat32);
  EXPECT_EQ(as_float32.max_absolute_error, 0);
}

TEST(CompareTensors, PackedNibblesAgainstUnpackedFloats) {
  const std::vector<uint8_t> packed = {0x21, 0x73};  // e2m1: 0.5 1 1.5 6
  const std::vector<float> unpacked = {0.5f, 1, 1.5f, 6};
  const PairMetrics metrics = compare_tensors(view_of(DType::Float4E2M1FNx2, packed, {2}),
                                              view_of(DType::Float32, unpacked, {4}));
  EXPECT_EQ(metrics.state, PairState::Compared);
  EXPECT_EQ(metrics.max_absolute_error, 0);
}

// ---- Against the plain loops --------------------------------------------------------------------

/// Equal, both NaN, or within `relative` of the plain value; differences far below `scale` are
/// rounding of sums.
void assert_close(const char* what, double fast, double plain, double relative, double scale = 0) {
  if (std::isnan(fast) && std::isnan(plain)) return;
  if (fast == plain) return;
  // Sums of errors beyond the range of a double, of which long double knows nothing.
  if (fast == kInf && plain > 1e300) return;
  if (std::fabs(fast - plain) <= relative * std::fabs(plain) + 1e-13 * scale) return;
  RC_FAIL(std::string(what) + ": " + std::to_string(fast) + " instead of " + std::to_string(plain));
}

/// largest   of the values: a divergence is exact to the rounding of its exponents, which are as
///           large
void assert_agrees(const PairMetrics& fast, const PairMetrics& plain, double relative,
                   double largest) {
  const double kl_relative = 10 * relative + 1e-15 * largest;
  const double kl_scale = 1e-3 + 1e-2 * std::min(largest, 1e5);
  RC_ASSERT(fast.state == plain.state);
  RC_ASSERT(fast.value_count == plain.value_count);
  RC_ASSERT(fast.compared_count == plain.compared_count);
  RC_ASSERT(fast.masked_count == plain.masked_count);
  RC_ASSERT(fast.nan_only_in_golden == plain.nan_only_in_golden);
  RC_ASSERT(fast.nan_only_in_mine == plain.nan_only_in_mine);
  RC_ASSERT(fast.nan_in_both == plain.nan_in_both);
  RC_ASSERT(fast.inf_only_in_golden == plain.inf_only_in_golden);
  RC_ASSERT(fast.inf_only_in_mine == plain.inf_only_in_mine);
  RC_ASSERT(fast.inf_in_both == plain.inf_in_both);
  RC_ASSERT(fast.inf_sign_mismatches == plain.inf_sign_mismatches);
  assert_close("cosine", fast.cosine_similarity, plain.cosine_similarity, relative, 1);
  assert_close("max relative", fast.max_relative_error, plain.max_relative_error, relative);
  assert_close("mean relative", fast.mean_relative_error, plain.mean_relative_error, relative);
  assert_close("max absolute", fast.max_absolute_error, plain.max_absolute_error, relative);
  assert_close("mean absolute", fast.mean_absolute_error, plain.mean_absolute_error, relative);
  assert_close("distance", fast.relative_euclidean_distance, plain.relative_euclidean_distance,
               relative);
  assert_close("kl", fast.kl_divergence, plain.kl_divergence, kl_relative, kl_scale);
  assert_close("kl row mean", fast.kl_row_mean, plain.kl_row_mean, kl_relative, kl_scale);
  assert_close("kl row max", fast.kl_row_max, plain.kl_row_max, kl_relative, kl_scale);
  for (const auto side : {&PairMetrics::golden, &PairMetrics::mine}) {
    RC_ASSERT((fast.*side).count == (plain.*side).count);
    RC_ASSERT((fast.*side).finite_count() == (plain.*side).finite_count());
    const double scale = std::max(std::fabs((plain.*side).min), std::fabs((plain.*side).max));
    assert_close("min", (fast.*side).min, (plain.*side).min, 0);
    assert_close("max", (fast.*side).max, (plain.*side).max, 0);
    assert_close("mean", (fast.*side).mean, (plain.*side).mean, relative,
                 std::isfinite(scale) ? scale : 0);
    assert_close("l2", (fast.*side).l2_norm, (plain.*side).l2_norm, relative);
  }
}

RC_GTEST_PROP(CompareTensors, AgreesWithThePlainLoopsOnAnyBits, ()) {
  // Every pair of types, every bit pattern: NaN, infinities and subnormals are frequent.
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  const auto any_type = [] { return static_cast<DType>(*rc::gen::inRange(0, kDTypeCount)); };
  const DType golden_type = any_type();
  const DType mine_type = *rc::gen::arbitrary<bool>() ? golden_type : any_type();
  const Dims shape = random_shape();
  const Side golden = random_bytes(golden_type, shape, random);
  const Side mine = random_bytes(mine_type, shape, random);
  const MetricRules rules = *rc::gen::element(MetricRules::Corrected, MetricRules::Float32);
  const bool is_wide = [&] {
    for (const DType type : {golden_type, mine_type}) {
      if (type == DType::Float64 || type == DType::Complex128) return true;
    }
    return false;
  }();
  // Exponents of random doubles span 600 decades: their differences overflow, and softmax of them
  // is one value.
  const MetricOptions options{rules, !is_wide, 1};
  const PairMetrics fast = compare_tensors(golden.view, mine.view, options);
  const PairMetrics plain = compare_tensors_reference(golden.view, mine.view, options);
  double largest = 0;
  for (const double value : {plain.golden.min, plain.golden.max, plain.mine.min, plain.mine.max}) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  assert_agrees(fast, plain, rules == MetricRules::Float32 ? 3e-7 : 1e-12, largest);
}

RC_GTEST_PROP(CompareTensors, AgreesWithThePlainLoopsOnTensorsOfAModel, ()) {
  // Normal values, noise from 1e-7 to 10, a few zeros, NaN and infinities; float32, float16-like
  // and float64 sides.
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  std::normal_distribution<double> normal;
  const Dims shape = random_shape();
  const Dims strides = random_strides(shape);
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * strides[i];
  const double noise = std::pow(10.0, *rc::gen::inRange(-7, 2));
  const auto rarity = *rc::gen::element<uint32_t>(0, 7, 1000);
  const bool mine_is_double = *rc::gen::arbitrary<bool>();
  std::vector<float> golden(static_cast<size_t>(last + 1));
  std::vector<float> mine(golden.size());
  std::vector<double> wide(golden.size());
  for (size_t i = 0; i < golden.size(); ++i) {
    golden[i] = static_cast<float>(3 * normal(random));
    wide[i] = golden[i] + noise * normal(random);
    if (rarity != 0 && random() % rarity == 0) golden[i] = 0;
    if (rarity != 0 && random() % rarity == 0)
      golden[i] = std::vector<float>{NAN, INFINITY, -INFINITY}[random() % 3];
    if (rarity != 0 && random() % rarity == 0)
      wide[i] = std::vector<double>{NAN, kInf, -kInf}[random() % 3];
    mine[i] = static_cast<float>(wide[i]);
  }
  const TensorView golden_view =
      *make_view(DType::Float32, shape, strides, std::as_bytes(std::span(golden)), 0);
  const TensorView mine_view =
      mine_is_double
          ? *make_view(DType::Float64, shape, strides, std::as_bytes(std::span(wide)), 0)
          : *make_view(DType::Float32, shape, strides, std::as_bytes(std::span(mine)), 0);
  const MetricRules rules = *rc::gen::element(MetricRules::Corrected, MetricRules::Float32);
  const PairMetrics fast = compare_tensors(golden_view, mine_view, {rules, true, 1});
  const PairMetrics plain = compare_tensors_reference(golden_view, mine_view, {rules, true, 1});
  assert_agrees(fast, plain, rules == MetricRules::Float32 ? 3e-7 : 1e-12, 0);
  RC_ASSERT(fast.worst_absolute_index == plain.worst_absolute_index);
}

TEST(CompareTensors, ThreadsDoNotChangeABit) {
  std::mt19937 random(21);
  std::normal_distribution<float> normal;
  std::vector<float> golden(700000);
  std::vector<float> mine(golden.size());
  for (size_t i = 0; i < golden.size(); ++i) {
    golden[i] = normal(random);
    mine[i] = golden[i] + 1e-3f * normal(random);
  }
  golden[3] = NAN;
  mine[400000] = INFINITY;
  for (const Dims& shape :
       {Dims{700000}, Dims{7, 100000}, Dims{70, 10000}, Dims{7000, 100}, Dims{700000, 1}}) {
    const TensorView golden_view = view_of(DType::Float32, golden, shape);
    const TensorView mine_view = view_of(DType::Float32, mine, shape);
    const PairMetrics alone = compare_tensors(golden_view, mine_view, {.jobs = 1});
    const PairMetrics threads = compare_tensors(golden_view, mine_view, {.jobs = 3});
    EXPECT_EQ(std::bit_cast<uint64_t>(alone.kl_divergence),
              std::bit_cast<uint64_t>(threads.kl_divergence));
    EXPECT_EQ(std::bit_cast<uint64_t>(alone.kl_row_mean),
              std::bit_cast<uint64_t>(threads.kl_row_mean));
    EXPECT_EQ(alone.mean_absolute_error, threads.mean_absolute_error);
    EXPECT_EQ(alone.mean_relative_error, threads.mean_relative_error);
    EXPECT_EQ(alone.cosine_similarity, threads.cosine_similarity);
    EXPECT_EQ(alone.relative_euclidean_distance, threads.relative_euclidean_distance);
    EXPECT_EQ(alone.worst_relative_index, threads.worst_relative_index);
    EXPECT_EQ(alone.golden, threads.golden);
    EXPECT_EQ(alone.nan_only_in_golden, 1);
    EXPECT_EQ(alone.inf_only_in_mine, 1);
    const PairMetrics plain = compare_tensors_reference(golden_view, mine_view);
    EXPECT_NEAR(alone.kl_divergence / plain.kl_divergence, 1, 1e-11);
    EXPECT_NEAR(alone.mean_relative_error / plain.mean_relative_error, 1, 1e-12);
    EXPECT_EQ(alone.worst_absolute_index, plain.worst_absolute_index);
    if (shape.size() == 2 && shape[1] == 1) {
      EXPECT_EQ(alone.kl_row_max, 0);
    } else {
      EXPECT_NEAR(alone.kl_row_mean / plain.kl_row_mean, 1, 1e-11);
      EXPECT_NEAR(alone.kl_row_max / plain.kl_row_max, 1, 1e-11);
    }
  }
}

// ---- Shapes and summaries -----------------------------------------------------------------------

TEST(ShapeRelation, NamesWhatAReportShouldSay) {
  EXPECT_EQ(shape_relation({2, 3}, {2, 3}), ShapeRelation::Same);
  EXPECT_EQ(shape_relation({1, 5, 64}, {5, 64}), ShapeRelation::Squeezed);
  EXPECT_EQ(shape_relation({2, 5, 64}, {10, 64}), ShapeRelation::Merged);
  EXPECT_EQ(shape_relation({10, 64}, {2, 5, 64}), ShapeRelation::Merged);
  EXPECT_EQ(shape_relation({10, 64}, {64, 10}), ShapeRelation::Reshaped);
  EXPECT_EQ(shape_relation({10, 64}, {10, 8, 8}), ShapeRelation::Reshaped);
  EXPECT_EQ(shape_relation({10}, {11}), ShapeRelation::Different);
  EXPECT_EQ(shape_relation({}, {1, 1}), ShapeRelation::Squeezed);
}

TEST(CompareSummaries, FollowsTheStatisticsColumns) {
  const SummaryErrors errors =
      compare_summaries({.max = 2, .min = -4, .mean = 0, .l2_norm = NAN},
                        {.max = 2.5, .min = -4, .mean = 0x1p-24, .l2_norm = 1});
  EXPECT_EQ(errors.max.absolute, 0.5);
  EXPECT_EQ(errors.max.relative, 0.25);
  EXPECT_EQ(errors.min.absolute, 0);
  EXPECT_EQ(errors.mean.relative, 0.5);  // 2^-24 / 2^-23
  EXPECT_TRUE(std::isnan(errors.l2_norm.absolute));
  EXPECT_EQ(compare_summaries({.max = kInf}, {.max = kInf}).max.absolute, 0);
}

}  // namespace
}  // namespace assay::measure

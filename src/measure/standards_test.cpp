// SPDX-License-Identifier: Apache-2.0
#include "measure/standards.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "reference/wide.hpp"

namespace assay::measure {
namespace {

Tensor wide(const std::vector<double>& values) {
  reference::Wide array(Dims{static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), array.data());
  return reference::to_tensor(std::move(array));
}
Tensor stored(const std::vector<double>& values, DType dtype) {
  return reference::narrow(wide(values).view, dtype).value();
}

struct Judged {
  Measures measures;
  Judgement judgement;
};
Judged judged(Standard standard, const Tensor& golden, const Tensor& mine, Accuracy accuracy,
              const Measures* second = nullptr) {
  const auto measures = measures_of(golden.view, mine.view,
                                    {.atb_error = atb_limits(accuracy, mine.view.dtype).error,
                                     .kolmogorov_smirnov = accuracy.precision == Precision::Rand});
  EXPECT_TRUE(measures);
  return {*measures, judge(standard, *measures, accuracy, second)};
}

constexpr Accuracy kFusion{Precision::VectorFusion, 0};

// RmsNorm of [1, 2, -3, 4] with gamma [1, 1, 1, 0.5] and epsilon 1e-5f, computed by hand: one
// output is off by one unit of the last place, one by three.
class WorkedExample : public ::testing::Test {
 protected:
  WorkedExample() {
    const double scale = 1 / std::sqrt(7.5 + 0.000009999999747378752);
    golden = wide({scale, 2 * scale, -3 * scale, 2 * scale});
    mine = stored({0.365234375, 0.73095703125, -1.0986328125, 0.73046875}, DType::Float16);
  }
  Tensor golden, mine;
};

TEST_F(WorkedExample, LegacyO4) {
  const auto [m, j] = judged(Standard::LegacyO4, golden, mine, kFusion);
  EXPECT_FALSE(j.passed);
  EXPECT_EQ(j.rate, 75.0);
  EXPECT_EQ(j.reason, "relative pass rate: 75.0 not met standart: 99.9.");
  EXPECT_EQ(m.legacy_o4_within, 3);  // element 1 is just within: 2^-10 in float16 arithmetic
  EXPECT_EQ(m.legacy_o4_max_rel, 0.0029296875);
  EXPECT_EQ(precision_standard_text(*legacy_limits(Standard::LegacyO4, DType::Float16)),
            "99.9%(error<0.0009765625)");
}

TEST_F(WorkedExample, Atb) {
  const auto [m, j] = judged(Standard::Atb, golden, mine, kFusion);
  EXPECT_FALSE(j.passed);
  EXPECT_EQ(m.atb_within, 3);
  EXPECT_EQ(j.rate, 75.0);
  EXPECT_EQ(j.reason, "1 of 4 elements is off by more than 2^-9 * max(1, |golden|)");
  EXPECT_NEAR(m.error_balance, 4.98e-4, 5e-7);
  EXPECT_NEAR(j.error_balance, 51, 0.05);
  EXPECT_NEAR(m.max_abs_error, 3.188e-3, 5e-7);
  EXPECT_EQ(m.worst_index, 2);
  EXPECT_NEAR(m.cosine, 0.9999992685, 5e-11);
  EXPECT_EQ(m.ulp_histogram, (std::array<int64_t, 6>{2, 1, 0, 1, 0, 0}));
}

TEST(AtbLimits, TableOfTheTypes) {
  struct Row {
    Precision precision;
    int64_t terms;
    double half, half_balance, brain, brain_balance, single, single_balance;
  };
  const Row rows[] = {
      {Precision::Float, 2047, 0x1p-8, 0x1p-10, 0x1p-7, 0x1p-7, 0x1p-11, 0x1p-14},
      {Precision::Quant, 0, 0x1p-8, 0x1p-10, 0x1p-7, 0x1p-7, 0x1p-11, 0x1p-14},
      {Precision::Float, 2048, 0x1p-7, 0x1p-10, 0x1p-6, 0x1p-6, 0x1p-10, 0x1p-14},
      {Precision::Quant, 16384, 0x1p-7, 0x1p-10, 0x1p-6, 0x1p-6, 0x1p-9, 0x1p-14},
      {Precision::FloatHighPrecision, 4096, 0x1p-11, 0x1p-10, 0x1p-8, 0x1p-7, 0x1p-14, 0x1p-14},
      {Precision::VectorFusion, 4096, 0x1p-9, 0x1p-10, 0x1p-7, 0x1p-7, 0x1p-12, 0x1p-14},
      {Precision::CvFusion, 4096, 0x1p-7, 0x1p-10, 0x1p-6, 0x1p-7, 0x1p-10, 0x1p-14},
      {Precision::Move, 0, 0, 0, 0, 0, 0, 0},
      {Precision::Cast, 0, 0, 0, 0, 0, 0, 0},
      {Precision::Integer, 0, 0, 0, 0, 0, 0, 0},
  };
  for (const Row& row : rows) {
    const Accuracy accuracy{row.precision, row.terms};
    const AtbLimits half = atb_limits(accuracy, DType::Float16);
    const AtbLimits brain = atb_limits(accuracy, DType::BFloat16);
    const AtbLimits single = atb_limits(accuracy, DType::Float32);
    EXPECT_EQ(half.error, row.half);
    EXPECT_EQ(half.error_balance, row.half_balance);
    EXPECT_EQ(brain.error, row.brain);
    EXPECT_EQ(brain.error_balance, row.brain_balance);
    EXPECT_EQ(single.error, row.single);
    EXPECT_EQ(single.error_balance, row.single_balance);
  }
  EXPECT_EQ(atb_limits({Precision::Quant, 0}, DType::Int8).ulp, 1);
  EXPECT_EQ(atb_limits({Precision::Float, 0}, DType::Int32).ulp, 0);
  EXPECT_EQ(atb_limits({Precision::Float, 0}, DType::HiFloat8).ulp, 1);
  EXPECT_EQ(atb_limits({Precision::Cast, 0}, DType::Float8E5M2).ulp, 0);
}

TEST(LegacyLimits, TableOfTheDtypes) {
  const auto text = [](Standard standard, DType dtype) {
    return precision_standard_text(legacy_limits(standard, dtype).value());
  };
  for (const DType dtype :
       {DType::Float64, DType::UInt32, DType::Int64, DType::Int32, DType::UInt64})
    EXPECT_EQ(text(Standard::LegacyO4, dtype), "99.99%(error<0.0001)");
  EXPECT_EQ(text(Standard::LegacyO4, DType::Float32), "99.99%(error<9.5367431640625e-07)");
  EXPECT_EQ(text(Standard::LegacyO1, DType::Float32), "99.99%(error<0.0001)");
  EXPECT_EQ(text(Standard::LegacyO1, DType::Float16), "99.9%(error<0.001)");
  EXPECT_EQ(text(Standard::LegacyO4, DType::BFloat16), "99.9%(error<0.00390625)");
  EXPECT_EQ(text(Standard::LegacyO1, DType::BFloat16), "99.6%(error<0.004)");
  for (const DType dtype : {DType::Int8, DType::Int16, DType::UInt16})
    EXPECT_EQ(text(Standard::LegacyO4, dtype), "99.9%(error<1)");
  EXPECT_EQ(text(Standard::LegacyO4, DType::UInt8), "99%(error<1)");
  EXPECT_EQ(text(Standard::LegacyO4, DType::Bool), "100%(error<0.0001)");
  EXPECT_FALSE(legacy_limits(Standard::LegacyO4, DType::Float8E5M2));
}

TEST(Legacy, TheShareIsAFloat32DivisionAndMayEqualTheLimit) {
  std::vector<double> values(1000, 2.0);
  const Tensor golden = wide(values);
  values[7] = 3;
  const Tensor mine = stored(values, DType::Float16);
  const Judged judgement = judged(Standard::LegacyO4, golden, mine, kFusion);
  EXPECT_TRUE(judgement.judgement.passed);
  char text[32];
  std::snprintf(text, sizeof(text), "%.16f", judgement.judgement.rate);
  EXPECT_STREQ(text, "99.9000012874603271");

  std::vector<double> seven(35, 1.0);
  const Tensor few = wide(seven);
  for (int i = 0; i < 12; ++i) seven[static_cast<size_t>(i)] = 2;  // 23 of 35: 65.714...
  const auto [m, j] = judged(Standard::LegacyO4, few, stored(seven, DType::Float16), kFusion);
  std::snprintf(text, sizeof(text), "%.16f", j.rate);
  EXPECT_STREQ(text, "65.7142877578735352");
}

TEST(Legacy, OnlyTheStrictOneNeedsMoreThanTheLimit) {
  const Tensor golden = stored({1, 0, 1}, DType::Bool);
  EXPECT_TRUE(judged(Standard::LegacyO4, golden, golden, {Precision::Integer}).judgement.passed);
  EXPECT_FALSE(
      judged(Standard::LegacyO4Strict, golden, golden, {Precision::Integer}).judgement.passed);
}

TEST(Legacy, ZeroAndNanGoldensCountAsExactAndInfiniteOnesAsWrong) {
  const double nan = NAN, inf = INFINITY;
  const Tensor golden = wide({0, nan, inf, inf, 1});
  const Tensor mine = stored({5, 5, inf, 1, nan}, DType::Float32);
  const auto [m, j] = judged(Standard::LegacyO4, golden, mine, kFusion);
  EXPECT_EQ(m.legacy_o4_within, 2);
  EXPECT_TRUE(std::isnan(m.legacy_o4_max_rel));
}

TEST(Legacy, O1ReplacesZerosOfGolden) {
  // |0.01 - 0| / 2^-7 = 1.28; |-2.001 + 2| / |-2| = 5e-4
  const auto [m, j] =
      judged(Standard::LegacyO1, wide({0, -2}), stored({0.01, -2.001}, DType::Float32), kFusion);
  EXPECT_EQ(m.legacy_o1_within, 0);
  const auto half =
      judged(Standard::LegacyO1, wide({0, -2}), stored({0, -2.001}, DType::Float16), kFusion);
  EXPECT_TRUE(half.judgement.passed);  // float16 holds -2 in place of -2.001
}

TEST(Legacy, AnEmptyOutputFails) {
  const Tensor none = stored({}, DType::Float16);
  EXPECT_EQ(judged(Standard::LegacyO4, none, none, kFusion).judgement.reason,
            "relative pass rate: 0.0 not met standart: 99.9.");
  EXPECT_TRUE(judged(Standard::Atb, none, none, kFusion).judgement.passed);
}

TEST(Legacy, AnUnknownTypeIsNamed) {
  const Tensor value = stored({1}, DType::Float8E5M2);
  EXPECT_EQ(judged(Standard::LegacyO4, value, value, kFusion).judgement.reason,
            "torch.float8_e5m2 not supported!");
}

TEST(Atb, MovesAreExact) {
  const Tensor golden = stored({1, 2, -0.0, NAN}, DType::Float16);
  EXPECT_TRUE(judged(Standard::Atb, golden, golden, {Precision::Move}).judgement.passed);
  const auto changed =
      judged(Standard::Atb, golden, stored({1, 2.001953125, -0.0, NAN}, DType::Float16),
             {Precision::Move});
  EXPECT_EQ(changed.judgement.reason,
            "1 of 4 elements differs from golden, which must be met exactly");
  EXPECT_EQ(changed.judgement.rate, 75);
  const Tensor unsigned_zero = stored({1, 2, 0.0, NAN}, DType::Float16);
  EXPECT_EQ(judged(Standard::Atb, golden, unsigned_zero, {Precision::Move}).judgement.reason,
            "1 of 4 elements is a zero of the other sign");
  // A computed golden says nothing about the sign of a zero.
  EXPECT_TRUE(judged(Standard::Atb, wide({1, 2, -0.0, NAN}), unsigned_zero, {Precision::Move})
                  .judgement.passed);
}

TEST(Atb, CastsMeetTheRoundedGolden) {
  const Tensor golden = wide({0.1, 1.0 / 3, 70000});
  EXPECT_TRUE(judged(Standard::Atb, golden, stored({0.1, 1.0 / 3, INFINITY}, DType::Float16),
                     {Precision::Cast})
                  .judgement.passed);
  EXPECT_FALSE(judged(Standard::Atb, golden, stored({0.1, 0.333, INFINITY}, DType::Float16),
                      {Precision::Cast})
                   .judgement.passed);
}

TEST(Atb, IntegersAreToldApartBeyond53Bits) {
  reference::Whole array(Dims{2});
  array.values[0] = (int64_t{1} << 60) + 1;
  array.values[1] = -5;
  const Tensor golden = reference::to_tensor(array);
  EXPECT_TRUE(judged(Standard::Atb, golden, golden, {Precision::Integer}).judgement.passed);
  array.values[0] -= 1;
  const Tensor other = reference::to_tensor(array);
  const auto [m, j] = judged(Standard::Atb, golden, other, {Precision::Integer});
  EXPECT_FALSE(j.passed);
  EXPECT_EQ(m.max_abs_error, 1);
  EXPECT_EQ(m.worst_index, 0);
}

TEST(Atb, QuantisedIntegersMayBeOneOff) {
  const Tensor golden = wide({100, -100, 3});
  EXPECT_TRUE(judged(Standard::Atb, golden, stored({101, -101, 3}, DType::Int8), {Precision::Quant})
                  .judgement.passed);
  EXPECT_EQ(judged(Standard::Atb, golden, stored({102, -101, 3}, DType::Int8), {Precision::Quant})
                .judgement.reason,
            "1 of 3 elements differs from golden by more than 1");
  EXPECT_FALSE(
      judged(Standard::Atb, golden, stored({101, -101, 3}, DType::Int8), {Precision::Integer})
          .judgement.passed);
}

TEST(Atb, ByteFloatsMayBeOneUnitOff) {
  const Tensor golden = wide({1.0, -3.0});  // e5m2: 1, 1.25, ...; 2.5, 3, 3.5
  EXPECT_TRUE(
      judged(Standard::Atb, golden, stored({1.25, -3.5}, DType::Float8E5M2), {Precision::Float})
          .judgement.passed);
  EXPECT_FALSE(
      judged(Standard::Atb, golden, stored({1.5, -3}, DType::Float8E5M2), {Precision::Float})
          .judgement.passed);
}

TEST(Atb, NotFiniteValuesMustAgree) {
  const double nan = NAN, inf = INFINITY;
  const Tensor golden = wide({nan, inf, -inf, 1});
  EXPECT_TRUE(judged(Standard::Atb, golden, stored({nan, inf, -inf, 1}, DType::Float16), kFusion)
                  .judgement.passed);
  const auto [m, j] =
      judged(Standard::Atb, golden, stored({nan, -inf, -inf, nan}, DType::Float16), kFusion);
  EXPECT_FALSE(j.passed);
  EXPECT_EQ(m.pattern_mismatches, 2);
  EXPECT_EQ(m.worst_index, 1);
  EXPECT_EQ(m.mine_nan, 2);
  EXPECT_EQ(m.golden_inf, 2);
}

TEST(Atb, AnInfinityIsRightWhereGoldenOverflowsTheType) {
  EXPECT_TRUE(judged(Standard::Atb, wide({1e6}), stored({INFINITY}, DType::Float16), kFusion)
                  .judgement.passed);
  // 65504 is within 2^-9 of the first value that overflows, 65520.
  EXPECT_TRUE(judged(Standard::Atb, wide({65504}), stored({INFINITY}, DType::Float16), kFusion)
                  .judgement.passed);
  EXPECT_FALSE(judged(Standard::Atb, wide({60000}), stored({INFINITY}, DType::Float16), kFusion)
                   .judgement.passed);
}

TEST(Atb, ABiasFailsThoughEveryElementIsWithin) {
  std::vector<double> golden, mine;
  for (int i = 0; i < 64; ++i) {
    golden.push_back(i % 2 == 0 ? 0.5 : -0.25);
    mine.push_back(golden.back() + 0x1.8p-10);
  }
  const auto [m, j] =
      judged(Standard::Atb, wide(golden), stored(mine, DType::Float16), {Precision::Float});
  EXPECT_EQ(m.atb_within, 64);
  EXPECT_FALSE(j.passed);
  EXPECT_DOUBLE_EQ(j.error_balance, 150);
  EXPECT_EQ(j.reason, "results are biased: error balance 0.001465 exceeds 2^-10");
}

std::vector<double> noise(size_t count, uint64_t seed) {
  std::vector<double> values(count);
  for (double& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<double>(seed >> 11) * 0x1p-53 * 2 - 1;
  }
  return values;
}

std::vector<double> cut_to_half(std::vector<double> values) {
  for (double& value : values) {
    int exponent = 0;
    std::frexp(value, &exponent);
    const double unit = std::ldexp(1.0, exponent - 11);
    value = std::trunc(value / unit) * unit;
  }
  return values;
}

TEST(Atb, TruncatedResultsFailAndRoundedOnesPass) {
  const std::vector<double> golden = noise(4096, 1);
  const auto rounded = judged(Standard::Atb, wide(golden), stored(golden, DType::Float16), kFusion);
  EXPECT_TRUE(rounded.judgement.passed) << rounded.judgement.reason;
  const auto cut =
      judged(Standard::Atb, wide(golden), stored(cut_to_half(golden), DType::Float16), kFusion);
  EXPECT_FALSE(cut.judgement.passed);
  EXPECT_EQ(cut.measures.atb_within, 4096);
  EXPECT_EQ(cut.judgement.reason, "rounded towards zero: " + std::to_string(cut.measures.inexact) +
                                      " of " + std::to_string(cut.measures.inexact) +
                                      " inexact results");
}

TEST(Atb, RoundingDownByChanceIsNotTruncation) {
  // 1/3 in float16 is below 1/3, so every element is the neighbour of its golden towards zero and
  // rightly rounded.
  const std::vector<double> thirds(1000, 1.0 / 3);
  EXPECT_TRUE(judged(Standard::Atb, wide(thirds), stored(thirds, DType::Float16), kFusion)
                  .judgement.passed);
  // A constant that came out one unit low everywhere is an error of its one value, within
  // tolerance.
  const std::vector<double> sevenths(1000, 1.0 / 7 + 0x1p-14);
  EXPECT_TRUE(
      judged(Standard::Atb, wide(sevenths), stored(cut_to_half(sevenths), DType::Float16), kFusion)
          .judgement.passed);
  // Too few to say.
  const std::vector<double> few = noise(60, 2);
  EXPECT_TRUE(judged(Standard::Atb, wide(few), stored(cut_to_half(few), DType::Float16), kFusion)
                  .judgement.passed);
}

TEST(Atb, AttentionPassesByRatiosOrByElements) {
  const Accuracy attention{Precision::CvFusion, 64};
  const std::vector<double> golden = noise(256, 3);
  std::vector<double> mine = golden;
  for (size_t i = 0; i < mine.size(); ++i) mine[i] += (i % 2 == 0 ? 1 : -1) * 0x1p-7;
  const Tensor output = stored(mine, DType::Float16);
  const auto alone = judged(Standard::Atb, wide(golden), output, attention);
  EXPECT_FALSE(alone.judgement.passed);
  // A model of the kernel that is as far off makes the same output right.
  const auto second = judged(Standard::Atb, wide(golden), output, attention).measures;
  const auto beside = judged(Standard::Atb, wide(golden), output, attention, &second);
  EXPECT_TRUE(beside.judgement.passed) << beside.judgement.reason;
  EXPECT_EQ(beside.judgement.remark,
            "errors relative to a model of the kernel: MARE 1, MERE 1, RMSE 1");
  // A model that is nearly exact leaves the floors: RMSE 2^-7 / 2^-11 = 16.
  const auto exact =
      judged(Standard::Atb, wide(golden), stored(golden, DType::Float16), attention).measures;
  const auto against_exact = judged(Standard::Atb, wide(golden), output, attention, &exact);
  EXPECT_FALSE(against_exact.judgement.passed);
  EXPECT_NE(against_exact.judgement.reason.find("RMSE 16"), std::string::npos)
      << against_exact.judgement.reason;
}

TEST(Atb, RandomOutputsAreComparedAsDistributions) {
  const Tensor golden = wide(noise(2000, 4));
  EXPECT_TRUE(
      judged(Standard::Atb, golden, stored(noise(2000, 5), DType::Float32), {Precision::Rand})
          .judgement.passed);
  std::vector<double> shifted = noise(2000, 5);
  for (double& value : shifted) value += 0.2;
  const auto [m, j] =
      judged(Standard::Atb, golden, stored(shifted, DType::Float32), {Precision::Rand});
  EXPECT_FALSE(j.passed);
  EXPECT_NEAR(m.kolmogorov_smirnov, 0.1, 0.03);  // two uniform distributions on 2, 0.2 apart
}

TEST(KolmogorovSmirnov, ProbabilityOfAKnownDistance) {
  // 21 values of golden lie below all of mine: D = 0.21. 2 sum (-1)^(k-1) exp(-2 k^2 l^2) with
  // l = (sqrt(50) + 0.12 + 0.11 / sqrt(50)) D, computed with Python: 0.020495314493847106
  std::vector<double> golden, mine;
  for (int i = 0; i < 100; ++i) {
    golden.push_back(i);
    mine.push_back(i + 20.5);
  }
  const auto measures =
      measures_of(wide(golden).view, wide(mine).view, {.kolmogorov_smirnov = true});
  EXPECT_DOUBLE_EQ(measures->kolmogorov_smirnov, 0.21);
  EXPECT_NEAR(measures->kolmogorov_smirnov_p, 0.020495314493847106, 1e-12);
}

TEST(Mixed, OnePercentMayBeOutsideButNotFar) {
  std::vector<double> golden(200, 1.0);
  std::vector<double> mine = golden;
  mine[3] = mine[4] = 1.0625;  // beyond 2^-10 * 2, below the floor 0.1
  EXPECT_TRUE(judged(Standard::Mixed, wide(golden), stored(mine, DType::Float16), kFusion)
                  .judgement.passed);
  mine[5] = 1.0625;
  EXPECT_EQ(
      judged(Standard::Mixed, wide(golden), stored(mine, DType::Float16), kFusion).judgement.reason,
      "3 of 200 elements are off by more than 2^-10 * (1 + |golden|); 1 % may be");
  mine[3] = 1.125;
  mine[5] = 1;
  EXPECT_EQ(
      judged(Standard::Mixed, wide(golden), stored(mine, DType::Float16), kFusion).judgement.reason,
      "1 of 200 elements is off by more than 0.1 and more than 32 units of the last place");
  // At 1000 a unit is 0.5, so 16 are allowed.
  golden.assign(200, 1000);
  mine = golden;
  mine[0] = 1015;
  EXPECT_TRUE(judged(Standard::Mixed, wide(golden), stored(mine, DType::Float16), kFusion)
                  .judgement.passed);
  EXPECT_EQ(mixed_limits(DType::BFloat16).tolerance, 0x1p-7);
  EXPECT_EQ(mixed_limits(DType::Float32).floor, 0.01);
  EXPECT_EQ(mixed_limits(DType::Float8E4M3FN).tolerance, 0x1p-3);
  EXPECT_EQ(mixed_limits(DType::Float8E5M2).tolerance, 0x1p-2);
}

TEST(Standards, Names) {
  for (const char* name : {"atb", "legacy-o4", "legacy-o4-strict", "legacy-o1", "mixed"})
    EXPECT_EQ(standard_name(*standard_from_name(name)), name);
  EXPECT_FALSE(standard_from_name("legacy"));
}

TEST(AtbAttention, ASingleWrongElementDoesNotHideBehindGoldensNearZero) {
  // A golden near zero gives the model a MARE of 1e3; one element of mine is off by 0.05 in 10^6.
  Measures second;
  second.count = 1000000;
  second.dtype = DType::Float16;
  second.mare = 1000;
  second.mere = 0.01;
  second.rmse = 1e-4;
  second.max_abs_error = 5e-4;
  Measures mine = second;
  mine.max_abs_error = 0.05;
  mine.atb_within = mine.count - 1;
  const Accuracy accuracy{Precision::CvFusion, 4096};
  const Judgement judged = judge(Standard::Atb, mine, accuracy, &second);
  EXPECT_FALSE(judged.passed);
  EXPECT_NE(judged.reason.find("the largest error 0.05 is more than 10 times"), std::string::npos)
      << judged.reason;
  mine.max_abs_error = 4e-3;  // below ten times the model's
  EXPECT_TRUE(judge(Standard::Atb, mine, accuracy, &second).passed);
}

}  // namespace
}  // namespace assay::measure

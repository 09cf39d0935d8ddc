// SPDX-License-Identifier: Apache-2.0
#include "measure/measures.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "measure/standards.hpp"
#include "reference/wide.hpp"
#include "tensor/convert.hpp"

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

TEST(Measure, SmallExampleByHand) {
  // d = 1, 0, -2;  g = 1, 0, 4;  m = 2, 0, 2
  const Measures m =
      measures_of(wide({1, 0, 4}).view, stored({2, 0, 2}, DType::Float32).view, {}).value();
  EXPECT_EQ(m.count, 3);
  EXPECT_EQ(m.max_abs_error, 2);
  EXPECT_EQ(m.mean_abs_error, 1);
  EXPECT_EQ(m.max_rel_error, 1);
  EXPECT_EQ(m.mean_rel_error, 0.5);
  EXPECT_EQ(m.worst_index, 0);  // 1 / max(1, 1) against 2 / 4
  EXPECT_DOUBLE_EQ(m.rmse, std::sqrt(5.0 / 3));
  EXPECT_DOUBLE_EQ(m.nmse, 5.0 / 17);
  EXPECT_DOUBLE_EQ(m.relative_l2, std::sqrt(5.0 / 17));
  EXPECT_DOUBLE_EQ(m.cosine, 10 / std::sqrt(17.0 * 8));
  EXPECT_DOUBLE_EQ(m.error_balance, (1 - 0.5) / 3);
  EXPECT_DOUBLE_EQ(m.mare, 1 / (1 + 1e-7));
}

// 0.1 * n: squares and norms round, and the quotient of the sums without care is 1 - 2^-53 for some
// lengths.
TEST(Measure, EqualAndOppositeValuesHaveCosineOneInEveryLength) {
  std::vector<double> values;
  for (int n = 1; n <= 300; ++n) {
    values.push_back(0.1 * n);
    const Tensor golden = wide(values);
    std::vector<double> opposite(values);
    for (double& value : opposite) value = -value;
    EXPECT_EQ(measures_of(golden.view, golden.view, {}).value().cosine, 1) << n;
    EXPECT_EQ(measures_of(golden.view, wide(opposite).view, {}).value().cosine, -1) << n;
  }
}

TEST(Measure, NaNOfGoldenIsNoIntegerOfMine) {
  const Measures m = measures_of(wide({NAN, 1}).view, stored({0, 1}, DType::Int8).view, {}).value();
  EXPECT_EQ(m.pattern_mismatches, 1);
  EXPECT_EQ(m.atb_within, 1);
}

TEST(Measure, DivergenceOfTwoDistributions) {
  // softmax of 0 and log 3 is 1/4, 3/4; of 0 and 0 it is 1/2, 1/2: 1/4 log(1/2) + 3/4 log(3/2)
  const Measures m =
      measures_of(wide({0, std::log(3.0)}).view, wide({5, 5}).view, {.kl_divergence = true})
          .value();
  EXPECT_NEAR(m.kl_divergence, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-15);
  // p = 1 - e^-1000, e^-1000; q the other way round: 1000
  const Measures far =
      measures_of(wide({1000, 0}).view, wide({0, 1000}).view, {.kl_divergence = true}).value();
  EXPECT_NEAR(far.kl_divergence, 1000, 1e-9);
}

TEST(Measure, OtherCountsAndTypesWithoutValuesAreRefused) {
  EXPECT_EQ(measures_of(wide({1, 2}).view, wide({1}).view, {}).error().message,
            "golden has shape [2], the output has [1]");
  const std::vector<std::byte> bytes(16);
  const TensorView complex = make_view(DType::Complex64, {2}, bytes).value();
  EXPECT_EQ(measures_of(wide({1, 2}).view, complex, {}).error().code, Errc::Unsupported);
}

// ---- the kernel against plain loops ----

/// What the documents say, element by element, with nothing of the code under test but its limits.
struct Plain {
  int64_t atb = 0, mixed = 0, far = 0, o4 = 0, o1 = 0, absolute = 0, o1_absolute = 0, exact = 0,
          one_off = 0;
  int64_t inexact = 0, truncated = 0;
  double max_abs = 0, sum_abs = 0, max_rel = 0, balance = 0, squares = 0, mare = 0, o4_max = 0,
         o1_max_abs = 0;
};

double stored_value(double value, DType dtype) { return reference::round_to(value, dtype); }

/// The neighbour of a stored value one unit further from zero or nearer to it.
double neighbour(double value, DType dtype, int direction) {
  const int fraction_bits = dtype == DType::Float16 ? 10 : dtype == DType::BFloat16 ? 7 : 23;
  const int lowest = dtype == DType::Float16 ? -14 : -126;
  const double magnitude = std::fabs(value);
  int exponent = magnitude == 0 ? lowest : std::max(std::ilogb(magnitude), lowest);
  if (direction < 0 && magnitude == std::ldexp(1.0, exponent) && exponent > lowest) --exponent;
  return std::copysign(magnitude + direction * std::ldexp(1.0, exponent - fraction_bits), value);
}

Plain plain_measures(const std::vector<double>& golden, const std::vector<double>& mine,
                     DType dtype, double atb_error) {
  const LegacyLimits o4 = *legacy_limits(Standard::LegacyO4, dtype);
  const LegacyLimits o1 = *legacy_limits(Standard::LegacyO1, dtype);
  const MixedLimits mixed = mixed_limits(dtype);
  Plain out;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double g = golden[i], m = mine[i], e = std::fabs(m - g), a = std::fabs(g);
    out.atb += e <= atb_error * std::max(1.0, a);
    out.mixed += e <= mixed.tolerance * (1 + a);
    const double unit = neighbour(std::ldexp(1.0, a == 0 ? -1074 : std::ilogb(a)), dtype, 1) -
                        std::ldexp(1.0, a == 0 ? -1074 : std::ilogb(a));
    out.far += e > std::max(mixed.floor, 32 * unit);
    out.max_abs = std::max(out.max_abs, e);
    out.sum_abs += e;
    out.max_rel = std::max(out.max_rel, e / std::max(a, 0x1p-23));
    out.balance += (m - g) / std::max(1.0, a);
    out.squares += (m - g) * (m - g);
    out.mare = std::max(out.mare, e / (a + 1e-7));
    const double s = stored_value(g, dtype);
    double relative = 0, absolute = 0, o1_relative = 0;
    if (std::fabs(s) > 0x1p-23) {
      const float quotient = static_cast<float>(m) / static_cast<float>(s);
      relative = std::fabs(stored_value(stored_value(quotient, dtype) - 1, dtype));
      absolute = std::fabs(m - s);
    }
    const float divisor = s == 0 ? 0x1p-7f : static_cast<float>(s);
    o1_relative = std::fabs((static_cast<float>(m) - static_cast<float>(s)) / divisor);
    out.o4 += relative <= o4.etol;
    out.o4_max = std::max(out.o4_max, relative);
    out.absolute += absolute <= o4.etol;
    out.o1_absolute += std::fabs(m - s) <= o1.etol;
    out.o1_max_abs = std::max(out.o1_max_abs, std::fabs(m - s));
    out.o1 += o1_relative <= static_cast<double>(static_cast<float>(o1.etol));
    out.exact += m == s;
    out.one_off += m != s && (m == neighbour(s, dtype, 1) || m == neighbour(s, dtype, -1) ||
                              (s == 0 && std::fabs(m) == neighbour(0.0, dtype, 1)));
    if (s == g || dtype == DType::Float32) continue;
    ++out.inexact;
    out.truncated += m == (std::fabs(s) > a ? neighbour(s, dtype, -1) : s);
  }
  return out;
}

/// Goldens of all magnitudes the type has, and outputs from exact to far off.
void generate(DType dtype, std::vector<double>* golden, std::vector<double>* mine) {
  const auto count = *rc::gen::inRange<size_t>(0, 5000);
  const auto spread = *rc::gen::inRange(0, 3);
  uint64_t seed = *rc::gen::arbitrary<uint64_t>();
  const auto random = [&] {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(seed >> 11) * 0x1p-53;
  };
  const int lowest = spread == 0 ? -3 : spread == 1 ? -12 : (dtype == DType::Float16 ? -26 : -140);
  const int highest = spread == 0 ? 3 : dtype == DType::Float16 ? 14 : 20;
  for (size_t i = 0; i < count; ++i) {
    const int exponent = lowest + static_cast<int>(random() * (highest - lowest));
    double g = std::ldexp(random() * 2 - 1, exponent);
    if (random() < 0.05) g = 0;
    double m = stored_value(g, dtype);
    const double kind = random();
    if (kind < 0.3) m = neighbour(m, dtype, kind < 0.15 ? 1 : m == 0 ? 1 : -1);
    if (kind > 0.9) m = stored_value(m * (1 + (random() - 0.5) * 0.02), dtype);
    if (kind > 0.98) m = -m;
    golden->push_back(g);
    mine->push_back(m);
  }
}

void kernel_agrees_with_plain_loops(DType dtype) {
  std::vector<double> golden, mine;
  generate(dtype, &golden, &mine);
  const double atb_error = 0x1p-9;
  const Tensor output = stored(mine, dtype);
  const Measures m = measures_of(wide(golden).view, output.view, {.atb_error = atb_error}).value();
  const Plain plain = plain_measures(golden, mine, dtype, atb_error);
  const auto count = static_cast<int64_t>(golden.size());
  const double places = std::max(1.0, static_cast<double>(count));
  RC_ASSERT(m.count == count);
  RC_ASSERT(m.atb_within == plain.atb);
  RC_ASSERT(m.mixed_within == plain.mixed);
  RC_ASSERT(m.mixed_too_far == plain.far);
  RC_ASSERT(m.legacy_o4_within == plain.o4);
  RC_ASSERT(m.legacy_o4_max_rel == plain.o4_max);
  RC_ASSERT(m.legacy_o1_within == plain.o1);
  RC_ASSERT(m.legacy_abs_within == plain.absolute);
  RC_ASSERT(m.legacy_o1_abs_within == plain.o1_absolute);
  RC_ASSERT(m.legacy_o1_max_abs == plain.o1_max_abs);
  RC_ASSERT(m.ulp_histogram[0] == plain.exact);
  RC_ASSERT(m.ulp_histogram[1] == plain.one_off);
  RC_ASSERT(m.inexact == plain.inexact);
  RC_ASSERT(m.truncated == plain.truncated);
  RC_ASSERT(m.max_abs_error == plain.max_abs);
  RC_ASSERT(m.max_rel_error == plain.max_rel);
  RC_ASSERT(m.mare == plain.mare);
  RC_ASSERT(std::fabs(m.mean_abs_error - plain.sum_abs / places) <= 1e-12 * plain.max_abs);
  RC_ASSERT(std::fabs(m.error_balance - std::fabs(plain.balance) / places) <= 1e-12);
  RC_ASSERT(std::fabs(m.rmse - std::sqrt(plain.squares / places)) <= 1e-12 * plain.max_abs);

  // An infinity in every block sends all of them through the plain loop: the same numbers.
  std::vector<double> golden_inf, mine_inf;
  for (size_t i = 0; i < golden.size(); ++i) {
    if (i % 1000 == 0) {
      golden_inf.push_back(INFINITY);
      mine_inf.push_back(INFINITY);
    }
    golden_inf.push_back(golden[i]);
    mine_inf.push_back(mine[i]);
  }
  const Measures slow =
      measures_of(wide(golden_inf).view, stored(mine_inf, dtype).view, {.atb_error = atb_error})
          .value();
  RC_ASSERT(slow.pattern_mismatches == 0);
  RC_ASSERT(slow.atb_within - slow.golden_inf == m.atb_within);
  RC_ASSERT(slow.mixed_too_far == m.mixed_too_far);
  RC_ASSERT(slow.legacy_o4_within == m.legacy_o4_within);
  RC_ASSERT(slow.legacy_o1_within == m.legacy_o1_within);
  RC_ASSERT(slow.legacy_o1_abs_within == m.legacy_o1_abs_within);
  RC_ASSERT(slow.ulp_histogram[0] - slow.golden_inf == m.ulp_histogram[0]);
  for (size_t bin = 1; bin < m.ulp_histogram.size(); ++bin)
    RC_ASSERT(slow.ulp_histogram[bin] == m.ulp_histogram[bin]);
  RC_ASSERT(slow.truncated == m.truncated);
  RC_ASSERT(slow.away_truncated == m.away_truncated);
  RC_ASSERT(slow.away_values == m.away_values);
  RC_ASSERT(slow.max_rel_error == m.max_rel_error);
}

RC_GTEST_PROP(MeasureKernel, Float16, ()) { kernel_agrees_with_plain_loops(DType::Float16); }
RC_GTEST_PROP(MeasureKernel, BFloat16, ()) { kernel_agrees_with_plain_loops(DType::BFloat16); }
RC_GTEST_PROP(MeasureKernel, Float32, ()) { kernel_agrees_with_plain_loops(DType::Float32); }

TEST(Measure, EqualBytesGiveWhatTheLoopGives) {
  const std::vector<double> values = {1, -2, 0, NAN, INFINITY, 0.5};
  for (const DType dtype : {DType::Float16, DType::Float32, DType::BFloat16}) {
    const Tensor tensor = stored(values, dtype);
    const Measures quick = measures_of(tensor.view, tensor.view, {}).value();
    const Measures loop = measures_of(wide(values).view, tensor.view, {}).value();
    EXPECT_EQ(quick.atb_within, loop.atb_within);
    EXPECT_EQ(quick.legacy_o4_within, loop.legacy_o4_within);
    EXPECT_EQ(quick.legacy_o1_within, loop.legacy_o1_within);
    EXPECT_EQ(quick.legacy_abs_within, loop.legacy_abs_within);
    EXPECT_EQ(quick.legacy_o1_abs_within, loop.legacy_o1_abs_within);
    EXPECT_EQ(std::isnan(quick.legacy_o1_max_abs), std::isnan(loop.legacy_o1_max_abs));
    EXPECT_EQ(std::isnan(quick.legacy_o4_max_rel), std::isnan(loop.legacy_o4_max_rel));
    EXPECT_EQ(std::isnan(quick.legacy_o1_max_rel), std::isnan(loop.legacy_o1_max_rel));
    EXPECT_EQ(quick.ulp_histogram, loop.ulp_histogram);
    EXPECT_EQ(quick.golden_nan, loop.golden_nan);
    EXPECT_EQ(quick.mine_inf, loop.mine_inf);
    EXPECT_EQ(quick.cosine, loop.cosine);
    EXPECT_EQ(quick.worst_index, -1);
  }
}

TEST(Measure, ABlockOfEqualIntegersCountsLikeItsElements) {
  // The same values with one element off, which sends the block through the loop.
  std::vector<double> golden = {5, -7, 0, 127};
  const Tensor mine = stored({5, -7, 0, 127}, DType::Int8);
  const Measures equal = measures_of(wide(golden).view, mine.view, {}).value();
  golden.back() = 126;
  const Measures loop = measures_of(wide(golden).view, mine.view, {}).value();
  EXPECT_EQ(equal.atb_within, loop.atb_within + 1);
  EXPECT_EQ(equal.mixed_within, loop.mixed_within + 1);
  EXPECT_EQ(equal.ulp_histogram, (std::array<int64_t, 6>{4, 0, 0, 0, 0, 0}));
  EXPECT_EQ(loop.ulp_histogram, (std::array<int64_t, 6>{3, 1, 0, 0, 0, 0}));
  EXPECT_EQ(equal.legacy_o4_within, 4);
  EXPECT_EQ(loop.legacy_o4_within, 4);  // 1 in 126 is far below 100 %
  EXPECT_EQ(equal.legacy_o1_within, 4);
  EXPECT_EQ(equal.legacy_abs_within, 4);
  EXPECT_EQ(equal.cosine, 1);
  EXPECT_EQ(equal.nmse, 0);
  EXPECT_EQ(loop.worst_index, 3);
}

TEST(Measure, StridesDoNotMatter) {
  Tensor golden = reference::reshaped(wide({0, 1, 2, 3, 4, 5}), {2, 3}).value();
  golden.view.shape = {3, 2};  // transposed
  golden.view.strides = {1, 3};
  const Tensor mine = stored({0, 3, 1, 4, 2, 5}, DType::Float16);
  EXPECT_EQ(measures_of(golden.view, mine.view, {})->max_abs_error, 0);
}

TEST(NeighbourhoodOf, ClipsAtTheEndsAndNamesTheElement) {
  Tensor golden = wide({0, 1, 2, 3, 4, 5});
  golden = reference::reshaped(golden, {2, 3}).value();
  const Neighbourhood end = neighbourhood_of(golden.view, golden.view, 5);
  EXPECT_EQ(end.index, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(end.first, 3);
  EXPECT_EQ(end.golden_values, (std::vector<double>{3, 4, 5}));
  EXPECT_EQ(end.mine, 5);
  EXPECT_EQ(neighbourhood_of(golden.view, golden.view, 2).golden_values.size(), 5u);
  EXPECT_TRUE(neighbourhood_of(golden.view, golden.view, 6).index.empty());
}

}  // namespace
}  // namespace assay::measure

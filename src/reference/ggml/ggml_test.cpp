// SPDX-License-Identifier: Apache-2.0
// Small calls whose results can be checked by hand. Against NumPy, torch and the engine itself:
// tests/python/reference/test_ggml_reference.py
#include <gtest/gtest.h>

#include <cmath>

#include "reference/aten/call.hpp"
#include "reference/aten/selection.hpp"
#include "reference/ggml/operators.hpp"

namespace assay::reference::ggml {
namespace {

using aten::Argument;
using aten::ArgumentList;
using aten::Call;

Tensor reals(const Dims& shape, std::initializer_list<double> values) {
  Wide wide(shape);
  std::copy(values.begin(), values.end(), wide.values.begin());
  return to_tensor(std::move(wide));
}
Tensor integers(const Dims& shape, std::initializer_list<int64_t> values) {
  Whole whole(shape);
  std::copy(values.begin(), values.end(), whole.values.begin());
  return to_tensor(std::move(whole));
}
Argument sizes(std::initializer_list<int64_t> values) {
  ArgumentList list;
  for (const int64_t value : values) list.emplace_back().value = value;
  Argument argument;
  argument.value = std::move(list);
  return argument;
}
Call call_of(std::string name, std::map<std::string, Argument, std::less<>> arguments) {
  return {std::move(name), std::move(arguments)};
}
std::vector<double> values_of(const Call& call, Dims* shape = nullptr) {
  const auto results = aten::evaluate(call);
  if (!results) {
    ADD_FAILURE() << results.error().describe();
    return {};
  }
  const Wide wide = widen(results->at(0).view).value();
  if (shape != nullptr) *shape = results->at(0).view.shape;
  return {wide.values.begin(), wide.values.end()};
}
using Numbers = std::vector<double>;

TEST(GgmlReference, MulMatTakesRowsOfTheWeight) {
  // W [2 rows, 3], x [1 row, 3]: [1 2 3] . [1 0 1], [4 5 6] . [1 0 1]
  Dims shape;
  const Numbers found =
      values_of(call_of("ggml.mul_mat", {{"src0", {reals({2, 3}, {1, 2, 3, 4, 5, 6})}},
                                         {"src1", {reals({1, 3}, {1, 0, 1})}}}),
                &shape);
  EXPECT_EQ(found, (Numbers{4, 10}));
  EXPECT_EQ(shape, Dims{2}) << "leading ones are dropped";
}

TEST(GgmlReference, MulMatRepeatsMatricesOfGroupedHeads) {
  // Two heads of W for four of x: heads 0 and 1 take the first.
  const Numbers found =
      values_of(call_of("ggml.mul_mat", {{"src0", {reals({2, 1, 1}, {10, 20})}},
                                         {"src1", {reals({4, 1, 1}, {1, 2, 3, 4})}}}));
  EXPECT_EQ(found, (Numbers{10, 20, 60, 80}));
}

TEST(GgmlReference, MulMatIdTakesTheMatrixOfTheExpert) {
  // Experts are factors 1, 10, 100; one token uses experts 2 and 0.
  const Numbers found =
      values_of(call_of("ggml.mul_mat_id", {{"src0", {reals({3, 1, 1}, {1, 10, 100})}},
                                            {"src1", {reals({1, 1, 1}, {7})}},
                                            {"src2", {integers({1, 2}, {2, 0})}}}));
  EXPECT_EQ(found, (Numbers{700, 7}));
}

TEST(GgmlReference, GetRowsGathersAndSetRowsScatters) {
  const Tensor table = reals({3, 2}, {0, 1, 10, 11, 20, 21});
  const Tensor rows = integers({2}, {2, 0});
  EXPECT_EQ(values_of(call_of("ggml.get_rows", {{"src0", {table}}, {"src1", {rows}}})),
            (Numbers{20, 21, 0, 1}));
  EXPECT_EQ(values_of(call_of(
                "ggml.set_rows",
                {{"src0", {reals({2, 2}, {5, 6, 7, 8})}}, {"src1", {rows}}, {"src2", {table}}})),
            (Numbers{7, 8, 10, 11, 5, 6}));
}

TEST(GgmlReference, PermuteSendsEverySourceAxisToItsTarget) {
  // ne [2, 3] -> axes 1, 0: [3, 2], a transposed matrix.
  const Tensor x = reals({3, 2}, {0, 1, 2, 3, 4, 5});
  Dims shape;
  EXPECT_EQ(
      values_of(call_of("ggml.permute", {{"src0", {x}}, {"axes", sizes({1, 0, 2, 3})}}), &shape),
      (Numbers{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(shape, (Dims{2, 3}));
}

TEST(GgmlReference, ViewCountsItsOffsetInBytes) {
  const Tensor x = reals({4}, {1, 2, 3, 4});
  EXPECT_EQ(
      values_of(call_of("ggml.view",
                        {{"src0", {x}}, {"ne", sizes({2, 1, 1, 1})}, {"offset", {int64_t{16}}}})),
      (Numbers{3, 4}));
}

TEST(GgmlReference, RopeTurnsAdjacentPairsOrHalves) {
  // Position 1, base 1: every pair is turned by 1.
  const double c = std::cos(1.0), s = std::sin(1.0);
  const auto rope = [](int64_t mode) {
    return call_of("ggml.rope", {{"src0", {reals({1, 1, 4}, {1, 0, 0, 1})}},
                                 {"src1", {integers({1}, {1})}},
                                 {"n_dims", {int64_t{4}}},
                                 {"mode", {mode}},
                                 {"freq_base", {1.0}}});
  };
  EXPECT_EQ(values_of(rope(0)), (Numbers{c, s, -s, c}));  // pairs (1, 0) and (0, 1)
  EXPECT_EQ(values_of(rope(2)), (Numbers{c, -s, s, c}));  // pairs (1, 0) and (0, 1), apart by two
}

TEST(GgmlReference, ParametersMayComeAsWords) {
  // scale 0.5 and bias 2 as the bits of float32 in op_params
  EXPECT_EQ(values_of(call_of("ggml.scale", {{"src0", {reals({2}, {4, 8})}},
                                             {"op_params", sizes({0x3F000000, 0x40000000})}})),
            (Numbers{4, 6}));
}

TEST(GgmlReference, SoftMaxHidesWhatTheMaskHides) {
  const Numbers found =
      values_of(call_of("ggml.soft_max", {{"src0", {reals({1, 3}, {0, 0, 5})}},
                                          {"src1", {reals({1, 3}, {0, 0, -INFINITY})}},
                                          {"scale", {2.0}}}));
  EXPECT_EQ(found, (Numbers{0.5, 0.5, 0}));
}

TEST(GgmlReference, GluTakesHalvesInEitherOrder) {
  const Tensor both = reals({1, 4}, {-1, 2, 10, 20});
  const auto reglu = [&](bool swapped) {
    return values_of(call_of(
        "ggml.glu", {{"src0", {both}}, {"op", {std::string("REGLU")}}, {"swapped", {swapped}}}));
  };
  EXPECT_EQ(reglu(false), (Numbers{0, 40}));
  EXPECT_EQ(reglu(true), (Numbers{-10, 40}));
}

TEST(GgmlReference, TopKMayComeInAnyOrder) {
  const Call call =
      call_of("ggml.top_k", {{"src0", {reals({4}, {3, 9, 5, 9})}}, {"ne", sizes({3, 1, 1, 1})}});
  const auto results = aten::evaluate(call).value();
  EXPECT_EQ(values_of(call), (Numbers{1, 3, 2}));
  EXPECT_TRUE(aten::has_open_order(call.name));
  const auto is_right = [&](std::initializer_list<int64_t> places) {
    return aten::indices_select_same_values(call, results, 0, integers({3}, places).view).value();
  };
  EXPECT_TRUE(is_right({2, 3, 1}));
  EXPECT_FALSE(is_right({2, 3, 0})) << "3 is not among the three largest";
  EXPECT_FALSE(is_right({3, 3, 2})) << "one value twice";
}

TEST(GgmlReference, RefusesWhatDoesNotFit) {
  const auto wrong =
      aten::evaluate(call_of("ggml.mul_mat", {{"src0", {reals({2, 3}, {1, 2, 3, 4, 5, 6})}},
                                              {"src1", {reals({2}, {1, 2})}}}));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Errc::Invalid);
  EXPECT_NE(wrong.error().message.find("weight"), std::string::npos);
  const auto outside = aten::evaluate(call_of(
      "ggml.get_rows", {{"src0", {reals({2, 1}, {1, 2})}}, {"src1", {integers({1}, {2})}}}));
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().code, Errc::Invalid);
  EXPECT_EQ(aten::evaluate(call_of("ggml.ssm_scan", {})).error().code, Errc::Unsupported);
}

TEST(GgmlReference, EveryOperatorRefusesACallWithoutSources) {
  for (const std::string_view name : known_operators()) {
    const auto result = aten::evaluate(call_of(std::string(name), {}));
    ASSERT_FALSE(result) << name;
    EXPECT_NE(aten::class_of(name), OperatorClass::Unknown) << name;
  }
}

TEST(GgmlRounding, QuantisedWeightsAllowTheStepOfTheActivation) {
  // One block of 32: largest value 127 of x, so that d = 1 and a value is off by at most 1/2, and
  // by 2^-11 of itself.
  Wide w(Dims{1, 32}, 1.0);
  Wide x(Dims{1, 32}, 0.0);
  x.values[0] = 127;
  const auto call = [&](std::string type) {
    return call_of(
        "ggml.mul_mat",
        {{"src0", {to_tensor(w)}}, {"src1", {to_tensor(x)}}, {"src0_type", {std::move(type)}}});
  };
  const double plain = rounding(call("f32")).value().allowed.values[0];
  EXPECT_DOUBLE_EQ(plain, 2 * std::sqrt(32.0) * 0x1p-24 * 127);
  const Magnitudes blocks = rounding(call("q4_0")).value();
  // The bound is 16 + 127 2^-11; eight deviations of 32 values of 1/12 each are less: 13.07.
  const double likely =
      8 * std::sqrt(32.0 / 12 + std::pow(0.425 * 127 * 0x1p-11, 2)) + 127 * 0x1p-11;
  EXPECT_NEAR(blocks.allowed.values[0] - plain, likely, 1e-9);
  EXPECT_NEAR(blocks.variance.values[0], 32.0 / 12, 0.01);
  // Half a unit in the last place of 127, which is 2^-4.
  EXPECT_DOUBLE_EQ(rounding(call("f16")).value().allowed.values[0] - plain, 0x1p-5);
  // q4_1 also rounds the sum of the block, 127, to float16, times the largest weight.
  EXPECT_NEAR(rounding(call("q4_1")).value().allowed.values[0] - plain, likely + 127 * 0x1p-11,
              1e-9);
}

TEST(GgmlRounding, OneValueThatIsMostOfASumIsRoundedByItsOwnUnit) {
  // 1.0 has the largest unit for its size: 2^-10 of float16, half of which is 2^-11 of it. Below
  // 2^-14 units stay 2^-24.
  Wide w(Dims{1, 2}, 3.0);
  const auto variance = [&](double value) {
    Wide x(Dims{1, 2}, 0.0);
    x.values[0] = value;
    const auto of = [&](const char* type) {
      return rounding(call_of("ggml.mul_mat", {{"src0", {to_tensor(w)}},
                                               {"src1", {to_tensor(x)}},
                                               {"src0_type", {std::string(type)}}}))
          .value();
    };
    const Magnitudes half = of("f16"), plain = of("f32");
    EXPECT_LE(half.allowed.values[0] - plain.allowed.values[0],
              3 * std::fmax(value * 0x1p-11, 0x1p-25));
    return half.variance.values[0] - plain.variance.values[0];
  };
  EXPECT_DOUBLE_EQ(variance(1.0), 9 * std::pow(0x1p-10, 2) / 12);
  EXPECT_NEAR(variance(1.999), 9 * std::pow(0x1p-10, 2) / 12, 1e-12);
  EXPECT_NEAR(variance(0x1p-16), 9 * std::pow(0x1p-24, 2) / 12, 1e-20);
}

}  // namespace
}  // namespace assay::reference::ggml

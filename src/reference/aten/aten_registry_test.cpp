// SPDX-License-Identifier: Apache-2.0
// The table of overloads, and arguments that are not what a schema says.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "reference/aten/values.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

Tensor line(std::vector<double> values) {
  Wide wide({static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), wide.values.begin());
  return to_tensor(std::move(wide));
}

std::vector<double> values_of(const Tensor& tensor) {
  const Result<Wide> wide = widen(tensor.view);
  return wide ? std::vector<double>(wide->values.begin(), wide->values.end())
              : std::vector<double>();
}

TEST(KnownOverloads, AreSortedAndHaveAClass) {
  const std::vector<std::string_view> names = known_overloads();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()).size(), names.size());
  for (const std::string_view name : names)
    EXPECT_NE(class_of(name), OperatorClass::Unknown) << name;
  EXPECT_EQ(class_of("aten.foo.bar"), OperatorClass::Unknown);
}

TEST(KnownOverloads, ReachTheFunctionalRowFromInPlaceAndOutOverloads) {
  EXPECT_EQ(class_of("aten.add_.Tensor"), OperatorClass::Arithmetic);
  EXPECT_EQ(class_of("aten.add.out"), OperatorClass::Arithmetic);
  EXPECT_TRUE(is_view("aten.transpose.int"));
  EXPECT_FALSE(is_view("aten.transpose_copy.int"));
  EXPECT_FALSE(is_view("aten.clone.default"));
}

TEST(Evaluate, LeavesTheOperandOfAnInPlaceOverloadAlone) {
  const Tensor self = line({1, 2});
  const auto result =
      evaluate({"aten.add_.Tensor", {{"self", {self}}, {"other", {line({10, 20})}}}});
  ASSERT_TRUE(result);
  EXPECT_EQ(values_of(result->at(0)), (std::vector<double>{11, 22}));
  EXPECT_EQ(values_of(self), (std::vector<double>{1, 2}));
}

TEST(Evaluate, WritesTruthValuesAsTheArgumentTakesThem) {
  // lt_ of a float tensor leaves floats, lt gives truth values.
  const Call call{"aten.lt.Scalar", {{"self", {line({1, 5})}}, {"other", {int64_t{3}}}}};
  EXPECT_EQ(evaluate(call)->at(0).view.dtype, DType::Bool);
  const auto written = evaluate({"aten.lt_.Scalar", call.arguments});
  EXPECT_EQ(written->at(0).view.dtype, DType::Float64);
  EXPECT_EQ(values_of(written->at(0)), (std::vector<double>{1, 0}));
}

TEST(Evaluate, NamesTheCallInEveryError) {
  const auto error = [](const Call& call) {
    const auto result = evaluate(call);
    return result ? std::string() : result.error().message;
  };
  EXPECT_EQ(error({"aten.foo.bar", {}}), "no reference for aten.foo.bar");
  EXPECT_EQ(error({"aten.add.Tensor", {{"self", {line({1})}}}}),
            "aten.add.Tensor: argument other is missing");
  EXPECT_EQ(error({"aten.t.default", {{"self", {int64_t{1}}}}}),
            "aten.t.default: argument self is no tensor");
  EXPECT_EQ(error({"aten.permute.default", {{"self", {line({1})}}, {"dims", {std::string("x")}}}}),
            "aten.permute.default: argument dims is no list of integers");
  EXPECT_EQ(
      error({"aten.to.dtype", {{"self", {line({1})}}, {"dtype", {DTypeArgument{{}, "quint"}}}}}),
      "aten.to.dtype: dtype quint");
  EXPECT_EQ(error({"aten.rand.default", {}}), "random: aten.rand.default");
}

TEST(Evaluate, TakesArgumentsThatAreNone) {
  const auto result = evaluate(
      {"aten.clamp.default", {{"self", {line({-2, 5})}}, {"min", {}}, {"max", {int64_t{1}}}}});
  ASSERT_TRUE(result);
  EXPECT_EQ(values_of(result->at(0)), (std::vector<double>{-2, 1}));
}

TEST(Evaluate, ResolvesLazySigns) {
  Tensor self = line({1, -2});
  self.view.negative = true;
  const auto result = evaluate({"aten.clone.default", {{"self", {self}}}});
  ASSERT_TRUE(result);
  EXPECT_EQ(values_of(result->at(0)), (std::vector<double>{-1, 2}));
}

TEST(Evaluate, KeepsTheElementTypeOfMoves) {
  const Tensor half = *narrow(line({0.1, 0.2}).view, DType::Float16);
  const auto result = evaluate({"aten.flip.default", {{"self", {half}}, {"dims", {int64_t{0}}}}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->at(0).view.dtype, DType::Float16);
  EXPECT_EQ(values_of(result->at(0)), (std::vector<double>{0.199951171875, 0.0999755859375}));
}

// ---- Views --------------------------------------------------------------------------------------

Tensor matrix() {  // [[0, 1, 2], [3, 4, 5]]
  return *reshaped(line({0, 1, 2, 3, 4, 5}), {2, 3});
}

TEST(Views, ShareTheBytesOfTheOperand) {
  const Tensor self = matrix();
  const Argument one{int64_t{1}};
  const std::vector<Call> calls = {
      {"aten.t.default", {{"self", {self}}}},
      {"aten.transpose.int", {{"self", {self}}, {"dim0", {int64_t{0}}}, {"dim1", one}}},
      {"aten.select.int", {{"self", {self}}, {"dim", {int64_t{0}}}, {"index", one}}},
      {"aten.slice.Tensor", {{"self", {self}}, {"dim", one}, {"start", one}}},
      {"aten.unsqueeze.default", {{"self", {self}}, {"dim", one}}},
      {"aten.view.default", {{"self", {self}}, {"size", {ArgumentList{{int64_t{-1}}}}}}},
      {"aten.split.Tensor", {{"self", {self}}, {"split_size", one}}},
  };
  for (const Call& call : calls) {
    const auto results = evaluate(call);
    ASSERT_TRUE(results) << call.name;
    for (const Tensor& result : *results) EXPECT_EQ(result.owner, self.owner) << call.name;
  }
}

TEST(Views, CopyOnlyWhereNoStridesShowTheElements) {
  const Tensor self = matrix();
  const Tensor turned = evaluate({"aten.t.default", {{"self", {self}}}})->at(0);
  const auto flat = [](const Tensor& tensor) {
    return evaluate({"aten.reshape.default",
                     {{"self", {tensor}}, {"shape", {ArgumentList{{int64_t{6}}}}}}})
        ->at(0);
  };
  EXPECT_EQ(flat(self).owner, self.owner);
  EXPECT_NE(flat(turned).owner, self.owner);
  EXPECT_EQ(values_of(flat(turned)), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  // [3, 2] as [3, 1, 2] needs no copy, whatever its strides are.
  const ArgumentList sizes{{int64_t{3}}, {int64_t{1}}, {int64_t{2}}};
  const Tensor raised =
      evaluate({"aten.view.default", {{"self", {turned}}, {"size", {sizes}}}})->at(0);
  EXPECT_EQ(raised.owner, self.owner);
  EXPECT_EQ(values_of(raised), (std::vector<double>{0, 3, 1, 4, 2, 5}));
}

TEST(Views, OfConstantsNeedOneElement) {
  const ArgumentList sizes{{int64_t{1} << 20}, {int64_t{1} << 15}};
  const auto zeros = evaluate({"aten.zeros.default", {{"size", {sizes}}}});
  ASSERT_TRUE(zeros);
  EXPECT_EQ(zeros->at(0).view.element_count(), int64_t{1} << 35);
  EXPECT_LE(zeros->at(0).view.storage.size(), 8u);
}

// ---- Values -------------------------------------------------------------------------------------

TEST(CastTo, LeavesFloatsAloneAndCutsThemOffForIntegers) {
  const Tensor self = line({1.7, -2.5, 300, std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(cast_to(self, DType::BFloat16)->owner, self.owner);
  EXPECT_EQ(values_of(*cast_to(self, DType::Int32)),
            (std::vector<double>{1, -2, 300, -2147483648.0}));
  EXPECT_EQ(values_of(*cast_to(self, DType::Int8)), (std::vector<double>{1, -2, 44, 0}));
  EXPECT_EQ(values_of(*cast_to(self, DType::Bool)), (std::vector<double>{1, 1, 1, 1}));
}

TEST(ResultType, FollowsDimensionsBeforeRankZeroBeforeNumbers) {
  const auto tensor = [](DType dtype, const Dims& shape) {
    return Operand{*narrow(to_tensor(Wide(shape, 1.0)).view, dtype), false};
  };
  const Operand number{scalar_tensor(int64_t{3}), true};
  const auto type = [](std::vector<Operand> operands) { return *result_type(operands); };
  EXPECT_EQ(type({tensor(DType::Int8, {2}), number}), DType::Int8);
  EXPECT_EQ(type({tensor(DType::Int8, {2}), tensor(DType::Int64, {})}), DType::Int8);
  EXPECT_EQ(type({tensor(DType::Int8, {2}), tensor(DType::Int64, {2})}), DType::Int64);
  EXPECT_EQ(type({tensor(DType::Int8, {2}), tensor(DType::UInt8, {2})}), DType::Int16);
  EXPECT_EQ(type({tensor(DType::Bool, {2}), number}), DType::Int64);
  EXPECT_EQ(type({tensor(DType::Int8, {2}), tensor(DType::Float16, {})}), DType::Float64);
}

}  // namespace
}  // namespace assay::reference::aten

// SPDX-License-Identifier: Apache-2.0
#include "repeat/leaks.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "locate/program/test_program.hpp"
#include "run/load.hpp"
#include "run/run.hpp"

namespace assay::repeat {
namespace {

using locate::test::TestRun;
using locate::test::Value;
using Values = std::vector<double>;

/// What a run computes of the tokens of its rows.
using Model = std::function<void(TestRun&, const Values& rows)>;

/// A run of the model, which a test keeps.
struct Made {
  TestRun test;
  std::optional<Execution> execution;

  Made(const Model& model, const Values& rows) {
    model(test, rows);
    run::Run run = test.run();
    for (run::TensorRecord& record : run.records)
      record.digest = stats::digest(run::load_tensor(record)->view);
    execution.emplace(std::make_shared<const run::Run>(std::move(run)));
  }
};

Values mapped(const Values& from, const std::function<double(double)>& change) {
  Values to(from.size());
  std::ranges::transform(from, to.begin(), change);
  return to;
}

/// Two channels a row: x and x + 100, and half of that.
void healthy(TestRun& test, const Values& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  Values wide;
  for (const double x : rows) wide.insert(wide.end(), {x, x + 100});
  const Value in = test.value(DType::Float32, {count, 2}, wide);
  test.op("m", "aten.div.Scalar", {{"self", in}}, R"({"other":2})",
          test.value(DType::Float32, {count, 2}, mapped(wide, [](double x) { return x / 2; })));
}

/// x minus the mean of the batch, with the mean as an operator of its own.
void centred(TestRun& test, const Values& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  double mean = 0;
  for (const double x : rows) mean += x / static_cast<double>(count);
  const Value in = test.value(DType::Float32, {count, 1}, rows);
  const Value middle = test.op("m", "aten.mean.dim", {{"self", in}}, R"({"dim":[0]})",
                               test.value(DType::Float32, {1}, {mean}));
  test.op("m", "aten.sub.Tensor", {{"self", in}, {"other", middle}}, "{}",
          test.value(DType::Float32, {count, 1}, mapped(rows, [&](double x) { return x - mean; })));
}

/// The values of all rows beside each other: axis 0 has `per_row` places for each.
void flattened(TestRun& test, const Values& rows, bool interleaved) {
  Values all;
  for (size_t i = 0; i < 3 * rows.size(); ++i) {
    const size_t row = interleaved ? i % rows.size() : i / 3;
    const size_t place = interleaved ? i / rows.size() : i % 3;
    all.push_back(rows[row] * static_cast<double>(place + 1));
  }
  const auto count = static_cast<int64_t>(all.size());
  const Value in = test.value(DType::Float32, {count}, all);
  test.op("m", "aten.neg.default", {{"self", in}}, "{}",
          test.value(DType::Float32, {count}, mapped(all, [](double x) { return -x; })));
}

RowComparison compared(const Model& model, const Values& a, const Values& b) {
  const auto rows = static_cast<int64_t>(a.size());
  const Made few(model, Values(a.size(), a[1]));
  const Made more(model, Values(a.size() + 1, a[1]));
  const Made first(model, a);
  const Made other(model, b);
  const Splits splits(*few.execution, *more.execution, rows);
  return compare_rows({&*first.execution, 1}, {&*other.execution, 1}, splits).value();
}

TEST(CompareRows, NeighboursOfAHealthyModelChangeNothing) {
  const RowComparison found = compared(healthy, {1, 5, 2}, {7, 5, 9});
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.judged, 1);
  EXPECT_EQ(found.unsplit, 0);
}

TEST(CompareRows, AMeanOverTheBatchIsNamedWhereItReachesTheRow) {
  const RowComparison found = compared(centred, {1, 5, 2}, {7, 5, 9});
  ASSERT_EQ(found.findings.size(), 1);
  EXPECT_EQ(found.findings[0].place.operation, "aten.sub.Tensor");
  EXPECT_EQ(found.findings[0].mixed, (std::vector<std::string>{"other"}));
  EXPECT_TRUE(found.findings[0].is_exact);
  EXPECT_EQ(found.unsplit, 1);  // the mean itself is nobody's
}

TEST(CompareRows, NeighboursThatHappenToMakeTheSameMeanChangeNothing) {
  EXPECT_TRUE(compared(centred, {1, 5, 3}, {3, 5, 1}).findings.empty());
}

TEST(Splits, RowsInBlocksAndInterleavedAreToldApart) {
  for (const bool interleaved : {false, true}) {
    const Model model = [&](TestRun& test, const Values& rows) {
      flattened(test, rows, interleaved);
    };
    const Made few(model, {5, 5, 5});
    const Made more(model, {5, 5, 5, 5});
    const Splits splits(*few.execution, *more.execution, 3);
    const locate::Operator& one = few.execution->program().operators[0];
    const Split split = splits.of_use(one, true, 0, Dims{9});
    ASSERT_TRUE(split.has_rows());
    EXPECT_EQ(split.per_row, 3);
    EXPECT_EQ(split.interleaved, interleaved);
    EXPECT_TRUE(compared(model, {1, 5, 2}, {7, 5, 9}).findings.empty());
  }
}

TEST(Splits, ATensorOfAnotherSizeThanTheEqualRowsHadIsNotCut) {
  const Made few(healthy, {5, 5, 5});
  const Made more(healthy, {5, 5, 5, 5});
  const Splits splits(*few.execution, *more.execution, 3);
  const locate::Operator& one = few.execution->program().operators[0];
  EXPECT_TRUE(splits.of_use(one, true, 0, Dims{3, 2}).has_rows());
  EXPECT_EQ(splits.of_use(one, true, 0, Dims{4, 2}).state, Split::State::Unknown);
}

TEST(Splits, NumbersOfRowsAreNoRows) {
  // 0, 1, 2: an axis that grows with the batch, and no row has what the others have.
  const Model counting = [](TestRun& test, const Values& rows) {
    Values numbers;
    for (size_t i = 0; i < rows.size(); ++i) numbers.push_back(static_cast<double>(i));
    const auto count = static_cast<int64_t>(rows.size());
    test.op("m", "aten.arange.default", {}, "{}", test.value(DType::Int64, {count}, numbers));
  };
  const Made few(counting, {5, 5, 5});
  const Made more(counting, {5, 5, 5, 5});
  const Splits splits(*few.execution, *more.execution, 3);
  const locate::Operator& one = few.execution->program().operators[0];
  EXPECT_EQ(splits.of_use(one, true, 0, Dims{3}).state, Split::State::Unknown);
}

/// The second row in place of each row: the neighbour is read.
TEST(CompareRows, ARowThatReadsItsNeighbourIsExactAndCounted) {
  const Model rolled = [](TestRun& test, const Values& rows) {
    const auto count = static_cast<int64_t>(rows.size());
    Values turned(rows.begin() + 1, rows.end());
    turned.push_back(rows[0]);
    const Value in = test.value(DType::Float32, {count, 1}, rows);
    test.op("m", "aten.clone.default", {{"self", in}}, "{}",
            test.value(DType::Float32, {count, 1}, turned));
  };
  const RowComparison found = compared(rolled, {1, 5, 2}, {7, 5, 4});
  ASSERT_EQ(found.findings.size(), 1);
  EXPECT_TRUE(found.findings[0].mixed.empty());
  EXPECT_EQ(found.findings[0].different, 1);
  EXPECT_EQ(found.findings[0].relative_error, 1);  // 4 instead of 2
}

/// Rows above 4 go to an expert, which doubles them; how many they are changes the kernel, and so
/// what `of_row` makes of the second row.
Model experts(const std::function<double(double doubled, size_t count)>& of_row) {
  return [of_row](TestRun& test, const Values& rows) {
    Values chosen;
    Values out = mapped(rows, [](double x) { return 2 * x; });
    std::ranges::copy_if(rows, std::back_inserter(chosen), [](double x) { return x > 4; });
    out[1] = of_row(out[1], chosen.size());
    const auto count = static_cast<int64_t>(rows.size());
    const Value in = test.value(DType::Float32, {count, 1}, rows);
    test.module_input("experts", "0", in);
    const Value few =
        test.op("experts", "aten.masked_select.default", {{"self", in}}, "{}",
                test.value(DType::Float32, {static_cast<int64_t>(chosen.size())}, chosen));
    const Value last = test.op("experts", "my.combine.default", {{"self", in}, {"few", few}}, "{}",
                               test.value(DType::Float32, {count, 1}, out));
    test.module_output("experts", last);
  };
}

TEST(CompareRows, ExpertsMayRoundByTheNumberOfTheirTokens) {
  const auto rounds = [](double doubled, size_t count) {
    return doubled + (count > 2 ? 0x1p-20 : 0);  // one ULP of 10 in float32
  };
  const RowComparison found = compared(experts(rounds), {1, 5, 2}, {7, 5, 9});
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.content_dependent, (std::vector<std::string>{"experts"}));
}

TEST(CompareRows, ExpertsThatDropATokenForANeighboursLeak) {
  const auto drops = [](double doubled, size_t count) { return count == 2 ? 0 : doubled; };
  const RowComparison found = compared(experts(drops), {1, 5, 2}, {7, 5, 3});
  ASSERT_EQ(found.findings.size(), 1);
  EXPECT_EQ(found.findings[0].place.module, "experts");
  EXPECT_EQ(found.findings[0].relative_error, 1);
}

TEST(CompareRows, AloneIsHeldAgainstTheRowOfABatch) {
  const Made few(healthy, {5, 5, 5});
  const Made more(healthy, {5, 5, 5, 5});
  const Made alone(healthy, {5});
  const Splits splits(*few.execution, *more.execution, 3);
  const RowComparison same =
      compare_rows({&*alone.execution, 0, true}, {&*few.execution, 2}, splits).value();
  EXPECT_TRUE(same.findings.empty());
  EXPECT_EQ(same.judged, 1);
  // In a batch the kernel rounds otherwise: one ULP of 52.5 in float32 is 2^-18.
  const Made rounded(
      [](TestRun& test, const Values& rows) {
        const auto count = static_cast<int64_t>(rows.size());
        Values wide;
        Values half;
        for (const double x : rows) {
          wide.insert(wide.end(), {x, x + 100});
          half.insert(half.end(), {x / 2, x / 2 + 50 + 0x1p-18});
        }
        const Value in = test.value(DType::Float32, {count, 2}, wide);
        test.op("m", "aten.div.Scalar", {{"self", in}}, R"({"other":2})",
                test.value(DType::Float32, {count, 2}, half));
      },
      {5, 5, 5});
  const RowComparison other =
      compare_rows({&*alone.execution, 0, true}, {&*rounded.execution, 2}, splits).value();
  ASSERT_EQ(other.findings.size(), 1);
  EXPECT_EQ(other.findings[0].largest_ulp, 1);
  EXPECT_EQ(other.findings[0].different, 1);
}

}  // namespace
}  // namespace assay::repeat

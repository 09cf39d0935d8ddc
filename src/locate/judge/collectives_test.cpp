// SPDX-License-Identifier: Apache-2.0
#include "locate/program/collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "locate/judge/own_error.hpp"
#include "locate/program/test_program.hpp"
#include "reference/wide.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using test::TestRun;
using test::Value;
using testing::ElementsAre;

/// In two ranks: t = x + x in `child`, a collective of t, and exp of what it gives.
struct TwoRanks {
  TestRun run;
  std::vector<std::vector<double>> gave, got;  // by rank
  bool rank_1_sends = false;                   // t to somebody, before

  Program program(const std::string& name, const std::string& slot, const std::string& arguments) {
    for (const int rank : {0, 1}) {
      run.rank = rank;
      const Dims shape{static_cast<int64_t>(gave[0].size())};
      std::vector<double> half = gave[static_cast<size_t>(rank)];
      for (double& value : half) value /= 2;
      const Value x = run.value(DType::Float32, shape, half);
      const Value t = run.op("child", "aten.add.Tensor", {{"self", x}, {"other", x}},
                             R"({"self":{"tensor":"self"},"other":{"tensor":"other"}})",
                             run.value(DType::Float32, shape, gave[static_cast<size_t>(rank)]));
      if (rank_1_sends && rank == 1)
        run.begin_op("child", "c10d.send.default", {{"tensors.0", t}},
                     R"({"tensors":[{"tensor":"tensors.0"}],"ranks":[0,1]})");
      const std::vector<double>& result = got[static_cast<size_t>(rank)];
      const Dims made{static_cast<int64_t>(result.size())};
      run.begin_op("child", name, {{slot, t}}, arguments);
      const Value y = run.add_output("0", run.value(DType::Float32, made, result));
      run.run().records.back().bytes.reset();  // it was in flight
      run.module_output("child", y);
    }
    return run.program();
  }
};

std::vector<double> result_of(const Program& program, int rank, std::string_view name) {
  for (const Operator& one : program.operators) {
    if (one.rank != rank || one.name != name) continue;
    const Tensor result =
        reference::aten::evaluate(load_call(program, one).value()).value().front();
    std::vector<double> values(static_cast<size_t>(result.view.element_count()));
    read_values(result.view, 0, result.view.element_count(), values);
    return values;
  }
  return {};
}

TEST(JoinCollectives, SumsWhatAllRanksGive) {
  // Given  [1, 2] in rank 0 and [10, 20] in rank 1, and in both what they add up to
  const std::string name = "c10d.allreduce_.default";
  TwoRanks ranks{.run = {}, .gave = {{1, 2}, {10, 20}}, .got = {{11, 22}, {11, 22}}};

  const Program program = ranks.program(
      name, "tensors.0",
      R"({"tensors":[{"tensor":"tensors.0"}],"process_group":{"other":"ScriptObject"},)"
      R"("ranks":[0,1],"reduces":"sum"})");

  // Then  both ranks' operators read both, whatever rank they are of, and stand behind what makes it
  EXPECT_THAT(result_of(program, 0, name), ElementsAre(11, 22));
  EXPECT_THAT(result_of(program, 1, name), ElementsAre(11, 22));
  ASSERT_EQ(program.operators.size(), 4u);
  EXPECT_EQ(program.operators[1].name, "aten.add.Tensor");
  EXPECT_EQ(program.operators[1].rank, 1);
  for (const size_t collective : {2u, 3u}) {
    ASSERT_EQ(program.operators[collective].inputs.size(), 2u);
    EXPECT_EQ(program.operators[collective].inputs[0].producer, 0u);
    EXPECT_EQ(program.operators[collective].inputs[1].producer, 1u);
  }
  // And each is exact, held against the value that was seen when it had arrived
  const OwnErrors errors = own_errors(program, {}).value();
  EXPECT_EQ(errors.judged, 4u);
  EXPECT_TRUE(errors.findings.empty());
}

TEST(JoinCollectives, FindsASumThatLacksARank) {
  TwoRanks ranks{.run = {}, .gave = {{1, 2}, {10, 20}}, .got = {{11, 22}, {10, 20}}};

  const Program program = ranks.program("_c10d_functional.all_reduce.default", "input",
                                        R"({"input":{"tensor":"input"},"reduce_op":"sum",)"
                                        R"("group_name":"0","ranks":[0,1]})");

  const OwnErrors errors = own_errors(program, {}).value();
  ASSERT_EQ(errors.findings.size(), 1u);
  EXPECT_EQ(errors.findings[0].rank, 1);
  EXPECT_EQ(errors.findings[0].module, "child");
}

TEST(JoinCollectives, GathersScattersAndBroadcasts) {
  const std::string group = R"(,"ranks":[0,1]})";
  const auto both = [&](const std::string& name, const std::string& slot,
                        const std::string& arguments) {
    TwoRanks ranks{.run = {}, .gave = {{1, 2}, {10, 20}}, .got = {{0}, {0}}};
    const Program program = ranks.program(
        name, slot, "{\"" + slot + R"(":{"tensor":")" + slot + "\"}" + arguments + group);
    return std::pair(result_of(program, 0, name), result_of(program, 1, name));
  };
  const auto gathered = both("c10d._allgather_base_.default", "input_tensor", "");
  EXPECT_THAT(gathered.first, ElementsAre(1, 2, 10, 20));
  EXPECT_THAT(gathered.second, ElementsAre(1, 2, 10, 20));
  const auto scattered =
      both("c10d._reduce_scatter_base_.default", "input_tensor", R"(,"reduces":"avg")");
  EXPECT_THAT(scattered.first, ElementsAre(5.5));
  EXPECT_THAT(scattered.second, ElementsAre(11));
  const auto sent = both("_c10d_functional.broadcast.default", "input", R"(,"src":1)");
  EXPECT_THAT(sent.first, ElementsAre(10, 20));
}

TEST(JoinCollectives, CountsOnlyWhatAllRanksOfTheGroupDo) {
  const std::string name = "_c10d_functional.all_reduce.default";
  TwoRanks ranks{.run = {}, .gave = {{1, 2}, {10, 20}}, .got = {{11, 22}, {11, 22}}};
  ranks.rank_1_sends = true;

  const Program program = ranks.program(
      name, "input", R"({"input":{"tensor":"input"},"reduce_op":"sum","ranks":[0,1]})");

  EXPECT_THAT(result_of(program, 0, name), ElementsAre(11, 22));
  EXPECT_THAT(result_of(program, 1, name), ElementsAre(11, 22));
}

TEST(JoinCollectives, LeavesAGroupThatWasNotCapturedWhole) {
  // Given  a group of three ranks, of which two were captured
  TwoRanks ranks{.run = {}, .gave = {{1, 2}, {10, 20}}, .got = {{11, 22}, {11, 22}}};

  const Program program = ranks.program("_c10d_functional.all_reduce.default", "input",
                                        R"({"input":{"tensor":"input"},"reduce_op":"sum",)"
                                        R"("ranks":[0,1,2]})");

  // Then  nobody says what the sum should be
  const OwnErrors errors = own_errors(program, {}).value();
  EXPECT_EQ(errors.judged, 2u);
  EXPECT_EQ(errors.judgeable, 4u);
  EXPECT_TRUE(errors.findings.empty());
}

TEST(CollectiveCall, RefusesWhatNoJoinedCollectiveHas) {
  using reference::aten::Argument;
  using reference::aten::ArgumentList;
  const auto refused = [](const std::string& name, ArgumentList parts, int64_t place) {
    reference::aten::Call call{name, {{"place", Argument{place}}, {"reduces", {"sum"}}}};
    call.arguments.emplace("parts", Argument{std::move(parts)});
    return !collective_call(std::move(call)).has_value();
  };
  const std::string scatter = "_c10d_functional.reduce_scatter_tensor.default";
  const Argument rows{reference::to_tensor(reference::Wide(Dims{2}))};
  EXPECT_FALSE(refused(scatter, {rows, rows}, 1));
  EXPECT_TRUE(refused(scatter, {rows, rows}, 2));
  EXPECT_TRUE(refused(scatter, {rows, rows}, -1));
  EXPECT_TRUE(refused(scatter, {Argument{int64_t{3}}, rows}, 0));
  EXPECT_TRUE(refused(scatter, {}, 0));
  EXPECT_TRUE(refused("mine.all_gather.default", {rows, rows}, 0));
}

}  // namespace
}  // namespace assay::locate

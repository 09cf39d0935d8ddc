// SPDX-License-Identifier: Apache-2.0
#include "locate/judge/operator_parts.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <tuple>

#include "locate/program/test_program.hpp"
#include "run/test_parts.hpp"

namespace assay::locate {
namespace {

Result<std::string> do_part(ByteSpan body) { return run_part(body, {}); }

/// Operators of two ranks and steps: right, wrong, unknown, random, and without their inputs.
void fill(test::TestRun* made) {
  const std::string self = R"({"self":{"tensor":"self"}})";
  const std::string both = R"({"self":{"tensor":"self"},"other":{"tensor":"other"}})";
  for (made->rank = 0; made->rank < 2; ++made->rank) {
    for (made->step = 0; made->step < 2; ++made->step) {
      const test::Value x = made->value(DType::Float32, {2}, {1, 2});
      const test::Value minus =
          made->op("a", "aten.neg.default", {{"self", x}}, self,
                   made->value(DType::Float32, {2}, {-1, made->rank == 1 ? 2.0 : -2.0}));
      made->op("a", "aten.mul.Tensor", {{"self", minus}, {"other", x}}, both,
               made->value(DType::Float32, {2}, {-1, -4}));
      made->op("b", "aten.no_such_thing.default", {{"self", x}}, self,
               made->value(DType::Float32, {2}, {1, 2}));
      made->op("c", "aten.rand.default", {}, R"({"size":[2]})",
               made->value(DType::Float32, {2}, {0.5, 0.25}));
      made->op("d", "aten.exp.default", {}, self, made->value(DType::Float32, {2}, {2.718, 7.389}));
    }
  }
}

auto numbers_of(const OwnError& one) {
  const auto bits = [](double value) { return std::bit_cast<uint64_t>(value); };
  return std::tuple(one.op, one.output, one.state, one.dtype, bits(one.z), bits(one.e),
                    bits(one.e2), bits(one.zr), one.worst, bits(one.worst_ulp),
                    bits(one.allowed_ulp), bits(one.relative_l2), bits(one.floor_l2), one.wrong,
                    one.sampled, one.by_sums, one.reason, one.reason_is_named);
}

TEST(OperatorsElsewhere, GiveTheErrorsOfThisProcess) {
  test::TestRun made;
  fill(&made);
  const Program program = made.program();
  const OwnErrors here = *own_errors(program, {});
  run::test::PartsHere runner(do_part);
  OwnErrorOptions options;
  options.parts = &runner;
  size_t done = 0;
  options.progress = [&](size_t count, size_t total) {
    done = count;
    EXPECT_EQ(total, program.operators.size());
  };
  const OwnErrors there = *own_errors(program, options);

  EXPECT_EQ(runner.bodies.size(), 4u);  // one a rank and step
  EXPECT_EQ(runner.files.size(), 1u);
  EXPECT_EQ(done, program.operators.size());
  ASSERT_EQ(there.outputs.size(), here.outputs.size());
  for (size_t i = 0; i < here.outputs.size(); ++i)
    EXPECT_EQ(numbers_of(there.outputs[i]), numbers_of(here.outputs[i])) << i;
  EXPECT_EQ(there.unjudged, here.unjudged);
  EXPECT_EQ(there.findings.size(), here.findings.size());
  EXPECT_GE(here.findings.size(), 2u);
  EXPECT_EQ(std::tuple(there.judged, there.judgeable), std::tuple(here.judged, here.judgeable));
}

TEST(OperatorsElsewhere, SayWhyAPartFailed) {
  test::TestRun made;
  fill(&made);
  const Program program = made.program();
  run::test::PartsHere runner(
      [](ByteSpan) -> Result<std::string> { return fail(Errc::Io, "the disk is on fire"); });
  OwnErrorOptions options;
  options.parts = &runner;
  const OwnErrors errors = *own_errors(program, options);
  ASSERT_EQ(errors.outputs.size(), program.operators.size());
  for (const OwnError& error : errors.outputs) {
    EXPECT_EQ(error.state, OwnError::State::Failed);
    EXPECT_EQ(error.reason, "not checked: the disk is on fire");
  }
  EXPECT_EQ(errors.judged, 0u);
  EXPECT_EQ(errors.failed_parts.at("the disk is on fire"), program.operators.size());
}

TEST(OperatorsElsewhere, KeepWhatIsDoneWhenTheUserStops) {
  test::TestRun made;
  fill(&made);
  const Program program = made.program();
  const auto first_only = [begun = false](ByteSpan body) mutable -> Result<std::string> {
    if (std::exchange(begun, true)) return fail(Errc::Interrupted, "stopped by the user");
    return do_part(body);
  };
  for (const bool keeps : {false, true}) {
    run::test::PartsHere runner(first_only);
    OwnErrorOptions options;
    options.parts = &runner;
    options.keeps_what_is_done = keeps;
    const Result<OwnErrors> errors = own_errors(program, options);
    ASSERT_EQ(errors.has_value(), keeps);
    if (!keeps) {
      EXPECT_EQ(errors.error().code, Errc::Interrupted);
      continue;
    }
    EXPECT_TRUE(errors->interrupted);
    EXPECT_EQ(errors->outputs.size(), program.operators.size() / 4);
    EXPECT_EQ(errors->judgeable, 5u);  // of the part that was done
  }
}

TEST(OperatorParts, TrustNothing) {
  test::TestRun made;
  fill(&made);
  run::test::PartsHere runner(do_part);
  OwnErrorOptions options;
  options.parts = &runner;
  ASSERT_TRUE(own_errors(made.program(), options));
  run::test::expect_trusts_nothing(runner.bodies.front(), do_part);
}

}  // namespace
}  // namespace assay::locate

// SPDX-License-Identifier: Apache-2.0
// Nodes of a captured ggml graph, judged by ggml's own reference operators.
#include <gtest/gtest.h>

#include <cmath>

#include "engines/engines.hpp"
#include "locate/judge/own_error.hpp"
#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using test::TestRun;
using test::Value;
using Numbers = std::vector<double>;

OwnErrors judged(TestRun* run) {
  run->run().properties["host.kind"] = "ggml";
  const Program program = make_program(run->run(), engines::all());
  OwnErrorOptions options;
  options.jobs = 1;
  return own_errors(program, options).value();
}

/// 64 values without a pattern.
Numbers spread_values(double factor) {
  Numbers values;
  for (int i = 0; i < 64; ++i) values.push_back(std::sin(1.0 + factor * i));
  return values;
}

TEST(GgmlOwnErrors, ProductsWithFloat16WeightsMayRoundTheActivation) {
  const Numbers weights = spread_values(3);
  const Numbers activations = spread_values(5);
  double as_kernel = 0;  // what ggml's CPU kernel computes: x is rounded to float16 first
  for (size_t i = 0; i < 64; ++i)
    as_kernel += reference::round_to(weights[i], DType::Float16) *
                 reference::round_to(activations[i], DType::Float16);
  const auto run_with = [&](DType weight_type, double result) {
    TestRun run;
    const Value w = run.leaf("blk.0.attn_q.weight", weight_type, {1, 64}, weights);
    const Value x = run.value(DType::Float32, {1, 64}, activations);
    run.op("Qcur-0", "ggml.mul_mat", {{"src0", w}, {"src1", x}},
           R"({"src0": {"tensor": "src0"}, "src1": {"tensor": "src1"}, "prec": 0})",
           run.value(DType::Float32, {1}, {result}));
    return judged(&run).outputs.at(0);
  };
  const OwnError half = run_with(DType::Float16, as_kernel);
  EXPECT_EQ(half.state, OwnError::State::Judged);
  EXPECT_LE(half.e, 1);
  EXPECT_LE(half.z, 2);
  // 0.1 of 64 terms is no rounding of any conversion.
  EXPECT_GT(run_with(DType::Float16, as_kernel + 0.1).e, 2);
  // A float32 weight leaves x as it is, so that the same error is one.
  EXPECT_GT(run_with(DType::Float32, as_kernel).e, 2);
}

TEST(GgmlOwnErrors, SizesOfTheResultComeFromItsRecord) {
  TestRun run;
  const Value x = run.value(DType::Float32, {2, 3}, {0, 1, 2, 3, 4, 5});
  run.op("tail", "ggml.view", {{"src0", x}}, R"({"src0": {"tensor": "src0"}, "offset": 8})",
         run.value(DType::Float32, {2}, {2, 3}));
  run.op("tail", "ggml.view", {{"src0", x}}, R"({"src0": {"tensor": "src0"}, "offset": 8})",
         run.value(DType::Float32, {2}, {3, 4}));
  const OwnErrors errors = judged(&run);
  EXPECT_EQ(errors.outputs.at(0).state, OwnError::State::Exact);
  EXPECT_EQ(errors.outputs.at(1).e, INFINITY) << "a moved value that is another one";
}

TEST(GgmlOwnErrors, AWrongEpsilonIsNoRounding) {
  TestRun run;
  const Numbers values = spread_values(2);
  const auto normalised = [&](double eps) {
    double squares = 0;
    for (const double value : values)
      squares += std::pow(reference::round_to(value, DType::Float32), 2);
    Numbers made;
    for (const double value : values)
      made.push_back(reference::round_to(value, DType::Float32) / std::sqrt(squares / 64 + eps));
    return made;
  };
  const Value x = run.value(DType::Float32, {1, 64}, values);
  constexpr const char* kArguments = R"({"src0": {"tensor": "src0"}, "eps": 1e-05})";
  run.op("norm-0", "ggml.rms_norm", {{"src0", x}}, kArguments,
         run.value(DType::Float32, {64}, normalised(1e-5)));
  run.op("norm-1", "ggml.rms_norm", {{"src0", x}}, kArguments,
         run.value(DType::Float32, {64}, normalised(1e-3)));
  const OwnErrors errors = judged(&run);
  EXPECT_LE(errors.outputs.at(0).e, 1.05);
  EXPECT_GT(errors.outputs.at(1).z, 100);
}

TEST(GgmlOwnErrors, OperatorsWithoutReferenceCountAsNotJudged) {
  TestRun run;
  const Value x = run.value(DType::Float32, {1}, {1});
  run.op("state", "ggml.ssm_scan", {{"src0", x}}, R"({"src0": {"tensor": "src0"}})",
         run.value(DType::Float32, {1}, {1}));
  const OwnErrors errors = judged(&run);
  EXPECT_EQ(errors.outputs.at(0).state, OwnError::State::NoReference);
  EXPECT_EQ(errors.judged, 0u);
  EXPECT_EQ(errors.judgeable, 1u);
}

}  // namespace
}  // namespace assay::locate

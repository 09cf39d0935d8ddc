// SPDX-License-Identifier: Apache-2.0
// Each rule of the pair tests with a case that passes and one that fails.
//   docs/localisation.md, "Pair tests"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "locate/judge/pair_tests.hpp"
#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using test::TestRun;
using test::Value;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr DType kGolden = DType::Float32;
constexpr DType kMine = DType::BFloat16;

using Fill = std::function<void(TestRun*, DType)>;

PairTests tests_of(const Fill& golden, const Fill& mine, DType mine_type = kMine) {
  TestRun golden_run;
  golden(&golden_run, kGolden);
  TestRun mine_run;
  mine(&mine_run, mine_type);
  const Program g = golden_run.program();
  const Program m = mine_run.program();
  const Result<PairTests> tests = test_pairs(g, m, pair_programs(g, m), nullptr);
  EXPECT_TRUE(tests) << tests.error().describe();
  return tests.value_or(PairTests{});
}

// ---- weights ------------------------------------------------------------------------------------

Fill weighted(const std::string& name, const std::vector<double>& weight) {
  return [=](TestRun* run, DType dtype) {
    const Value x = run->value(dtype, {1, 2}, {1, 1});
    const Value w = run->leaf(name, dtype, {2, 2}, weight);
    const Value h = run->op("act", "aten.neg.default", {{"self", x}}, "", x);
    run->op("proj", "aten.mm.default", {{"self", h}, {"mat2", w}}, "",
            run->value(dtype, {1, 2}, {1, 1}));
  };
}

TEST(WeightRule, PassesWhatOneRoundingExplains) {
  const PairTests tests = tests_of(weighted("proj.weight", {0.1, 0.2, 0.3, 0.4}),
                                   weighted("proj.weight", {0.1, 0.2, 0.3, 0.4}));
  EXPECT_THAT(tests.findings, IsEmpty());
  EXPECT_EQ(tests.weights, 1u);
  EXPECT_EQ(tests.weights_compared, 1u);
}

TEST(WeightRule, NamesTheWeightAtItsFirstConsumer) {
  // 0.3 is beside 0.25, where an ULP of bfloat16 is 2^-9; 0.305 is 0.005 / 2^-10 = 5 half ULP away.
  // In bfloat16 they are 0.30078 and 0.30469; of a norm of 0.548 their distance and the others'
  // roundings are 0.86 %
  const PairTests tests = tests_of(weighted("proj.weight", {0.1, 0.2, 0.3, 0.4}),
                                   weighted("proj.weight", {0.1, 0.2, 0.305, 0.4}));
  ASSERT_EQ(tests.findings.size(), 1u);
  const Finding& finding = tests.findings[0];
  EXPECT_EQ(finding.kind, FindingKind::Weight);
  EXPECT_TRUE(finding.hard);
  EXPECT_EQ(finding.confidence, Confidence::High);
  EXPECT_EQ(finding.module, "proj");
  EXPECT_EQ(finding.slot, "weight");
  EXPECT_EQ(finding.op_type, "aten.mm.default");
  EXPECT_EQ(finding.mine_operator, 1u);
  EXPECT_EQ(finding.golden_operator, 1u);
  EXPECT_EQ(finding.time, 2u);  // behind the two records of neg
  EXPECT_NEAR(finding.ratio, 5, 1);
  EXPECT_THAT(finding.detail,
              HasSubstr("weight differs by 0.86 % relative L2 (largest at [1, 0])"));
  EXPECT_EQ(finding.hypothesis, "");
}

TEST(WeightRule, KnowsAConstantFactor) {
  const PairTests tests = tests_of(weighted("proj.weight", {0.1, 0.2, 0.3, 0.4}),
                                   weighted("proj.weight", {0.103, 0.206, 0.309, 0.412}));
  ASSERT_EQ(tests.findings.size(), 1u);
  EXPECT_THAT(tests.findings[0].hypothesis,
              HasSubstr("weight differs from golden by a constant factor 1.03"));
}

TEST(WeightRule, FindsThePartnerByItsOperandWhenNamesDiffer) {
  EXPECT_THAT(
      tests_of(weighted("a.kernel", {1, 2, 3, 4}), weighted("b.weight", {1, 2, 3, 4})).findings,
      IsEmpty());
  const PairTests tests =
      tests_of(weighted("a.kernel", {1, 2, 3, 4}), weighted("b.weight", {1, 2, 3, 5}));
  EXPECT_EQ(tests.weights_compared, 1u);
  ASSERT_EQ(tests.findings.size(), 1u);
  EXPECT_EQ(tests.findings[0].module, "b");
}

TEST(WeightRule, SaysThatTheShapesDiffer) {
  const Fill transposed = [](TestRun* run, DType dtype) {
    run->weight("proj", "weight", run->value(dtype, {3, 2}, {1, 2, 3, 4, 5, 6}));
  };
  const Fill plain = [](TestRun* run, DType dtype) {
    run->weight("proj", "weight", run->value(dtype, {2, 3}, {1, 2, 3, 4, 5, 6}));
  };
  const PairTests tests = tests_of(plain, transposed);
  ASSERT_EQ(tests.findings.size(), 1u);
  EXPECT_EQ(tests.findings[0].detail, "shape [3, 2] against golden's [2, 3]");
}

TEST(WeightRule, ComparesDumpedWeightsBelowTheLevelOfOperators) {
  // Given  mine with module outputs and weights only
  const Fill mine = [](TestRun* run, DType dtype) {
    run->weight("model.proj", "weight", run->value(dtype, {2, 2}, {1, 2, 3, 5}));
    run->module_output("model.norm", run->value(dtype, {1}, {1}));
    run->module_output("model.proj", run->value(dtype, {1}, {1}));
  };
  const PairTests tests = tests_of(weighted("model.proj.weight", {1, 2, 3, 4}), mine);
  ASSERT_EQ(tests.findings.size(), 1u);
  EXPECT_EQ(tests.findings[0].module, "model.proj");
  EXPECT_EQ(tests.findings[0].node, "model.proj");
  EXPECT_EQ(tests.findings[0].time, 2u);  // the call of its module
}

TEST(WeightRule, ComparesTiedWeightsOnce) {
  // The embedding is the output projection, too; the capture gives both the first name
  const auto tied = [](double value) {
    return [value](TestRun* run, DType dtype) {
      const Value w = run->leaf("embed.weight", dtype, {2, 2}, {1, 2, 3, value});
      const Value ids = run->value(DType::Int64, {1}, {1});
      const Value x = run->op("embed", "aten.embedding.default", {{"weight", w}, {"indices", ids}},
                              "", run->value(dtype, {1, 2}, {3, value}));
      run->op("head", "aten.mm.default", {{"self", x}, {"mat2", w}}, "",
              run->value(dtype, {1, 2}, {0, 0}));
    };
  };
  EXPECT_THAT(tests_of(tied(4), tied(4)).findings, IsEmpty());
  const PairTests tests = tests_of(tied(4), tied(5));
  ASSERT_EQ(tests.findings.size(), 1u);
  EXPECT_EQ(tests.findings[0].module, "embed");
  EXPECT_EQ(tests.findings[0].mine_operator, 0u);
}

TEST(WeightRule, NotesWeightsThatHaveNoPartner) {
  const Fill other = [](TestRun* run, DType dtype) {
    run->weight("other", "weight", run->value(dtype, {1}, {1}));
  };
  const PairTests tests = tests_of(weighted("proj.weight", {1, 2, 3, 4}), other);
  EXPECT_EQ(tests.weights, 1u);
  EXPECT_EQ(tests.weights_compared, 0u);
  EXPECT_THAT(tests.notes, ElementsAre("1 weights without a partner in golden: other.weight"));
}

// ---- attributes ---------------------------------------------------------------------------------

Fill with_argument(const std::string& json) {
  return [json](TestRun* run, DType dtype) {
    const Value x = run->value(dtype, {2}, {1, 2});
    run->op("norm", "aten.add.Tensor", {{"self", x}}, "{\"other\":" + json + "}", x);
  };
}
size_t attribute_findings(const std::string& golden, const std::string& mine) {
  return tests_of(with_argument(golden), with_argument(mine)).findings.size();
}

TEST(AttributeRule, ComparesRealsRelatively) {
  EXPECT_EQ(attribute_findings("1e-05", "1.0000005e-05"), 0u);
  EXPECT_EQ(attribute_findings("1e-05", "1.00001e-05"), 1u);
  EXPECT_EQ(attribute_findings("0.0", "1e-12"), 1u);
  EXPECT_EQ(attribute_findings("2", "2.0"), 0u);
  EXPECT_EQ(attribute_findings(R"({"float":"nan"})", R"({"float":"nan"})"), 0u);
}

TEST(AttributeRule, TakesMaskFillsForEqual) {
  // The lowest values of float32, bfloat16 and float16, and infinity
  EXPECT_EQ(attribute_findings("-3.4028234663852886e38", "-3.3895313892515355e38"), 0u);
  EXPECT_EQ(attribute_findings("-3.4028234663852886e38", "-65504.0"), 0u);
  EXPECT_EQ(attribute_findings("-3.4028234663852886e38", R"({"float":"-inf"})"), 0u);
  EXPECT_EQ(attribute_findings("-3.4028234663852886e38", "65504.0"), 1u);
  EXPECT_EQ(attribute_findings("-65504.0", "-9999.0"), 1u);
}

TEST(AttributeRule, ComparesOtherValuesExactly) {
  EXPECT_EQ(attribute_findings("true", "false"), 1u);
  EXPECT_EQ(attribute_findings("-1", "-1"), 0u);
  EXPECT_EQ(attribute_findings("-1", "-2"), 1u);
  EXPECT_EQ(attribute_findings("null", "2"), 1u);
  EXPECT_EQ(attribute_findings("\"tanh\"", "\"none\""), 1u);
  EXPECT_EQ(attribute_findings("[0,1]", "[0,1]"), 0u);
  EXPECT_EQ(attribute_findings("[0,1]", "[1,0]"), 1u);
  EXPECT_EQ(attribute_findings("[0,1]", "[0,1,2]"), 1u);
}

TEST(AttributeRule, IgnoresTypesAndDevices) {
  EXPECT_EQ(attribute_findings(R"({"dtype":"float32"})", R"({"dtype":"bfloat16"})"), 0u);
  EXPECT_EQ(attribute_findings(R"({"dtype":"float32"})", "null"), 0u);
  EXPECT_EQ(attribute_findings(R"({"device":"cpu"})", R"({"device":"cuda:0"})"), 0u);
}

TEST(AttributeRule, ACastInsideASoftmaxIsAMatterOfTypes) {
  // torch.softmax(x, dtype=torch.float32) of float16 on an accelerator is one kernel, of float32
  // there is nothing to cast.
  const auto softmax = [](const std::string& half_to_float) -> Fill {
    return [half_to_float](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {2}, {0, 0});
      run->op("attn", "aten._softmax.default", {{"self", x}},
              R"({"dim":-1,"half_to_float":)" + half_to_float + "}",
              run->value(DType::Float32, {2}, {0.5, 0.5}));
    };
  };
  EXPECT_TRUE(tests_of(softmax("false"), softmax("true")).findings.empty());
}

TEST(AttributeRule, IsHardWhereTheStreamsAreEqual) {
  const PairTests equal = tests_of(with_argument("1e-06"), with_argument("1e-05"));
  ASSERT_EQ(equal.findings.size(), 1u);
  const Finding& finding = equal.findings[0];
  EXPECT_EQ(finding.kind, FindingKind::Attribute);
  EXPECT_TRUE(finding.hard);
  EXPECT_EQ(finding.confidence, Confidence::High);
  EXPECT_EQ(finding.module, "norm");
  EXPECT_EQ(finding.slot, "other");
  EXPECT_EQ(finding.detail, "other 1e-05 against golden's 1e-06");

  const Fill longer = [](TestRun* run, DType dtype) {
    with_argument("1e-05")(run, dtype);
    const Value x = run->value(dtype, {2}, {1, 2});
    run->op("norm", "aten.neg.default", {{"self", x}}, "", x);
  };
  const PairTests unequal = tests_of(with_argument("1e-06"), longer);
  ASSERT_EQ(unequal.findings.size(), 2u);
  EXPECT_EQ(unequal.findings[0].kind, FindingKind::Attribute);
  EXPECT_FALSE(unequal.findings[0].hard);
}

TEST(AttributeRule, LeavesWholeNumbersOutBetweenRunsOfOtherShapes) {
  const auto sliced = [](int64_t rows, const std::string& arguments) {
    return [=](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {rows}, std::vector<double>(static_cast<size_t>(rows), 1));
      run->module_input("", "0", x);
      run->op("", "aten.slice.Tensor", {{"self", x}}, arguments, x);
    };
  };
  EXPECT_THAT(tests_of(sliced(2, R"({"end":2})"), sliced(3, R"({"end":3})")).findings, IsEmpty());
  EXPECT_EQ(tests_of(sliced(2, R"({"scale":2.0})"), sliced(3, R"({"scale":3.0})")).findings.size(),
            1u);
  EXPECT_EQ(tests_of(sliced(2, R"({"end":2})"), sliced(2, R"({"end":3})")).findings.size(), 1u);
}

TEST(AttributeRule, LeavesWholeNumbersOutWhereRoutingGaveOtherShapes) {
  // The module boundaries have equal shapes, but an expert got two tokens in golden and three in
  // mine
  const auto routed = [](int64_t tokens, const std::string& arguments) {
    return [=](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {4}, {1, 2, 3, 4});
      run->module_input("experts", "0", x);
      const Value chosen =
          run->value(dtype, {tokens}, std::vector<double>(static_cast<size_t>(tokens), 1));
      run->op("experts", "aten.view.default", {{"self", chosen}}, arguments, chosen);
      run->module_output("experts", x);
    };
  };
  const auto count = [](const PairTests& tests) {
    return std::ranges::count(tests.findings, FindingKind::Attribute, &Finding::kind);
  };
  EXPECT_EQ(count(tests_of(routed(2, R"({"size":[2,1]})"), routed(3, R"({"size":[3,1]})"))), 0);
  EXPECT_EQ(count(tests_of(routed(2, R"({"size":[2,1]})"), routed(2, R"({"size":[1,2]})"))), 1);
}

TEST(AttributeRule, TakesMinusOneOfAViewForAnySize) {
  // torch writes [1, 8, n] or [1, -1, n] as the strides of the operand have it
  const auto viewed = [](const std::string& arguments) {
    return [=](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {2, 1}, {1, 2});
      run->op("", "aten.view.default", {{"self", x}}, arguments, x);
    };
  };
  EXPECT_THAT(tests_of(viewed(R"({"size":[2,1]})"), viewed(R"({"size":[-1,1]})")).findings,
              IsEmpty());
  EXPECT_EQ(tests_of(viewed(R"({"size":[2,1]})"), viewed(R"({"size":[-1,2]})")).findings.size(),
            1u);
}

TEST(AttributeRule, CountsAnAxisFromEitherEnd) {
  const auto turned = [](const std::string& arguments) {
    return [=](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {2, 1, 1}, {1, 2});
      run->op("", "aten.transpose.int", {{"self", x}}, arguments, x);
    };
  };
  // Of three axes the last but one is number 1.
  const auto golden = turned(R"({"dim0":1,"dim1":2})");
  EXPECT_THAT(tests_of(golden, turned(R"({"dim0":-2,"dim1":-1})")).findings, IsEmpty());
  EXPECT_EQ(tests_of(golden, turned(R"({"dim0":-3,"dim1":2})")).findings.size(), 1u);
}

TEST(AttributeRule, OnlySuspectsAnArgumentThatOneSideDoesNotGive) {
  const auto attention = [](const std::string& arguments) {
    return [=](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {1}, {1});
      run->op("attn", "aten.scaled_dot_product_attention.default", {{"query", x}}, arguments, x);
    };
  };
  EXPECT_THAT(
      tests_of(attention("{}"), attention(R"({"dropout_p":0.0,"is_causal":false})")).findings,
      IsEmpty());
  const PairTests tests = tests_of(attention(R"({"scale":0.125})"), attention("{}"));
  ASSERT_EQ(tests.findings.size(), 1u);
  EXPECT_FALSE(tests.findings[0].hard);
  EXPECT_EQ(tests.findings[0].detail, "scale not given against golden's 0.125");
}

TEST(AttributeRule, KnowsWhatIsTrueUnlessItIsGiven) {
  const auto chosen = [](const std::string& arguments) {
    return [=](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {4}, {1, 2, 3, 4});
      run->op("router", "aten.topk.default", {{"self", x}}, arguments, x);
    };
  };
  // torch.topk(x, k, dim=-1, largest=True, sorted=True)
  EXPECT_THAT(
      tests_of(chosen(R"({"k":2})"), chosen(R"({"k":2,"dim":-1,"largest":true,"sorted":true})"))
          .findings,
      IsEmpty());
  const PairTests smallest = tests_of(chosen(R"({"k":2})"), chosen(R"({"k":2,"largest":false})"));
  ASSERT_EQ(smallest.findings.size(), 1u);
  EXPECT_TRUE(smallest.findings[0].hard);
  EXPECT_EQ(smallest.findings[0].slot, "largest");
  EXPECT_EQ(tests_of(chosen(R"({"k":2})"), chosen(R"({"k":2,"dim":0})")).findings.size(), 1u);
}

TEST(AttributeRule, ComparesHowManyWhereShapesDifferBecauseOfIt) {
  // One expert fewer: what the router returns has another shape, what it reads has not
  const auto routed = [](int64_t k) {
    return [=](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {4}, {1, 2, 3, 4});
      run->module_input("router", "0", x);
      const Value best = run->value(dtype, {k}, std::vector<double>(static_cast<size_t>(k), 1));
      run->op("router", "aten.topk.default", {{"self", x}}, R"({"k":)" + std::to_string(k) + "}",
              best);
      run->module_output("router", best);
    };
  };
  const PairTests tests = tests_of(routed(2), routed(1));
  ASSERT_EQ(tests.findings.size(), 1u);
  EXPECT_EQ(tests.findings[0].kind, FindingKind::Attribute);
  EXPECT_EQ(tests.findings[0].detail, "k 1 against golden's 2");
}

TEST(AttributeRule, ExcusesOnlyIndicesWhereAModuleWasGivenOtherIntegers) {
  // Given  a module whose caller chose another expert for a token on each side: its index is that
  //        expert's number
  const auto led = [](int64_t expert, double factor) {
    return [=](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {4}, {1, 2, 3, 4});
      run->module_input("experts", "0", x);
      run->module_input("experts", "1",
                        run->value(DType::Int64, {1}, {static_cast<double>(expert)}));
      const Value one = run->op("experts", "aten.select.int", {{"self", x}},
                                R"({"dim":0,"index":)" + std::to_string(expert) + "}",
                                run->value(dtype, {1}, {1}));
      run->module_output("experts", run->op("experts", "aten.mul.Tensor", {{"self", one}},
                                            R"({"other":)" + std::to_string(factor) + "}", one));
    };
  };
  EXPECT_THAT(tests_of(led(3, 0.5), led(2, 0.5)).findings, IsEmpty());

  // Then  a factor is none, whatever was chosen
  const PairTests tests = tests_of(led(3, 0.5), led(2, 0.25));
  ASSERT_EQ(tests.findings.size(), 1u);
  EXPECT_EQ(tests.findings[0].detail, "other 0.25 against golden's 0.5");
}

// ---- constants ----------------------------------------------------------------------------------

Fill with_constant(DType dtype, const std::vector<double>& values) {
  return [=](TestRun* run, DType) {
    const Value x = run->value(dtype, {static_cast<int64_t>(values.size())}, values);
    run->op("rotary", "aten.cos.default", {{"self", x}}, "", x);
    run->op("rotary", "aten.sin.default", {{"self", x}}, "", x);
  };
}

TEST(ConstantRule, ComparesWholeNumbersExactly) {
  EXPECT_THAT(
      tests_of(with_constant(DType::Int64, {0, 1, 2}), with_constant(DType::Int64, {0, 1, 2}))
          .findings,
      IsEmpty());
  const PairTests tests =
      tests_of(with_constant(DType::Int64, {0, 1, 2}), with_constant(DType::Int64, {1, 2, 3}));
  ASSERT_EQ(tests.findings.size(), 1u);  // once for the value, however many operators read it
  EXPECT_EQ(tests.findings[0].kind, FindingKind::Constant);
  EXPECT_FALSE(tests.findings[0].hard);
  EXPECT_EQ(tests.findings[0].module, "rotary");
  EXPECT_EQ(tests.findings[0].op_type, "aten.cos.default");
}

TEST(ConstantRule, GivesFloatsOneRoundingAndMaskValuesNone) {
  EXPECT_THAT(tests_of(with_constant(DType::Float32, {0.1, -3.4028234663852886e38}),
                       with_constant(DType::BFloat16, {0.1, -3.3895313892515355e38}))
                  .findings,
              IsEmpty());
  EXPECT_EQ(tests_of(with_constant(DType::Float32, {0.1}), with_constant(DType::BFloat16, {0.11}))
                .findings.size(),
            1u);
  EXPECT_EQ(tests_of(with_constant(DType::Bool, {1, 0}), with_constant(DType::Bool, {1, 1}))
                .findings.size(),
            1u);
}

// ---- topology -----------------------------------------------------------------------------------

Fill stream_of(const std::vector<std::string>& names) {
  return [=](TestRun* run, DType dtype) {
    Value x = run->value(dtype, {1}, {1});
    for (const std::string& name : names)
      x = run->op("mlp", name, {{"self", x}}, "", run->value(dtype, {1}, {1}));
  };
}

TEST(TopologyRule, ReportsOperatorsWithoutPartner) {
  const PairTests tests = tests_of(
      stream_of({"aten.mm.default", "aten.tanh.default", "aten.neg.default"}),
      stream_of({"aten.mm.default", "aten.mul.Tensor", "aten.mul.Tensor", "aten.neg.default"}));
  ASSERT_EQ(tests.findings.size(), 2u);
  EXPECT_EQ(tests.findings[0].kind, FindingKind::Topology);
  EXPECT_FALSE(tests.findings[0].hard);
  EXPECT_EQ(tests.findings[0].detail, "extra 2 x aten.mul.Tensor");
  EXPECT_EQ(tests.findings[0].mine_operator, 1u);
  EXPECT_EQ(tests.findings[1].detail, "missing aten.tanh.default");
  EXPECT_EQ(tests.findings[1].golden_operator, 1u);
  // It would have run where the next operator with a partner does
  EXPECT_EQ(tests.findings[1].time, 6u);
}

TEST(TopologyRule, LetsCastsAndUncapturedStepsPass) {
  EXPECT_THAT(tests_of(stream_of({"aten.mm.default"}),
                       stream_of({"aten._to_copy.default", "aten.mm.default"}))
                  .findings,
              IsEmpty());
  const Fill two_steps = [](TestRun* run, DType dtype) {
    stream_of({"aten.mm.default"})(run, dtype);
    run->step = 1;
    stream_of({"aten.mm.default", "aten.neg.default"})(run, dtype);
  };
  EXPECT_THAT(tests_of(two_steps, stream_of({"aten.mm.default"})).findings, IsEmpty());
}

// ---- edges --------------------------------------------------------------------------------------

/// k and v out of x; the consumer reads `which`. Optionally through a cast.
Fill wired(int which, bool cast = false) {
  return [=](TestRun* run, DType dtype) {
    const Value x = run->value(dtype, {1}, {1});
    const Value k =
        run->op("attn", "aten.neg.default", {{"self", x}}, "", run->value(dtype, {1}, {-1}));
    const Value v =
        run->op("attn", "aten.exp.default", {{"self", x}}, "", run->value(dtype, {1}, {2.75}));
    Value read = which == 0 ? k : v;
    if (cast) {
      read = run->op("attn", "aten._to_copy.default", {{"self", read}}, "",
                     run->value(DType::Float32, {1}, {which == 0 ? -1 : 2.75}));
    }
    run->op("attn", "aten.tanh.default", {{"self", read}}, "", run->value(dtype, {1}, {0}));
  };
}

TEST(EdgeRule, PassesTheSameProducerThroughCasts) {
  EXPECT_THAT(tests_of(wired(0), wired(0)).findings, IsEmpty());
  EXPECT_THAT(tests_of(wired(0), wired(0, true)).findings, IsEmpty());
  EXPECT_THAT(tests_of(wired(0, true), wired(0)).findings, IsEmpty());
}

TEST(EdgeRule, ReportsAnotherProducerWithOtherContent) {
  const PairTests tests = tests_of(wired(0), wired(1));
  ASSERT_EQ(tests.findings.size(), 1u);
  const Finding& finding = tests.findings[0];
  EXPECT_EQ(finding.kind, FindingKind::Edge);
  EXPECT_FALSE(finding.hard);
  EXPECT_EQ(finding.op_type, "aten.tanh.default");
  EXPECT_EQ(finding.slot, "self");
  EXPECT_EQ(finding.detail,
            "input 'self' reads aten.exp.default in attn instead of aten.neg.default in attn");
}

TEST(EdgeRule, LetsContentDecideWhenProducersDiffer) {
  // Mine reads an additional operator's output that is, in its narrower type, what golden's
  // producer's partner gave
  const auto copied = [](double value) {
    return [value](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {1}, {1});
      const Value k = run->op("attn", "aten.neg.default", {{"self", x}}, "",
                              run->value(DType::Float32, {1}, {-1.0009765625}));
      const Value copy =
          run->op("attn", "aten.copy.default", {{"self", k}}, "", run->value(dtype, {1}, {value}));
      run->op("attn", "aten.tanh.default", {{"self", copy}}, "", run->value(dtype, {1}, {0}));
    };
  };
  const Fill golden = [](TestRun* run, DType dtype) {
    const Value x = run->value(dtype, {1}, {1});
    const Value k = run->op("attn", "aten.neg.default", {{"self", x}}, "",
                            run->value(dtype, {1}, {-1.0009765625}));
    run->op("attn", "aten.tanh.default", {{"self", k}}, "", run->value(dtype, {1}, {0}));
  };
  const auto kinds = [](const PairTests& tests) {
    std::vector<FindingKind> found;
    for (const Finding& finding : tests.findings) found.push_back(finding.kind);
    return found;
  };
  // -1.0009765625 in bfloat16 is -1
  EXPECT_THAT(kinds(tests_of(golden, copied(-1))), ElementsAre(FindingKind::Topology));
  EXPECT_THAT(kinds(tests_of(golden, copied(-1.0078125))),
              ElementsAre(FindingKind::Topology, FindingKind::Edge));
}

TEST(EdgeRule, ReportsAWeightThatWasChangedOnTheWay) {
  const Fill scaled = [](TestRun* run, DType dtype) {
    const Value x = run->value(dtype, {1, 1}, {1});
    const Value w = run->leaf("proj.weight", dtype, {1, 1}, {0.5});
    const Value changed = run->op("proj", "aten.mul.Tensor", {{"self", w}}, R"({"other":1.03})",
                                  run->value(dtype, {1, 1}, {0.515}));
    run->op("proj", "aten.mm.default", {{"self", x}, {"mat2", changed}}, "",
            run->value(dtype, {1, 1}, {0.515}));
  };
  const Fill plain = [](TestRun* run, DType dtype) {
    const Value x = run->value(dtype, {1, 1}, {1});
    const Value w = run->leaf("proj.weight", dtype, {1, 1}, {0.5});
    run->op("proj", "aten.mm.default", {{"self", x}, {"mat2", w}}, "",
            run->value(dtype, {1, 1}, {0.5}));
  };
  const PairTests tests = tests_of(plain, scaled);
  ASSERT_EQ(tests.findings.size(), 2u);
  EXPECT_EQ(tests.findings[0].detail, "extra aten.mul.Tensor");
  EXPECT_EQ(tests.findings[1].detail,
            "input 'mat2' reads aten.mul.Tensor in proj instead of proj.weight");
}

TEST(EdgeRule, ReportsAConsumerThatDidNotReceiveWhatWasWritten) {
  // The same value by its id, other bytes: a buffer overwritten behind torch's back
  const auto overwritten = [](double read) {
    return [read](TestRun* run, DType dtype) {
      const Value x = run->value(dtype, {1}, {1});
      const Value k =
          run->op("attn", "aten.neg.default", {{"self", x}}, "", run->value(dtype, {1}, {-1}));
      Value seen = run->value(dtype, {1}, {read});
      seen.id = k.id;
      seen.producer = k.producer;
      run->op("attn", "aten.tanh.default", {{"self", seen}}, "", run->value(dtype, {1}, {0}));
    };
  };
  EXPECT_THAT(tests_of(overwritten(-1), overwritten(-1)).findings, IsEmpty());
  const PairTests tests = tests_of(overwritten(-1), overwritten(-2));
  ASSERT_EQ(tests.findings.size(), 1u);
  EXPECT_EQ(tests.findings[0].detail,
            "input 'self' did not receive what aten.neg.default in attn wrote");
}

TEST(EdgeRule, FindsTheWriterOfAViewThroughItsStorage) {
  // Given  a cache of two rows; add_ writes one through a view, then the whole is read: a new value
  //        of the storage without a producer. Its content is computed, so it must not be taken for
  //        a constant.
  const auto cached = [](double computed) {
    return [computed](TestRun* run, DType dtype) {
      const Value cache = run->value(dtype, {2}, {0, 0});
      const Value row = run->op("attn", "aten.select.int", {{"self", cache}},
                                R"({"dim":0,"index":0})", run->value(dtype, {1}, {0}));
      run->op("attn", "aten.add_.Tensor", {{"self", row}}, R"({"other":1})",
              run->value(dtype, {1}, {computed}));
      Value whole = run->value(dtype, {2}, {computed, 0});
      run->op("attn", "aten.neg.default", {{"self", whole}}, "",
              run->value(dtype, {2}, {-computed, 0}));
      std::vector<run::TensorRecord>& records = run->run().records;
      run->run().operations[1].writes = {"self"};
      for (const size_t i : {0u, 1u, 2u, 3u, 4u}) records[i].storage_id = 7;
      for (const size_t i : {3u, 4u}) records[i].storage_version = 1;
    };
  };
  EXPECT_THAT(tests_of(cached(1), cached(1.0625)).findings, IsEmpty());
}

TEST(PairTests, HandleEmptyTensors) {
  // The cache before the first token
  const Fill empty = [](TestRun* run, DType dtype) {
    const Value cache = run->value(dtype, {1, 0, 4}, {});
    const Value row = run->value(dtype, {1, 1, 4}, {1, 2, 3, 4});
    run->op("attn", "aten.cat.default", {{"tensors.0", cache}, {"tensors.1", row}}, R"({"dim":-2})",
            row);
  };
  EXPECT_THAT(tests_of(empty, empty).findings, IsEmpty());
}

TEST(PairTests, StopWhenInterrupted) {
  TestRun golden;
  stream_of({"aten.mm.default"})(&golden, kGolden);
  const Program program = golden.program();
  const std::atomic<bool> interrupted = true;
  const Result<PairTests> tests =
      test_pairs(program, program, pair_programs(program, program), &interrupted);
  ASSERT_FALSE(tests);
  EXPECT_EQ(tests.error().code, Errc::Interrupted);
}

}  // namespace
}  // namespace assay::locate

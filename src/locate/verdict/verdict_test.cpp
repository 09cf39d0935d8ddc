// SPDX-License-Identifier: Apache-2.0
#include "locate/verdict/verdict.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "locate/verdict/sentence.hpp"

namespace assay::locate {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ModuleCall call_of(const std::string& module, const std::string& type, uint64_t begin,
                   uint64_t end) {
  ModuleCall call;
  call.module = module;
  call.type = type;
  call.begin = begin;
  call.end = end;
  Use output;
  output.record = end;
  output.time = end;
  call.outputs.push_back(output);
  return call;
}

Operator operator_of(const std::string& module, uint64_t time) {
  Operator one;
  one.name = "aten.mul.Tensor";
  one.module = module;
  one.time = time;
  Use output;
  output.record = time;
  output.time = time;
  one.outputs.push_back(output);
  return one;
}

// Two runs of three layers with one norm each, both with operators: everything was judged and
// nothing found.
struct Healthy {
  Program golden, mine;
  Pairing pairing;
  OwnErrors own;
  PairTests tests;
  Walk walk;

  Healthy() {
    golden.level = mine.level = CaptureLevel::Operators;
    golden.has_bytes = mine.has_bytes = true;
    for (uint64_t layer = 0; layer < 3; ++layer) {
      const std::string path = "layers." + std::to_string(layer) + ".norm";
      mine.operators.push_back(operator_of(path, 10 * layer + 1));
      mine.calls.push_back(call_of(path, "RmsNorm", 10 * layer, 10 * layer + 2));
      // The norm returns what its operator makes.
      mine.operators.back().outputs[0].value = mine.calls.back().outputs[0].value = int64_t(layer);
      OwnError output;
      output.op = layer;
      output.output = 0;
      output.state = OwnError::State::Judged;
      output.relative_l2 = 1e-3;
      output.floor_l2 = 2e-3;
      own.outputs.push_back(output);
      WalkStep step;
      step.call = layer;
      walk.steps.push_back(step);
    }
    golden.operators = mine.operators;
    golden.calls = mine.calls;
    own.judged = own.judgeable = 3;
    own.strict[DType::BFloat16] = true;
    tests.weights = tests.weights_compared = 3;
    pairing.paired = 3;
    walk.judged = walk.judgeable = walk.operators = walk.operators_covered = 3;
  }

  Stages stages() const {
    Stages stages;
    stages.golden = &golden;
    stages.mine = &mine;
    stages.pairing = &pairing;
    stages.own = &own;
    stages.tests = &tests;
    return stages;
  }
};

Finding finding_of(FindingKind kind, const std::string& module, uint64_t time) {
  Finding finding;
  finding.kind = kind;
  finding.module = module;
  finding.op_type = "aten.mul.Tensor";
  finding.time = time;
  return finding;
}

TEST(Verdict, IsCleanWhenEverythingWasJudgedAndNothingFound) {
  const Healthy run;
  const Verdict verdict = compose_verdict(run.stages());
  EXPECT_EQ(verdict.outcome, VerdictOutcome::Clean);
  EXPECT_EQ(verdict.confidence, Confidence::High);
  EXPECT_EQ(verdict.level, JudgedBy::Operators);
  EXPECT_EQ(sentence(verdict),
            "clean: all 3 operators are exact to rounding; all 3 weights are golden's; errors "
            "above 0.4 % of a value would have been seen; confidence high");
}

/// Both runs have the steps 0 to 2; `more` adds others to one of them.
Healthy in_steps(const std::vector<int64_t>& more_of_golden,
                 const std::vector<int64_t>& more_of_mine) {
  Healthy run;
  for (size_t i = 0; i < run.mine.calls.size(); ++i)
    run.mine.calls[i].step = run.golden.calls[i].step = static_cast<int64_t>(i);
  for (const auto& [program, steps] :
       {std::pair(&run.golden, &more_of_golden), std::pair(&run.mine, &more_of_mine)}) {
    for (const int64_t step : *steps) {
      program->calls.push_back(program->calls.back());
      program->calls.back().step = step;
    }
  }
  return run;
}

TokenChoices near_tie_in(int64_t step) {
  TokenChoices tokens;
  tokens.first.step = step;
  tokens.first.kind = ChoiceKind::NearTie;
  return tokens;
}

TEST(Verdict, NamesTheStepsBehindANearTie) {
  const Healthy run = in_steps({3, 4, 5}, {3});
  Stages stages = run.stages();
  stages.inputs = InputDifference{.step = 2, .text = "input_ids differs"};
  stages.tokens = near_tie_in(1);
  const Verdict verdict = compose_verdict(stages);
  EXPECT_EQ(verdict.clean_up_to, 2);
  EXPECT_THAT(sentence(verdict),
              HasSubstr("clean up to step 1, then a near tie gave mine other tokens (not held "
                        "against each other: "
                        "steps 2 to 3, which have other tokens; steps 4 to 5, which golden alone "
                        "has): all 3 operators"));
}

TEST(Verdict, IsNotCleanWhereOneRunAloneHasSteps) {
  const Healthy golden = in_steps({4, 6}, {});
  EXPECT_EQ(sentence(compose_verdict(golden.stages())),
            "cannot judge: mine has no 2 of the steps 4 to 6, which golden has");
  const Healthy mine = in_steps({}, {3});
  const Verdict verdict = compose_verdict(mine.stages());
  EXPECT_EQ(sentence(verdict), "cannot judge: golden has no step 3, which mine has");
  ASSERT_THAT(verdict.unjudged_steps, SizeIs(1));
  EXPECT_EQ(verdict.unjudged_steps[0].of, StepsOf::Mine);
}

// The ranks of a tensor parallel run are judged as one, by its modules.
TEST(Verdict, IsNotCleanWhereRanksTogetherLackSteps) {
  const Healthy run = in_steps({3, 4}, {});
  Stages stages = run.stages();
  stages.across_engines = true;
  stages.walk = &run.walk;
  EXPECT_THAT(sentence(compose_verdict(stages)), HasSubstr("mine has no steps 3 to 4"));
}

TEST(Verdict, NamesTheStepsWhoseTokensTheOtherEngineDidNotCompute) {
  const Healthy run = in_steps({3, 4}, {});
  Stages stages = run.stages();
  stages.across_engines = stages.steps_by_tokens = true;
  stages.walk = &run.walk;
  const Verdict verdict = compose_verdict(stages);
  EXPECT_EQ(verdict.clean_up_to, 3);
  EXPECT_THAT(sentence(verdict),
              HasSubstr("clean up to step 2 (not held against each other: steps 3 to 4, which "
                        "golden alone has): 3 captured values"));
}

TEST(Verdict, IsNeverCleanBelowTheCoverage) {
  Healthy run;
  run.own.judgeable = 100;
  run.own.judged = 94;
  run.own.unjudged = {{"aten.foo.bar: no reference", 6}};
  const Verdict verdict = compose_verdict(run.stages());
  EXPECT_EQ(verdict.outcome, VerdictOutcome::CannotJudge);
  EXPECT_EQ(sentence(verdict),
            "cannot judge: no fault was found in 94 of 100 operators, the others were not judged "
            "(aten.foo.bar: no reference: 6)");
  run.own.judged = 95;
  EXPECT_EQ(compose_verdict(run.stages()).outcome, VerdictOutcome::Clean);
}

TEST(Verdict, IsNeverCleanWithAWeightThatNobodyCompared) {
  Healthy run;
  run.tests.weights_compared = 2;
  EXPECT_THAT(sentence(compose_verdict(run.stages())),
              HasSubstr("only 2 of 3 weights could be held against golden's"));
}

TEST(Verdict, IsTheFirstInMinesOrder) {
  Healthy run;
  Finding late = finding_of(FindingKind::OwnError, "layers.2.norm", 21);
  late.ratio = 40;
  run.own.findings = {late};
  Finding weight = finding_of(FindingKind::Weight, "layers.1.norm", 11);
  weight.slot = "weight";
  weight.op_type = "RmsNorm";
  weight.ratio = 15.4;
  weight.err_own = 0.03;
  weight.noise_floor = 0.0017;
  weight.hypothesis = "weight differs from golden by a constant factor 1.03";
  run.tests.findings = {weight};
  const Verdict verdict = compose_verdict(run.stages());
  ASSERT_THAT(verdict.candidates, SizeIs(2));
  EXPECT_EQ(
      sentence(verdict),
      "first bad: layers.1.norm (RmsNorm, step 0): weight differs from golden by a constant factor "
      "1.03 (3 % relative L2); inputs were clean (errors above 0.4 % of a value would have been "
      "seen); 1 more candidate; 2 other "
      "operators exact to rounding; confidence high");
  EXPECT_THAT(remarks(verdict),
              ::testing::Contains("then: layers.2.norm (RmsNorm: aten.mul.Tensor, step 0): its own "
                                  "error is 40x what rounding explains"));
}

TEST(Verdict, NamesTheOutlierAmongCoarseScalesFirst) {
  Healthy run;
  const double ratios[] = {2.8, 3.0, 74,
                           3.3};  // half steps; scales of large groups are coarse in all layers
  for (int i = 0; i < 4; ++i) {
    Finding weight = finding_of(FindingKind::Weight, "layers." + std::to_string(i) + ".proj",
                                10u + static_cast<uint64_t>(i));
    weight.slot = "weight";
    weight.ratio = ratios[i];
    weight.by_steps = true;
    run.tests.findings.push_back(weight);
  }
  EXPECT_EQ(compose_verdict(run.stages()).candidates.front().module, "layers.2.proj");
  run.tests.findings[2].ratio = 3.1;  // all alike: the first in execution
  EXPECT_EQ(compose_verdict(run.stages()).candidates.front().module, "layers.0.proj");
  run.tests.findings[2].ratio = 74;  // of plain weights each difference is a fault by itself
  for (Finding& weight : run.tests.findings) weight.by_steps = false;
  EXPECT_EQ(compose_verdict(run.stages()).candidates.front().module, "layers.0.proj");
}

TEST(Verdict, CallsNoChoiceBehindAFaultATie) {
  Healthy run;
  run.own.findings = {finding_of(FindingKind::OwnError, "layers.1.norm", 11)};
  Verdict verdict = compose_verdict(run.stages());
  verdict.tokens.first = {
      .step = 3, .golden_token = 5, .mine_token = 7, .kind = ChoiceKind::NearTie};
  EXPECT_THAT(remarks(verdict), ::testing::Not(::testing::Contains(HasSubstr("near tie"))));
  verdict.outcome = VerdictOutcome::Clean;
  EXPECT_THAT(remarks(verdict), ::testing::Contains(HasSubstr("near tie")));
}

TEST(Verdict, CleanSaysHowManyNearTiesChoseOtherTokens) {
  Healthy run;
  Stages stages = run.stages();
  stages.tokens.positions = 90;
  stages.tokens.near_ties = 3;
  stages.tokens.largest_near_tie = 0.42;
  EXPECT_THAT(sentence(compose_verdict(stages)),
              HasSubstr("; 3 near ties chose other tokens, margin 0.42 of the noise; "));
  stages.tokens.near_ties = 0;
  EXPECT_THAT(sentence(compose_verdict(stages)), ::testing::Not(HasSubstr("near tie")));
}

TEST(Verdict, IsNotCleanWhereAChoiceIsBeyondTheNoise) {
  Healthy run;
  Stages stages = run.stages();
  ASSERT_EQ(compose_verdict(stages).outcome, VerdictOutcome::Clean);
  stages.tokens.positions = 90;
  stages.tokens.unexplained = 1;
  stages.tokens.choices = {{.step = 2,
                            .position = 4,
                            .golden_token = 5,
                            .mine_token = 7,
                            .margin = 3,
                            .gap = 6,
                            .noise = 0.5}};
  const Verdict verdict = compose_verdict(stages);
  EXPECT_EQ(verdict.outcome, VerdictOutcome::CannotJudge);
  EXPECT_THAT(
      verdict.reason,
      HasSubstr("in step 2 at [0, 4] mine chooses token 7, which golden has 12x the noise of "
                "the logits below its own choice 5"));
}

TEST(Verdict, SaysThatOperatorsBeforeTheFirstWereNotJudged) {
  Healthy run;
  run.own.outputs[0].state = OwnError::State::NoReference;
  run.own.findings = {finding_of(FindingKind::OwnError, "layers.1.norm", 11)};
  EXPECT_THAT(sentence(compose_verdict(run.stages())),
              HasSubstr("1 operator before it not judged"));
}

TEST(Verdict, ASuspicionNeedsTheReplay) {
  Healthy run;
  Finding extra = finding_of(FindingKind::Topology, "layers.1.norm", 11);
  extra.hard = false;
  extra.detail = "golden has no aten.add.Tensor here";
  extra.mine_operator = 1;
  run.tests.findings = {extra};
  // Shapes differ, so nothing was replayed: nobody can say.
  Verdict verdict = compose_verdict(run.stages());
  EXPECT_EQ(verdict.outcome, VerdictOutcome::CannotJudge);
  EXPECT_THAT(verdict.reason, HasSubstr("layers.1.norm: golden has no aten.add.Tensor here"));
  // Replayed, and the module's output is what golden's program gives: another program of the same
  // function.
  Stages stages = run.stages();
  stages.walk = &run.walk;
  verdict = compose_verdict(stages);
  EXPECT_EQ(verdict.outcome, VerdictOutcome::Clean);
  EXPECT_THAT(verdict.suspicions, SizeIs(1));
  // Replayed, and it is not.
  Finding gap = finding_of(FindingKind::Gap, "layers.1.norm", 12);
  gap.confidence = Confidence::Low;
  gap.ratio = 7;
  run.walk.findings = {gap};
  verdict = compose_verdict(stages);
  ASSERT_THAT(verdict.candidates, SizeIs(1));
  EXPECT_EQ(verdict.confidence, Confidence::Medium);
  EXPECT_EQ(verdict.candidates[0].time, 11u);
  EXPECT_THAT(sentence(verdict), HasSubstr("golden has no aten.add.Tensor here"));
  EXPECT_THAT(verdict.suspicions, IsEmpty());
}

TEST(Verdict, ASuspicionWhoseModuleWasNotReplayedStaysOpen) {
  Healthy run;
  Finding edge = finding_of(FindingKind::Edge, "layers.1.norm", 11);
  edge.hard = false;
  run.tests.findings = {edge};
  run.walk.steps[1].reason = "an input was not captured";
  Stages stages = run.stages();
  stages.walk = &run.walk;
  EXPECT_EQ(compose_verdict(stages).outcome, VerdictOutcome::CannotJudge);
}

TEST(Verdict, AnErrorOfAnAtbOperationIsOfItsRecord) {
  // given an output that is no operator's of the program, as own_errors_of_operations() yields
  // them, with a wide floor
  run::Run atb;
  run::TensorRecord record;
  record.node = "0_Prefill/1_RmsNormOperation";
  record.step = 4;
  atb.records.push_back(record);
  Healthy run;
  run.mine.run = &atb;
  run.own.outputs.front().op = kNone;
  run.own.outputs.front().record = 0;
  run.own.outputs.front().floor_l2 = 0.0022;
  run.own.outputs.back().op = kNone;  // nor is its file known
  run.own.outputs.back().floor_l2 = 0.0001;
  // when nothing else is wrong
  const Verdict verdict = compose_verdict(run.stages());
  // then its record says where the most would have passed
  EXPECT_EQ(verdict.power.module, "0_Prefill/1_RmsNormOperation");
  EXPECT_EQ(verdict.power.step, 4);
}

TEST(Verdict, AGapThatAWeightExplainsIsNoSecondCandidate) {
  Healthy run;
  run.tests.findings = {finding_of(FindingKind::Weight, "layers.1.norm", 11)};
  run.walk.findings = {finding_of(FindingKind::Gap, "layers.1", 12),
                       finding_of(FindingKind::Gap, "layers.2.norm", 22)};
  Stages stages = run.stages();
  stages.walk = &run.walk;
  const Verdict verdict = compose_verdict(stages);
  ASSERT_THAT(verdict.candidates, SizeIs(2));
  EXPECT_EQ(verdict.candidates[0].kind, FindingKind::Weight);
  EXPECT_EQ(verdict.candidates[1].module, "layers.2.norm");
}

TEST(Verdict, AWeightThatAModuleClosesIsASuspicion) {
  Healthy run;
  run.tests.findings = {finding_of(FindingKind::Weight, "layers.1.norm", 11)};
  const std::string leaf = "layers.1.norm." + run.tests.findings.front().slot;
  Stages stages = run.stages();
  stages.walk = &run.walk;
  EXPECT_EQ(compose_verdict(stages).outcome, VerdictOutcome::FirstWrong);
  run.walk.closed_leaves = {leaf};
  EXPECT_EQ(compose_verdict(stages).outcome, VerdictOutcome::Clean);
}

TEST(Verdict, AWeightThatGoldenWasReplayedWithIsNotClearedByIt) {
  Healthy run;
  Finding weight = finding_of(FindingKind::Weight, "layers.1.norm", 11);
  weight.replayed_as_mine = true;
  run.tests.findings = {weight};
  run.walk.closed_leaves = {"layers.1.norm." + weight.slot};
  Stages stages = run.stages();
  stages.walk = &run.walk;
  EXPECT_EQ(compose_verdict(stages).outcome, VerdictOutcome::FirstWrong);
}

TEST(Verdict, TheSameFaultInEveryLayerIsSystematic) {
  Healthy run;
  for (uint64_t layer = 0; layer < 3; ++layer) {
    Finding eps = finding_of(FindingKind::Attribute, "layers." + std::to_string(layer) + ".norm",
                             10 * layer + 1);
    eps.detail = "eps 1e-05 against golden's 1e-06";
    run.tests.findings.push_back(eps);
  }
  const Verdict verdict = compose_verdict(run.stages());
  ASSERT_THAT(verdict.systematic, SizeIs(1));
  EXPECT_EQ(verdict.systematic[0].pattern, "layers.*.norm aten.mul.Tensor");
  EXPECT_THAT(
      sentence(verdict),
      HasSubstr("eps 1e-05 against golden's 1e-06; the same in all 3 layers, so systematic"));
  EXPECT_EQ(verdict.candidates[0].module, "layers.0.norm");
}

TEST(Verdict, OwnErrorsAloneProveNoRunCleanWithoutGoldensProgram) {
  Healthy run;
  run.golden.level = CaptureLevel::Modules;
  const Verdict verdict = compose_verdict(run.stages());
  EXPECT_EQ(verdict.outcome, VerdictOutcome::CannotJudge);
  EXPECT_THAT(verdict.reason, HasSubstr("only a golden with operators can tell"));
  run.own.findings = {finding_of(FindingKind::OwnError, "layers.1.norm", 11)};
  EXPECT_EQ(compose_verdict(run.stages()).outcome, VerdictOutcome::FirstWrong);
}

TEST(Verdict, NothingButEqualBitsNeedsNoProgram) {
  Healthy run;
  run.golden.level = run.mine.level = CaptureLevel::Modules;
  Stages stages;
  stages.golden = &run.golden;
  stages.mine = &run.mine;
  EXPECT_THAT(sentence(compose_verdict(stages)),
              HasSubstr("cannot judge: golden was captured without operators"));
  stages.identical.values = 12;
  const Verdict verdict = compose_verdict(stages);
  EXPECT_EQ(verdict.floor, Floor::Exact);
  EXPECT_EQ(sentence(verdict),
            "clean: all 12 captured values of mine are golden's, bit for bit; confidence high");
}

TEST(Verdict, GoldensOwnFaultsAreSaidFirst) {
  Healthy run;
  OwnErrors golden;
  golden.findings = {finding_of(FindingKind::OwnError, "layers.0.norm", 1)};
  golden.findings[0].ratio = 5;
  Stages stages = run.stages();
  stages.golden_own = &golden;
  EXPECT_THAT(sentence(compose_verdict(stages)),
              ::testing::StartsWith("golden itself is not clean: layers.0.norm (RmsNorm: "
                                    "aten.mul.Tensor, step 0): its own error is 5.0x what rounding "
                                    "explains; clean: "));
}

TEST(Verdict, FindingsOutsideTheSliceDoNotCount) {
  Healthy run;
  run.own.findings = {finding_of(FindingKind::OwnError, "layers.1.norm", 11)};
  Stages stages = run.stages();
  stages.in_slice = [](const Finding& finding) { return finding.time < 10; };
  EXPECT_EQ(compose_verdict(stages).outcome, VerdictOutcome::Clean);
}

TEST(Verdict, JudgedOutputsAreListedByRecord) {
  Healthy run;
  Finding wrong = finding_of(FindingKind::OwnError, "layers.1.norm", 11);
  wrong.mine_record = 11;
  run.own.findings = {wrong};
  const Verdict verdict = compose_verdict(run.stages());
  ASSERT_THAT(verdict.records, SizeIs(3));
  EXPECT_EQ(verdict.records.at(1).verdict, RowJudgement::Noise);
  EXPECT_EQ(verdict.records.at(11).verdict, RowJudgement::OwnError);
  EXPECT_DOUBLE_EQ(verdict.records.at(11).noise_floor, 2e-3);
  EXPECT_EQ(verdict.records.at(11).own_source, OwnSource::Exact);
}

}  // namespace
}  // namespace assay::locate

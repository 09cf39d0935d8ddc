// SPDX-License-Identifier: Apache-2.0
#include "locate/noise/floors.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <random>

#include "base/numbers.hpp"
#include "locate/program/test_program.hpp"
#include "run/load.hpp"

namespace assay::locate {
namespace {

using test::TestRun;

/// A model `m` with the modules `m.a` and `m.b` behind each other; outputs are [3, 4] and its
/// multiples, each with an
/// error in its first element.
struct Errors {
  double a = 0;        // of the output of m.a
  double b_input = 0;  // of what m makes of it
  double b = 0;
};
std::unique_ptr<TestRun> make_run(const Errors& errors, DType dtype = DType::Float32) {
  auto run = std::make_unique<TestRun>();
  run->module_input("m", "0", run->value(dtype, {2}, {3, 4}));
  run->module_input("m.a", "0", run->value(dtype, {2}, {3, 4}));
  run->module_output("m.a", run->value(dtype, {2}, {3 + errors.a, 4}));
  run->module_input("m.b", "0", run->value(dtype, {2}, {3 + errors.b_input, 4}));
  run->module_output("m.b", run->value(dtype, {2}, {3 + errors.b, 4}));
  run->module_output("m", run->value(dtype, {2}, {3 + errors.b, 4}));
  return run;
}

/// Healthy pairs: golden without errors, mine with these.
struct Healthy {
  std::vector<std::unique_ptr<TestRun>> runs;
  std::vector<std::pair<const run::Run*, const run::Run*>> pairs;

  explicit Healthy(const std::vector<Errors>& all, DType dtype = DType::Float32) {
    for (const Errors& errors : all) {
      runs.push_back(make_run({}));
      runs.push_back(make_run(errors, dtype));
      pairs.emplace_back(&runs[runs.size() - 2]->run(), &runs.back()->run());
    }
  }
  [[nodiscard]] FloorProfile measure(bool statistics = false) const {
    return measure_floors(pairs, statistics, 1, nullptr).value();
  }
};

Healthy usual() {
  return Healthy(
      {{0.1, 0.1, 0.1}, {0.2, 0.2, 0.2}, {0.3, 0.3, 0.3}, {0.4, 0.4, 0.4}, {0.5, 0.5, 0.5}});
}

FloorFindings judge(const Errors& errors, const FloorProfile& profile,
                    const FloorOptions& options = {.jobs = 1}) {
  const auto golden = make_run({});
  const auto mine = make_run(errors);
  return judge_by_floors(golden->run(), mine->run(), profile, options).value();
}

TEST(MeasureFloors, SingleProcessesAreTheSameWhateverTheirNumber) {
  const Healthy healthy = usual();
  for (size_t i = 1; i < healthy.runs.size(); i += 2) {
    for (run::TensorRecord& record : healthy.runs[i]->run().records) record.rank = 3;
  }
  EXPECT_EQ(healthy.measure().floors, usual().measure().floors);
}

TEST(MeasureFloors, TakesTheLargestHealthyDifferenceOfEachPlace) {
  // Given an error of 0.5 in a vector of norm 5, and smaller ones in four other pairs
  const FloorProfile profile = usual().measure();
  // Then relative L2 = 0.5 / 5 and peak = 0.5 sqrt(2) / 5; the one row has all of the error, one of
  // two columns, too
  const std::vector<double>& floor = profile.floors.at("m.a call 0 step 0 output");
  ASSERT_EQ(floor.size(), 5u);
  EXPECT_NEAR(floor[0], 0.1, 1e-7);
  EXPECT_NEAR(floor[1], 0.1 * std::sqrt(2), 1e-7);
  EXPECT_NEAR(floor[2], 0.1, 1e-7);
  EXPECT_NEAR(floor[3], 0.1 * std::sqrt(2), 1e-7);
  // slope = 0.1 k * 3 / 25 * sqrt(2) * 0.3 for k = 1 .. 5: their root mean square has 11 in place
  // of k^2 and out of five samples it is (1 + 6 / 5) / 1.2 times that
  EXPECT_NEAR(floor[4], 0.1 * std::sqrt(11) * 3 / 25 * std::sqrt(2) * 0.3 * 2.2 / 1.2, 1e-7);
  EXPECT_EQ(profile.pairs, 5u);
  EXPECT_EQ(profile.floors.size(), 6u);
}

TEST(MeasureFloors, ThresholdIsALittleAboveTheLargestLeaveOneOutRatio) {
  // Given a pair that is three times as far off as the largest of the others, everywhere
  const auto everywhere = [](double error) { return Errors{error, error, error}; };
  const Healthy healthy({everywhere(0.1), everywhere(0.5), everywhere(0.2), everywhere(0.1),
                         everywhere(0.1), everywhere(1.5)});
  // Then 1.5 / 0.5 = 3, and T = 1.1 * 3
  EXPECT_NEAR(healthy.measure().thresholds[0], 3.3, 1e-5);
}

TEST(MeasureFloors, OnePlaceThatScattersWidensItsOwnFloorOnly) {
  // Given many places where five pairs are alike, and one where the fifth is four times as far off
  std::vector<std::unique_ptr<TestRun>> runs;
  std::vector<std::pair<const run::Run*, const run::Run*>> pairs;
  for (int pair = 0; pair < 5; ++pair) {
    for (const double error : {0.0, 0.1}) {
      auto& run = *runs.emplace_back(std::make_unique<TestRun>());
      for (int place = 0; place < 20; ++place) {
        const double here = place == 7 && pair == 4 ? 4 * error : error;
        run.module_output("m." + std::to_string(place),
                          run.value(DType::Float32, {2}, {3 + here, 4}));
      }
    }
    pairs.emplace_back(&runs[runs.size() - 2]->run(), &runs.back()->run());
  }
  // When
  const FloorProfile profile = measure_floors(pairs, false, 1, nullptr).value();
  // Then  0.4 / 5 is the largest there; left out it is 4 times the others: 1.1 * 4 / 1.6 wider
  EXPECT_DOUBLE_EQ(profile.thresholds[0], 1.6);
  EXPECT_NEAR(profile.floors.at("m.6 call 0 step 0 output")[0], 0.02, 1e-7);
  EXPECT_NEAR(profile.floors.at("m.7 call 0 step 0 output")[0], 0.08 * 1.1 * 4 / 1.6, 1e-6);
}

TEST(MeasureFloors, RunsThatAreEqualHaveAFloorOfAQuarterOfOneRounding) {
  const Healthy healthy(std::vector<Errors>(5), DType::BFloat16);
  const FloorProfile profile = healthy.measure();
  for (const double floor : profile.floors.at("m.b call 0 step 0 output"))
    EXPECT_DOUBLE_EQ(floor, 0.25 * 0.425 * 0x1p-8);
  EXPECT_EQ(profile.thresholds, (std::vector<double>{1.6, 2.4, 1.7, 2.5, 9}));
}

TEST(MeasureFloors, FewPairsNeverHaveASharpThreshold) {
  const Healthy healthy({{0.1, 0.1, 0.1}, {0.1, 0.1, 0.1}});
  const FloorProfile profile = healthy.measure();
  EXPECT_EQ(profile.thresholds, (std::vector<double>{1.6, 2.4, 1.7, 2.5, 9}));
  const FloorFindings found = judge({}, profile);
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("2 healthy pairs"), std::string::npos);
}

TEST(MeasureFloors, RefusesNothingAndRunsWithNothingInCommon) {
  EXPECT_EQ(measure_floors({}, false, 1, nullptr).error().code, Errc::Usage);
  const auto golden = make_run({});
  TestRun other;
  other.module_output("elsewhere", other.value(DType::Float32, {1}, {1}));
  EXPECT_EQ(measure_floors({{&golden->run(), &other.run()}}, false, 1, nullptr).error().code,
            Errc::Usage);
}

TEST(JudgeByFloors, AHealthyRunHasNoFindings) {
  const FloorFindings found = judge({0.3, 0.4, 0.2}, usual().measure());
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.judged, 6u);
  EXPECT_EQ(found.judgeable, 6u);
}

TEST(JudgeByFloors, NamesTheFirstRecordBeyondItsFloorAndNoneBehindIt) {
  // An error of 1.5 is three times the floor, 1.6 times it is allowed
  const FloorFindings found = judge({1.5, 1.5, 1.5}, usual().measure());
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].kind, FindingKind::MeasuredFloor);
  EXPECT_EQ(found.findings[0].module, "m.a");
  EXPECT_EQ(found.findings[0].confidence, Confidence::Low);
  EXPECT_NEAR(found.findings[0].ratio, 3, 1e-5);
  EXPECT_NEAR(found.findings[0].err_out, 0.3, 1e-6);
}

TEST(JudgeByFloors, AnInputWasMadeByTheModuleAroundIt) {
  const FloorFindings found = judge({0.3, 1.5, 1.5}, usual().measure());
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].module, "m");
  EXPECT_EQ(found.findings[0].node, "m.b");
}

TEST(JudgeByFloors, NanWhereGoldenHasNoneIsBeyondEveryFloor) {
  const FloorFindings found = judge({0, 0, NAN}, usual().measure());
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].module, "m.b");
  EXPECT_EQ(found.findings[0].ratio, kInfinity);
}

TEST(JudgeByFloors, AnotherShapeIsNamedAsSuch) {
  const auto golden = make_run({});
  TestRun mine;
  mine.module_input("m", "0", mine.value(DType::Float32, {3}, {3, 4, 5}));
  const FloorFindings found =
      judge_by_floors(golden->run(), mine.run(), usual().measure(), {.jobs = 1}).value();
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].kind, FindingKind::Structure);
}

TEST(JudgeByFloors, RunsThatWereGivenOtherInputsAreNotHeldAgainstEachOther) {
  // Given one prompt alone, and as one of a batch of two
  const auto run_of = [](int64_t batch) {
    auto run = std::make_unique<TestRun>();
    run->module_input("m", "input_ids",
                      run->value(DType::Int64, {batch}, std::vector<double>(batch, 7)));
    run->module_output("m.a", run->value(DType::Float32, {batch}, std::vector<double>(batch, 3)));
    return run;
  };
  const auto golden = run_of(1);
  const auto mine = run_of(2);
  const FloorFindings found =
      judge_by_floors(golden->run(), mine->run(), usual().measure(), {.jobs = 1}).value();
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.judged, 0u);
  EXPECT_TRUE(found.unjudged.contains("the runs had inputs of other shapes"));
}

TEST(JudgeByFloors, AValueThatIsHandedOnIsJudgedWhereItComesFrom) {
  // Given a table that every layer is handed, and floors that are too small behind the first
  const auto run_of = [](double error) {
    auto run = std::make_unique<TestRun>();
    std::vector<double> values(256);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::cos(static_cast<double>(i)) * (1 + (i % 3 == 0 ? error : -error));
    for (const char* node : {"m.a", "m.b", "m.c"})
      run->module_output(node, run->value(DType::Float64, {256}, values));
    return run;
  };
  const auto golden = run_of(0);
  FloorProfile profile{.statistics = true, .pairs = 5, .thresholds = {8.8, 2.4}, .floors = {}};
  const auto judged = [&](const std::vector<double>& sketch_floors) {
    const char* nodes[] = {"m.a", "m.b", "m.c"};
    for (size_t i = 0; i < 3; ++i)
      profile.floors[std::string(nodes[i]) + " call 0 step 0 output"] = {1, 1, 1, 1,
                                                                         sketch_floors[i]};
    const auto mine = run_of(0.01);
    return judge_by_floors(golden->run(), mine->run(), profile, {.jobs = 1}).value();
  };
  EXPECT_TRUE(judged({0.01, 0.001, 0.001}).findings.empty());
  ASSERT_EQ(judged({0.001, 0.01, 0.01}).findings.size(), 1u);
}

TEST(JudgeByFloors, HealthyRunsThatScatterJudgeNothing) {
  // Given one healthy pair that is twenty times as far off as the others: T = 22
  std::vector<Errors> errors(4, Errors{0.1, 0.1, 0.1});
  errors.push_back({2, 2, 2});
  const FloorProfile profile = Healthy(errors).measure();
  EXPECT_NEAR(profile.thresholds[0], 22, 1e-4);
  const FloorFindings found = judge({}, profile);
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.judged, 0u);
  EXPECT_EQ(found.unjudged.begin()->second, 6u);
}

TEST(JudgeByFloors, AScaleIsSeenBeneathTheNoise) {
  // Given 256 values whose healthy errors are of either sign, 1 % of each
  const auto run_of = [](double scale, int seed) {
    auto run = std::make_unique<TestRun>();
    std::vector<double> values;
    for (int i = 0; i < 256; ++i) {
      const double sign = (i * 7 + seed * 5 + i / 8 * seed) % 8 < 4 ? 1 : -1;
      values.push_back((1 + i % 5) * (1 + (seed < 0 ? 0 : 0.01 * sign)) * scale);
    }
    run->module_output("m.a", run->value(DType::Float64, {16, 16}, values));
    return run;
  };
  std::vector<std::unique_ptr<TestRun>> runs;
  std::vector<std::pair<const run::Run*, const run::Run*>> pairs;
  const auto golden = run_of(1, -1);
  for (int seed = 0; seed < 5; ++seed)
    pairs.emplace_back(&golden->run(), &runs.emplace_back(run_of(1, seed))->run());
  const FloorProfile profile = measure_floors(pairs, false, 1, nullptr).value();
  // When all are larger by 1 %, which adds 41 % to the relative L2
  const auto judged = [&](double scale) {
    const auto mine = run_of(scale, 5);
    return judge_by_floors(golden->run(), mine->run(), profile, {.jobs = 1}).value();
  };
  // Then
  EXPECT_TRUE(judged(1).findings.empty());
  const FloorFindings found = judged(1.01);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_NE(found.findings[0].detail.find("slope"), std::string::npos) << found.findings[0].detail;
}

TEST(JudgeByFloors, PlacesThatHealthyRunsLackAreNotJudged) {
  FloorProfile profile = usual().measure();
  profile.floors.erase("m.a call 0 step 0 output");
  const FloorFindings found = judge({1.5, 0, 0}, profile);
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.judged, 5u);
  EXPECT_EQ(found.unjudged.at("healthy runs do not have it"), 1u);
}

TEST(JudgeByFloors, RecordsThatWereJudgedMoreSharplyAreLeftAlone) {
  const std::set<size_t> sharper = {2};  // the output of m.a
  const FloorFindings found =
      judge({1.5, 0, 0}, usual().measure(), {.jobs = 1, .judged_already = &sharper});
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.judged, 6u);
}

TEST(JudgeByFloors, AnyNumberOfJobsGivesTheSame) {
  const FloorProfile profile = usual().measure();
  const FloorFindings one = judge({1.5, 1.5, 0.4}, profile, {.jobs = 1});
  const FloorFindings many = judge({1.5, 1.5, 0.4}, profile, {.jobs = 7});
  ASSERT_EQ(one.records.size(), many.records.size());
  for (const auto& [record, judgement] : one.records)
    EXPECT_EQ(judgement.ratio, many.records.at(record).ratio);
}

/// The same run as statistics alone: no bytes.
run::Run statistics_of_run(TestRun& run) {
  run::Run copy = run.run();
  for (run::TensorRecord& record : copy.records) {
    record.stats = stats::compute_stats(run::load_tensor(record)->view);
    record.bytes.reset();
  }
  return copy;
}

TEST(JudgeByFloors, StatisticsAreHeldAgainstStatistics) {
  // Given floors of statistics: max moves from 4 to 4, mean and l2 move with the error
  const FloorProfile profile = usual().measure(true);
  EXPECT_EQ(profile.thresholds, (std::vector<double>{8.8, 2.4}));
  const auto golden = make_run({});
  const run::Run golden_statistics = statistics_of_run(*golden);
  const auto judge_statistics = [&](const Errors& errors) {
    const auto mine = make_run(errors);
    const run::Run statistics = statistics_of_run(*mine);
    EXPECT_TRUE(has_only_statistics(golden->run(), statistics));
    return judge_by_floors(golden_statistics, statistics, profile, {.jobs = 1}).value();
  };
  // When mine is off by as much as healthy runs are, and by 80 times that: statistics of two values
  // scatter five times as much as those of many
  const FloorFindings healthy = judge_statistics({0.5, 0.5, 0.5});
  const FloorFindings wrong = judge_statistics({0.5, 0.5, -40});
  // Then
  EXPECT_TRUE(healthy.findings.empty());
  ASSERT_EQ(wrong.findings.size(), 1u);
  EXPECT_EQ(wrong.findings[0].module, "m.b");
  EXPECT_TRUE(wrong.statistics);
}

/// As captures of other tools have them.
run::Run without_sketches(run::Run run) {
  for (run::TensorRecord& record : run.records) record.stats = record.stats.without_sketch();
  return run;
}

/// Ten layers of [8, 16] values with noise of one part in a hundred; in `wrong_layer` and behind it
/// the rows of all values are shifted by one.
std::unique_ptr<TestRun> noisy_run(unsigned prompt, unsigned noise, int wrong_layer = 99) {
  std::mt19937 prompts(prompt);
  std::mt19937 noises(noise + 1000);
  std::normal_distribution<double> normal;
  auto run = std::make_unique<TestRun>();
  for (int layer = 0; layer < 10; ++layer) {
    std::vector<double> values(8 * 16);
    for (double& value : values) value = normal(prompts);
    if (noise != 0)
      for (double& value : values) value *= 1 + 0.01 * normal(noises);
    if (layer >= wrong_layer) std::rotate(values.begin(), values.begin() + 16, values.end());
    run->module_output("m." + std::to_string(layer) + ".a",
                       run->value(DType::Float64, {8, 16}, values));
  }
  return run;
}

TEST(JudgeByFloors, SketchesSeeWhatKeepsTheOtherStatistics) {
  // Given floors of five healthy pairs, with and without sketches
  std::vector<std::unique_ptr<TestRun>> runs;
  std::vector<run::Run> plain;
  plain.reserve(10);
  std::vector<std::pair<const run::Run*, const run::Run*>> pairs;
  std::vector<std::pair<const run::Run*, const run::Run*>> plain_pairs;
  for (unsigned pair = 0; pair < 5; ++pair) {
    runs.push_back(noisy_run(pair, 0));
    runs.push_back(noisy_run(pair, pair + 1));
    pairs.emplace_back(&runs[2 * pair]->run(), &runs[2 * pair + 1]->run());
    for (size_t side = 0; side < 2; ++side)
      plain.push_back(without_sketches(statistics_of_run(*runs[2 * pair + side])));
    plain_pairs.emplace_back(&plain[2 * pair], &plain[2 * pair + 1]);
  }
  const FloorProfile profile = measure_floors(pairs, true, 1, nullptr).value();
  const FloorProfile plain_profile = measure_floors(plain_pairs, true, 1, nullptr).value();
  EXPECT_EQ(profile.thresholds.size(), 2u);
  EXPECT_EQ(plain_profile.thresholds.size(), 1u);
  // The estimate is of the noise: 0.01, within the scatter of sixteen sums
  for (const auto& [place, floor] : profile.floors) {
    ASSERT_EQ(floor.size(), 5u) << place;
    EXPECT_NEAR(floor[4], 0.01, 0.004) << place;
  }
  const run::Run golden = statistics_of_run(*noisy_run(7, 0));
  const auto judged = [&](const run::Run& mine, const FloorProfile& floors) {
    return judge_by_floors(golden, mine, floors, {.jobs = 1}).value();
  };
  const run::Run healthy = statistics_of_run(*noisy_run(7, 70));
  const run::Run shifted = statistics_of_run(*noisy_run(7, 70, 6));
  // When rows are shifted from layer 6 on, then only the sketch tells
  EXPECT_TRUE(judged(healthy, profile).findings.empty());
  const FloorFindings found = judged(shifted, profile);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].module, "m.6.a");
  EXPECT_NEAR(found.findings[0].err_out, std::sqrt(2.0), 0.6);  // rows are independent
  // and runs or floors without sketches are judged by what they have
  EXPECT_TRUE(judged(shifted, plain_profile).findings.empty());
  const FloorFindings mixed = judged(without_sketches(shifted), profile);
  EXPECT_TRUE(mixed.findings.empty());
  EXPECT_EQ(mixed.judged, 10u);
}

TEST(JudgeByFloors, StatisticsThatAreFarOffAreNamedWhenOthersBehindThemAre) {
  // Given eight layers whose four healthy statistics scatter by one part in a thousand
  const auto run_of = [](const std::function<double(int)>& error) {
    auto run = std::make_unique<TestRun>();
    for (int layer = 0; layer < 8; ++layer) {
      const double scale = 1 + 1e-3 * error(layer);
      std::vector<double> values;
      for (int i = 0; i < 32; ++i) values.insert(values.end(), {-3 * scale, 1, 2, 4 * scale});
      run->module_output("m." + std::to_string(layer) + ".a",
                         run->value(DType::Float64, {128}, values));
    }
    return std::make_unique<run::Run>(without_sketches(statistics_of_run(*run)));
  };
  const auto golden = run_of([](int) { return 0; });
  std::vector<std::unique_ptr<run::Run>> runs;
  std::vector<std::pair<const run::Run*, const run::Run*>> pairs;
  for (int pair = 0; pair < 5; ++pair) {
    auto& run = runs.emplace_back(
        run_of([&](int layer) { return (layer + pair) % 3 == 0 ? -1.0 : 0.9 + 0.01 * layer; }));
    pairs.emplace_back(golden.get(), run.get());
  }
  const FloorProfile profile = measure_floors(pairs, true, 1, nullptr).value();
  // The four statistics move together here: an error of 1 is 2 in the root of the sum of squares,
  // of T = 8.8
  ASSERT_EQ(profile.thresholds, std::vector<double>{8.8});
  const auto judged = [&](const std::function<double(int)>& error) {
    const auto mine = run_of(error);
    return judge_by_floors(*golden, *mine, profile, {.jobs = 1}).value();
  };
  // When one layer is three and a half times as far off as usual, and when all from it on are
  const auto alone = judged([](int layer) { return layer == 2 ? 3.5 : 0.5; });
  const auto on = judged([](int layer) { return layer >= 2 ? 3.5 + 0.01 * layer : 0.5; });
  // Then only what goes on is a fault
  EXPECT_TRUE(alone.findings.empty());
  ASSERT_EQ(on.findings.size(), 1u);
  EXPECT_EQ(on.findings[0].module, "m.2.a");
}

TEST(JudgeByFloors, StatisticsNameAWeight) {
  const FloorProfile profile = usual().measure(true);
  const auto with_weight = [](double value) {
    auto run = make_run({}, DType::BFloat16);
    run->weight("m.b", "weight", run->value(DType::BFloat16, {2}, {1, value}));
    return run;
  };
  const auto golden = with_weight(1);
  const auto same = with_weight(1);
  const auto other = with_weight(1.0625);  // 8 ULP: |dl2| / l2 = 0.03, one rounding leaves 0.0017
  const FloorFindings healthy =
      judge_by_floors(golden->run(), same->run(), profile, {.jobs = 1}).value();
  const FloorFindings wrong =
      judge_by_floors(golden->run(), other->run(), profile, {.jobs = 1}).value();
  EXPECT_TRUE(healthy.findings.empty());
  EXPECT_EQ(healthy.weights_compared, 1u);
  ASSERT_EQ(wrong.findings.size(), 1u);
  EXPECT_EQ(wrong.findings[0].kind, FindingKind::Weight);
  EXPECT_EQ(wrong.findings[0].module, "m.b");
  EXPECT_EQ(wrong.findings[0].slot, "weight");
}

TEST(JudgeByFloors, StatisticsOfCodesAreHeldAgainstNoWeight) {
  // Given  a weight as 8-bit floats, 448 times as large as what they stand for, and as the same
  //        numbers in 16 bits
  const FloorProfile profile = usual().measure(true);
  const auto with_weight = [](DType dtype, double factor) {
    auto run = make_run({}, dtype);
    run->weight("m.b", "weight", run->value(dtype, {2}, {factor, factor * 0.5}));
    return run;
  };
  const auto golden = with_weight(DType::BFloat16, 1);
  const auto codes = with_weight(DType::Float8E4M3FN, 448);
  const auto wrong = with_weight(DType::BFloat16, 448);
  // When  both are judged
  const FloorFindings of_codes =
      judge_by_floors(golden->run(), codes->run(), profile, {.jobs = 1}).value();
  const FloorFindings of_wrong =
      judge_by_floors(golden->run(), wrong->run(), profile, {.jobs = 1}).value();
  // Then  the codes count as not compared, and only the other is named
  EXPECT_TRUE(of_codes.findings.empty());
  EXPECT_EQ(of_codes.weights, 1u);
  EXPECT_EQ(of_codes.weights_compared, 0u);
  EXPECT_EQ(of_wrong.findings.size(), 1u);
}

// ----- the file

class FloorFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "assay_floor_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/floor.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<FloorProfile> read(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return read_profile(path_);
  }

  std::string folder_;
  std::string path_;
};

TEST_F(FloorFile, WriteThenReadIsTheIdentity) {
  FloorProfile profile = usual().measure();
  profile.floors["odd \"name\" \\ call 0 step 0 input 1.2"] = {1e-300, 0.1 + 0.2, 1, 2, 3};
  ASSERT_TRUE(write_profile(path_, profile));
  const FloorProfile read = read_profile(path_).value();
  EXPECT_EQ(read.floors, profile.floors);
  EXPECT_EQ(read.thresholds, profile.thresholds);
  EXPECT_EQ(read.pairs, profile.pairs);
  EXPECT_FALSE(read.statistics);
}

TEST_F(FloorFile, StatisticsHaveSketchesWhereTheRunsHad) {
  const auto text = [](const std::string& version, const std::string& thresholds,
                       const std::string& floors) {
    return R"({"format":"assay floor profile","level":"S","pairs":5,"version":)" + version +
           ",\"thresholds\":" + thresholds + ",\"floors\":" + floors + "}";
  };
  const FloorProfile old = read(text("2", "[8.6]", R"({"a":[1,2,3,4]})")).value();
  EXPECT_EQ(old.floors.at("a"), (std::vector<double>{1, 2, 3, 4}));
  const FloorProfile mixed =
      read(text("3", "[8.8,2.4]", R"({"a":[1,2,3,4],"b":[1,2,3,4,5]})")).value();
  EXPECT_EQ(mixed.floors.at("b").size(), 5u);
  ASSERT_TRUE(write_profile(path_, mixed));
  EXPECT_EQ(read_profile(path_).value().floors, mixed.floors);
  EXPECT_EQ(read(text("3", "[8.8]", R"({"b":[1,2,3,4,5]})")).error().code, Errc::Invalid);
  EXPECT_EQ(read(text("3", "[8.8,2.4]", R"({"b":[1,2,3]})")).error().code, Errc::Invalid);
  EXPECT_EQ(read(text("3", "[8.8,2.4,1]", "{}")).error().code, Errc::Invalid);
  EXPECT_EQ(read(text("4", "[8.8,2.4]", "{}")).error().code, Errc::Unsupported);
}

TEST_F(FloorFile, SaysWhatIsWrongWithAFile) {
  const auto error_of = [&](const std::string& text) {
    const Result<FloorProfile> profile = read(text);
    EXPECT_FALSE(profile) << text;
    return profile ? Error{} : profile.error();
  };
  const std::string head = R"({"format":"assay floor profile","version":2,"level":"N",)";
  EXPECT_EQ(error_of("").code, Errc::Invalid);
  EXPECT_EQ(error_of("{\"format\": ?").offset, 11u);
  EXPECT_EQ(error_of("[]").code, Errc::Invalid);
  EXPECT_EQ(error_of(std::string(100000, '[')).code, Errc::Invalid);
  EXPECT_EQ(error_of(R"({"format":"assay floor profile","version":1})").code, Errc::Unsupported);
  EXPECT_NE(
      error_of(head + R"("pairs":0,"thresholds":[2,2,2,2,2],"floors":{}})").message.find("pairs"),
      std::string::npos);
  EXPECT_NE(
      error_of(head + R"("pairs":-5,"thresholds":[2,2,2,2,2],"floors":{}})").message.find("pairs"),
      std::string::npos);
  EXPECT_NE(
      error_of(head + R"("pairs":5,"thresholds":"2","floors":{}})").message.find("thresholds"),
      std::string::npos);
  for (const char* floor : {"[]", "[1]", "[1,2,3,4,5,6]", "[1,0,1,1,1]", "[1,-1,1,1,1]",
                            "[1,\"2\",1,1,1]", "3", "[1,1e999,1,1,1]"}) {
    const Error error =
        error_of(head + R"("pairs":5,"thresholds":[2,2,2,2,2],"floors":{"here":)" + floor + "}}");
    EXPECT_EQ(error.code, Errc::Invalid) << floor;
    EXPECT_EQ(error.path, path_) << floor;
  }
  EXPECT_EQ(read_profile(folder_ + "/none").error().code, Errc::NotFound);
}

}  // namespace
}  // namespace assay::locate

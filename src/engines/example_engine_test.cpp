// SPDX-License-Identifier: Apache-2.0
// What an engine has to say to be compared: a whole one in a page. It interprets graphs of aten
// operators whose nodes have numbers instead of modules, and knows which number is which module's
// result. docs/design/engines.md
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "locate/program/test_program.hpp"
#include "locate/verdict/locate.hpp"
#include "locate/verdict/sentence.hpp"
#include "pair/match.hpp"
#include "reference/wide.hpp"
#include "run/load.hpp"

namespace assay::engines::example {
namespace {

using locate::EnginePlace;
using locate::Finding;
using locate::Operator;
using locate::Program;
using locate::Use;
using locate::test::TestRun;
using locate::test::Value;
using run::Run;
using run::TensorRecord;
using testing::ElementsAre;
using testing::HasSubstr;

// ---- the engine: which of its nodes is which module's result ----

const std::map<std::string, std::string>& modules_by_node() {
  static const std::map<std::string, std::string> kModules = {{"node1", "model.up"},
                                                              {"node2", "model.act"}};
  return kModules;
}

struct ModuleResult {
  size_t modules_record = 0;
  size_t own_record = 0;
  std::string node;
};

struct Alignment final : pair::EngineAlignment {
  std::vector<ModuleResult> results;
  bool golden_is_own = false;

  [[nodiscard]] Result<pair::Matching> match(const Run&, const Run&, const pair::Correspondence&,
                                             const pair::MatchOptions&) const override {
    pair::Matching out;
    for (const ModuleResult& one : results) {
      pair::RecordPair row;
      row.golden = golden_is_own ? one.own_record : one.modules_record;
      row.mine = golden_is_own ? one.modules_record : one.own_record;
      row.rule = pair::Rule::EngineTable;
      out.pairs.push_back(std::move(row));
    }
    out.golden_candidates = out.golden_matched = results.size();
    out.mine_candidates = out.mine_matched = results.size();
    return out;
  }
};

/// The engine's run with the results of modules behind its own records.
class Modules final : public locate::EngineModules {
 public:
  Modules(const Run& modules, const Run& own, const Alignment& alignment) : run_(own) {
    for (const ModuleResult& one : alignment.results) {
      TensorRecord record = own.records[one.own_record];
      record.node = modules.records[one.modules_record].node;
      record.op_type = modules.records[one.modules_record].op_type;
      record.order += own.records.size();
      record.value_id = record.producer = -1;
      places_.emplace(run_.records.size(),
                      EnginePlace{one.own_record, one.modules_record, one.node, {}});
      run_.records.push_back(std::move(record));
    }
  }
  [[nodiscard]] const Run& run() const override { return run_; }
  void describe(Program*) const override {}
  void add_inner_values(Program*) const override {}
  [[nodiscard]] const EnginePlace* place_of(size_t record) const override {
    const auto found = places_.find(record);
    return found == places_.end() ? nullptr : &found->second;
  }
  void complete(const Program&, const Program& mine, Finding* finding) const override {
    if (const EnginePlace* place = place_of(finding->mine_record))
      finding->node = mine.run->records[place->record].node;
    const auto module = modules_by_node().find(finding->module);
    if (module != modules_by_node().end()) finding->module = module->second;
  }
  [[nodiscard]] const std::vector<std::string>& notes() const override { return notes_; }
  [[nodiscard]] const std::string& missing() const override { return missing_; }

 private:
  Run run_;
  std::map<size_t, EnginePlace> places_;
  std::vector<std::string> notes_;
  std::string missing_;
};

class Engine final : public locate::Engine {
 public:
  [[nodiscard]] std::string_view name() const override { return "example"; }
  [[nodiscard]] bool made(const Run& run) const override {
    const auto kind = run.properties.find("host.kind");
    return kind != run.properties.end() && kind->second == "example";
  }
  [[nodiscard]] Result<std::shared_ptr<const pair::EngineAlignment>> align(
      const Run& modules, const Run& own, const pair::StepPairs&) const override {
    auto alignment = std::make_shared<Alignment>();
    for (size_t i = 0; i < own.records.size(); ++i) {
      const std::string node(module_of_node(own.records[i].node));
      const auto module = modules_by_node().find(node);
      if (own.records[i].role != Role::Output || module == modules_by_node().end()) continue;
      const auto theirs = std::ranges::find_if(modules.records, [&](const TensorRecord& record) {
        return record.role == Role::Output && record.node == module->second;
      });
      if (theirs != modules.records.end())
        alignment->results.push_back(
            {static_cast<size_t>(theirs - modules.records.begin()), i, node});
    }
    if (alignment->results.empty()) return fail(Errc::Usage, "no module of this model is known");
    return alignment;
  }
  [[nodiscard]] bool is_weight(const TensorRecord&) const override { return true; }
  [[nodiscard]] std::map<std::string, TensorRecord, std::less<>> model_weights(
      const Run&) const override {
    return {};
  }
  [[nodiscard]] Result<Tensor> load_uncopied(const Program& program,
                                             const Use& use) const override {
    return run::load_tensor(program.run->records[use.record]);
  }
  [[nodiscard]] Status add_facts(const Program&, const Operator&,
                                 reference::aten::Call*) const override {
    return {};
  }
  [[nodiscard]] Result<reference::Wide> conversion_variance(const std::string&, Tensor,
                                                            Tensor) const override {
    return fail(Errc::Unsupported, "converts nothing");
  }
  [[nodiscard]] std::unique_ptr<const locate::EngineModules> modules(
      const Run& hf, const Run& own, const pair::EngineAlignment& alignment) const override {
    return std::make_unique<const Modules>(hf, own, static_cast<const Alignment&>(alignment));
  }
};

// ---- what that gives ----

const Engine kEngine;
constexpr const locate::Engine* kForLocate[] = {&kEngine};
constexpr const pair::Engine* kForPairing[] = {&kEngine};

constexpr std::string_view kMm = R"({"self":{"tensor":"self"},"mat2":{"tensor":"mat2"}})";
constexpr std::string_view kRelu = R"({"self":{"tensor":"self"}})";
constexpr size_t kSize = 32;

std::vector<double> numbers(size_t count, double factor) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) values.push_back(std::sin(factor * static_cast<double>(i)));
  return values;
}

std::vector<double> product(const std::vector<double>& x, const std::vector<double>& w) {
  std::vector<double> y(kSize * kSize, 0.0);
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t j = 0; j < kSize; ++j) {
      for (size_t k = 0; k < kSize; ++k) y[i * kSize + j] += x[i * kSize + k] * w[k * kSize + j];
    }
  }
  return y;
}

/// relu(x w), as PyTorch's modules `model.up` and `model.act`, or as the engine's nodes.
///
/// scale  of the product: 1 for a right kernel
void record(TestRun* run, bool own, double scale = 1) {
  const Dims shape{kSize, kSize};
  const std::vector<double> x_values = numbers(kSize * kSize, 0.7);
  const std::vector<double> w_values = numbers(kSize * kSize, 1.3);
  std::vector<double> h_values = product(x_values, w_values);
  for (double& value : h_values) value *= scale;
  std::vector<double> y_values = h_values;
  for (double& value : y_values) value = std::max(value, 0.0);
  const std::string up = own ? "node1" : "model.up", act = own ? "node2" : "model.act";
  const Value x = run->value(DType::Float32, shape, x_values);
  const Value w = run->leaf("model.up.weight", DType::Float32, shape, w_values);
  if (own) run->run().properties["host.kind"] = "example";
  if (!own) run->module_input(up, "0", x);
  const Value h = run->op(up, "aten.mm.default", {{"self", x}, {"mat2", w}}, std::string(kMm),
                          run->value(DType::Float32, shape, h_values));
  if (!own) run->module_output(up, h);
  if (!own) run->module_input(act, "0", h);
  const Value y = run->op(act, "aten.relu.default", {{"self", h}}, std::string(kRelu),
                          run->value(DType::Float32, shape, y_values));
  if (!own) run->module_output(act, y);
}

locate::Verdict judged(TestRun* golden, TestRun* mine) {
  const Run& golden_run = golden->run();
  const Run& mine_run = mine->run();
  const pair::Correspondence pairs =
      pair::correspond(golden_run, mine_run, {}, kForPairing).value();
  locate::LocateOptions options;
  options.engines = kForLocate;
  return locate::locate(golden_run, mine_run, pairs, options).value();
}

TEST(ExampleEngine, ItsNodesArePairedWithModules) {
  TestRun golden, mine;
  record(&golden, /*own=*/false);
  record(&mine, /*own=*/true);
  const run::Run& golden_run = golden.run();
  const run::Run& mine_run = mine.run();

  const pair::Correspondence pairs =
      pair::correspond(golden_run, mine_run, {}, kForPairing).value();
  const pair::Matching matching = pair::match_runs(golden_run, mine_run, pairs, {}).value();

  std::vector<std::string> rows;
  for (const pair::RecordPair& one : matching.pairs)
    rows.push_back(golden_run.records[one.golden].node + " is " + mine_run.records[one.mine].node);
  EXPECT_THAT(rows, ElementsAre("model.up is node1::aten.mm.default.0",
                                "model.act is node2::aten.relu.default.0"));
}

TEST(ExampleEngine, AWrongKernelIsNamedByItsModule) {
  TestRun golden, mine;
  record(&golden, /*own=*/false);
  record(&mine, /*own=*/true, 1.01);

  const locate::Verdict verdict = judged(&golden, &mine);

  ASSERT_EQ(verdict.outcome, locate::VerdictOutcome::FirstWrong);
  EXPECT_EQ(verdict.candidates[0].module, "model.up");
  EXPECT_EQ(verdict.candidates[0].kind, locate::FindingKind::OwnError);
  EXPECT_THAT(locate::sentence(verdict), HasSubstr("first bad: model.up"));
}

TEST(ExampleEngine, ARightRunIsNotAccused) {
  TestRun golden, mine;
  record(&golden, /*own=*/false);
  record(&mine, /*own=*/true);
  EXPECT_NE(judged(&golden, &mine).outcome, locate::VerdictOutcome::FirstWrong);
}

}  // namespace
}  // namespace assay::engines::example

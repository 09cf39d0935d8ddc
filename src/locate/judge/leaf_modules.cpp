// SPDX-License-Identifier: Apache-2.0
// Calls of known leaf classes are collected, the setting of each class is chosen on a few of its
// modules, and all are judged. The rules of strict and coarse kernels then decide about them, each
// module taken for an operator of its class.
#include "locate/judge/leaf_modules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/memory_budget.hpp"
#include "base/thread_pool.hpp"
#include "locate/judge/leaf_functions.hpp"
#include "locate/judge/strict_kernels.hpp"
#include "run/load.hpp"

namespace assay::locate {
namespace {

using State = OwnError::State;

/// From here on one module gets all threads. LeafCall::work, of a linear its multiplications.
constexpr double kLargeProduct = 0x1p32;
/// Modules of a class that its setting is chosen on.
constexpr size_t kTrials = 5;
/// A function that is off by more than this many roundings in most modules is not the class's.
constexpr double kOtherFunction = 4;
/// Errors of one rounding that is scaled by a weight and rounded again: at most 1 + 2 half ULP (the
/// scaled value may lie just above a power of two that the first lay just below), sqrt(1 + 4) in
/// the root of squares.
constexpr double kTwoRoundingsElement = 3;
const double kTwoRoundings = std::sqrt(5.0);

/// One call of a leaf module of a known class.
struct LeafCall {
  size_t call = kNone;  // index into Program::calls
  size_t weight = kNone, bias = kNone;
  const std::vector<LeafFunction>* functions = nullptr;
  double work = 0;
  uint64_t bytes = 0;
};

class LeafJudge {
 public:
  LeafJudge(const Program& mine, const OwnErrorOptions& options) : mine_(mine), options_(options) {}

  Result<LeafErrors> judge() {
    collect();
    choose_functions();
    judge_all();
    if (stopped()) return fail(Errc::Interrupted, "interrupted");
    return conclude();
  }

 private:
  [[nodiscard]] bool stopped() const {
    return options_.interrupted != nullptr && options_.interrupted->load();
  }

  void collect() {
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      const ModuleCall& call = mine_.calls[i];
      if (!call.leaf || call.outputs.empty()) continue;
      const auto [known, is_new] = functions_.try_emplace(call.type);
      if (is_new) known->second = leaf_functions(call.type);
      if (known->second.empty()) continue;
      if (const std::string reason = why_not(call, known->second.front()); !reason.empty()) {
        ++result_.unjudged[call.type + ": " + reason];
        continue;
      }
      LeafCall leaf;
      leaf.call = i;
      leaf.functions = &known->second;
      if (known->second.front().has_weight) {
        leaf.weight = record_of(call.module + ".weight");
        leaf.bias = record_of(call.module + ".bias");
      }
      measure(&leaf);
      leaves_.push_back(leaf);
    }
  }

  [[nodiscard]] size_t record_of(const std::string& name) const {
    const auto found = mine_.leaves.find(name);
    return found == mine_.leaves.end() || !mine_.run->records[found->second].bytes ? kNone
                                                                                   : found->second;
  }

  [[nodiscard]] std::string why_not(const ModuleCall& call, const LeafFunction& function) const {
    if (call.inputs.size() != 1 || call.outputs.size() != 1) return "not one input and one output";
    const run::TensorRecord& input = mine_.run->records[call.inputs[0].record];
    const run::TensorRecord& output = mine_.run->records[call.outputs[0].record];
    if (!input.bytes) return "its input was not captured";
    if (!output.bytes) return "its output was not captured";
    if (!function.has_weight) return input.dtype == output.dtype ? "" : "types are mixed";
    const size_t weight = record_of(call.module + ".weight");
    if (weight == kNone) return "its weight was not captured";
    // Casts inside the module would be errors of its inputs.
    if (mine_.run->records[weight].dtype != output.dtype) return "types are mixed";
    if (input.dtype && is_float(*input.dtype) && input.dtype != output.dtype)
      return "types are mixed";
    return {};
  }

  [[nodiscard]] double elements_of(size_t record) const {
    return record == kNone ? 0
                           : static_cast<double>(locate::elements_of(mine_.run->records[record]));
  }

  void measure(LeafCall* leaf) const {
    const ModuleCall& call = mine_.calls[leaf->call];
    const double input = elements_of(call.inputs[0].record);
    const double output = elements_of(call.outputs[0].record);
    const double weight = elements_of(leaf->weight);
    leaf->work = std::sqrt(input * output * std::max(weight, 1.0));
    leaf->bytes = static_cast<uint64_t>(24 * output + 8 * (input + weight));
  }

  [[nodiscard]] OwnError judge_one(const LeafCall& leaf, const LeafFunction& function,
                                   int jobs) const {
    Result<OwnError> judged = try_one(leaf, function, jobs);
    if (judged) return *std::move(judged);
    OwnError error;
    error.state = State::Failed;
    error.reason = judged.error().describe();
    return error;
  }

  [[nodiscard]] Result<OwnError> try_one(const LeafCall& leaf, const LeafFunction& function,
                                         int jobs) const {
    const ModuleCall& call = mine_.calls[leaf.call];
    LeafTensors tensors;
    ASSAY_TRY(tensors.input, load_use(mine_, call.inputs[0]));
    if (leaf.weight != kNone) {
      ASSAY_TRY(tensors.weight, run::load_tensor(mine_.run->records[leaf.weight]));
    }
    if (leaf.bias != kNone) {
      ASSAY_TRY(tensors.bias, run::load_tensor(mine_.run->records[leaf.bias]));
    }
    ASSAY_TRY(const Tensor output, load_use(mine_, call.outputs[0]));
    ASSAY_TRY(const reference::aten::Call one, function.call(tensors));
    ASSAY_TRY(const std::vector<Tensor> results, reference::aten::evaluate(one, {.jobs = jobs}));
    ASSAY_TRY(OwnError error, judge_output(one, results, 0, output.view, jobs));
    error.dtype = output.view.dtype;
    if (function.roundings > 1) {
      error.z /= kTwoRoundings;
      error.zr /= kTwoRoundings;
      error.e /= kTwoRoundingsElement;
      error.e2 /= kTwoRoundingsElement;
      error.allowed_ulp *= kTwoRoundingsElement;
    }
    return error;
  }

  /// Of each class with a choice: the function with the smallest median error over some of its
  /// modules.
  void choose_functions() {
    for (auto& [type, functions] : functions_) {
      if (functions.size() < 2) continue;
      std::vector<const LeafCall*> trials;
      for (const LeafCall& leaf : leaves_)
        if (leaf.functions == &functions) trials.push_back(&leaf);
      if (trials.empty()) continue;
      const size_t step = std::max<size_t>(trials.size() / kTrials, 1);
      std::vector<const LeafCall*> some;
      for (size_t i = 0; i < trials.size() && some.size() < kTrials; i += step)
        some.push_back(trials[i]);
      choose(type, some, &functions);
    }
  }

  void choose(const std::string& type, const std::vector<const LeafCall*>& trials,
              std::vector<LeafFunction>* functions) {
    // Two kinds of GELU may be told apart by single elements only; whether it is one of them at
    // all, by all elements.
    std::vector<double> medians(functions->size());
    std::vector<double> dense(functions->size());
    parallel_for(functions->size(), resolve_job_count(options_.jobs), [&](size_t i) {
      std::vector<double> errors;
      std::vector<double> of_all;
      for (const LeafCall* leaf : trials) {
        const OwnError error = judge_one(*leaf, (*functions)[i], 1);
        of_all.push_back(error.state == State::Failed ? std::numeric_limits<double>::infinity()
                                                      : error.z);
        errors.push_back(error.state == State::Failed ? std::numeric_limits<double>::infinity()
                                                      : std::max(error.z, error.e));
      }
      std::ranges::sort(errors);
      std::ranges::sort(of_all);
      medians[i] = errors[errors.size() / 2];
      dense[i] = of_all[of_all.size() / 2];
    });
    const size_t best = static_cast<size_t>(std::ranges::min_element(medians) - medians.begin());
    if (dense[best] > kOtherFunction) {
      unknown_.insert(type);
    } else {
      *functions = {(*functions)[best]};
    }
  }

  void judge_all() {
    errors_.resize(leaves_.size());
    const unsigned jobs = resolve_job_count(options_.jobs);
    std::vector<size_t> small;
    for (size_t i = 0; i < leaves_.size(); ++i) {
      const ModuleCall& call = mine_.calls[leaves_[i].call];
      if (stopped()) return;
      if (unknown_.contains(call.type)) {
        errors_[i].state = State::NoReference;
        errors_[i].reason = "no usual setting explains its outputs";
      } else if (jobs > 1 && leaves_[i].work > kLargeProduct) {
        errors_[i] = judge_one(leaves_[i], leaves_[i].functions->front(), static_cast<int>(jobs));
      } else {
        small.push_back(i);
      }
    }
    MemoryBudget budget(options_.max_memory);
    parallel_for(small.size(), jobs, [&](size_t place) {
      const size_t i = small[place];
      budget.acquire(place, leaves_[i].bytes);
      if (!stopped()) errors_[i] = judge_one(leaves_[i], leaves_[i].functions->front(), 1);
      budget.release(leaves_[i].bytes);
    });
  }

  /// Modules count as operators of their class, so that the rules of strict and coarse kernels hold
  /// for them, too.
  LeafErrors conclude() {
    Program modules;
    modules.run = mine_.run;
    OwnErrors errors;
    for (size_t i = 0; i < leaves_.size(); ++i) {
      const ModuleCall& call = mine_.calls[leaves_[i].call];
      Operator one;
      one.node = mine_.run->records[call.outputs[0].record].node;
      one.name = call.type;
      one.module = call.module;
      one.module_call = call.call;
      one.rank = call.rank;
      one.step = call.step;
      one.time = call.outputs[0].time;
      one.outputs = call.outputs;
      errors_[i].op = modules.operators.size();
      errors_[i].output = 0;
      modules.operators.push_back(std::move(one));
      note(leaves_[i], errors_[i]);
      errors.outputs.push_back(errors_[i]);
    }
    find_wrong_operators(modules, &errors);
    result_.coarse = std::move(errors.coarse);
    for (Finding& finding : errors.findings) {
      const std::string& setting = functions_.at(finding.op_type).front().setting;
      finding.mine_operator = kNone;  // there are none
      finding.module_type = finding.op_type;
      // The setting is the one most modules of the class have, not one that was captured.
      if (!setting.empty()) finding.confidence = Confidence::Medium;
      result_.findings.push_back(std::move(finding));
    }
    return std::move(result_);
  }

  void note(const LeafCall& leaf, const OwnError& error) {
    const ModuleCall& call = mine_.calls[leaf.call];
    if (error.state != State::Judged && error.state != State::Exact) {
      ++result_.unjudged[call.type + ": " + error.reason];
      return;
    }
    ++result_.judged;
    if (leaf.functions->front().roundings == 1) result_.records.insert(call.outputs[0].record);
  }

  const Program& mine_;
  const OwnErrorOptions& options_;
  std::map<std::string, std::vector<LeafFunction>> functions_;  // by class
  std::set<std::string> unknown_;
  std::vector<LeafCall> leaves_;
  std::vector<OwnError> errors_;  // of the leaves
  LeafErrors result_;
};

}  // namespace

Result<LeafErrors> judge_leaf_modules(const Program& mine, const OwnErrorOptions& options) {
  return LeafJudge(mine, options).judge();
}

}  // namespace assay::locate

// SPDX-License-Identifier: Apache-2.0
// Pairs operators by their place, compares the digests of what they read and made, and keeps the
// places where a difference begins. Memory in which one is known already is no news.
#include "repeat/differences.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "run/run.hpp"
#include "stats/digest.hpp"

namespace assay::repeat {
namespace {

using locate::kNone;
using locate::Operator;
using locate::Use;
using reference::aten::OperatorClass;

std::string key_of(int rank, int64_t step, uint32_t call, std::string_view node) {
  return std::to_string(rank) + ' ' + std::to_string(step) + ' ' + std::to_string(call) + ' ' +
         std::string(node);
}

std::string key_of(const Operator& one) {
  return key_of(one.rank, one.step, one.module_call, one.node);
}

std::string key_of(const locate::ModuleCall& call) {
  return key_of(call.rank, call.step, call.call, call.module);
}

/// The operator itself, without its dialect and overload: "copy_" of "aten.copy_.default".
std::string_view bare_name(std::string_view name) {
  const size_t begin = name.find('.') + 1;
  return name.substr(begin, name.find('.', begin) - begin);
}

bool is_undefined(const Operator& one) {
  return reference::aten::class_of(one.name) == OperatorClass::Allocation;
}

/// An argument that the operator writes and does not read: what was there before does not matter.
bool is_only_written(const Operator& one, const Use& use) {
  if (std::ranges::find(one.writes, use.slot.str()) == one.writes.end()) return false;
  if (use.slot.starts_with("out")) return true;
  constexpr std::array<std::string_view, 11> kOverwriting = {
      "copy_",        "fill_",      "zero_",   "uniform_",    "normal_", "bernoulli_",
      "exponential_", "geometric_", "cauchy_", "log_normal_", "random_"};
  return use.slot == "self" &&
         std::ranges::find(kOverwriting, bare_name(one.name)) != std::end(kOverwriting);
}

/// Attention drops at random when it is told to.
bool drops_values(const std::string& arguments) {
  const nlohmann::json given = nlohmann::json::parse(arguments, nullptr, false);
  if (!given.is_object() || !given.contains("dropout_p")) return false;
  const nlohmann::json& rate = given["dropout_p"];
  return rate.is_number() && rate.get<double>() > 0;
}

bool is_random(const Operator& one, const std::string& arguments) {
  return reference::aten::class_of(one.name) == OperatorClass::Random ||
         one.name.find("dropout") != std::string::npos ||
         bare_name(one.name).starts_with("rrelu") || drops_values(arguments);
}

Equal equal_records(const run::TensorRecord& a, const run::TensorRecord& b) {
  if (a.shape != b.shape || a.dtype != b.dtype || a.value != b.value) return Equal::No;
  if (a.digest && b.digest) return *a.digest == *b.digest ? Equal::Yes : Equal::No;
  return !a.value.empty() ? Equal::Yes : Equal::Unseen;
}

/// What two runs made, operator by operator. Values without a digest - views of what was captured -
/// are equal when those are that they are made of.
class Comparison {
 public:
  Comparison(const Execution& first, const Execution& other) : first_(first), other_(other) {}

  [[nodiscard]] RunComparison run();
  /// After run().
  [[nodiscard]] Equal inputs_of(size_t op, size_t other_op) const;

 private:
  [[nodiscard]] const Operator& in_first(size_t op) const { return first_.program().operators[op]; }
  [[nodiscard]] const Operator& in_other(size_t op) const { return other_.program().operators[op]; }
  [[nodiscard]] const run::TensorRecord& record(const Execution& side, const Use& use) const {
    return side.run().records[use.record];
  }
  [[nodiscard]] Equal equal_use(const Use& a, const Use& b) const;
  [[nodiscard]] Equal made_by(const Use& use) const;
  [[nodiscard]] Equal equal_outputs(size_t op, size_t other_op, Equal inputs);
  [[nodiscard]] State add(size_t op, size_t other_op);
  [[nodiscard]] std::optional<Difference> judge(size_t op, size_t other_op, Equal inputs);
  [[nodiscard]] std::optional<Difference> origin(size_t op, size_t other_op);
  [[nodiscard]] bool is_touched(const Use& use) const;
  void touch(const Use& use);
  void add_lonely(const Execution& side, const Execution& partner);

  const Execution& first_;
  const Execution& other_;
  std::vector<std::vector<Equal>> outputs_;  // by operator of the first run
  /// Memory of the first run, by rank and storage, in which a difference is known: what another
  /// view of it shows is no news.
  std::set<std::pair<int, int64_t>> touched_;
  std::vector<Difference> found_;
  std::vector<State> states_;
};

Equal Comparison::made_by(const Use& use) const {
  if (use.producer >= outputs_.size()) return Equal::Unseen;
  const std::vector<Equal>& made = outputs_[use.producer];
  return use.producer_output < made.size() ? made[use.producer_output] : Equal::Unseen;
}

Equal Comparison::equal_use(const Use& a, const Use& b) const {
  const Equal equal = equal_records(record(first_, a), record(other_, b));
  return equal == Equal::Unseen ? made_by(a) : equal;
}

Equal Comparison::inputs_of(size_t op, size_t other_op) const {
  const Operator& a = in_first(op);
  const Operator& b = in_other(other_op);
  if (a.inputs.size() != b.inputs.size() ||
      first_.arguments_of(op) != other_.arguments_of(other_op))
    return Equal::No;
  Equal all = Equal::Yes;
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    if (is_only_written(a, a.inputs[i])) continue;
    const Equal equal = equal_use(a.inputs[i], b.inputs[i]);
    if (equal == Equal::No) return Equal::No;
    if (equal == Equal::Unseen) all = Equal::Unseen;
  }
  return all;
}

Equal Comparison::equal_outputs(size_t op, size_t other_op, Equal inputs) {
  const Operator& a = in_first(op);
  const Operator& b = in_other(other_op);
  std::vector<Equal>& made = outputs_[op];
  Equal all = a.outputs.size() == b.outputs.size() ? Equal::Yes : Equal::No;
  for (size_t i = 0; i < std::min(a.outputs.size(), b.outputs.size()); ++i) {
    Equal equal = equal_records(record(first_, a.outputs[i]), record(other_, b.outputs[i]));
    if (equal == Equal::Unseen) equal = inputs;
    made.push_back(equal);
    if (equal == Equal::No) all = Equal::No;
    if (equal == Equal::Unseen && all == Equal::Yes) all = Equal::Unseen;
  }
  return all;
}

bool Comparison::is_touched(const Use& use) const {
  const run::TensorRecord& seen = record(first_, use);
  return seen.storage_id >= 0 && touched_.contains({seen.rank, seen.storage_id});
}

void Comparison::touch(const Use& use) {
  const run::TensorRecord& seen = record(first_, use);
  if (seen.storage_id >= 0) touched_.emplace(seen.rank, seen.storage_id);
}

/// The first input that differs although what made it, as far as anybody did, is equal.
std::optional<Difference> Comparison::origin(size_t op, size_t other_op) {
  const Operator& a = in_first(op);
  const Operator& b = in_other(other_op);
  for (size_t i = 0; i < std::min(a.inputs.size(), b.inputs.size()); ++i) {
    const Use& use = a.inputs[i];
    if (is_only_written(a, use) || equal_use(use, b.inputs[i]) != Equal::No) continue;
    const bool is_made = use.producer < outputs_.size();
    const bool is_allocated = is_made && is_undefined(in_first(use.producer));
    if (is_made && !is_allocated && made_by(use) != Equal::Yes) continue;
    if (is_touched(use)) continue;
    touch(use);
    const Cause cause = is_allocated                 ? Cause::Uninitialised
                        : first_.is_weight(use.leaf) ? Cause::Weight
                                                     : Cause::Input;
    return Difference{cause, first_.place_of(op), use.slot, use.leaf, {}, {}};
  }
  return std::nullopt;
}

std::optional<Difference> Comparison::judge(size_t op, size_t other_op, Equal inputs) {
  if (inputs == Equal::No) {
    std::optional<Difference> found = origin(op, other_op);
    // A number that the program had otherwise, when nothing before it differs.
    if (!found && found_.empty())
      found = Difference{Cause::Input, first_.place_of(op), {}, {}, {}, {}};
    return found;
  }
  const Operator& a = in_first(op);
  const Operator& b = in_other(other_op);
  const bool random = is_random(a, first_.arguments_of(op));
  Difference found{random ? Cause::Random : Cause::Operator, first_.place_of(op), {}, {}, {}, {}};
  const auto first_different = std::ranges::find(outputs_[op], Equal::No);
  if (first_different != outputs_[op].end())
    found.slot = a.outputs[static_cast<size_t>(first_different - outputs_[op].begin())].slot;
  for (const Use& use : b.outputs) {
    const run::TensorRecord& made = record(other_, use);
    found.result += made.digest ? stats::digest_text(*made.digest) : made.value.str();
  }
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    if (!is_only_written(a, a.inputs[i]) && equal_use(a.inputs[i], b.inputs[i]) == Equal::Unseen)
      found.unseen.push_back(a.inputs[i].slot);
  }
  return found;
}

// Operators of one run that the other has not: the first of them tells enough.
void Comparison::add_lonely(const Execution& side, const Execution& partner) {
  const std::vector<Operator>& operators = side.program().operators;
  const auto lonely = std::ranges::find_if(
      operators, [&](const Operator& one) { return partner.find(one) == kNone; });
  if (lonely == operators.end()) return;
  Difference found;
  found.cause = Cause::OtherOperators;
  found.place = side.place_of(static_cast<size_t>(lonely - operators.begin()));
  found_.push_back(std::move(found));
}

State Comparison::add(size_t op, size_t other_op) {
  const Equal inputs = inputs_of(op, other_op);
  const Equal outputs = equal_outputs(op, other_op, inputs);
  if (is_undefined(in_first(op)) || outputs == Equal::Unseen) return State::Unseen;
  if (outputs == Equal::Yes) return State::Same;
  std::optional<Difference> found = judge(op, other_op, inputs);
  for (const Use& use : in_first(op).outputs) touch(use);
  if (!found) return State::Inherited;
  found_.push_back(*std::move(found));
  return State::Origin;
}

RunComparison Comparison::run() {
  const size_t count = first_.program().operators.size();
  outputs_.resize(count);
  states_.assign(count, State::Missing);
  for (size_t op = 0; op < count; ++op) {
    const size_t other_op = other_.find(in_first(op));
    if (other_op != kNone) states_[op] = add(op, other_op);
  }
  add_lonely(first_, other_);
  add_lonely(other_, first_);
  std::ranges::stable_sort(found_, {}, [](const Difference& one) { return one.place.index; });
  return {std::move(found_), std::move(states_)};
}

}  // namespace

std::string_view cause_name(Cause cause) {
  switch (cause) {
    case Cause::Operator:
      return "operator";
    case Cause::Random:
      return "random";
    case Cause::Uninitialised:
      return "uninitialised";
    case Cause::Weight:
      return "weight";
    case Cause::Input:
      return "input";
    case Cause::OtherOperators:
      break;
  }
  return "other operators";
}

std::string_view state_name(State state) {
  switch (state) {
    case State::Same:
      return "same";
    case State::Origin:
      return "origin";
    case State::Inherited:
      return "inherited";
    case State::Unseen:
      return "unseen";
    case State::Missing:
      break;
  }
  return "missing";
}

Execution::Execution(std::shared_ptr<const run::Run> run)
    : run_(std::move(run)),
      program_(locate::make_program(*run_, {}, locate::Arguments::Skip)),
      arguments_(program_.operators.size()) {
  for (size_t op = 0; op < program_.operators.size(); ++op)
    by_place_.emplace(key_of(program_.operators[op]), op);
  for (size_t call = 0; call < program_.calls.size(); ++call)
    calls_.emplace(key_of(program_.calls[call]), call);
  for (const run::OperationRecord& one : run_->operations) {
    const auto found = by_place_.find(key_of(one.rank, one.step, one.module_call, one.node));
    if (found != by_place_.end()) arguments_[found->second] = one.parameters;
  }
  for (const run::TensorRecord& record : run_->records) {
    if (run_->has_own_engine() && record.role == Role::Weight)
      engine_weights_.insert(record.node + "." + record.slot);
  }
  if (!run_->topology) return;
  for (const auto& [module, source] : topology::module_sources(*run_->topology))
    sources_.emplace(module, source);
}

size_t Execution::find(const locate::Operator& one) const {
  const auto found = by_place_.find(key_of(one));
  return found == by_place_.end() ? kNone : found->second;
}

size_t Execution::find(const locate::ModuleCall& call) const {
  const auto found = calls_.find(key_of(call));
  return found == calls_.end() ? kNone : found->second;
}

Place Execution::place_of(size_t op) const {
  const Operator& one = program_.operators[op];
  const auto source = sources_.find(one.module);
  return {one.rank,
          one.step,
          one.module_call,
          one.node,
          one.name,
          one.module,
          source == sources_.end() ? std::string() : source->second,
          op};
}

bool Execution::is_weight(const std::string& leaf) const {
  return !leaf.empty() && (!run_->has_own_engine() || engine_weights_.contains(leaf));
}

const std::string& Execution::arguments_of(size_t op) const { return arguments_[op]; }

RunComparison compare_runs(const Execution& first, const Execution& other) {
  return Comparison(first, other).run();
}

Equal equal_inputs(const Execution& first, size_t op, const Execution& other, size_t other_op) {
  Comparison comparison(first, other);
  (void)comparison.run();
  return comparison.inputs_of(op, other_op);
}

}  // namespace assay::repeat

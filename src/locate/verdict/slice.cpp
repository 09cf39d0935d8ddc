// SPDX-License-Identifier: Apache-2.0
// Goes back from the named outputs to the operators that made their inputs, and for a value that no
// operator returned to all that wrote into its storage before.
#include "locate/verdict/slice.hpp"

#include <map>
#include <tuple>

#include "base/numbers.hpp"

namespace assay::locate {
namespace {

// Outputs that the name stands for, over all steps and ranks.
std::vector<const Use*> named_outputs(const Program& mine, const std::string& path,
                                      const std::string& slot) {
  std::vector<const Use*> found;
  const auto add = [&](const std::vector<Use>& outputs) {
    for (const Use& use : outputs)
      if (slot.empty() || use.slot == slot) found.push_back(&use);
  };
  for (const ModuleCall& call : mine.calls)
    if (call.module == path) add(call.outputs);
  for (const Operator& one : mine.operators)
    if (one.node == path) add(one.outputs);
  return found;
}

std::vector<const Use*> outputs_of_step(const Program& mine, int64_t step) {
  std::vector<const Use*> found;
  std::map<int, const ModuleCall*> last;  // by rank; the outermost call ends last
  for (const ModuleCall& call : mine.calls) {
    if (call.step != step) continue;
    const ModuleCall*& best = last[call.rank];
    if (best == nullptr || call.end >= best->end) best = &call;
  }
  for (const auto& [rank, call] : last)
    for (const Use& use : call->outputs) found.push_back(&use);
  return found;
}

Error no_such(const std::string& name) {
  return {Errc::Usage,
          {},
          std::nullopt,
          "--slice " + name + ": mine has no such module, operator or step"};
}

}  // namespace

Result<Slice> Slice::make(const Program& mine, const std::string& name) {
  std::vector<const Use*> targets;
  if (name.starts_with("step ") || name.starts_with("token ")) {
    const auto step = parse_number<int64_t>(std::string_view(name).substr(name.find(' ') + 1));
    if (!step) return fail(no_such(name));
    targets = outputs_of_step(mine, *step);
  } else {
    targets = named_outputs(mine, name, "");
    const size_t colon = name.rfind(':');
    if (targets.empty() && colon != std::string::npos)
      targets = named_outputs(mine, name.substr(0, colon), name.substr(colon + 1));
  }
  if (targets.empty()) return fail(no_such(name));
  Slice slice;
  slice.has_operators_ = !mine.operators.empty();
  const std::set<const Use*> wanted(targets.begin(), targets.end());
  const auto reach = [&](int64_t step, const std::vector<Use>& outputs) {
    for (const Use& use : outputs) {
      if (!wanted.contains(&use)) continue;
      std::tie(slice.last_step_, slice.last_time_) =
          std::max(std::tuple(slice.last_step_, slice.last_time_), std::tuple(step, use.time));
    }
  };
  for (const ModuleCall& call : mine.calls) reach(call.step, call.outputs);
  for (const Operator& one : mine.operators) reach(one.step, one.outputs);
  if (slice.has_operators_) slice.follow(mine, std::move(targets));
  return slice;
}

void Slice::follow(const Program& mine, std::vector<const Use*> open) {
  std::map<ValueId, size_t> makers;                // value -> operator
  std::map<int64_t, std::vector<size_t>> writers;  // storage -> operators that wrote into it
  for (size_t i = 0; i < mine.operators.size(); ++i) {
    const Operator& one = mine.operators[i];
    for (const Use& output : one.outputs) {
      if (output.value != kNoValue) makers.emplace(output.value, i);
      if (one.writes.empty() || output.record == kNone) continue;
      const int64_t storage = mine.run->records[output.record].storage_id;
      if (storage >= 0) writers[storage].push_back(i);
    }
  }
  const auto visit = [&](size_t index) {
    if (!operators_.insert(index).second) return;
    const Operator& one = mine.operators[index];
    modules_.emplace(one.rank, one.module);
    for (const Use& input : one.inputs) open.push_back(&input);
  };
  while (!open.empty()) {
    const Use* use = open.back();
    open.pop_back();
    if (use->producer != kNone) {
      visit(use->producer);
      continue;
    }
    if (const auto made = makers.find(use->value); use->value != kNoValue && made != makers.end()) {
      visit(made->second);
      continue;
    }
    // A view of a storage that was written through another view: whoever wrote into it before may
    // have made it.
    if (use->record == kNone) continue;
    const run::TensorRecord& record = mine.run->records[use->record];
    const auto written = writers.find(record.storage_id);
    if (written == writers.end()) continue;
    for (const size_t index : written->second) {
      const Operator& one = mine.operators[index];
      if (one.rank == record.rank && one.time < use->time) visit(index);
    }
  }
}

bool Slice::holds(const Finding& finding) const {
  if (std::tie(finding.step, finding.time) > std::tie(last_step_, last_time_)) return false;
  if (!has_operators_) return true;
  if (finding.mine_operator != kNone) return operators_.contains(finding.mine_operator);
  return modules_.contains({finding.rank, finding.module});
}

}  // namespace assay::locate

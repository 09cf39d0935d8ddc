// SPDX-License-Identifier: Apache-2.0
// What the ranks of a tensor parallel run hold of one value, put together by its shape or by its
// values.
#include "locate/program/shards.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "pair/first_inputs.hpp"
#include "pair/merge_ranks.hpp"
#include "pair/ranks.hpp"
#include "run/common_names.hpp"

namespace assay::locate {
namespace {

/// What ranks hold of a tensor of golden.
enum class Held : uint8_t {
  Each,   // all of it
  Parts,  // of which it is put together
  Sum,    // what is added up
  Apart,  // something else
};

class ShardJoiner {
 public:
  ShardJoiner(const Program& golden, Program* mine)
      : golden_(golden), mine_(*mine), shards_(*mine->run, [](const run::TensorRecord& record) {
          return record.bytes && record.shape && record.role != Role::Weight;
        }) {}

  /// Partial sums that nobody adds up are none: what the ranks made is wrong then. A sum counts
  /// where most of its peers in other layers are sums, and a module around it has it added up, or
  /// should have.
  void refuse_lonely_sums() {
    std::map<std::string, std::pair<size_t, size_t>> peers;  // by pattern: sums, others
    for (const auto& [record, how] : found_) {
      auto& [sums, others] = peers[pattern_of(record)];
      ++(how == Held::Sum ? sums : others);
    }
    std::vector<size_t> more;
    for (const auto& [record, how] : found_) {
      if (how != Held::Sum) continue;
      const auto& [sums, others] = peers[pattern_of(record)];
      if (sums < others)
        refuse(record);
      else
        more.push_back(record);
    }
    for (const size_t record : more) {
      if (!is_added_up(mine_.run->records[record])) refuse(record);
    }
  }

  void join(const std::vector<Use>& of_golden, const std::vector<Use>& of_mine) {
    for (const Use& use : of_mine) {
      const auto partner = std::ranges::find(of_golden, use.slot, &Use::slot);
      if (partner != of_golden.end()) join(partner->record, use.record);
    }
  }

 private:
  void join(size_t golden, size_t mine) {
    if (golden >= golden_.run->records.size() || mine >= mine_.run->records.size()) return;
    const run::TensorRecord& whole = golden_.run->records[golden];
    const run::TensorRecord& part = mine_.run->records[mine];
    if (!whole.bytes || !whole.shape || !part.bytes || !part.shape) return;
    const std::vector<size_t>& parts = shards_.of(part);
    if (parts.size() < 2 || parts.front() != mine) return;
    const Held how = join(golden, parts, *whole.shape == *part.shape);
    found_.emplace(mine, how);
    if (part.role == Role::Output) of_outputs_[{part.step, part.node.str()}].insert(how);
    if (how == Held::Apart) return;
    mine_.joined_parts.insert(parts.begin() + 1, parts.end());
  }

  Held join(size_t golden, const std::vector<size_t>& parts, bool has_same_shape) {
    if (has_same_shape && are_equal(parts)) return Held::Each;
    const std::array wholes{golden};
    pair::MergedPair merged = pair::merge_shards(*golden_.run, wholes, *mine_.run, parts);
    if (!merged.problem.empty() || merged.golden.merge != pair::Merge::None ||
        !merged.golden.steps.empty())
      return Held::Apart;
    const pair::Merge merge = merged.mine.merge;
    if (has_same_shape && merge == pair::Merge::Pick) return Held::Each;
    const bool fits = has_same_shape
                          ? merge == pair::Merge::Sum
                          : merge == pair::Merge::Concat || merge == pair::Merge::Interleave;
    if (!fits) return Held::Apart;
    mine_.joined.emplace(parts.front(), std::move(merged.mine));
    return has_same_shape ? Held::Sum : Held::Parts;
  }

  [[nodiscard]] std::string pattern_of(size_t record) const {
    const run::TensorRecord& one = mine_.run->records[record];
    return run::layer_pattern(one.node) + ' ' + std::string(role_name(one.role)) + ' ' +
           one.slot.str();
  }

  void refuse(size_t record) {
    const run::TensorRecord& sum = mine_.run->records[record];
    mine_.joined.erase(record);
    refused_.emplace(sum.step, sum.node.str());
    for (const size_t part : shards_.of(sum)) mine_.joined_parts.erase(part);
  }

  /// By what the modules around it return.
  [[nodiscard]] bool is_added_up(const run::TensorRecord& sum) const {
    std::string module = sum.node;
    while (!module.empty()) {
      const size_t dot = module.rfind('.');
      module.resize(dot == std::string::npos ? 0 : dot);
      if (refused_.contains({sum.step, module})) return true;
      const auto around = of_outputs_.find({sum.step, module});
      if (around == of_outputs_.end() || around->second.contains(Held::Sum)) continue;
      return !around->second.contains(Held::Apart);
    }
    return false;
  }

  /// What every rank has in the same bytes.
  [[nodiscard]] bool are_equal(const std::vector<size_t>& parts) const {
    const run::TensorRecord& first = mine_.run->records[parts.front()];
    return std::ranges::all_of(parts, [&](size_t part) {
      return pair::have_equal_values(first, mine_.run->records[part]);
    });
  }

  const Program& golden_;
  Program& mine_;
  pair::Shards shards_;
  std::map<size_t, Held> found_;  // by the first rank's record
  std::map<std::pair<int64_t, std::string>, std::set<Held>> of_outputs_;  // by step and module
  std::set<std::pair<int64_t, std::string>> refused_;
};

}  // namespace

void join_shards(const Program& golden, const Pairing& pairing, Program* mine) {
  if (pair::ranks_of(*golden.run).size() != 1 || pair::ranks_of(*mine->run).size() < 2) return;
  ShardJoiner joiner(golden, mine);
  for (size_t i = 0; i < mine->calls.size(); ++i) {
    const size_t partner = pairing.golden_call_of[i];
    if (partner == kNone) continue;
    joiner.join(golden.calls[partner].inputs, mine->calls[i].inputs);
    joiner.join(golden.calls[partner].outputs, mine->calls[i].outputs);
  }
  joiner.refuse_lonely_sums();
  mine->is_shared = !mine->joined_parts.empty();
}

}  // namespace assay::locate

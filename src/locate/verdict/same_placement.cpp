// SPDX-License-Identifier: Apache-2.0
// Three tests, the cheapest first: shapes of weights, shapes of what modules return, and summands
// on the ranks of one run where each rank of the other one has the sum.
#include "locate/verdict/same_placement.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "pair/first_inputs.hpp"
#include "pair/merge_ranks.hpp"
#include "pair/ranks.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

/// What the modules of one run returned.
class Returned : public pair::Shards {
 public:
  explicit Returned(const run::Run& run)
      : Shards(run,
               [](const TensorRecord& record) {
                 return record.role == Role::Output && !record.is_of_operator() && record.bytes &&
                        record.shape;
               }),
        run_(run) {}

  [[nodiscard]] const run::Run& run() const { return run_; }
  [[nodiscard]] bool are_alike(const std::vector<size_t>& ranks) const {
    return std::ranges::all_of(ranks, [&](size_t index) {
      return pair::have_equal_values(run_.records[ranks.front()], run_.records[index]);
    });
  }
  /// The ranks have the sum of what the module returned when a module around it returns.
  [[nodiscard]] bool is_added_up_behind(TensorRecord place) const {
    std::string module = place.node;
    while (!module.empty()) {
      const size_t dot = module.rfind('.');
      module.resize(dot == std::string::npos ? 0 : dot);
      place.node = module;
      const std::vector<size_t>& around = of(place);
      if (around.size() > 1) return are_alike(around);
    }
    return false;
  }

 private:
  const run::Run& run_;
};

/// Ranks of `parts` hold summands of what each rank of `whole` holds.
bool are_summands(const Returned& whole, const std::vector<size_t>& of_whole, const Returned& parts,
                  const std::vector<size_t>& of_parts) {
  if (of_whole.size() < 2 || of_parts.size() < 2) return false;
  const TensorRecord& first = whole.run().records[of_whole.front()];
  const TensorRecord& part = parts.run().records[of_parts.front()];
  if (!(first.shape == part.shape) || !whole.are_alike(of_whole) || parts.are_alike(of_parts) ||
      !parts.is_added_up_behind(part))
    return false;
  const std::array one{of_whole.front()};
  const pair::MergedPair merged = pair::merge_shards(whole.run(), one, parts.run(), of_parts);
  return merged.problem.empty() && merged.mine.merge == pair::Merge::Sum;
}

std::string module_name(const TensorRecord& record) {
  return record.node.empty() ? std::string("the model") : std::string(record.node);
}

class PlacementTest {
 public:
  PlacementTest(const Program& golden, const Program& mine, const Pairing& pairing)
      : golden_(golden), mine_(mine), pairing_(pairing) {
    golden_ranks_ = pair::ranks_of(*golden.run).size();
    mine_ranks_ = pair::ranks_of(*mine.run).size();
  }

  [[nodiscard]] std::optional<std::string> find() const {
    if (golden_ranks_ < 2) return std::nullopt;
    std::string what = other_weight();
    if (what.empty() && golden_ranks_ != mine_ranks_) what = other_result();
    if (what.empty() && mine_ranks_ > 1) what = other_sum();
    if (what.empty()) return std::nullopt;
    return "golden's " + counted(golden_ranks_, "rank") + " and the " +
           counted(mine_ranks_, "rank") +
           " of the run under test are cut otherwise, so that no "
           "value of a rank can be held against golden's: " +
           what + "; capture golden in one process, or as mine is";
  }

 private:
  [[nodiscard]] std::string other_weight() const {
    for (const pair::LeafPair& leaf : pairing_.leaves.pairs) {
      const std::string text =
          other_shape(golden_.run->records[leaf.golden], mine_.run->records[leaf.mine]);
      if (!text.empty()) return std::string(leaf.name) + text;
    }
    return {};
  }

  [[nodiscard]] std::string other_result() const {
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      if (pairing_.golden_call_of[i] == kNone) continue;
      for (const Use& use : mine_.calls[i].outputs) {
        const std::vector<Use>& outputs = golden_.calls[pairing_.golden_call_of[i]].outputs;
        const auto partner = std::ranges::find(outputs, use.slot, &Use::slot);
        if (partner == outputs.end()) continue;
        const TensorRecord& ours = mine_.run->records[use.record];
        const std::string text = other_shape(golden_.run->records[partner->record], ours);
        if (!text.empty()) return "what " + module_name(ours) + " returns" + text;
      }
    }
    return {};
  }

  static std::string other_shape(const TensorRecord& golden, const TensorRecord& mine) {
    if (!golden.shape || !mine.shape || golden.shape == mine.shape) return {};
    return " is " + list_text(mine.shape->span()) + ", golden's " + list_text(golden.shape->span());
  }

  [[nodiscard]] std::string other_sum() const {
    const Returned golden(*golden_.run);
    const Returned mine(*mine_.run);
    for (const ModuleCall& call : mine_.calls) {
      for (const Use& use : call.outputs) {
        const TensorRecord& record = mine_.run->records[use.record];
        const std::vector<size_t>& ours = mine.of(record);
        const std::vector<size_t>& theirs = golden.of(record);
        if (are_summands(golden, theirs, mine, ours))
          return module_name(record) + " returns summands, golden's the sum";
        if (are_summands(mine, ours, golden, theirs))
          return module_name(record) + " returns the sum, golden's summands";
      }
    }
    return {};
  }

  const Program& golden_;
  const Program& mine_;
  const Pairing& pairing_;
  size_t golden_ranks_ = 0, mine_ranks_ = 0;
};

}  // namespace

std::optional<std::string> find_other_placement(const Program& golden, const Program& mine,
                                                const Pairing& pairing) {
  return PlacementTest(golden, mine, pairing).find();
}

}  // namespace assay::locate

// SPDX-License-Identifier: Apache-2.0
// Collects whether a capture lost tensors or did not finish, and which tensors of golden have no
// partner or one by values alone: a sentence for each kind, with the first of them by name.
#include "compare/comparability.hpp"

#include <fnmatch.h>

#include <algorithm>

#include "base/text.hpp"
#include "pair/tree.hpp"

namespace assay::compare {
namespace {

using run::Run;
using run::TensorRecord;

std::string why_incomplete(const Run& run, const std::string& side) {
  if (run.coverage.lost > 0)
    return "the capture of " + side + " lost " + std::to_string(run.coverage.lost) +
           (run.coverage.lost == 1 ? " tensor" : " tensors");
  if (!run.coverage.complete) return "the capture of " + side + " did not finish";
  return {};
}

class Gaps {
 public:
  Gaps(const Run& golden, const Run& mine, const CompareOptions& options)
      : golden_(golden), mine_(mine), options_(options) {}

  void look_at(const Sheet& sheet) {
    for (const pair::UnmatchedRecord& one : sheet.matching.unmatched) {
      if (one.side != pair::Side::Golden) continue;
      const TensorRecord& record = golden_.records[one.record];
      if (is_wanted(record) && !is_allowed(record)) add(record, &alone_, &first_alone_);
    }
    for (const pair::RecordPair& pair : sheet.matching.pairs) {
      if (pair.golden_in_mine ||
          (pair.rule != pair::Rule::Values && pair.rule != pair::Rule::Place))
        continue;
      const TensorRecord& record = golden_.records[pair.golden];
      if (!is_allowed(record)) add(record, &by_value_, &first_by_value_);
    }
  }

  [[nodiscard]] std::vector<std::string> sentences() const {
    std::vector<std::string> gaps;
    for (const auto& [run, side] :
         {std::pair(&golden_, std::string("golden")), std::pair(&mine_, std::string("mine"))}) {
      if (std::string why = why_incomplete(*run, side); !why.empty())
        gaps.push_back(std::move(why));
    }
    if (alone_ > 0)
      gaps.push_back(counted(alone_, "tensor") + " of golden " + (alone_ == 1 ? "has" : "have") +
                     " no partner in mine, first " + first_alone_);
    if (by_value_ > 0)
      gaps.push_back(counted(by_value_, "tensor") + " of golden " +
                     (by_value_ == 1 ? "was" : "were") + " paired by " +
                     (by_value_ == 1 ? "its" : "their") +
                     " values, which says nothing about the place, first " + first_by_value_);
    return gaps;
  }

 private:
  void add(const TensorRecord& record, size_t* count, std::string* first) const {
    if ((*count)++ > 0) return;
    if (golden_.has(run::Trait::OneFile) && !record.slot.empty()) {
      *first = record.slot;
      return;
    }
    *first = pair::shared_node_name(golden_, record.node);
    if (first->empty()) *first = "the model";
    *first += " " + std::string(role_name(record.role));
    if (!record.slot.empty()) *first += " " + record.slot;
  }

  /// Neither of the ranks nor of the tokens that the user left out.
  [[nodiscard]] bool is_wanted(const TensorRecord& record) const {
    if (!options_.user.ranks.empty() &&
        std::ranges::find(options_.user.ranks, static_cast<int>(record.rank)) ==
            options_.user.ranks.end())
      return false;
    return options_.user.token_map.empty() ||
           std::ranges::any_of(options_.user.token_map,
                               [&](const auto& pair) { return pair.first == record.step; });
  }

  [[nodiscard]] bool is_allowed(const TensorRecord& record) const {
    const std::string name = pair::shared_node_name(golden_, record.node);
    return std::ranges::any_of(options_.allow_unmatched, [&](const std::string& pattern) {
      return std::ranges::any_of(
          std::vector<std::string>{name, "/" + name, record.slot, record_path(record)},
          [&](const std::string& text) {
            return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
          });
    });
  }

  const Run& golden_;
  const Run& mine_;
  const CompareOptions& options_;
  size_t alone_ = 0;
  size_t by_value_ = 0;
  std::string first_alone_;
  std::string first_by_value_;
};

}  // namespace

std::vector<std::string> find_damage(const Run& golden, const Run& mine) {
  std::vector<std::string> sentences;
  for (const auto& [run, side] : {std::pair(&golden, "golden"), std::pair(&mine, "mine")}) {
    if (const std::string damage = run->first_damage(); !damage.empty())
      sentences.push_back(std::string(side) + " is damaged: " + damage);
  }
  return sentences;
}

std::vector<std::string> find_gaps(const Run& golden, const Run& mine, const Comparison& comparison,
                                   const CompareOptions& options) {
  Gaps gaps(golden, mine, options);
  for (const Sheet& sheet : comparison.sheets) {
    // Sheets of levels show the same tensors again; the last has all of them. Those of graphs are
    // one each.
    if (sheet.graph >= 0 || &sheet == &comparison.sheets.back()) gaps.look_at(sheet);
  }
  return gaps.sentences();
}

std::optional<bool> limits_hold(const Comparison& comparison) {
  if (comparison.damaged || !comparison.judged) return std::nullopt;
  const Comparison::Counts counts = comparison.counts();
  // Limits were given and nothing could be held against them: that is no pass.
  if (counts.failed > 0 || counts.pairs == 0) return false;
  return comparison.gaps.empty() ? std::optional(true) : std::nullopt;
}

}  // namespace assay::compare

// SPDX-License-Identifier: Apache-2.0
// Pairs that the user names come first, then those of the alignment that share no record with them.
// What is left is counted, and all pairs are put into the order of the run under test.
#include "engines/ggml/row_matcher.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace assay::engines::ggml {
namespace {

using pair::Correspondence;
using pair::Matching;
using pair::MatchOptions;
using pair::Recipe;
using pair::RecordPair;
using pair::Rule;
using pair::Side;
using run::Run;
using run::TensorRecord;

class RowMatcher {
 public:
  RowMatcher(const Run& golden, const Run& mine, bool golden_is_ggml, const Alignment& alignment,
             const Correspondence& pairs, const MatchOptions& options)
      : alignment_(alignment),
        whole_(pairs),
        options_(options),
        golden_(golden),
        mine_(mine),
        golden_is_ggml_(golden_is_ggml),
        hf_(golden_is_ggml_ ? mine : golden),
        ggml_(golden_is_ggml_ ? golden : mine) {}

  Result<Matching> match() {
    ASSAY_TRY_STATUS(take_named());
    for (const TensorPair& pair : alignment_.pairs) {
      const bool is_named = named_.contains({hf_side(), pair.hf}) ||
                            std::ranges::any_of(pair.ggml, [this](size_t record) {
                              return named_.contains({ggml_side(), record});
                            });
      if (!is_named) add(pair);
    }
    list_rest();
    out_.notes.insert(out_.notes.end(), alignment_.notes.begin(), alignment_.notes.end());
    sort();
    return std::move(out_);
  }

 private:
  [[nodiscard]] Side hf_side() const { return golden_is_ggml_ ? Side::Mine : Side::Golden; }
  [[nodiscard]] Side ggml_side() const { return golden_is_ggml_ ? Side::Golden : Side::Mine; }

  int32_t keep(Recipe recipe) {
    if (recipe.steps.empty() && recipe.records.size() == 1) return -1;
    out_.recipes.push_back(std::move(recipe));
    return static_cast<int32_t>(out_.recipes.size() - 1);
  }

  void add(const TensorPair& pair) {
    const int32_t hf = keep(pair.hf_recipe(hf_));
    const int32_t ggml = keep(pair.ggml_recipe(hf_, ggml_));
    RecordPair row;
    row.golden = golden_is_ggml_ ? pair.ggml.front() : pair.hf;
    row.mine = golden_is_ggml_ ? pair.hf : pair.ggml.front();
    row.golden_recipe = golden_is_ggml_ ? ggml : hf;
    row.mine_recipe = golden_is_ggml_ ? hf : ggml;
    row.rule = Rule::EngineTable;
    row.token = alignment_.spans[pair.span].hf_step;
    out_.pairs.push_back(std::move(row));
    hf_used_.insert(pair.hf);
    ggml_used_.insert(pair.ggml.begin(), pair.ggml.end());
  }

  /// What the user names wins over the table.
  Status take_named() {
    if (whole_.user.explicit_pairs.empty()) return {};
    ASSAY_TRY(out_, pair::match_named(golden_, mine_, whole_, options_));
    for (RecordPair& pair : out_.pairs) {
      named_.emplace(Side::Golden, pair.golden);
      named_.emplace(Side::Mine, pair.mine);
      (golden_is_ggml_ ? ggml_used_ : hf_used_).insert(pair.golden);
      (golden_is_ggml_ ? hf_used_ : ggml_used_).insert(pair.mine);
      if (pair.token == pair::kStepOfMine)
        pair.token = hf_.records[golden_is_ggml_ ? pair.mine : pair.golden].step;
    }
    return {};
  }

  void list_rest() {
    std::set<int64_t> graphs;
    std::set<int64_t> tokens;
    for (const TokenSpan& span : alignment_.spans) {
      graphs.insert(span.ggml_steps.begin(), span.ggml_steps.end());
      tokens.insert(golden_is_ggml_ ? span.hf_step : span.ggml_steps.front());
    }
    out_.tokens.assign(tokens.begin(), tokens.end());
    out_.ranks = {0};
    // These are outputs alone: what a module is given is the output of the one before it.
    for (const auto& [record, reason] : alignment_.hf_alone)
      out_.unmatched.push_back({hf_side(), record, reason});
    std::map<std::string, size_t> inner;  // by operator
    for (size_t i = 0; i < ggml_.records.size(); ++i) {
      const TensorRecord& record = ggml_.records[i];
      if (record.role != Role::Output || !graphs.contains(record.step) || ggml_used_.contains(i))
        continue;
      ++inner[record.op_type];
    }
    size_t count = 0;
    for (const auto& [type, number] : inner) count += number;
    if (count > 0)
      out_.notes.push_back(std::to_string(count) +
                           " nodes of ggml stand inside modules of Hugging Face, or only view "
                           "values, and have no tensor to be compared with");
    const size_t hf_candidates = hf_used_.size() + alignment_.hf_alone.size();
    out_.golden_candidates = golden_is_ggml_ ? ggml_used_.size() : hf_candidates;
    out_.mine_candidates = golden_is_ggml_ ? hf_candidates : ggml_used_.size();
    out_.golden_matched = golden_is_ggml_ ? ggml_used_.size() : hf_used_.size();
    out_.mine_matched = golden_is_ggml_ ? hf_used_.size() : ggml_used_.size();
  }

  void sort() {
    const Run& mine = golden_is_ggml_ ? hf_ : ggml_;
    std::stable_sort(out_.pairs.begin(), out_.pairs.end(),
                     [&](const RecordPair& a, const RecordPair& b) {
                       const TensorRecord& first = mine.records[a.mine];
                       const TensorRecord& second = mine.records[b.mine];
                       return std::tuple(a.token, first.step, first.order, a.mine, a.golden) <
                              std::tuple(b.token, second.step, second.order, b.mine, b.golden);
                     });
  }

  const Alignment& alignment_;
  const Correspondence& whole_;
  const MatchOptions& options_;
  const Run& golden_;
  const Run& mine_;
  bool golden_is_ggml_;
  const Run& hf_;
  const Run& ggml_;
  Matching out_;
  std::set<std::pair<Side, size_t>> named_;  // records in pairs of the user
  std::set<size_t> hf_used_;
  std::set<size_t> ggml_used_;
};

}  // namespace

Result<Matching> match_rows(const Run& golden, const Run& mine, bool golden_is_ggml,
                            const Alignment& alignment, const Correspondence& pairs,
                            const MatchOptions& options) {
  return RowMatcher(golden, mine, golden_is_ggml, alignment, pairs, options).match();
}

}  // namespace assay::engines::ggml

// SPDX-License-Identifier: Apache-2.0
// The logits of every step are compared position by position, the last position first. What kind a
// choice is depends on how many there were, so they are classified when all are known.
#include "locate/verdict/token_choices.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "locate/program/padding.hpp"
#include "locate/verdict/token_row.hpp"
#include "pair/places.hpp"
#include "pair/ranks.hpp"
#include "pair/step_tokens.hpp"
#include "reference/wide.hpp"
#include "run/load.hpp"
#include "run/logits.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

constexpr int64_t kMaxVocabulary = int64_t{1} << 24;

/// run::logits_rank(), how surely they are logits; 0 as well where none of their values is known.
int known_logits(const run::Run& run, const TensorRecord& record) {
  return record.bytes || record.choices() != nullptr ? run::logits_rank(run, record) : 0;
}

/// The logits of every step of one rank: the surest record, of those the last call.
using LogitsRecords = std::map<int64_t, const TensorRecord*>;
LogitsRecords logits_of(const run::Run& run) {
  LogitsRecords logits;
  const int first = pair::first_rank(run);
  for (const TensorRecord& record : run.records) {
    const int rank = known_logits(run, record);
    if (rank == 0 || record.rank != first || record.step < 0) continue;
    const auto [found, is_new] = logits.try_emplace(record.step, &record);
    if (!is_new && rank >= known_logits(run, *found->second)) found->second = &record;
  }
  return logits;
}

/// Logits as [sequence, position, token]: a tensor of two axes has one position of each sequence.
struct Logits {
  Tensor tensor;
  int64_t sequences = 0, positions = 0, tokens = 0;
  /// Rows (last axis but one) that were computed; null: all.
  const std::vector<int64_t>* computed = nullptr;

  [[nodiscard]] bool has(int64_t sequence, int64_t position) const {
    if (computed == nullptr) return true;
    const int64_t row = tensor.view.shape.size() >= 3 ? position : sequence;
    return std::ranges::binary_search(*computed, row);
  }
  void read(int64_t sequence, int64_t position, std::vector<double>* row) const {
    row->resize(static_cast<size_t>(tokens));
    read_values(tensor.view, (sequence * positions + position) * tokens, tokens, *row);
  }
};

std::optional<Logits> load_logits(const Program& program, const TensorRecord& record) {
  Result<Tensor> tensor = run::load_tensor(record);
  if (!tensor) return std::nullopt;
  const TensorView& view = tensor->view;
  const size_t axes = view.shape.size();
  if (axes < 2 || !is_float(view.dtype) || values_per_element(view.dtype) != 1) return std::nullopt;
  Logits logits;
  logits.tokens = view.shape[axes - 1];
  logits.positions = axes >= 3 ? view.shape[axes - 2] : 1;
  if (logits.tokens < 2 || logits.tokens > kMaxVocabulary || logits.positions < 1)
    return std::nullopt;
  logits.sequences = view.element_count() / (logits.tokens * logits.positions);
  const auto computed =
      program.computed_rows.find(static_cast<size_t>(&record - program.run->records.data()));
  if (computed != program.computed_rows.end()) logits.computed = &computed->second;
  logits.tensor = *std::move(tensor);
  return logits;
}

/// Of each step, how many of its last tokens were guessed and then refused: the next step computes
/// their positions again. Of several guesses behind which nothing came no row is known to be what
/// generation went on with: nothing.
std::map<int64_t, std::optional<int64_t>> refused_tokens(const run::Run& run) {
  std::map<int64_t, std::optional<int64_t>> refused;
  const std::vector<pair::StepTokens> steps = pair::torch_steps(run);
  bool guesses = false;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].sequences != 1 || steps[i].tokens.empty()) continue;
    const int64_t first = steps[i].tokens.front().position;
    const int64_t last = steps[i].tokens.back().position;
    const bool goes_on = i + 1 < steps.size() && !steps[i + 1].tokens.empty();
    const int64_t next = goes_on ? steps[i + 1].tokens.front().position : -1;
    if (first >= 0 && next > first && next <= last) {
      refused.emplace(steps[i].step, last - next + 1);
      guesses = true;
    } else if (!goes_on && guesses && last > first) {
      refused.emplace(steps[i].step, std::nullopt);
    }
  }
  return refused;
}

class TokenComparison {
 public:
  TokenComparison(const Program& golden, const Program& mine,
                  const std::optional<InputDifference>& inputs)
      : golden_(golden), mine_(mine), refused_(refused_tokens(*golden.run)) {
    if (inputs) found_.other_inputs_from = inputs->step;
  }

  TokenChoices compare() {
    const LogitsRecords partners = logits_of(*golden_.run);
    for (const auto& [step, record] : logits_of(*mine_.run)) {
      const auto partner = partners.find(step);
      if (partner == partners.end()) continue;
      step_ = step;
      compare_records(*partner->second, *record);
    }
    classify();
    return std::move(found_);
  }

 private:
  void compare_records(const TensorRecord& golden, const TensorRecord& mine) {
    if (golden.choices() != nullptr && golden.dtype) {
      compare_choices(golden, mine);
      return;
    }
    const std::optional<Logits> g = load_logits(golden_, golden);
    const std::optional<Logits> m = load_logits(mine_, mine);
    if (!g || !m || g->sequences != m->sequences || g->tokens != m->tokens) return;
    const Padding padding(golden_, step_);
    TokenRow theirs{{}, measure::Rounding(g->tensor.view.dtype)};
    TokenRow ours{{}, measure::Rounding(m->tensor.view.dtype)};
    for (int64_t sequence = 0; sequence < g->sequences; ++sequence) {
      const auto refused = refused_.find(step_);
      // From the end, the row that generation goes on with; 0: not known.
      const int64_t chosen = refused == refused_.end() ? 1
                             : refused->second         ? *refused->second + 1
                                                       : 0;
      int64_t row = 0;
      for (int64_t back = 1; back <= std::min(g->positions, m->positions); ++back) {
        if (padding.holds(sequence, back)) {
          ++found_.padding;
          continue;
        }
        if (!m->has(sequence, m->positions - back)) continue;
        g->read(sequence, g->positions - back, &theirs.logits);
        m->read(sequence, m->positions - back, &ours.logits);
        TokenChoice choice = compare_token_rows(theirs, ours);
        choice.step = step_;
        choice.sequence = sequence;
        choice.position = g->positions - back;
        add(std::move(choice), ++row == chosen, g->tokens);
      }
    }
  }

  /// Of golden the largest logits of the last positions are known. Noise is that of these tokens;
  /// what it is of all, and the divergence, cannot be told.
  void compare_choices(const TensorRecord& golden, const TensorRecord& mine) {
    const std::optional<Logits> m = load_logits(mine_, mine);
    if (!m || std::cmp_not_equal(golden.choices()->rows.size(), m->sequences) ||
        golden.choices()->vocabulary != m->tokens)
      return;
    const Padding padding(golden_, step_);
    std::vector<double> all;
    for (int64_t sequence = 0; sequence < m->sequences; ++sequence) {
      if (padding.holds(sequence, 1) || !m->has(sequence, m->positions - 1)) continue;
      m->read(sequence, m->positions - 1, &all);
      std::vector<run::Choice> known = golden.choices()->rows[static_cast<size_t>(sequence)];
      add_choice_of(all, &known);
      TokenRow theirs{{}, measure::Rounding(*golden.dtype)};
      TokenRow ours{{}, measure::Rounding(m->tensor.view.dtype)};
      for (const run::Choice& one : known) {
        theirs.logits.push_back(one.logit);
        ours.logits.push_back(all[static_cast<size_t>(one.token)]);
      }
      TokenChoice choice = compare_token_rows(theirs, ours);
      choice.golden_token = known[static_cast<size_t>(choice.golden_token)].token;
      choice.mine_token = known[static_cast<size_t>(choice.mine_token)].token;
      choice.divergence = NAN;
      choice.step = step_;
      choice.sequence = sequence;
      choice.position = m->positions - 1;
      add(std::move(choice), /*is_last=*/true, m->tokens);
    }
  }

  /// What mine chooses, when golden's logit of it is not known: it is no larger than the others.
  static void add_choice_of(const std::vector<double>& mine, std::vector<run::Choice>* known) {
    const int64_t token = std::ranges::max_element(mine) - mine.begin();
    if (std::ranges::find(*known, token, &run::Choice::token) == known->end())
      known->push_back({token, known->back().logit});
  }

  void add(TokenChoice choice, bool is_last, int64_t tokens) {
    const bool is_other = choice.golden_token != choice.mine_token;
    if (is_last && is_other && found_.first.step < 0) found_.first = choice;
    if (found_.other_inputs_from >= 0 && choice.step >= found_.other_inputs_from) return;
    if (std::isnan(choice.noise)) {
      ++found_.not_finite;
      return;
    }
    ++found_.positions;
    chances_ += static_cast<double>(tokens);
    sum_ += choice.divergence;
    found_.kl_max = std::fmax(found_.kl_max, choice.divergence);
    if (is_other) {
      others_.push_back(std::move(choice));
    } else {
      sum_of_equal_ += choice.divergence;
      found_.kl_max_without_ties = std::fmax(found_.kl_max_without_ties, choice.divergence);
    }
  }

  /// How many choices there were decides which of them may be chance, so this comes last.
  void classify() {
    if (found_.positions > 0) found_.limit = limit_of_gaps(chances_);
    double sum = sum_of_equal_;
    for (TokenChoice& choice : others_) {
      choice.kind = kind_of(choice);
      if (choice.kind == ChoiceKind::NearTie) {
        ++found_.near_ties;
        found_.largest_near_tie = std::fmax(found_.largest_near_tie, choice.margin / choice.noise);
        continue;
      }
      ++(choice.kind == ChoiceKind::Chance ? found_.chances : found_.unexplained);
      sum += choice.divergence;
      found_.kl_max_without_ties = std::fmax(found_.kl_max_without_ties, choice.divergence);
    }
    const auto positions = static_cast<double>(found_.positions);
    if (positions > 0) found_.kl_mean = sum_ / positions;
    const double untied = positions - static_cast<double>(found_.near_ties);
    if (untied > 0) found_.kl_mean_without_ties = sum / untied;
    if (found_.first.step >= 0) found_.first.kind = kind_of(found_.first);
    list_choices();
  }

  void list_choices() {
    std::ranges::sort(others_, {}, [](const TokenChoice& choice) {
      return std::tuple(choice.step, choice.sequence, choice.position);
    });
    if (others_.size() > kListedChoices) others_.resize(kListedChoices);
    found_.choices = std::move(others_);
  }

  [[nodiscard]] ChoiceKind kind_of(const TokenChoice& choice) const {
    const double limit = std::isnan(found_.limit) ? limit_of_gaps(1) : found_.limit;
    if (!(choice.gap <= limit * choice.noise)) return ChoiceKind::Unexplained;
    return choice.margin <= kNearTie * choice.noise ? ChoiceKind::NearTie : ChoiceKind::Chance;
  }

  const Program& golden_;
  const Program& mine_;
  std::map<int64_t, std::optional<int64_t>> refused_;  // by step
  int64_t step_ = 0;
  TokenChoices found_;
  std::vector<TokenChoice> others_;
  double chances_ = 0;                 // tokens that any of the compared positions could choose
  double sum_ = 0, sum_of_equal_ = 0;  // of divergences
};

}  // namespace

double limit_of_gaps(double chances) {
  constexpr double kRuns = 1e5;
  return 2 * std::sqrt(std::log(kRuns * chances));
}

TokenChoices find_token_choices(const Program& golden, const Program& mine,
                                const std::optional<InputDifference>& inputs) {
  return TokenComparison(golden, mine, inputs).compare();
}

}  // namespace assay::locate

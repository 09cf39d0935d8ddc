// SPDX-License-Identifier: Apache-2.0
#include "locate/verdict/token_divergence.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "pair/places.hpp"
#include "pair/ranks.hpp"
#include "run/logits.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

constexpr int64_t kMaxSequences = int64_t{1} << 16;

/// 0 as well where nothing of them is known.
int known_logits(const run::Run& run, const TensorRecord& record) {
  return record.bytes || record.choices ? run::logits_rank(run, record) : 0;
}

/// The logits of every step of one rank: the surest record, of those the last call.
using Logits = std::map<int64_t, const TensorRecord*>;
Logits logits_of(const run::Run& run) {
  Logits logits;
  const int first = pair::first_rank(run);
  for (const TensorRecord& record : run.records) {
    const int rank = known_logits(run, record);
    if (rank == 0 || record.rank != first || record.step < 0) continue;
    const auto [found, is_new] = logits.try_emplace(record.step, &record);
    if (!is_new && rank >= known_logits(run, *found->second)) found->second = &record;
  }
  return logits;
}

size_t largest(const std::vector<double>& row) {
  return static_cast<size_t>(std::ranges::max_element(row) - row.begin());
}

/// Root of the mean square of mine - golden around its mean.
double spread_of_difference(const std::vector<double>& golden, const std::vector<double>& mine) {
  const auto count = static_cast<double>(golden.size());
  double mean = 0;
  for (size_t i = 0; i < golden.size(); ++i) mean += (mine[i] - golden[i]) / count;
  double square = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double difference = mine[i] - golden[i] - mean;
    square += difference * difference / count;
  }
  return std::sqrt(square);
}

std::optional<TokenDivergence> compare_rows(const std::vector<double>& golden,
                                            const std::vector<double>& mine) {
  const size_t g = largest(golden);
  const size_t m = largest(mine);
  if (g == m) return std::nullopt;
  double second = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < golden.size(); ++i)
    if (i != g) second = std::max(second, golden[i]);
  TokenDivergence found;
  found.golden_token = static_cast<int64_t>(g);
  found.mine_token = static_cast<int64_t>(m);
  found.margin = golden[g] - second;
  found.difference = std::max(std::abs(mine[g] - golden[g]), std::abs(mine[m] - golden[m]));
  found.near_tie = found.margin <= kNearTie * spread_of_difference(golden, mine);
  return found;
}

/// Golden's logits of some tokens, among them the largest ones: what is unknown is no larger than
/// the smallest of these.
std::optional<TokenDivergence> compare_choices(const std::vector<run::Choice>& golden,
                                               const std::vector<double>& mine) {
  const size_t m = largest(mine);
  const auto mine_of = [&](const run::Choice& one) { return mine[static_cast<size_t>(one.token)]; };
  if (golden.front().token == static_cast<int64_t>(m)) return std::nullopt;
  const auto known = std::ranges::find(golden, static_cast<int64_t>(m), &run::Choice::token);
  const double of_m = known == golden.end() ? golden.back().logit : known->logit;
  std::vector<double> theirs, ours;
  for (const run::Choice& one : golden) {
    theirs.push_back(one.logit);
    ours.push_back(mine_of(one));
  }
  TokenDivergence found;
  found.golden_token = golden.front().token;
  found.mine_token = static_cast<int64_t>(m);
  found.margin = golden[0].logit - golden[1].logit;
  found.difference =
      std::max(std::abs(mine_of(golden.front()) - golden.front().logit), std::abs(mine[m] - of_m));
  found.near_tie = found.margin <= kNearTie * spread_of_difference(theirs, ours);
  return found;
}

std::optional<TokenDivergence> compare_with_choices(const run::TopChoices& golden,
                                                    const TensorView& mine) {
  if (std::cmp_not_equal(golden.rows.size(), run::sequences_of(mine)) ||
      golden.vocabulary != mine.shape[mine.shape.size() - 1])
    return std::nullopt;
  for (size_t i = 0; i < golden.rows.size(); ++i) {
    std::optional<TokenDivergence> found =
        compare_choices(golden.rows[i], run::last_row(mine, static_cast<int64_t>(i)));
    if (found) return found;
  }
  return std::nullopt;
}

std::optional<TokenDivergence> compare_logits(const TensorRecord& golden,
                                              const TensorRecord& mine) {
  const Result<Tensor> m = run::load_tensor(mine);
  if (m && golden.choices) return compare_with_choices(*golden.choices, m->view);
  const Result<Tensor> g = run::load_tensor(golden);
  if (!g || !m) return std::nullopt;
  const int64_t sequences = run::sequences_of(g->view);
  if (sequences < 1 || sequences > kMaxSequences || sequences != run::sequences_of(m->view) ||
      g->view.shape[g->view.shape.size() - 1] != m->view.shape[m->view.shape.size() - 1])
    return std::nullopt;
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    std::optional<TokenDivergence> found =
        compare_rows(run::last_row(g->view, sequence), run::last_row(m->view, sequence));
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace

TokenDivergence find_token_divergence(const run::Run& golden, const run::Run& mine) {
  const Logits partners = logits_of(golden);
  for (const auto& [step, record] : logits_of(mine)) {
    const auto partner = partners.find(step);
    if (partner == partners.end()) continue;
    if (std::optional<TokenDivergence> found = compare_logits(*partner->second, *record)) {
      found->step = step;
      return *found;
    }
  }
  return {};
}

}  // namespace assay::locate

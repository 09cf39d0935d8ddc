// SPDX-License-Identifier: Apache-2.0
#include "locate/verdict/token_divergence.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "pair/places.hpp"
#include "pair/ranks.hpp"
#include "run/common_names.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxSequences = int64_t{1} << 16;

/// How surely a record holds logits: 2 the model's output of that name, 1 the output of its head, 0
/// no.
int logits_rank(const run::Run& run, const TensorRecord& record) {
  if (!pair::is_operand(record) || record.role != run::Role::Output || !record.bytes) return 0;
  const std::string path = run::module_path(run, record.node);
  if (path.empty()) return record.slot == "logits" ? 2 : 0;
  constexpr std::array<std::string_view, 4> kHeads = {"lm_head", "embed_out", "output_layer",
                                                      "lm_head_linear"};
  const std::string_view last = std::string_view(path).substr(
      path.find_last_of("./") == std::string::npos ? 0 : path.find_last_of("./") + 1);
  return std::ranges::find(kHeads, last) != kHeads.end() ? 1 : 0;
}

/// The logits of every step of one rank: the surest record, of those the last call.
using Logits = std::map<int64_t, const TensorRecord*>;
Logits logits_of(const run::Run& run) {
  Logits logits;
  const int first = pair::first_rank(run);
  for (const TensorRecord& record : run.records) {
    const int rank = logits_rank(run, record);
    if (rank == 0 || record.rank != first || record.step < 0) continue;
    const auto [found, is_new] = logits.try_emplace(record.step, &record);
    if (!is_new && rank >= logits_rank(run, *found->second)) found->second = &record;
  }
  return logits;
}

/// Values of the last position of one sequence, [vocabulary].
std::vector<double> last_row(const TensorView& view, int64_t sequence) {
  const auto rank = static_cast<int64_t>(view.shape.size());
  const int64_t vocabulary = view.shape[static_cast<size_t>(rank - 1)];
  const int64_t positions = rank >= 3 ? view.shape[static_cast<size_t>(rank - 2)] : 1;
  std::vector<double> row(static_cast<size_t>(vocabulary));
  read_values(view, ((sequence + 1) * positions - 1) * vocabulary, vocabulary, row);
  return row;
}

/// [batch, position, vocabulary] or [sequence, vocabulary].
int64_t sequences_of(const TensorView& view) {
  const size_t rank = view.shape.size();
  if (rank < 2 || !is_float(view.dtype) || values_per_element(view.dtype) != 1) return 0;
  const int64_t vocabulary = view.shape[rank - 1];
  const int64_t positions = rank >= 3 ? view.shape[rank - 2] : 1;
  if (vocabulary < 2 || vocabulary > kMaxVocabulary || positions < 1) return 0;
  return view.element_count() / (vocabulary * positions);
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

std::optional<TokenDivergence> compare_logits(const TensorRecord& golden,
                                              const TensorRecord& mine) {
  const Result<Tensor> g = run::load_tensor(golden);
  const Result<Tensor> m = run::load_tensor(mine);
  if (!g || !m) return std::nullopt;
  const int64_t sequences = sequences_of(g->view);
  if (sequences < 1 || sequences > kMaxSequences || sequences != sequences_of(m->view) ||
      g->view.shape[g->view.shape.size() - 1] != m->view.shape[m->view.shape.size() - 1])
    return std::nullopt;
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    std::optional<TokenDivergence> found =
        compare_rows(last_row(g->view, sequence), last_row(m->view, sequence));
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

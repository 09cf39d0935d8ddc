// SPDX-License-Identifier: Apache-2.0
// Logits are known by name: the model's output "logits", or what a head such as lm_head gives. The
// choices are the largest values at the last position of each sequence.
#include "run/logits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "run/common_names.hpp"
#include "tensor/convert.hpp"

namespace assay::run {
namespace {

constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMostSequences = 64;

/// The largest of a row, largest first; of equal ones the first. NaN is no choice.
std::vector<Choice> largest_of(const std::vector<double>& row) {
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int64_t token) { return std::isnan(row[static_cast<size_t>(token)]); });
  const size_t count = std::min(kTopChoices, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](int64_t a, int64_t b) {
                      const double left = row[static_cast<size_t>(a)];
                      const double right = row[static_cast<size_t>(b)];
                      return left != right ? left > right : a < b;
                    });
  std::vector<Choice> choices;
  for (size_t i = 0; i < count; ++i)
    choices.push_back({order[i], row[static_cast<size_t>(order[i])]});
  return choices;
}

}  // namespace

int logits_rank(const Run& run, const TensorRecord& record) {
  if (record.kind != RecordKind::Operand || record.role != Role::Output) return 0;
  const std::string path = module_path(run, record.node);
  if (path.empty()) return record.slot == "logits" ? 2 : 0;
  constexpr std::array<std::string_view, 4> kHeads = {"lm_head", "embed_out", "output_layer",
                                                      "lm_head_linear"};
  const size_t dot = path.find_last_of("./");
  const std::string_view last =
      std::string_view(path).substr(dot == std::string::npos ? 0 : dot + 1);
  return std::ranges::find(kHeads, last) != kHeads.end() ? 1 : 0;
}

int64_t sequences_of(const TensorView& logits) {
  const size_t rank = logits.shape.size();
  if (rank < 2 || !is_float(logits.dtype) || values_per_element(logits.dtype) != 1) return 0;
  const int64_t vocabulary = logits.shape[rank - 1];
  const int64_t positions = rank >= 3 ? logits.shape[rank - 2] : 1;
  if (vocabulary < 2 || vocabulary > kMaxVocabulary || positions < 1) return 0;
  return logits.element_count() / (vocabulary * positions);
}

std::vector<double> last_row(const TensorView& logits, int64_t sequence) {
  const size_t rank = logits.shape.size();
  const int64_t vocabulary = logits.shape[rank - 1];
  const int64_t positions = rank >= 3 ? logits.shape[rank - 2] : 1;
  std::vector<double> row(static_cast<size_t>(vocabulary));
  read_values(logits, ((sequence + 1) * positions - 1) * vocabulary, vocabulary, row);
  return row;
}

std::optional<TopChoices> top_choices(const TensorView& logits) {
  const int64_t sequences = sequences_of(logits);
  if (sequences < 1 || sequences > kMostSequences) return std::nullopt;
  TopChoices choices;
  choices.vocabulary = logits.shape[logits.shape.size() - 1];
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    choices.rows.push_back(largest_of(last_row(logits, sequence)));
    if (choices.rows.back().size() < 2) return std::nullopt;
  }
  return choices;
}

}  // namespace assay::run

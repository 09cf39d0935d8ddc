// SPDX-License-Identifier: Apache-2.0
// Choices are compared token by token, as sets and in their order. A token with another set ends
// what can be compared in its step, and all behind that router in later steps.
#include "locate/noise/expert_choices.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "run/load.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

/// More choices a token than this are no router's.
constexpr int64_t kMostChoices = 64;

int64_t width_of(const TensorRecord& choice) { return choice.shape->span().back(); }

bool have_same_statistics(const TensorRecord& golden, const TensorRecord& mine) {
  if (!golden.stats || !mine.stats || mine.stats->count == 0) return true;  // nothing is known
  return golden.stats->min == mine.stats->min && golden.stats->max == mine.stats->max &&
         golden.stats->mean == mine.stats->mean && golden.stats->l2_norm == mine.stats->l2_norm &&
         (!golden.stats->sketch || !mine.stats->sketch ||
          golden.stats->sketch == mine.stats->sketch);
}

/// How many of the elements of a value belong to its first `same` tokens, which are its leading
/// axes together: [tokens, ...], [1, tokens, ...], [batch, tokens / batch, ...].
std::optional<int64_t> elements_of(const Dims& shape, int64_t tokens, int64_t same) {
  if (std::ranges::count(shape.span(), tokens) > 1) return std::nullopt;  // heads, keys
  int64_t count = 1;
  for (const int64_t size : shape.span()) count *= size;
  int64_t leading = 1;
  for (const int64_t size : shape.span()) {
    leading *= size;
    if (leading == tokens) return same * (count / tokens);
  }
  return std::nullopt;
}

/// Where two lists of choices first differ.
struct FirstOther {
  int64_t tokens = 0;
  int64_t set = 0;    // first token with other numbers; as many as there are tokens when none has
  int64_t order = 0;  // first token with another order of numbers
};

FirstOther compare_rows(const TensorView& golden, const TensorView& mine, int64_t width) {
  const auto row_width = static_cast<size_t>(width);
  std::vector<double> g(row_width);
  std::vector<double> m(row_width);
  const int64_t tokens = mine.element_count() / width;
  FirstOther first{.tokens = tokens, .set = tokens, .order = tokens};
  for (int64_t token = 0; token < tokens; ++token) {
    read_values(golden, token * width, width, g);
    read_values(mine, token * width, width, m);
    if (g == m) continue;
    first.order = std::min(first.order, token);
    std::ranges::sort(g);
    std::ranges::sort(m);
    if (g == m) continue;
    first.set = token;
    break;
  }
  return first;
}

/// Nothing when they cannot be compared: unreadable values are named where they are judged.
std::optional<FirstOther> compare(const TensorRecord& golden, const TensorRecord& mine) {
  if (golden.shape != mine.shape) return std::nullopt;
  if (!mine.bytes || !golden.bytes) {
    const int64_t tokens = mine.shape->span().front();
    const int64_t same = have_same_statistics(golden, mine) ? tokens : 0;
    return FirstOther{.tokens = tokens, .set = same, .order = same};
  }
  const Result<Tensor> g = run::load_tensor(golden);
  const Result<Tensor> m = run::load_tensor(mine);
  if (!g || !m || !is_integer(g->view.dtype)) return std::nullopt;
  return compare_rows(g->view, m->view, width_of(mine));
}

std::string parent_of(const std::string& path) {
  const size_t end = path.rfind('.');
  return end == std::string::npos ? "" : path.substr(0, end);
}

}  // namespace

bool ExpertChoices::is_choice(const TensorRecord& record) {
  return record.role == Role::Output && !record.node.empty() && record.dtype &&
         is_integer(*record.dtype) && record.shape && record.shape->size() >= 2 &&
         record.shape->span().back() >= 1 && record.shape->span().back() <= kMostChoices;
}

ExpertChoices::StepChoices& ExpertChoices::step_of(const TensorRecord& mine) {
  StepChoices& step = ranks_[mine.rank];
  if (mine.step != step.step) {
    step.other.merge(step.now);
    step.now.clear();
    step.step = mine.step;
    step.tokens = 0;
    step.same = kAll;
    step.reordered = {};
  }
  if (step.other.contains(mine.node)) step.same = 0;
  return step;
}

void ExpertChoices::see_ahead(const TensorRecord& golden, const TensorRecord& mine) {
  const std::optional<FirstOther> first = compare(golden, mine);
  StepChoices& step = step_of(mine);
  if (!first || first->order == first->tokens) return;
  step.reordered = {.module = parent_of(mine.node),
                    .tokens = first->tokens,
                    .same = first->order,
                    .width = width_of(mine)};
}

void ExpertChoices::see(const TensorRecord& golden, const TensorRecord& mine) {
  StepChoices& step = step_of(mine);
  if (!is_choice(mine)) return;
  const std::optional<FirstOther> first = compare(golden, mine);
  if (!first || first->set == first->tokens) return;
  step.tokens = first->tokens;
  step.same = std::min(step.same, first->set);
  step.now.insert(mine.node);
}

int64_t ExpertChoices::comparable_elements(const TensorRecord& mine) const {
  const auto rank = ranks_.find(mine.rank);
  if (rank == ranks_.end() || rank->second.step != mine.step) return kAll;
  const StepChoices& step = rank->second;
  int64_t elements = kAll;
  const Reordered& reordered = step.reordered;
  if (!reordered.module.empty() && mine.node.starts_with(reordered.module + ".") && mine.shape) {
    const std::optional<int64_t> same = elements_of(*mine.shape, reordered.tokens, reordered.same);
    const bool is_per_choice = !mine.shape->empty() && mine.shape->span().back() == reordered.width;
    if (!same) elements = 0;
    if (same && is_per_choice) elements = *same;
  }
  if (step.same == kAll) return elements;
  if (step.same == 0 || !mine.shape) return 0;
  return std::min(elements, elements_of(*mine.shape, step.tokens, step.same).value_or(0));
}

}  // namespace assay::locate

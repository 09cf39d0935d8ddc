// SPDX-License-Identifier: Apache-2.0
// The first half finds, row by row, scores so near each other that rounding may exchange them. The
// second half turns these rows into tokens of another tensor, and takes for each token the choice
// that is nearer to the run under test.
#include "locate/replay/close_choices.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "locate/noise/kernel_rounding.hpp"

namespace assay::locate {
namespace {

using reference::aten::Call;

template <typename T>
T value_or(const Call& call, std::string_view name, T fallback) {
  const T* value = argument_of<T>(call.arguments, name);
  return value == nullptr ? fallback : *value;
}

bool takes_smallest(const Call& call) {
  return !value_or(call, "largest", true) || base_name(call.name).ends_with("min");
}

/// How many of `length` scores a call takes; a sort takes all.
int64_t taken_of(const Call& call, int64_t length) {
  const std::string_view base = base_name(call.name);
  if (base == "topk") return std::min(length, value_or<int64_t>(call, "k", 1));
  return base == "argmax" || base == "argmin" || base == "max" || base == "min" ? 1 : length;
}

/// Fills last, runner_up, order_open and rows for one row. Its scores, noise and share are there.
void settle_row(size_t row, Choice* choice) {
  const double* scores = choice->scores.data() + row * static_cast<size_t>(choice->length);
  std::vector<int64_t> order(static_cast<size_t>(choice->length));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  // The two behind the last one taken decide whether only the first of them can take its place.
  const int64_t sorted = std::min(choice->length, choice->taken + 2);
  std::partial_sort(order.begin(), order.begin() + sorted, order.end(),
                    [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  const auto is_close = [&](int64_t first, int64_t second) {
    return second < sorted &&
           choice->may_change_places(row, scores[order[static_cast<size_t>(first)]],
                                     scores[order[static_cast<size_t>(second)]]);
  };
  const int64_t last = choice->taken - 1;
  for (int64_t i = 0; i < last; ++i) {
    if (is_close(i, i + 1)) choice->order_open[row] = true;
  }
  if (last >= 0) choice->last[row] = order[static_cast<size_t>(last)];
  if (choice->taken < choice->length)
    choice->runner_up[row] = order[static_cast<size_t>(choice->taken)];
  if (last < 0 || !is_close(last, last + 1)) return;
  const bool others = is_close(last, last + 2) || (last > 0 && is_close(last - 1, last + 1));
  choice->rows[row] = others || !choice->last_axis ? Choice::Row::Open : Choice::Row::Swap;
}

/// Products of the leading axes, the last axis left out: how many rows a tensor may be cut into.
std::vector<int64_t> leading_counts(const Dims& shape) {
  std::vector<int64_t> counts{1};
  for (size_t i = 0; i + 1 < shape.size(); ++i) counts.push_back(counts.back() * shape[i]);
  return counts;
}

/// Scores at the places of a row; nothing when a place is outside or comes twice.
std::optional<std::vector<double>> scores_of_row(std::span<const double> scores,
                                                 std::span<const int64_t> places) {
  std::vector<double> taken;
  std::vector<bool> seen(scores.size(), false);
  for (const int64_t place : places) {
    if (place < 0 || static_cast<size_t>(place) >= scores.size() ||
        seen[static_cast<size_t>(place)])
      return std::nullopt;
    seen[static_cast<size_t>(place)] = true;
    taken.push_back(scores[static_cast<size_t>(place)]);
  }
  return taken;
}

/// An axis of that size, behind the leading ones that are the tokens.
bool has_axis_behind(const Dims& shape, int64_t tokens, int64_t size) {
  int64_t leading = 1;
  for (const int64_t axis : shape.span()) {
    if (leading == tokens && axis == size) return true;
    if (leading < tokens) leading *= axis;
  }
  return false;
}

using Tokens = std::vector<Choice::Row>;

/// Sum of squares of the difference in one token.
template <typename T>
double distance(const reference::Array<T>& a, const reference::Array<T>& b, size_t token,
                size_t each) {
  double sum = 0;
  for (size_t i = token * each; i < (token + 1) * each; ++i) {
    const double difference = static_cast<double>(a.values[i]) - static_cast<double>(b.values[i]);
    sum += difference * difference;
  }
  return sum;
}

/// Rows of `first` or, where `second_is_nearer`, of `second`; without those that are not kept.
template <typename T>
Tensor rows_of(const reference::Array<T>& first, const reference::Array<T>& second,
               const std::vector<bool>& second_is_nearer, const std::vector<bool>& kept) {
  const size_t each = first.values.size() / kept.size();
  reference::Array<T> rows(Dims{std::ranges::count(kept, true), static_cast<int64_t>(each)});
  auto to = rows.values.begin();
  for (size_t token = 0; token < kept.size(); ++token) {
    if (!kept[token]) continue;
    const reference::Array<T>& from = second_is_nearer[token] ? second : first;
    to = std::copy_n(from.values.begin() + static_cast<std::ptrdiff_t>(token * each), each, to);
  }
  return reference::to_tensor(std::move(rows));
}

template <typename Read>
Result<Compared> compare_tokens(const Tensor& mine, const Replica& taken, const Replica& other,
                                const Tokens& tokens, bool with_open, const Read& read) {
  ASSAY_TRY(const auto value, read(mine.view));
  ASSAY_TRY(const auto reference, read(taken.reference.view));
  ASSAY_TRY(const auto other_reference, read(other.reference.view));
  ASSAY_TRY(const auto simulated, read(taken.simulated.view));
  ASSAY_TRY(const auto other_simulated, read(other.simulated.view));
  const size_t each = value.values.size() / tokens.size();
  std::vector<bool> nearer(tokens.size(), false);
  std::vector<bool> kept(tokens.size(), true);
  for (size_t i = 0; i < tokens.size(); ++i) {
    kept[i] = with_open || tokens[i] != Choice::Row::Open;
    nearer[i] = tokens[i] != Choice::Row::Settled &&
                distance(value, other_reference, i, each) < distance(value, reference, i, each);
  }
  return Compared{rows_of(value, value, nearer, kept),
                  {rows_of(reference, other_reference, nearer, kept),
                   rows_of(simulated, other_simulated, nearer, kept)}};
}

}  // namespace

Result<std::optional<Choice>> close_choice(const Call& call, const TensorView& exact,
                                           const TensorView& simulated, const TensorView& places) {
  if (!is_float(exact.dtype) || exact.shape.empty() || !(exact.shape == simulated.shape))
    return std::optional<Choice>();
  ASSAY_TRY(const size_t axis, reference::axis_of(dim_of(call), exact.shape.size()));
  ASSAY_TRY(const reference::Wide a, reference::widen(exact));
  ASSAY_TRY(const reference::Wide b, reference::widen(simulated));
  Choice choice;
  choice.shape = exact.shape;
  choice.length = exact.shape[axis];
  choice.taken = taken_of(call, choice.length);
  choice.last_axis = axis + 1 == exact.shape.size();
  choice.ordered = !is_set(call);
  int64_t inner = 1;
  for (size_t i = axis + 1; i < exact.shape.size(); ++i) inner *= exact.shape[i];
  if (a.values.empty()) return std::optional<Choice>();
  const auto rows = static_cast<size_t>(a.size() / choice.length);
  choice.rows.assign(rows, Choice::Row::Settled);
  choice.order_open.assign(rows, false);
  choice.noise.assign(rows, 0);
  choice.share.assign(rows, 0);
  choice.runner_up.assign(rows, -1);
  choice.last.assign(rows, -1);
  choice.scores.resize(a.values.size());
  const double sign = takes_smallest(call) ? -1 : 1;
  for (size_t row = 0; row < rows; ++row) {
    const auto number = static_cast<int64_t>(row);
    const int64_t first = number / inner * inner * choice.length + number % inner;
    for (int64_t i = 0; i < choice.length; ++i) {
      const auto at = static_cast<size_t>(first + i * inner);
      const double difference = std::abs(a.values[at] - b.values[at]);
      if (2 * difference > choice.noise[row]) choice.noise[row] = 2 * difference;
      if (difference > 0)
        choice.share[row] = std::max(choice.share[row], difference / std::abs(a.values[at]));
      choice.scores[row * static_cast<size_t>(choice.length) + static_cast<size_t>(i)] =
          sign * a.values[at];
    }
  }
  // The few scores of one row may all be off by little by chance; the middle row is a floor for it.
  std::vector<double> shares = choice.share;
  const auto middle = shares.begin() + static_cast<std::ptrdiff_t>(rows / 2);
  std::ranges::nth_element(shares, middle);
  for (size_t row = 0; row < rows; ++row) {
    choice.share[row] = std::max(2 * choice.share[row], 3 * *middle);
    settle_row(row, &choice);
  }
  if (std::ranges::count(choice.rows, Choice::Row::Settled) == choice.row_count() &&
      std::ranges::none_of(choice.order_open, std::identity()))
    return std::optional<Choice>();
  ASSAY_TRY(choice.places, reference::whole(places));
  return choice;
}

Tensor with_runners_up(const Choice& choice) {
  reference::Whole places = choice.places;
  const size_t each = choice.rows.empty() ? 0 : places.values.size() / choice.rows.size();
  for (size_t row = 0; row < choice.rows.size(); ++row) {
    if (choice.rows[row] != Choice::Row::Swap) continue;
    const auto first = places.values.begin() + static_cast<std::ptrdiff_t>(row * each);
    std::replace(first, first + static_cast<std::ptrdiff_t>(each), choice.last[row],
                 choice.runner_up[row]);
  }
  return reference::to_tensor(std::move(places));
}

int64_t dim_of(const Call& call) { return value_or<int64_t>(call, "dim", -1); }

bool is_set(const Call& call) {
  return base_name(call.name) == "topk" && !value_or(call, "sorted", true);
}

Result<std::pair<Tensor, bool>> in_order_of(const TensorView& places, const TensorView& mine) {
  ASSAY_TRY(reference::Whole ordered, reference::whole(places));
  ASSAY_TRY(const reference::Whole other, reference::whole(mine));
  const auto each = static_cast<size_t>(places.shape[places.shape.size() - 1]);
  bool all = true;
  for (size_t first = 0; each > 0 && first < ordered.values.size(); first += each) {
    const std::span row = std::span(ordered.values).subspan(first, each);
    const std::span theirs = std::span(other.values).subspan(first, each);
    const bool same = std::ranges::is_permutation(row, theirs);
    if (same) std::ranges::copy(theirs, row.begin());
    all = all && same;
  }
  return std::pair(reference::to_tensor(std::move(ordered)), all);
}

Result<Tensor> scores_at(const TensorView& scores, const TensorView& places) {
  ASSAY_TRY(const reference::Wide from, reference::widen(scores));
  ASSAY_TRY(const reference::Whole at, reference::whole(places));
  reference::Wide taken(places.shape);
  const int64_t length = scores.shape.empty() ? 1 : scores.shape[scores.shape.size() - 1];
  const int64_t rows = length == 0 ? 0 : from.size() / length;
  const int64_t each = rows == 0 ? 0 : at.size() / rows;
  for (int64_t i = 0; i < taken.size(); ++i)
    taken.data()[i] = from.data()[i / each * length + at.data()[i]];
  return reference::to_tensor(std::move(taken));
}

bool could_be_taken(const Choice& choice, const TensorView& mine) {
  const Result<reference::Whole> places = reference::whole(mine);
  if (!places || places->values.size() != choice.places.values.size()) return false;
  const size_t each = choice.rows.empty() ? 0 : places->values.size() / choice.rows.size();
  const auto length = static_cast<size_t>(choice.length);
  for (size_t row = 0; row < choice.rows.size(); ++row) {
    const std::span<const double> scores(choice.scores.data() + row * length, length);
    auto taken = scores_of_row(scores, std::span(places->values).subspan(row * each, each));
    auto right = scores_of_row(scores, std::span(choice.places.values).subspan(row * each, each));
    if (!taken || !right) return false;
    if (!choice.ordered) {
      std::ranges::sort(*taken);
      std::ranges::sort(*right);
    }
    for (size_t i = 0; i < each; ++i) {
      const double a = (*taken)[i], b = (*right)[i];
      if (a != b && !choice.may_change_places(row, a, b)) return false;
    }
  }
  return true;
}

std::optional<std::vector<Choice::Row>> tokens_of(const std::vector<Choice>& choices,
                                                  const Dims& shape) {
  if (!std::ranges::all_of(choices, &Choice::last_axis)) return std::nullopt;
  // The most rows that all of them are made for.
  std::vector<int64_t> common = leading_counts(shape);
  for (const Choice& choice : choices) {
    const std::vector<int64_t> counts = leading_counts(choice.shape);
    std::erase_if(common, [&](int64_t count) {
      return std::ranges::find(counts, count) == counts.end() || choice.row_count() % count != 0;
    });
  }
  const int64_t tokens = common.empty() ? 0 : std::ranges::max(common);
  const auto is_one_row = [](const Choice& choice) { return choice.row_count() == 1; };
  if (tokens == 0 || (tokens == 1 && !std::ranges::all_of(choices, is_one_row)))
    return std::nullopt;
  std::vector<Choice::Row> rows(static_cast<size_t>(tokens), Choice::Row::Settled);
  for (const Choice& choice : choices) {
    const int64_t each = choice.row_count() / tokens;
    const bool by_place = has_axis_behind(shape, tokens, choice.taken);
    for (int64_t i = 0; i < choice.row_count(); ++i) {
      const auto row = static_cast<size_t>(i);
      Choice::Row& token = rows[static_cast<size_t>(i / each)];
      token = std::max(token,
                       by_place && choice.order_open[row] ? Choice::Row::Open : choice.rows[row]);
    }
  }
  return rows;
}

Result<Compared> compared_tokens(const Tensor& mine, const Replica& taken, const Replica& other,
                                 const Tokens& tokens, bool with_open) {
  if (is_float(mine.view.dtype))
    return compare_tokens(mine, taken, other, tokens, with_open, reference::widen);
  return compare_tokens(mine, taken, other, tokens, with_open, reference::whole);
}

}  // namespace assay::locate

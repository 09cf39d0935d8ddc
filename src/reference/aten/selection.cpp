// SPDX-License-Identifier: Apache-2.0
// Sorting, places of values, distinct values. Then, where torch leaves the order of results open,
// which captured ones are right: those whose places select the same values.
#include "reference/aten/selection.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/aten/reductions_rows.hpp"
#include "reference/aten/row_order.hpp"
#include "reference/ggml/operators.hpp"
#include "reference/selection/indexing.hpp"

namespace assay::reference::aten {
namespace {

template <typename T>
bool is_same(T a, T b) {
  return a == b || (is_nan(a) && is_nan(b));
}

/// The first `count` of each row in order, with their places.
Result<Values> sorted_rows(const Arguments& arguments, const Tensor& self, int64_t dim,
                           bool descending, std::optional<int64_t> count) {
  ASSAY_TRY(const size_t at, axis(arguments, dim, self.view.shape.size()));
  ASSAY_TRY(const Rows rows, rows_along(arguments, self, dim, true));
  const int64_t k = count.value_or(rows.length);
  if (k < 0 || k > rows.length) return fail(arguments.invalid(k, " of ", rows.length, " values"));
  Dims shape = rows.view.shape;
  if (!shape.empty()) shape[shape.size() - 1] = k;
  Whole indices(shape);
  ASSAY_TRY(const Tensor values, with_values(self.view.dtype, [&]<typename T>(T) -> Result<Tensor> {
              Array<T> sorted(shape);
              std::vector<Placed<T>> room;
              ASSAY_TRY_STATUS(for_each_row<T>(rows, [&](int64_t row, std::span<T> from) {
                int64_t next = row * k;
                for (const auto& [value, place] :
                     first_in_order<T>(from, static_cast<size_t>(k), descending, &room)) {
                  sorted.data()[next] = value;
                  indices.data()[next++] = place;
                }
              }));
              return to_tensor(std::move(sorted));
            }));
  ASSAY_TRY(const Tensor typed, like(values, self.view.dtype));
  return Values{rows_back(typed, rows, at, k),
                rows_back(to_tensor(std::move(indices)), rows, at, k)};
}

Result<Values> evaluate_sort(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim", -1));
  ASSAY_TRY(const bool descending, arguments.truth("descending", false));
  return sorted_rows(arguments, self, dim, descending, std::nullopt);
}
Result<Values> evaluate_argsort(const Arguments& arguments, const EvaluateOptions& options) {
  ASSAY_TRY(Values both, evaluate_sort(arguments, options));
  return single(std::move(both[1]));
}
Result<Values> evaluate_msort(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(Values both, sorted_rows(arguments, self, 0, false, std::nullopt));
  return single(std::move(both[0]));
}
Result<Values> evaluate_topk(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t k, arguments.integer("k"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim", -1));
  ASSAY_TRY(const bool largest, arguments.truth("largest", true));
  return sorted_rows(arguments, self, dim, largest, k);
}

// ---- Places of what is not zero ----------------------------------------------------------------

Result<Values> evaluate_nonzero(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(Whole places, coordinates(self.view));
  return single(to_tensor(std::move(places)));
}

/// The places of nonzero(), cut or filled to a number of rows.
Result<Values> evaluate_nonzero_static(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Whole places, coordinates(self.view));
  ASSAY_TRY(const int64_t size, arguments.integer("size"));
  ASSAY_TRY(const int64_t fill, arguments.integer("fill_value", -1));
  const int64_t rank = places.shape[1];
  if (size < 0) return fail(arguments.invalid("a negative size"));
  if (size > kMaxMade) return fail(Errc::TooLarge, arguments.invalid("too large").message);
  Whole result(Dims{size, rank}, fill);
  std::copy_n(places.values.begin(), std::min(places.size(), result.size()), result.values.begin());
  return single(to_tensor(std::move(result)));
}

// ---- Places in sorted values -------------------------------------------------------------------

/// Where each value would be put in; `right`: behind equal ones.
struct Search {
  Tensor sorted;  // [n], or [..., n] with the leading sizes of `values`
  Tensor values;
  std::optional<Tensor> sorter;  // the order in which `sorted` ascends, of its shape
  bool right = false;
};

Result<Values> search(const Arguments& arguments, const Search& given) {
  const Dims& lines = given.sorted.view.shape;
  const Dims& shape = given.values.view.shape;
  if (lines.empty()) return fail(arguments.invalid("nothing to search in"));
  const int64_t n = lines[lines.size() - 1];
  const bool one_line = lines.size() == 1;
  if (!one_line &&
      (shape.size() != lines.size() || !std::equal(lines.begin(), lines.end() - 1, shape.begin())))
    return fail(arguments.invalid("shapes ", lines, " and ", shape, " do not fit"));
  const bool integers = is_whole(given.sorted.view.dtype) && is_whole(given.values.view.dtype);
  std::vector<int64_t> order;
  if (given.sorter) {
    ASSAY_TRY(const Whole sorter, whole(given.sorter->view));
    order.assign(sorter.values.begin(), sorter.values.end());
    const bool fits =
        given.sorter->view.shape == lines &&
        std::all_of(order.begin(), order.end(), [n](int64_t i) { return i >= 0 && i < n; });
    if (!fits) return fail(arguments.invalid("sorter does not fit"));
  }
  const auto places = [&](const auto& sorted, const auto& values) -> Result<Whole> {
    if (!sorted) return fail(sorted.error());
    if (!values) return fail(values.error());
    Whole result(shape);
    const int64_t per_line = one_line || shape.empty() ? result.size() : shape[shape.size() - 1];
    for (int64_t i = 0; i < result.size(); ++i) {
      const int64_t first = one_line ? 0 : i / per_line * n;
      const auto value = values->data()[i];
      int64_t low = 0, high = n;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int64_t at = order.empty() ? middle : order[static_cast<size_t>(first + middle)];
        const auto one = sorted->data()[first + at];
        // torch's comparisons: with a NaN on either side the search goes on behind it.
        const bool before = given.right ? !(one > value) : !(one >= value);
        (before ? low : high) = before ? middle + 1 : middle;
      }
      result.data()[i] = low;
    }
    return result;
  };
  ASSAY_TRY(Whole result, integers ? places(whole(given.sorted.view), whole(given.values.view))
                                   : places(widen(given.sorted.view), widen(given.values.view)));
  return single(to_tensor(std::move(result)));
}

Result<bool> goes_right(const Arguments& arguments) {
  ASSAY_TRY(const bool right, arguments.truth("right", false));
  ASSAY_TRY(const std::string side, arguments.text("side", right ? "right" : "left"));
  return side == "right";
}
Result<Values> evaluate_searchsorted(const Arguments& arguments, const EvaluateOptions&) {
  Search given;
  ASSAY_TRY(given.sorted, arguments.tensor("sorted_sequence"));
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  given.values = self.tensor;
  ASSAY_TRY(given.sorter, arguments.optional_tensor("sorter"));
  ASSAY_TRY(given.right, goes_right(arguments));
  return search(arguments, given);
}
Result<Values> evaluate_bucketize(const Arguments& arguments, const EvaluateOptions&) {
  Search given;
  ASSAY_TRY(given.sorted, arguments.tensor("boundaries"));
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  given.values = self.tensor;
  ASSAY_TRY(given.right, goes_right(arguments));
  return search(arguments, given);
}

// ---- Different values --------------------------------------------------------------------------

/// One of each value, in the order given by `order`; where each went; how many there are of it.
template <typename T>
Values distinct(const Array<T>& values, const std::vector<int64_t>& order, bool inverse,
                bool counts) {
  Array<T> found;
  Whole to(inverse ? values.shape : Dims{0});
  Whole times;
  for (const int64_t place : order) {
    const T value = values.data()[place];
    if (found.values.empty() || !(found.values.back() == value)) {  // NaN differs from itself
      found.values.push_back(value);
      times.values.push_back(0);
    }
    ++times.values.back();
    if (inverse) to.data()[place] = static_cast<int64_t>(found.values.size()) - 1;
  }
  found.shape = {static_cast<int64_t>(found.values.size())};
  if (!counts) times.values.clear();
  times.shape = {static_cast<int64_t>(times.values.size())};
  return {to_tensor(std::move(found)), to_tensor(std::move(to)), to_tensor(std::move(times))};
}

Result<Values> unique_values(const Arguments& arguments, bool sorted) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  if (arguments.has("dim")) return fail(arguments.unsupported("of slices along a dimension"));
  ASSAY_TRY(const bool inverse, arguments.truth("return_inverse", false));
  ASSAY_TRY(const bool counts, arguments.truth("return_counts", false));
  const auto results = [&](const auto& values) -> Result<Values> {
    if (!values) return fail(values.error());
    std::vector<int64_t> order(values->values.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    if (sorted)
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return is_less(values->data()[a], values->data()[b]);
      });
    return distinct(*values, order, inverse, counts);
  };
  ASSAY_TRY(Values found,
            is_whole(self.view.dtype) ? results(whole(self.view)) : results(widen(self.view)));
  ASSAY_TRY(found[0], like(found[0], self.view.dtype));
  return found;
}
Result<Values> evaluate_unique(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Values found, unique_values(arguments, true));
  found.pop_back();
  return found;
}
// ---- Answers in another order ------------------------------------------------------------------

/// Overloads with places of values: which outputs are what, and what counts as the same answer.
struct OpenOrder {
  std::string_view operation;  // "topk"
  bool values_first;           // outputs are values and places; otherwise places alone
  bool each_once;              // a row must not have a place twice
};
constexpr OpenOrder kOpenOrders[] = {
    {"argmax", false, false}, {"argmin", false, false},   {"argsort", false, true},
    {"cummax", true, false},  {"cummin", true, false},    {"kthvalue", true, false},
    {"max", true, false},     {"median", true, false},    {"min", true, false},
    {"mode", true, false},    {"nanmedian", true, false}, {"sort", true, true},
    {"topk", true, true},
};

const OpenOrder* open_order_of(std::string_view name) {
  if (!name.starts_with("aten.")) return nullptr;
  std::string_view rest = name.substr(5);
  const std::string_view operation = rest.substr(0, rest.find('.'));
  const std::string_view overload = rest.substr(std::min(rest.size(), operation.size() + 1));
  // max, min and median of everything, and of two tensors, have no places.
  const bool needs_dim =
      operation == "max" || operation == "min" || operation == "median" || operation == "nanmedian";
  if (needs_dim && !overload.starts_with("dim")) return nullptr;
  const auto* found =
      std::find_if(std::begin(kOpenOrders), std::end(kOpenOrders),
                   [&](const OpenOrder& one) { return one.operation == operation; });
  return found == std::end(kOpenOrders) ? nullptr : found;
}

/// The rows of self that the places of the call refer to.
Result<Rows> selected_from(const Arguments& arguments, const Tensor& self) {
  const std::string_view name = arguments.call().name;
  const bool last_by_default = name.starts_with("aten.topk.") || name.starts_with("aten.sort.") ||
                               name.starts_with("aten.argsort.") ||
                               name.starts_with("aten.kthvalue.") || name.starts_with("aten.mode.");
  if (!arguments.has("dim") && !last_by_default)
    return rows_along(arguments, self, std::nullopt, true);
  ASSAY_TRY(const int64_t dim, arguments.integer("dim", -1));
  return rows_along(arguments, self, dim, true);
}

/// An output as rows that belong to those of `selected`, one after the other.
Result<Wide> row_results(const Arguments& arguments, const Tensor& tensor, const Rows& selected) {
  // Where the output still has the dimension, it moves to the end; where it does not, each row has
  // one result.
  const size_t rank = selected.view.shape.size();
  if (tensor.view.shape.size() == rank && rank != 0 && arguments.has("dim")) {
    ASSAY_TRY(const int64_t dim, arguments.integer("dim", -1));
    ASSAY_TRY(const Rows rows, rows_along(arguments, tensor, dim, true));
    return widen(rows.view);
  }
  return widen(tensor.view);
}

/// Values that the places select, row by row; nothing when a place is outside or comes twice where
/// it must not.
std::optional<std::vector<double>> select(const Wide& from, const Rows& rows, const Wide& places,
                                          int64_t per_row, bool each_once) {
  std::vector<double> values;
  values.reserve(places.values.size());
  std::vector<bool> seen(static_cast<size_t>(rows.length));
  for (int64_t row = 0; row < rows.count; ++row) {
    std::fill(seen.begin(), seen.end(), false);
    for (int64_t i = 0; i < per_row; ++i) {
      const double place = places.data()[row * per_row + i];
      if (!(place >= 0 && place < static_cast<double>(rows.length))) return std::nullopt;
      const auto at = static_cast<size_t>(place);
      if (each_once && seen[at]) return std::nullopt;
      seen[at] = true;
      values.push_back(from.data()[row * rows.length + static_cast<int64_t>(at)]);
    }
  }
  return values;
}

bool same_rows(std::vector<double> a, std::vector<double> b, int64_t per_row, bool any_order) {
  if (a.size() != b.size()) return false;
  if (any_order && per_row > 0) {
    const auto step = static_cast<std::ptrdiff_t>(per_row);
    for (auto* values : {&a, &b})
      for (auto first = values->begin(); first != values->end(); first += step)
        std::sort(first, first + step, is_less<double>);
  }
  return std::equal(a.begin(), a.end(), b.begin(), is_same<double>);
}

}  // namespace

bool has_open_order(std::string_view name) {
  return open_order_of(name) != nullptr || ggml::has_open_order(name);
}

Result<bool> indices_select_same_values(const Call& call, const std::vector<Tensor>& outputs,
                                        size_t output, const TensorView& mine) {
  const Arguments arguments(call);
  if (const std::optional<ggml::Selection> same = ggml::selection_of(call)) {
    ASSAY_TRY(const std::vector<Tensor> results, evaluate(same->call));
    return indices_select_same_values(same->call, results, same->places, mine);
  }
  const OpenOrder* kind = open_order_of(call.name);
  if (kind == nullptr) return fail(arguments.unsupported("its results are in one order"));
  const bool has_values = kind->values_first && outputs.size() == 2;
  if (output >= outputs.size()) return fail(arguments.invalid("no such output"));
  if (mine.shape != outputs[output].view.shape) return false;
  const bool is_places = !has_values || output == 1;
  if (is_places && !is_integer(mine.dtype)) return false;
  ASSAY_TRY(const bool in_order, arguments.truth("sorted", true));
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Rows rows, selected_from(arguments, self));
  ASSAY_TRY(const Wide reference, row_results(arguments, outputs[output], rows));
  ASSAY_TRY(const Wide captured, row_results(arguments, Tensor{mine, nullptr}, rows));
  const int64_t per_row = rows.count == 0 ? 0 : captured.size() / rows.count;
  if (!is_places)
    return same_rows({reference.values.begin(), reference.values.end()},
                     {captured.values.begin(), captured.values.end()}, per_row, !in_order);
  ASSAY_TRY(const Wide from, widen(rows.view));
  const auto expected = select(from, rows, reference, per_row, false);
  const auto selected = select(from, rows, captured, per_row, kind->each_once);
  return expected && selected && same_rows(*expected, *selected, per_row, !in_order);
}

std::span<const Overloads> selection_overloads() {
  constexpr auto kMove = OperatorClass::Move;
  constexpr auto kInteger = OperatorClass::Integer;
  static constexpr Overloads kTable[] = {
      {"_unique.default _unique.out", kMove, evaluate_unique},
      {"_unique2.default _unique2.out", kMove, fixed<unique_values, true>},
      {"argsort.default argsort.stable", kInteger, evaluate_argsort},
      {"bucketize.Scalar bucketize.Tensor", kInteger, evaluate_bucketize},
      {"msort.default", kMove, evaluate_msort},
      {"nonzero.default", kInteger, evaluate_nonzero},
      {"nonzero_static.default", kInteger, evaluate_nonzero_static},
      {"searchsorted.Scalar searchsorted.Tensor", kInteger, evaluate_searchsorted},
      {"sort.default sort.stable sort.values sort.values_stable", kMove, evaluate_sort},
      {"topk.default topk.values", kMove, evaluate_topk},
      {"unique_consecutive.default unique_consecutive.out", kMove, fixed<unique_values, false>},
  };
  return kTable;
}

}  // namespace assay::reference::aten

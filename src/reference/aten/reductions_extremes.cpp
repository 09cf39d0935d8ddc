// SPDX-License-Identifier: Apache-2.0
#include "reference/aten/reductions_extremes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/aten/reductions_rows.hpp"
#include "reference/aten/row_order.hpp"
#include "reference/movement/views.hpp"

namespace assay::reference::aten {
namespace {

Error nothing_to_choose(const Arguments& arguments) {
  return arguments.invalid("no values to choose from");
}

// Places of rows; precondition: the row is not empty.
template <typename T>
size_t place_of_largest(std::span<T> values) {
  size_t best = 0;
  for (size_t i = 1; i < values.size() && !is_nan(values[best]); ++i)
    if (is_nan(values[i]) || values[i] > values[best]) best = i;
  return best;
}
template <typename T>
size_t place_of_smallest(std::span<T> values) {
  size_t best = 0;
  for (size_t i = 1; i < values.size() && !is_nan(values[best]); ++i)
    if (is_nan(values[i]) || values[i] < values[best]) best = i;
  return best;
}

/// Places of a row in torch's order.
template <typename T>
std::vector<size_t> sorted_places(std::span<T> values) {
  std::vector<size_t> places(values.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::stable_sort(places.begin(), places.end(),
                   [&](size_t a, size_t b) { return is_less(values[a], values[b]); });
  return places;
}

template <typename T>
size_t place_of_median(std::span<T> values, bool skip_nan) {
  const std::vector<size_t> places = sorted_places(values);
  const auto nan_count = static_cast<size_t>(
      std::count_if(values.begin(), values.end(), [](T value) { return is_nan(value); }));
  const size_t numbers = values.size() - nan_count;
  if (nan_count != 0 && (!skip_nan || numbers == 0)) return places[numbers];
  return places[(numbers - 1) / 2];
}

/// Of equally frequent values the smallest; its last place.
template <typename T>
size_t place_of_mode(std::span<T> values) {
  const std::vector<size_t> places = sorted_places(values);
  size_t best = 0;
  size_t most = 0;
  for (size_t first = 0; first < places.size();) {
    size_t last = first + 1;
    while (last < places.size() && values[places[last]] == values[places[first]]) ++last;
    if (last - first > most) {
      most = last - first;
      best = places[last - 1];
    }
    first = last;
  }
  return best;
}

struct Chosen {
  Tensor values;   // in the kind of the operand
  Tensor indices;  // Int64
};

/// One value of every row, by its place.
template <typename Choose>
Result<Chosen> choose(const Arguments& arguments, const Tensor& self, const Rows& rows,
                      Choose choose_place) {
  if (rows.length == 0 && rows.count != 0) return fail(nothing_to_choose(arguments));
  Whole indices(rows.shape);
  ASSAY_TRY(Tensor values, with_values(self.view.dtype, [&]<typename T>(T) -> Result<Tensor> {
              Array<T> chosen(rows.shape);
              ASSAY_TRY_STATUS(for_each_row<T>(rows, [&](int64_t row, std::span<T> row_values) {
                const size_t place = choose_place(row_values);
                chosen.data()[row] = row_values[place];
                indices.data()[row] = static_cast<int64_t>(place);
              }));
              return to_tensor(std::move(chosen));
            }));
  ASSAY_TRY(values, like(arguments, std::move(values), self.view.dtype));
  return Chosen{std::move(values), to_tensor(std::move(indices))};
}

/// The rows of self along the argument `dim`, or all of it.
template <typename Choose>
Result<Chosen> choose_along(const Arguments& arguments, Choose choose_place) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const bool keepdim, arguments.truth("keepdim", false));
  std::optional<int64_t> dim;
  const bool last_by_default = arguments.call().name.starts_with("aten.kthvalue.") ||
                               arguments.call().name.starts_with("aten.mode.");
  if (arguments.has("dim") || last_by_default) {
    ASSAY_TRY(dim, arguments.integer("dim", -1));
  }
  ASSAY_TRY(const Rows rows, rows_along(arguments, self, dim, keepdim));
  return choose(arguments, self, rows, choose_place);
}

Values both(Chosen chosen) { return {std::move(chosen.values), std::move(chosen.indices)}; }

constexpr auto kLargest = [](auto values) { return place_of_largest(values); };
constexpr auto kSmallest = [](auto values) { return place_of_smallest(values); };

// amax and amin: any dimensions, no places.
template <typename Choose>
Result<Values> extreme(const Arguments& arguments, Choose choose_place) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Rows rows, argument_rows(arguments));
  ASSAY_TRY(Chosen chosen, choose(arguments, self, rows, choose_place));
  return single(std::move(chosen.values));
}
Result<Values> evaluate_amax(const Arguments& arguments, const EvaluateOptions&) {
  return extreme(arguments, kLargest);
}
Result<Values> evaluate_amin(const Arguments& arguments, const EvaluateOptions&) {
  return extreme(arguments, kSmallest);
}
Result<Values> evaluate_aminmax(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Chosen smallest, choose_along(arguments, kSmallest));
  ASSAY_TRY(Chosen largest, choose_along(arguments, kLargest));
  return Values{std::move(smallest.values), std::move(largest.values)};
}
Result<Values> evaluate_max_dim(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Chosen chosen, choose_along(arguments, kLargest));
  return both(std::move(chosen));
}
Result<Values> evaluate_min_dim(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Chosen chosen, choose_along(arguments, kSmallest));
  return both(std::move(chosen));
}
Result<Values> evaluate_argmax(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Chosen chosen, choose_along(arguments, kLargest));
  return single(std::move(chosen.indices));
}
Result<Values> evaluate_argmin(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Chosen chosen, choose_along(arguments, kSmallest));
  return single(std::move(chosen.indices));
}

Result<Values> medians(const Arguments& arguments, bool skip_nan) {
  ASSAY_TRY(Chosen chosen, choose_along(arguments, [skip_nan](auto values) {
              return place_of_median(values, skip_nan);
            }));
  if (!arguments.has("dim")) return single(std::move(chosen.values));
  return both(std::move(chosen));
}
Result<Values> evaluate_median(const Arguments& arguments, const EvaluateOptions&) {
  return medians(arguments, false);
}
Result<Values> evaluate_nanmedian(const Arguments& arguments, const EvaluateOptions&) {
  return medians(arguments, true);
}
Result<Values> evaluate_mode(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Chosen chosen,
            choose_along(arguments, [](auto values) { return place_of_mode(values); }));
  return both(std::move(chosen));
}
Result<Values> evaluate_kthvalue(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t k, arguments.integer("k"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim", -1));
  ASSAY_TRY(const Rows rows, rows_along(arguments, self, dim, false));
  if (k < 1 || k > rows.length)
    return fail(
        arguments.invalid("value " + std::to_string(k) + " of " + std::to_string(rows.length)));
  ASSAY_TRY(Chosen chosen, choose_along(arguments, [k](auto values) {
              return sorted_places(values)[static_cast<size_t>(k - 1)];
            }));
  return both(std::move(chosen));
}

/// Element by element; NaN of either side wins.
template <typename Better>
Result<Values> of_two(const Arguments& arguments, Better better) {
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  ASSAY_TRY(const Operand other, operand(arguments, "other"));
  const Operand operands[] = {self, other};
  ASSAY_TRY(const DType dtype, result_type(operands));
  ASSAY_TRY(const Dims shape, broadcast_shape(operands));
  ASSAY_TRY_STATUS(checked_count(shape));
  const auto chosen = with_values(dtype, [&]<typename T>(T) -> Result<Tensor> {
    Array<T> result(shape);
    const auto expanded = [&](const Operand& one) -> Result<Array<T>> {
      ASSAY_TRY(const Tensor wide, reference::broadcast_to(one.tensor, shape));
      if constexpr (std::is_same_v<T, int64_t>)
        return whole(wide.view);
      else
        return widen(wide.view);
    };
    ASSAY_TRY(const Array<T> a, expanded(self));
    ASSAY_TRY(const Array<T> b, expanded(other));
    for (int64_t i = 0; i < result.size(); ++i) {
      const T x = a.data()[i];
      const T y = b.data()[i];
      result.data()[i] = is_nan(x) ? x : is_nan(y) || better(y, x) ? y : x;
    }
    return to_tensor(std::move(result));
  });
  if (!chosen) return fail(named(arguments, chosen.error()));
  return single(arguments, like(arguments, *chosen, dtype));
}
Result<Values> evaluate_max_other(const Arguments& arguments, const EvaluateOptions&) {
  return of_two(arguments, [](auto a, auto b) { return a > b; });
}
Result<Values> evaluate_min_other(const Arguments& arguments, const EvaluateOptions&) {
  return of_two(arguments, [](auto a, auto b) { return a < b; });
}

/// The extreme so far and its last place; a NaN stays, at the place of the last one.
template <typename Better>
Result<Values> running_extreme(const Arguments& arguments, Better at_least_as_good) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim"));
  ASSAY_TRY(const size_t at, axis(arguments, dim, self.view.shape.size()));
  ASSAY_TRY(const Rows rows, rows_along(arguments, self, dim, true));
  Whole indices(rows.view.shape);
  ASSAY_TRY(
      Tensor values, with_values(self.view.dtype, [&]<typename T>(T) -> Result<Tensor> {
        Array<T> result(rows.view.shape);
        ASSAY_TRY_STATUS(for_each_row<T>(rows, [&](int64_t row, std::span<T> from) {
          size_t best = 0;
          for (size_t i = 0; i < from.size(); ++i) {
            if (is_nan(from[i]) || (!is_nan(from[best]) && at_least_as_good(from[i], from[best])))
              best = i;
            const int64_t to = row * rows.length + static_cast<int64_t>(i);
            result.data()[to] = from[best];
            indices.data()[to] = static_cast<int64_t>(best);
          }
        }));
        return to_tensor(std::move(result));
      }));
  ASSAY_TRY(values, like(arguments, std::move(values), self.view.dtype));
  return Values{rows_back(values, rows, at, rows.length),
                rows_back(to_tensor(std::move(indices)), rows, at, rows.length)};
}
Result<Values> evaluate_cummax(const Arguments& arguments, const EvaluateOptions&) {
  return running_extreme(arguments, [](auto a, auto b) { return a >= b; });
}
Result<Values> evaluate_cummin(const Arguments& arguments, const EvaluateOptions&) {
  return running_extreme(arguments, [](auto a, auto b) { return a <= b; });
}

// ---- Truth and counts -------------------------------------------------------------------------

/// all, or any: of bytes a byte, otherwise a truth value.
Result<Values> truth_of_rows(const Arguments& arguments, bool all) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const auto dims, arguments.optional_integers("dim"));
  ASSAY_TRY(Rows rows, argument_rows(arguments));
  if (dims && dims->empty()) {  // no dimension, unlike elsewhere: each value by itself
    rows.shape = self.view.shape;
    rows.count = self.view.element_count();
    rows.length = 1;
  }
  Array<uint8_t> truth(rows.shape);
  ASSAY_TRY_STATUS(for_each_row<double>(rows, [&](int64_t row, std::span<double> values) {
    const auto is_true = [](double value) { return value != 0; };
    truth.data()[row] = (all ? std::all_of(values.begin(), values.end(), is_true)
                             : std::any_of(values.begin(), values.end(), is_true))
                            ? 1
                            : 0;
  }));
  if (self.view.dtype != DType::UInt8) return single(truth_tensor(std::move(truth)));
  Whole bytes(rows.shape);
  std::copy(truth.values.begin(), truth.values.end(), bytes.values.begin());
  return single(to_tensor(std::move(bytes)));
}
Result<Values> evaluate_all(const Arguments& arguments, const EvaluateOptions&) {
  return truth_of_rows(arguments, true);
}
Result<Values> evaluate_any(const Arguments& arguments, const EvaluateOptions&) {
  return truth_of_rows(arguments, false);
}

Result<Values> evaluate_count_nonzero(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Rows rows, argument_rows(arguments));
  Whole counts(rows.shape);
  ASSAY_TRY_STATUS(for_each_row<double>(rows, [&](int64_t row, std::span<double> values) {
    counts.data()[row] =
        std::count_if(values.begin(), values.end(), [](double value) { return value != 0; });
  }));
  return single(to_tensor(std::move(counts)));
}

Result<Values> evaluate_bincount(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::optional<Tensor> weights, arguments.optional_tensor("weights"));
  ASSAY_TRY(const int64_t least, arguments.integer("minlength", 0));
  Result<Whole> places = whole(self.view);
  if (!places) return fail(named(arguments, std::move(places).error()));
  int64_t length = std::max<int64_t>(least, 0);
  for (const int64_t place : places->values) {
    if (place < 0) return fail(arguments.invalid("a negative value"));
    length = std::max(length, place == std::numeric_limits<int64_t>::max() ? place : place + 1);
  }
  if (length > kMaxMade) return fail(Errc::TooLarge, arguments.invalid("too many bins").message);
  if (!weights) {
    Whole counts(Dims{length}, 0);
    for (const int64_t place : places->values) ++counts.data()[place];
    return single(to_tensor(std::move(counts)));
  }
  ASSAY_TRY(const Wide values, widen(weights->view));
  if (values.size() != places->size()) return fail(arguments.invalid("weights do not fit"));
  Wide sums(Dims{length}, 0.0);
  for (size_t i = 0; i < values.values.size(); ++i)
    sums.data()[places->values[i]] += values.values[i];
  return single(to_tensor(std::move(sums)));
}

Result<Values> evaluate_histc(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t bins, arguments.integer("bins", 100));
  ASSAY_TRY(double low, arguments.real("min", 0.0));
  ASSAY_TRY(double high, arguments.real("max", 0.0));
  if (bins <= 0) return fail(arguments.invalid("no bins"));
  if (bins > kMaxMade) return fail(Errc::TooLarge, arguments.invalid("too many bins").message);
  Result<Wide> values = widen(self.view);
  if (!values) return fail(named(arguments, std::move(values).error()));
  if (low == high && values->size() != 0) {
    const auto [least, most] = std::minmax_element(values->values.begin(), values->values.end());
    low = *least;
    high = *most;
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  if (!(low < high) || std::isinf(low) || std::isinf(high))
    return fail(arguments.invalid("no range of values"));
  Wide counts(Dims{bins}, 0.0);
  for (const double value : values->values) {
    if (!(value >= low && value <= high)) continue;
    const auto bin = static_cast<int64_t>((value - low) * static_cast<double>(bins) / (high - low));
    counts.data()[std::min(bin, bins - 1)] += 1;
  }
  return single(to_tensor(std::move(counts)));
}

// ---- What leaves the tensors ------------------------------------------------------------------

Result<Values> evaluate_equal(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor other, arguments.tensor("other"));
  if (self.view.shape != other.view.shape) return single(scalar_tensor(false));
  const bool integers = is_whole(self.view.dtype) && is_whole(other.view.dtype);
  const auto equal = [&](const auto& a, const auto& b) -> Result<bool> {
    if (!a) return fail(named(arguments, a.error()));
    if (!b) return fail(named(arguments, b.error()));
    return std::equal(a->values.begin(), a->values.end(), b->values.begin());
  };
  ASSAY_TRY(const bool result, integers ? equal(whole(self.view), whole(other.view))
                                        : equal(widen(self.view), widen(other.view)));
  return single(scalar_tensor(result));
}

Result<Tensor> only_element(const Arguments& arguments) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  if (self.view.element_count() != 1)
    return fail(arguments.invalid("a tensor of shape " + list_text(self.view.shape.span()) +
                                  " is no single value"));
  self.view.shape = {};
  self.view.strides = {};
  return self;
}
Result<Values> evaluate_item(const Arguments& arguments, const EvaluateOptions&) {
  return single(arguments, only_element(arguments));
}
Result<Values> evaluate_is_nonzero(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor element, only_element(arguments));
  return single(arguments, cast_to(element, DType::Bool));
}

}  // namespace

std::span<const Overload> extreme_overloads() {
  constexpr auto kMove = OperatorClass::Move;
  constexpr auto kInteger = OperatorClass::Integer;
  // Values and places that are written into arguments have rows of their own: their types differ.
  static constexpr Overload kTable[] = {
      {"aten._local_scalar_dense.default", kMove, evaluate_item},
      {"aten.all.default", kInteger, evaluate_all},
      {"aten.all.dim", kInteger, evaluate_all},
      {"aten.all.dims", kInteger, evaluate_all},
      {"aten.amax.default", kMove, evaluate_amax},
      {"aten.amin.default", kMove, evaluate_amin},
      {"aten.aminmax.default", kMove, evaluate_aminmax},
      {"aten.any.default", kInteger, evaluate_any},
      {"aten.any.dim", kInteger, evaluate_any},
      {"aten.any.dims", kInteger, evaluate_any},
      {"aten.argmax.default", kInteger, evaluate_argmax},
      {"aten.argmin.default", kInteger, evaluate_argmin},
      {"aten.bincount.default", OperatorClass::Reduction, evaluate_bincount},
      {"aten.count_nonzero.default", kInteger, evaluate_count_nonzero},
      {"aten.count_nonzero.dim_IntList", kInteger, evaluate_count_nonzero},
      {"aten.cummax.default", kMove, evaluate_cummax},
      {"aten.cummax.out", kMove, evaluate_cummax},
      {"aten.cummin.default", kMove, evaluate_cummin},
      {"aten.cummin.out", kMove, evaluate_cummin},
      {"aten.equal.default", kInteger, evaluate_equal},
      {"aten.histc.default", OperatorClass::Fused, evaluate_histc},
      {"aten.is_nonzero.default", kInteger, evaluate_is_nonzero},
      {"aten.item.default", kMove, evaluate_item},
      {"aten.kthvalue.default", kMove, evaluate_kthvalue},
      {"aten.kthvalue.values", kMove, evaluate_kthvalue},
      {"aten.max.default", kMove, evaluate_amax},
      {"aten.max.dim", kMove, evaluate_max_dim},
      {"aten.max.dim_max", kMove, evaluate_max_dim},
      {"aten.max.other", kMove, evaluate_max_other},
      {"aten.median.default", kMove, evaluate_median},
      {"aten.median.dim", kMove, evaluate_median},
      {"aten.median.dim_values", kMove, evaluate_median},
      {"aten.min.default", kMove, evaluate_amin},
      {"aten.min.dim", kMove, evaluate_min_dim},
      {"aten.min.dim_min", kMove, evaluate_min_dim},
      {"aten.min.other", kMove, evaluate_min_other},
      {"aten.mode.default", kMove, evaluate_mode},
      {"aten.mode.values", kMove, evaluate_mode},
      {"aten.nanmedian.default", kMove, evaluate_nanmedian},
      {"aten.nanmedian.dim", kMove, evaluate_nanmedian},
      {"aten.nanmedian.dim_values", kMove, evaluate_nanmedian},
  };
  return kTable;
}

}  // namespace assay::reference::aten

// SPDX-License-Identifier: Apache-2.0
// What is chosen from a row (largest, median, mode, k-th ...) is a function from the row to a
// place: values and places of the results follow from it. Then truth of rows, counts, and results
// that are Python values.
#include "reference/aten/reductions_extremes.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
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
  std::vector<Placed<T>> room;
  std::vector<size_t> places;
  for (const auto& one : first_in_order<T>(values, values.size(), false, &room))
    places.push_back(static_cast<size_t>(one.place));
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
  ASSAY_TRY(values, like(std::move(values), self.view.dtype));
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
constexpr auto kMostFrequent = [](auto values) { return place_of_mode(values); };

// amax and amin: any dimensions, no places.
template <auto choose_place>
Result<Values> extreme(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Rows rows, argument_rows(arguments));
  ASSAY_TRY(Chosen chosen, choose(arguments, self, rows, choose_place));
  return single(std::move(chosen.values));
}
template <auto choose_place>
Result<Values> extreme_and_place(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Chosen chosen, choose_along(arguments, choose_place));
  return both(std::move(chosen));
}
template <auto choose_place>
Result<Values> place_of_extreme(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Chosen chosen, choose_along(arguments, choose_place));
  return single(std::move(chosen.indices));
}
Result<Values> evaluate_aminmax(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Chosen smallest, choose_along(arguments, kSmallest));
  ASSAY_TRY(Chosen largest, choose_along(arguments, kLargest));
  return Values{std::move(smallest.values), std::move(largest.values)};
}
Result<Values> medians(const Arguments& arguments, bool skip_nan) {
  ASSAY_TRY(Chosen chosen, choose_along(arguments, [skip_nan](auto values) {
              return place_of_median(values, skip_nan);
            }));
  if (!arguments.has("dim")) return single(std::move(chosen.values));
  return both(std::move(chosen));
}
Result<Values> evaluate_kthvalue(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t k, arguments.integer("k"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim", -1));
  ASSAY_TRY(const Rows rows, rows_along(arguments, self, dim, false));
  if (k < 1 || k > rows.length) return fail(arguments.invalid("value ", k, " of ", rows.length));
  ASSAY_TRY(Chosen chosen, choose_along(arguments, [k](auto values) {
              return sorted_places(values)[static_cast<size_t>(k - 1)];
            }));
  return both(std::move(chosen));
}

/// Element by element; NaN of either side wins.
template <auto better>
Result<Values> of_two(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  ASSAY_TRY(const Operand other, operand(arguments, "other"));
  const Operand operands[] = {self, other};
  ASSAY_TRY(const DType dtype, result_type(operands));
  ASSAY_TRY(const Dims shape, broadcast_shape(operands));
  ASSAY_TRY_STATUS(checked_count(shape));
  ASSAY_TRY(const auto chosen, with_values(dtype, [&]<typename T>(T) -> Result<Tensor> {
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
            }));
  return single(like(chosen, dtype));
}
/// The extreme so far and its last place; a NaN stays, at the place of the last one.
template <auto at_least_as_good>
Result<Values> running_extreme(const Arguments& arguments, const EvaluateOptions&) {
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
  ASSAY_TRY(values, like(std::move(values), self.view.dtype));
  return Values{rows_back(values, rows, at, rows.length),
                rows_back(to_tensor(std::move(indices)), rows, at, rows.length)};
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
  ASSAY_TRY(Whole places, whole(self.view));
  int64_t length = std::max<int64_t>(least, 0);
  for (const int64_t place : places.values) {
    if (place < 0) return fail(arguments.invalid("a negative value"));
    length = std::max(length, place == std::numeric_limits<int64_t>::max() ? place : place + 1);
  }
  if (length > kMaxMade) return fail(Errc::TooLarge, arguments.invalid("too many bins").message);
  if (!weights) {
    Whole counts(Dims{length}, 0);
    for (const int64_t place : places.values) ++counts.data()[place];
    return single(to_tensor(std::move(counts)));
  }
  ASSAY_TRY(const Wide values, widen(weights->view));
  if (values.size() != places.size()) return fail(arguments.invalid("weights do not fit"));
  Wide sums(Dims{length}, 0.0);
  for (size_t i = 0; i < values.values.size(); ++i)
    sums.data()[places.values[i]] += values.values[i];
  return single(to_tensor(std::move(sums)));
}

Result<Values> evaluate_histc(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t bins, arguments.integer("bins", 100));
  ASSAY_TRY(double low, arguments.real("min", 0.0));
  ASSAY_TRY(double high, arguments.real("max", 0.0));
  if (bins <= 0) return fail(arguments.invalid("no bins"));
  if (bins > kMaxMade) return fail(Errc::TooLarge, arguments.invalid("too many bins").message);
  ASSAY_TRY(Wide values, widen(self.view));
  if (low == high && values.size() != 0) {
    const auto [least, most] = std::minmax_element(values.values.begin(), values.values.end());
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
  for (const double value : values.values) {
    if (!(value >= low && value <= high)) continue;
    const auto bin = static_cast<int64_t>((value - low) * static_cast<double>(bins) / (high - low));
    counts.data()[std::min(bin, bins - 1)] += 1;
  }
  return single(to_tensor(std::move(counts)));
}

// ---- Results that are Python values -----------------------------------------------------------

Result<Values> evaluate_equal(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor other, arguments.tensor("other"));
  if (self.view.shape != other.view.shape) return single(scalar_tensor(false));
  const bool integers = is_whole(self.view.dtype) && is_whole(other.view.dtype);
  const auto equal = [&](const auto& a, const auto& b) -> Result<bool> {
    if (!a) return fail(a.error());
    if (!b) return fail(b.error());
    return std::equal(a->values.begin(), a->values.end(), b->values.begin());
  };
  ASSAY_TRY(const bool result, integers ? equal(whole(self.view), whole(other.view))
                                        : equal(widen(self.view), widen(other.view)));
  return single(scalar_tensor(result));
}

Result<Tensor> only_element(const Arguments& arguments) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  if (self.view.element_count() != 1)
    return fail(arguments.invalid("a tensor of shape ", self.view.shape, " is no single value"));
  self.view.shape = {};
  self.view.strides = {};
  return self;
}
Result<Values> evaluate_item(const Arguments& arguments, const EvaluateOptions&) {
  return single(only_element(arguments));
}
Result<Values> evaluate_is_nonzero(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor element, only_element(arguments));
  return single(cast_to(element, DType::Bool));
}

}  // namespace

std::span<const Overloads> extreme_overloads() {
  constexpr auto kMove = OperatorClass::Move;
  constexpr auto kInteger = OperatorClass::Integer;
  // Overloads that write values and places into two arguments stand here and not in variants.cpp: a
  // variant writes into one argument, whose type its result takes.
  static constexpr Overloads kTable[] = {
      {"_local_scalar_dense.default item.default", kMove, evaluate_item},
      {"all.default all.dim all.dims", kInteger, fixed<truth_of_rows, true>},
      {"amax.default max.default", kMove, extreme<kLargest>},
      {"amin.default min.default", kMove, extreme<kSmallest>},
      {"aminmax.default", kMove, evaluate_aminmax},
      {"any.default any.dim any.dims", kInteger, fixed<truth_of_rows, false>},
      {"argmax.default", kInteger, place_of_extreme<kLargest>},
      {"argmin.default", kInteger, place_of_extreme<kSmallest>},
      {"bincount.default", OperatorClass::Reduction, evaluate_bincount},
      {"count_nonzero.default count_nonzero.dim_IntList", kInteger, evaluate_count_nonzero},
      {"cummax.default cummax.out", kMove, running_extreme<std::greater_equal<>{}>},
      {"cummin.default cummin.out", kMove, running_extreme<std::less_equal<>{}>},
      {"equal.default", kInteger, evaluate_equal},
      {"histc.default", OperatorClass::Fused, evaluate_histc},
      {"is_nonzero.default", kInteger, evaluate_is_nonzero},
      {"kthvalue.default kthvalue.values", kMove, evaluate_kthvalue},
      {"max.dim max.dim_max", kMove, extreme_and_place<kLargest>},
      {"max.other", kMove, of_two<std::greater<>{}>},
      {"median.default median.dim median.dim_values", kMove, fixed<medians, false>},
      {"min.dim min.dim_min", kMove, extreme_and_place<kSmallest>},
      {"min.other", kMove, of_two<std::less<>{}>},
      {"mode.default mode.values", kMove, extreme_and_place<kMostFrequent>},
      {"nanmedian.default nanmedian.dim nanmedian.dim_values", kMove, fixed<medians, true>},
  };
  return kTable;
}

}  // namespace assay::reference::aten

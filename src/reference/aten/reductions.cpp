// SPDX-License-Identifier: Apache-2.0
// Sums, means, products, variances, norms, and running sums.
#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/aten/reductions_extremes.hpp"
#include "reference/aten/reductions_rows.hpp"
#include "reference/elementwise/zip.hpp"
#include "reference/norms/rows.hpp"

namespace assay::reference::aten {
namespace {

using Row = std::span<const double>;

/// f(values) of every row, in double.
template <typename F>
Result<Wide> reals_of(const Rows& rows, F f) {
  Wide result(rows.shape);
  ASSAY_TRY_STATUS(for_each_row<double>(
      rows, [&](int64_t row, std::span<double> values) { result.data()[row] = f(values); }));
  return result;
}

double sum_of_row(Row values) {
  return row_sum(values.data(), static_cast<int64_t>(values.size()));
}
double mean_of_row(Row values) {
  return sum_of_row(values) / static_cast<double>(values.size());  // of nothing: NaN, as torch
}

/// self in the type that torch adds in: that of the dtype argument; of integers int64.
struct Addends {
  Tensor tensor;
  DType dtype = DType::Float64;  // of the result
};
Result<Addends> addends_of(const Arguments& arguments) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::optional<DType> asked, arguments.dtype());
  const DType own = is_whole(self.view.dtype) ? DType::Int64 : DType::Float64;
  const DType dtype = !asked ? own : is_whole(*asked) ? *asked : DType::Float64;
  if (is_whole(dtype)) {
    ASSAY_TRY(Tensor cast, cast_to(self, dtype));
    self = std::move(cast);
  }
  return Addends{std::move(self), dtype};
}

/// Sums or products of rows: of integers modulo their type, of reals in double.
template <int64_t start, auto of_integers, auto of_reals>
Result<Values> fold(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Addends addends, addends_of(arguments));
  ASSAY_TRY(const auto dims, arguments.optional_integers("dim"));
  ASSAY_TRY(const bool keepdim, arguments.truth("keepdim", false));
  ASSAY_TRY(const Rows rows, rows_of(arguments, addends.tensor, dims, keepdim));
  if (!is_whole(addends.dtype)) return single(reals_of(rows, of_reals));
  Whole result(rows.shape);
  ASSAY_TRY_STATUS(for_each_row<int64_t>(rows, [&](int64_t row, std::span<int64_t> values) {
    int64_t total = start;
    for (const int64_t value : values) total = of_integers(total, value);
    result.data()[row] = wrap_to(total, addends.dtype);
  }));
  return single(to_tensor(std::move(result)));
}

/// NaN counts as nothing.
size_t drop_nan(std::span<double> values) {
  const auto end =
      std::remove_if(values.begin(), values.end(), [](double value) { return std::isnan(value); });
  return static_cast<size_t>(end - values.begin());
}

double product_of_row(Row values) {
  double product = 1;
  for (const double value : values) product *= value;
  return product;
}
double nan_sum_of_row(std::span<double> values) {
  return sum_of_row(values.first(drop_nan(values)));
}
double nan_mean_of_row(std::span<double> values) {
  return mean_of_row(values.first(drop_nan(values)));
}

template <auto of_reals>
Result<Values> real_fold(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Rows rows, argument_rows(arguments));
  return single(reals_of(rows, of_reals));
}

// ---- Variances --------------------------------------------------------------------------------

/// The number that is taken off the count of values.
Result<double> correction_of(const Arguments& arguments) {
  if (arguments.has("correction")) return arguments.real("correction");
  ASSAY_TRY(const bool unbiased, arguments.truth("unbiased", true));
  return unbiased ? 1.0 : 0.0;
}

Result<Values> variances(const Arguments& arguments, bool root, bool with_mean) {
  ASSAY_TRY(const Rows rows, argument_rows(arguments));
  ASSAY_TRY(const double correction, correction_of(arguments));
  Wide spreads(rows.shape);
  Wide means(rows.shape);
  ASSAY_TRY_STATUS(for_each_row<double>(rows, [&](int64_t row, std::span<double> values) {
    const auto count = static_cast<double>(values.size());
    const double mean = mean_of_row(values);
    const double sum = row_sum_of_squares(values.data(), static_cast<int64_t>(values.size()), mean);
    const double variance = sum / std::fmax(count - correction, 0.0);
    spreads.data()[row] = root ? std::sqrt(variance) : variance;
    means.data()[row] = mean;
  }));
  Values results = single(to_tensor(std::move(spreads)));
  if (with_mean) results.push_back(to_tensor(std::move(means)));
  return results;
}

// ---- Norms of vectors -------------------------------------------------------------------------

double norm_of_row(std::span<double> values, double p) {
  for (double& value : values) value = std::fabs(value);
  const auto count = static_cast<int64_t>(values.size());
  if (std::isinf(p)) {
    double extreme = p > 0 ? 0.0 : std::numeric_limits<double>::infinity();
    for (const double value : values) {
      const bool further = p > 0 ? value > extreme : value < extreme;
      extreme = further || std::isnan(value) ? value : extreme;
      if (std::isnan(value)) return value;
    }
    return extreme;
  }
  if (p == 0)
    return static_cast<double>(
        std::count_if(values.begin(), values.end(), [](double value) { return value != 0; }));
  if (p == 1) return row_sum(values.data(), count);
  if (p == 2) return std::sqrt(row_sum_of_squares(values.data(), count, 0.0));
  for (double& value : values) value = std::pow(value, p);
  return std::pow(row_sum(values.data(), count), 1.0 / p);
}

Result<Values> evaluate_norm(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const double p, arguments.real(arguments.has("ord") ? "ord" : "p", 2.0));
  ASSAY_TRY(const Rows rows, argument_rows(arguments));
  return single(reals_of(rows, [p](std::span<double> values) { return norm_of_row(values, p); }));
}

/// The norm of the difference.
Result<Values> evaluate_dist(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  ASSAY_TRY(const Operand other, operand(arguments, "other"));
  ASSAY_TRY(const double p, arguments.real("p", 2.0));
  if (self.tensor.view.shape != other.tensor.view.shape)
    return fail(arguments.unsupported("of tensors of different shapes"));
  ASSAY_TRY(Wide difference,
            zip_values(Views<2>{self.tensor.view, other.tensor.view}, std::minus<>()));
  return single(scalar_tensor(norm_of_row(difference.values, p)));
}

/// x.y / (max(|x|, eps) max(|y|, eps)), along one dimension.
Result<Values> evaluate_cosine_similarity(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor first, arguments.tensor("x1"));
  ASSAY_TRY(const Tensor second, arguments.tensor("x2"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim", 1));
  ASSAY_TRY(const double eps, arguments.real("eps", 1e-8));
  if (first.view.shape != second.view.shape)
    return fail(arguments.unsupported("of tensors of different shapes"));
  ASSAY_TRY(const Rows rows, rows_along(arguments, first, dim, false));
  ASSAY_TRY(const Rows others, rows_along(arguments, second, dim, false));
  ASSAY_TRY(const Wide values, widen(others.view));
  Wide result(rows.shape);
  ASSAY_TRY_STATUS(for_each_row<double>(rows, [&](int64_t row, std::span<double> x) {
    const double* y = values.data() + row * rows.length;
    const double lengths = std::fmax(std::sqrt(row_dot(x.data(), x.data(), rows.length)), eps) *
                           std::fmax(std::sqrt(row_dot(y, y, rows.length)), eps);
    result.data()[row] = row_dot(x.data(), y, rows.length) / lengths;
  }));
  return single(to_tensor(std::move(result)));
}

// ---- Running sums -----------------------------------------------------------------------------

/// out[i] = step(out[i - 1], x[i]) along a dimension.
template <auto whole_step, auto real_step>
Result<Values> scan(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Addends addends, addends_of(arguments));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim"));
  ASSAY_TRY(const size_t at, axis(arguments, dim, addends.tensor.view.shape.size()));
  ASSAY_TRY(const Rows rows, rows_along(arguments, addends.tensor, dim, true));
  if (is_whole(addends.dtype)) {
    Whole result(rows.view.shape);
    ASSAY_TRY_STATUS(for_each_row<int64_t>(rows, [&](int64_t row, std::span<int64_t> values) {
      for (size_t i = 1; i < values.size(); ++i) values[i] = whole_step(values[i - 1], values[i]);
      int64_t* out = result.data() + row * rows.length;
      std::transform(values.begin(), values.end(), out,
                     [&](int64_t value) { return wrap_to(value, addends.dtype); });
    }));
    return single(rows_back(to_tensor(std::move(result)), rows, at, rows.length));
  }
  Wide result(rows.view.shape);
  ASSAY_TRY_STATUS(for_each_row<double>(rows, [&](int64_t row, std::span<double> values) {
    for (size_t i = 1; i < values.size(); ++i) values[i] = real_step(values[i - 1], values[i]);
    std::copy(values.begin(), values.end(), result.data() + row * rows.length);
  }));
  return single(rows_back(to_tensor(std::move(result)), rows, at, rows.length));
}

Result<Values> evaluate_trace(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  if (self.view.shape.size() != 2) return fail(arguments.invalid("of no matrix"));
  self.view.strides = {self.view.strides[0] + self.view.strides[1]};
  self.view.shape = {std::min(self.view.shape[0], self.view.shape[1])};
  ASSAY_TRY(const Rows rows, rows_of(arguments, self, std::nullopt, false));
  if (!is_whole(self.view.dtype)) return single(reals_of(rows, sum_of_row));
  int64_t total = 0;
  ASSAY_TRY_STATUS(for_each_row<int64_t>(rows, [&](int64_t, std::span<int64_t> values) {
    for (const int64_t value : values) total = wrapping_add(total, value);
  }));
  return single(scalar_tensor(total));
}

/// out[i] = x[i + 1] - x[i] along a dimension, between what is put before and behind.
Result<Values> evaluate_diff(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t times_taken, arguments.integer("n", 1));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim", -1));
  ASSAY_TRY(const size_t at, axis(arguments, dim, self.view.shape.size()));
  ASSAY_TRY(const Rows rows, rows_along(arguments, self, dim, true));
  const DType dtype = self.view.dtype;
  if (times_taken < 0 || self.view.shape.empty()) return fail(arguments.invalid("of no dimension"));
  if (times_taken > 1 && !is_whole(dtype))
    return fail(arguments.unsupported("differences of rounded differences"));
  std::vector<Rows> parts;
  for (const std::string_view name : {"prepend", "self", "append"}) {
    ASSAY_TRY(const std::optional<Tensor> tensor, arguments.optional_tensor(name));
    if (!tensor) continue;
    ASSAY_TRY(const Rows part, rows_along(arguments, *tensor, dim, true));
    if (part.shape != rows.shape || is_whole(part.view.dtype) != is_whole(dtype))
      return fail(arguments.invalid(name, " does not fit"));
    parts.push_back(part);
  }
  int64_t length = 0;
  for (const Rows& part : parts) length += part.length;
  const int64_t left = std::max<int64_t>(length - times_taken, 0);
  const auto differences = [&]<typename T>(T) -> Result<Tensor> {
    Dims shape = rows.view.shape;
    shape[shape.size() - 1] = length;
    Array<T> joined(shape);
    int64_t offset = 0;
    for (const Rows& part : parts) {
      ASSAY_TRY_STATUS(for_each_row<T>(part, [&](int64_t row, std::span<T> values) {
        std::copy(values.begin(), values.end(), joined.data() + row * length + offset);
      }));
      offset += part.length;
    }
    shape[shape.size() - 1] = left;
    Array<T> result(shape);
    for (int64_t row = 0; row < rows.count; ++row) {
      T* values = joined.data() + row * length;
      for (int64_t round = 0; round < std::min(times_taken, length); ++round) {
        for (int64_t i = 0; i + 1 < length - round; ++i) {
          if constexpr (std::is_same_v<T, int64_t>)
            values[i] = wrap_to(wrapping_subtract(values[i + 1], values[i]), dtype);
          else
            values[i] = values[i + 1] - values[i];
        }
      }
      std::copy_n(values, left, result.data() + row * left);
    }
    return rows_back(to_tensor(std::move(result)), rows, at, left);
  };
  if (!is_whole(dtype)) return single(differences(double{}));
  ASSAY_TRY(const Tensor result, differences(int64_t{}));
  return single(dtype == DType::Bool ? cast_to(result, DType::Bool) : result);
}

std::span<const Overloads> sums() {
  constexpr auto kSum = OperatorClass::Reduction;
  static constexpr Overloads kTable[] = {
      {"cosine_similarity.default", OperatorClass::Fused, evaluate_cosine_similarity},
      {"cumprod.default", kSum, scan<wrapping_multiply, std::multiplies<>{}>},
      {"cumsum.default", kSum, scan<wrapping_add, std::plus<>{}>},
      {"diff.default", OperatorClass::Arithmetic, evaluate_diff},
      {"dist.default", OperatorClass::Fused, evaluate_dist},
      {"frobenius_norm.dim linalg_vector_norm.default norm.Scalar norm.ScalarOpt_dim "
       "norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype",
       kSum, evaluate_norm},
      {"mean.default mean.dim", kSum, real_fold<mean_of_row>},
      {"nanmean.default", kSum, real_fold<nan_mean_of_row>},
      {"nansum.default", kSum, fold<0, wrapping_add, nan_sum_of_row>},
      {"prod.default prod.dim_int", kSum, fold<1, wrapping_multiply, product_of_row>},
      {"std.correction std.default std.dim", kSum, fixed<variances, true, false>},
      {"std_mean.correction std_mean.default std_mean.dim", kSum, fixed<variances, true, true>},
      {"sum.default sum.dim_IntList", kSum, fold<0, wrapping_add, sum_of_row>},
      {"trace.default", kSum, evaluate_trace},
      {"var.correction var.default var.dim", kSum, fixed<variances, false, false>},
      {"var_mean.correction var_mean.default var_mean.dim", kSum, fixed<variances, false, true>},
  };
  return kTable;
}

}  // namespace

std::span<const Overloads> reduction_overloads() {
  static const std::vector<Overloads> joined = [] {
    std::vector<Overloads> rows(sums().begin(), sums().end());
    const std::span<const Overloads> others = extreme_overloads();
    rows.insert(rows.end(), others.begin(), others.end());
    return rows;
  }();
  return joined;
}

}  // namespace assay::reference::aten

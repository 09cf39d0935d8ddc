// SPDX-License-Identifier: Apache-2.0
#include "reference/aten/magnitudes.hpp"

#include <algorithm>
#include <cmath>

#include "reference/aten/products.hpp"
#include "reference/aten/reductions_rows.hpp"
#include "reference/norms/rows.hpp"

namespace assay::reference::aten {
namespace {

Error without(const Arguments& arguments, size_t output) {
  return arguments.unsupported("no magnitude of output " + std::to_string(output));
}

Status check_rows(const Arguments& arguments, const Dims& shape, std::span<const int64_t> rows) {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= count || (i > 0 && rows[i] <= rows[i - 1]))
      return fail(arguments.invalid("rows are not ascending places in " + list_text(shape.span())));
  }
  return {};
}

/// The rows asked for of values of the whole result.
Result<Wide> rows_only(const Arguments& arguments, Wide values,
                       const std::optional<std::span<const int64_t>>& rows) {
  if (!rows) return values;
  ASSAY_TRY_STATUS(check_rows(arguments, values.shape, *rows));
  const size_t rank = values.shape.size();
  const int64_t last = rank == 0 ? 1 : values.shape[rank - 1];
  Wide picked(Dims{static_cast<int64_t>(rows->size()), last});
  for (size_t i = 0; i < rows->size(); ++i)
    std::copy_n(values.data() + (*rows)[i] * last, last,
                picked.data() + static_cast<int64_t>(i) * last);
  return picked;
}

// ---- Products ---------------------------------------------------------------------------------

Result<Wide> product_values(const Arguments& arguments, const MagnitudeOptions& options,
                            bool absolute) {
  const std::string_view name = arguments.call().name;
  ASSAY_TRY(const std::optional<Product> product, product_of(arguments));
  if (product && options.rows && product->rows_are_those_of_x) {
    ASSAY_TRY_STATUS(check_rows(arguments, product->shape, *options.rows));
    return multiply_rows(*product, *options.rows, options.jobs, absolute);
  }
  Wide values;
  if (product) {
    ASSAY_TRY(values, multiply(*product, options.jobs, absolute));
  } else if (is_convolution(name)) {
    ASSAY_TRY(values, convolve(arguments, options.jobs, absolute));
  } else if (is_grouped_product(name)) {
    ASSAY_TRY(values, grouped_product(arguments, options.jobs, absolute));
  } else {
    return fail(arguments.unsupported("no magnitudes of sums of several products"));
  }
  return rows_only(arguments, std::move(values), options.rows);
}

Result<double> product_length(const Arguments& arguments) {
  const std::string_view name = arguments.call().name;
  if (is_convolution(name)) {
    ASSAY_TRY(const int64_t terms, convolution_terms(arguments));
    return static_cast<double>(terms);
  }
  if (is_grouped_product(name)) {
    ASSAY_TRY(const int64_t terms, grouped_terms(arguments));
    return static_cast<double>(terms);
  }
  ASSAY_TRY(const std::optional<Product> product, product_of(arguments));
  return product ? static_cast<double>(product_terms(*product)) : 1.0;
}

Result<Magnitudes> of_product(const Arguments& arguments, const MagnitudeOptions& options) {
  Magnitudes magnitudes;
  ASSAY_TRY(magnitudes.c, product_values(arguments, options, true));
  ASSAY_TRY(magnitudes.terms, product_length(arguments));
  return magnitudes;
}

// ---- Reductions -------------------------------------------------------------------------------

enum class Measure : uint8_t {
  Sum,       // sum |x|
  Mean,      // mean |x|
  Variance,  // var + 2 sum |x - mean| (|x| + mean |x|) / (n - correction): the mean is rounded, too
  Deviation,  // of the root: that over 2 sqrt(var)
  Norm,       // |y|: all terms are positive
  Product,    // |y| sqrt(n): n factors, each with its error
};

std::optional<Measure> measure_of(std::string_view operation, size_t output) {
  if (output == 1 && (operation == "var_mean" || operation == "std_mean")) return Measure::Mean;
  if (output != 0) return {};
  if (operation == "sum" || operation == "nansum" || operation == "cumsum" ||
      operation == "trace" || operation == "bincount")
    return Measure::Sum;
  if (operation == "mean" || operation == "nanmean") return Measure::Mean;
  if (operation == "var" || operation == "var_mean") return Measure::Variance;
  if (operation == "std" || operation == "std_mean") return Measure::Deviation;
  if (operation.find("norm") != std::string_view::npos) return Measure::Norm;
  if (operation == "prod" || operation == "cumprod") return Measure::Product;
  return {};
}

double of_variance(std::span<const double> values, double correction, bool root) {
  const auto count = static_cast<int64_t>(values.size());
  const double n = static_cast<double>(count);
  const double mean = row_sum(values.data(), count) / n;
  double size = 0;
  for (const double value : values) size += std::fabs(value);
  size /= n;
  double sum = 0;
  double rounded = 0;
  for (const double value : values) {
    const double distance = std::fabs(value - mean);
    sum += distance * distance;
    rounded += distance * (std::fabs(value) + size);
  }
  const double degrees = std::fmax(n - correction, 0.0);
  const double bound = (sum + 2 * rounded) / degrees;
  return root ? bound / (2 * std::sqrt(sum / degrees)) : bound;
}

Result<Magnitudes> of_reduction(const Arguments& arguments, size_t output,
                                const MagnitudeOptions& options) {
  const std::string_view operation = operation_of(arguments.call().name);
  const std::optional<Measure> measure = measure_of(operation, output);
  if (!measure) return fail(without(arguments, output));
  Magnitudes magnitudes;
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  // Sums that run along a dimension, and bins, have another shape than rows: the call itself, of magnitudes.
  if (operation == "cumsum" || operation == "trace" || operation == "bincount") {
    Call absolute = arguments.call();
    const std::string_view summed = operation == "bincount" ? "weights" : "self";
    if (!arguments.has(summed)) return fail(without(arguments, output));
    ASSAY_TRY(const Tensor operand, arguments.tensor(summed));
    ASSAY_TRY(Wide values, widen(operand.view));
    for (double& value : values.values) value = std::fabs(value);
    absolute.arguments[std::string(summed)].value = to_tensor(std::move(values));
    ASSAY_TRY(const std::vector<Tensor> sums, evaluate(absolute, {.jobs = options.jobs}));
    ASSAY_TRY(magnitudes.c, widen(sums[0].view));
    magnitudes.terms = static_cast<double>(operand.view.element_count());
    if (operation == "cumsum") {
      ASSAY_TRY(const int64_t dim, arguments.integer("dim"));
      ASSAY_TRY(const Rows rows, rows_along(arguments, self, dim, true));
      magnitudes.terms = static_cast<double>(rows.length);
    }
    ASSAY_TRY(magnitudes.c, rows_only(arguments, std::move(magnitudes.c), options.rows));
    return magnitudes;
  }
  if (*measure == Measure::Norm || *measure == Measure::Product) {
    ASSAY_TRY(const std::vector<Tensor> results,
              evaluate(arguments.call(), {.jobs = options.jobs}));
    ASSAY_TRY(Wide values, widen(results[0].view));
    const int64_t count = std::max<int64_t>(values.size(), 1);
    magnitudes.terms = static_cast<double>(self.view.element_count()) / static_cast<double>(count);
    if (operation == "cumprod") {
      ASSAY_TRY(const int64_t dim, arguments.integer("dim"));
      ASSAY_TRY(const Rows rows, rows_along(arguments, self, dim, true));
      magnitudes.terms = static_cast<double>(rows.length);
    }
    const double factor = *measure == Measure::Product ? std::sqrt(magnitudes.terms) : 1.0;
    for (double& value : values.values) value = std::fabs(value) * factor;
    ASSAY_TRY(magnitudes.c, rows_only(arguments, std::move(values), options.rows));
    return magnitudes;
  }
  ASSAY_TRY(const Rows rows, argument_rows(arguments));
  double correction = 0;
  if (*measure == Measure::Variance || *measure == Measure::Deviation) {
    ASSAY_TRY(const bool unbiased, arguments.truth("unbiased", true));
    ASSAY_TRY(correction, arguments.real("correction", unbiased ? 1.0 : 0.0));
  }
  Wide values(rows.shape);
  ASSAY_TRY_STATUS(for_each_row<double>(rows, [&](int64_t row, std::span<double> from) {
    double& out = values.data()[row];
    if (*measure == Measure::Variance || *measure == Measure::Deviation) {
      out = of_variance(from, correction, *measure == Measure::Deviation);
      return;
    }
    double sum = 0;
    int64_t counted = 0;
    for (const double value : from) {
      if (std::isnan(value) && operation.starts_with("nan")) continue;
      sum += std::fabs(value);
      ++counted;
    }
    out = *measure == Measure::Mean ? sum / static_cast<double>(counted) : sum;
  }));
  magnitudes.terms = static_cast<double>(rows.length);
  ASSAY_TRY(magnitudes.c, rows_only(arguments, std::move(values), options.rows));
  return magnitudes;
}

Result<Magnitudes> of_class(const Arguments& arguments, size_t output,
                            const MagnitudeOptions& options) {
  switch (class_of(arguments.call().name)) {
    case OperatorClass::Product:
      if (output != 0) return fail(without(arguments, output));
      return of_product(arguments, options);
    case OperatorClass::Reduction:
      return of_reduction(arguments, output, options);
    default:
      return fail(without(arguments, output));
  }
}

/// An error of a module that does not know the call, with its name in front.
Error named_error(const Call& call, Error error) {
  if (!error.message.starts_with(call.name)) error.message = call.name + ": " + error.message;
  return error;
}

}  // namespace

Result<Magnitudes> magnitudes(const Call& call, size_t output, const MagnitudeOptions& options) {
  Result<Magnitudes> found = of_class(Arguments(call), output, options);
  if (!found) return fail(named_error(call, std::move(found).error()));
  return found;
}

Result<Wide> product_rows(const Call& call, std::span<const int64_t> rows, int jobs) {
  const Arguments arguments(call);
  if (class_of(call.name) != OperatorClass::Product)
    return fail(arguments.unsupported("no product"));
  if (operation_of(call.name) == "einsum") {
    ASSAY_TRY(const std::vector<Tensor> whole_result, evaluate(call, {.jobs = jobs}));
    ASSAY_TRY(Wide values, widen(whole_result[0].view));
    return rows_only(arguments, std::move(values), rows);
  }
  Result<Wide> values = product_values(arguments, {.jobs = jobs, .rows = rows}, false);
  if (!values) return fail(named_error(call, std::move(values).error()));
  return values;
}

}  // namespace assay::reference::aten

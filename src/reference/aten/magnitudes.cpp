// SPDX-License-Identifier: Apache-2.0
// C, the size of what an operator adds up: a function for each class of operators, which computes
// the operator once more on magnitudes (|A| . |B| for a product) or goes over its rows again.
//   docs/localisation.md, "Own error"
#include "reference/aten/magnitudes.hpp"

#include <algorithm>
#include <cmath>

#include "reference/aten/attention.hpp"
#include "reference/aten/images.hpp"
#include "reference/aten/norms.hpp"
#include "reference/aten/products.hpp"
#include "reference/aten/reductions_rows.hpp"
#include "reference/aten/softmax_rows.hpp"
#include "reference/attention/operand_rows.hpp"
#include "reference/ggml/operators.hpp"
#include "reference/norms/rows.hpp"

namespace assay::reference::aten {
namespace {

Error without(const Arguments& arguments, size_t output) {
  return arguments.unsupported("no magnitude of output ", output);
}

Status check_rows(const Arguments& arguments, const Dims& shape, std::span<const int64_t> rows) {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= count || (i > 0 && rows[i] <= rows[i - 1]))
      return fail(arguments.invalid("rows are not ascending places in ", shape));
  }
  return {};
}

/// Of the values of a whole result, the rows that were asked for.
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

/// What is added to a product once it is there.
Result<std::optional<Wide>> addend_of(const Arguments& arguments, const MagnitudeOptions& options) {
  const std::string_view name = arguments.call().name;
  if (is_convolution(name)) {
    ASSAY_TRY(std::optional<Wide> bias, addend_of_convolution(arguments));
    if (!bias) return std::nullopt;
    ASSAY_TRY(Wide rows, rows_only(arguments, *std::move(bias), options.rows));
    return rows;
  }
  ASSAY_TRY(const std::optional<Product> product, product_of(arguments));
  if (!product || operation_of(name) == "_addmm_activation") return std::nullopt;
  return addend_of(*product, options.rows);
}

Result<Magnitudes> of_product(const Arguments& arguments, const MagnitudeOptions& options) {
  Magnitudes magnitudes;
  ASSAY_TRY(magnitudes.c, product_values(arguments, options, true));
  ASSAY_TRY(magnitudes.terms, product_length(arguments));
  if (!options.addend) return magnitudes;
  ASSAY_TRY(std::optional<Wide> addend, addend_of(arguments, options));
  if (addend) magnitudes.addend = *std::move(addend);
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

Result<Magnitudes> of_neighbours(const Arguments& arguments, size_t output,
                                 const MagnitudeOptions& options) {
  if (output != 0) return fail(without(arguments, output));
  ASSAY_TRY(NeighbourSums found, sum_neighbours(arguments, true));
  Magnitudes magnitudes;
  magnitudes.terms = found.terms;
  ASSAY_TRY(magnitudes.c, rows_only(arguments, std::move(found.sums), options.rows));
  return magnitudes;
}

Result<Magnitudes> of_reduction(const Arguments& arguments, size_t output,
                                const MagnitudeOptions& options) {
  const std::string_view operation = operation_of(arguments.call().name);
  if (is_sum_of_neighbours(arguments.call().name)) return of_neighbours(arguments, output, options);
  const std::optional<Measure> measure = measure_of(operation, output);
  if (!measure) return fail(without(arguments, output));
  Magnitudes magnitudes;
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  // These do not give one result for each row, so the operator itself is computed on magnitudes.
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

// ---- Softmax, norms, attention -----------------------------------------------------------------

/// The sum of exponentials is rounded relative to itself, so that its logarithm has an absolute
/// error of the size of 1:
///   logsumexp    |max| + |log sum| + 1
///   log_softmax  |x - max| + |log sum| + 1
///   softmax      |y| (1 + |x - max| / 16): a rounded difference turns into a relative error of
///                its exponential
double log_magnitude(double first, const LogSum& sum) {
  const double size = std::fabs(first) + std::fabs(sum.log) + 1;
  return std::isfinite(size) ? size : 0;  // of -inf nothing is rounded
}

Result<Magnitudes> of_softmax(const Arguments& arguments, size_t output,
                              const MagnitudeOptions& options) {
  const std::string_view operation = operation_of(arguments.call().name);
  const bool is_log = operation.find("log_softmax") != std::string_view::npos;
  if (output != 0) return fail(without(arguments, output));
  Magnitudes magnitudes;
  if (operation == "logsumexp" || operation == "special_logsumexp") {
    ASSAY_TRY(const Rows rows, argument_rows(arguments));
    Wide values(rows.shape);
    ASSAY_TRY_STATUS(for_each_row<double>(rows, [&](int64_t row, std::span<double> from) {
      const LogSum sum = log_sum_of(from);
      values.data()[row] = log_magnitude(sum.largest, sum);
    }));
    ASSAY_TRY(magnitudes.c, rows_only(arguments, std::move(values), options.rows));
    return magnitudes;
  }
  if (!is_log && operation.find("softmax") == std::string_view::npos)
    return fail(without(arguments, output));
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim"));
  ASSAY_TRY(const size_t at, axis(arguments, dim, self.view.shape.size()));
  ASSAY_TRY(const Rows rows, rows_along(arguments, self, dim, true));
  Wide values(rows.view.shape);
  ASSAY_TRY_STATUS(for_each_row<double>(rows, [&](int64_t row, std::span<double> from) {
    const LogSum sum = log_sum_of(from);
    double* out = values.data() + row * rows.length;
    for (size_t i = 0; i < from.size(); ++i) {
      const double distance = from[i] - sum.largest;
      const double y = std::exp(distance - sum.log);
      // What vanished has no error, however far away it was.
      const double share = y > 0 ? y * (1 + std::fabs(distance) / 16) : 0;
      out[i] = is_log ? log_magnitude(distance, sum) : share;
    }
  }));
  ASSAY_TRY(Wide ordered,
            widen(rows_back(to_tensor(std::move(values)), rows, at, rows.length).view));
  ASSAY_TRY(magnitudes.c, rows_only(arguments, std::move(ordered), options.rows));
  return magnitudes;
}

/// What an output of a norm is.
enum class NormOutput : uint8_t { Result, Mean, ReciprocalDeviation };

std::optional<NormOutput> norm_output(std::string_view operation, size_t output) {
  if (output == 0) return NormOutput::Result;
  if (operation == "_fused_rms_norm")
    return output == 1 ? std::optional(NormOutput::ReciprocalDeviation) : std::nullopt;
  if (output == 1) return NormOutput::Mean;
  return output == 2 ? std::optional(NormOutput::ReciprocalDeviation) : std::nullopt;
}

Result<Magnitudes> of_norm(const Arguments& arguments, size_t output,
                           const MagnitudeOptions& options) {
  const auto what = norm_output(operation_of(arguments.call().name), output);
  if (!what) return fail(without(arguments, output));
  ASSAY_TRY(const Norm norm, norm_of(arguments));
  const bool whole_result = *what == NormOutput::Result;
  if (!whole_result && !norm.mean.empty()) return fail(without(arguments, output));
  Wide values(whole_result ? norm.rows.shape : norm.statistics_shape);
  ASSAY_TRY_STATUS(for_each_norm_row(norm, [&](int64_t row, std::span<double> from) {
    const auto [mean, rstd] = row_statistics(norm, row, from);
    double size = 0;
    for (const double value : from) size += std::fabs(value);
    size /= static_cast<double>(norm.length);
    if (*what == NormOutput::Mean) {
      values.data()[row] = size;
      return;
    }
    if (*what == NormOutput::ReciprocalDeviation) {
      // d rstd / rstd is half of d var / (var + eps); without a mean to take off var is a sum of
      // squares.
      const double variance = norm.centred ? of_variance(from, 0, false)
                                           : row_sum_of_squares(from.data(), norm.length, 0.0) /
                                                 static_cast<double>(norm.length);
      values.data()[row] = rstd * (1 + variance * rstd * rstd / 2);
      return;
    }
    const double centre = norm.mean.empty() ? size : std::fabs(mean);
    double* out = values.data() + row * norm.length;
    const int64_t first = norm.first_weight(row);
    for (int64_t i = 0; i < norm.length; ++i) {
      const auto at = static_cast<size_t>(first + i / norm.span);
      const double weight = norm.weight.empty() ? 1.0 : std::fabs(norm.weight[at]);
      const double bias = norm.bias.empty() ? 0.0 : std::fabs(norm.bias[at]);
      out[i] = (std::fabs(from[static_cast<size_t>(i)]) + centre) * rstd * weight + bias;
    }
  }));
  Magnitudes magnitudes;
  if (*what == NormOutput::Mean) magnitudes.terms = static_cast<double>(norm.length);
  if (whole_result) {
    ASSAY_TRY(values, widen(norm_result(norm, std::move(values)).view));
  }
  ASSAY_TRY(magnitudes.c, rows_only(arguments, std::move(values), options.rows));
  return magnitudes;
}

/// The largest Euclidean norm of the rows of one head of [rows, heads, size].
double largest_length(const TensorView& view, int64_t head) {
  const int64_t size = view.shape[2];
  std::vector<double> row(static_cast<size_t>(size));
  double largest = 0;
  for (int64_t i = 0; i < view.shape[0]; ++i) {
    read_head_rows(view, head, i, 1, row.data());
    largest = std::fmax(largest, row_sum_of_squares(row.data(), size, 0.0));
  }
  return std::sqrt(largest);
}

/// scale max|q| max|k| of every head of every sequence.
std::vector<double> score_bounds(const Attention& attention) {
  std::vector<double> bounds;
  const int64_t group = attention.heads / attention.kv_heads;
  for (const AttentionSequence& one : attention.sequences) {
    for (int64_t head = 0; head < attention.heads; ++head) {
      double key = 0;
      for (const KeyValueRows& part : one.keys)
        key = std::fmax(key, largest_length(part, head / group));
      bounds.push_back(std::fabs(attention.scale) * largest_length(one.query, head) * key);
    }
  }
  return bounds;
}

Result<Magnitudes> of_attention(const Arguments& arguments, size_t output,
                                const MagnitudeOptions& options) {
  ASSAY_TRY(const AttentionCall call, attention_of(arguments));
  AttentionTerms terms;
  terms.with_magnitudes = output == 0;
  ASSAY_TRY(const Wide result, attention(call.attention, options.jobs, &terms));
  const std::vector<double> bounds = score_bounds(call.attention);
  const size_t rank = call.lines_shape.size();
  const int64_t m = call.lines_shape[rank - 1];
  Magnitudes magnitudes;
  if (output != 0) {
    const bool is_log_sum = output == 1 && arguments.call().name.find("flash") != std::string::npos;
    if (!is_log_sum) return fail(without(arguments, output));
    Wide sums = std::move(terms.log_sums);
    sums.shape = call.lines_shape;
    for (int64_t line = 0; line < sums.size(); ++line)
      sums.data()[line] = std::fabs(sums.data()[line]) + bounds[static_cast<size_t>(line / m)];
    ASSAY_TRY(magnitudes.c, rows_only(arguments, std::move(sums), options.rows));
    return magnitudes;
  }
  const int64_t rows = terms.log_sums.size();
  Wide row_bounds(Dims{rows, 1});
  for (int64_t row = 0; row < rows; ++row)
    row_bounds.data()[row] = bounds[static_cast<size_t>(call.line_of_row(row) / m)];
  ASSAY_TRY(magnitudes.c, rows_only(arguments, std::move(terms.absolute), options.rows));
  ASSAY_TRY(magnitudes.variance, rows_only(arguments, std::move(terms.squared), options.rows));
  ASSAY_TRY(magnitudes.score_bound, rows_only(arguments, std::move(row_bounds), options.rows));
  return magnitudes;
}

/// Operators of ggml have one output, and say themselves what is allowed.
Result<Magnitudes> of_ggml(const Arguments& arguments, size_t output,
                           const MagnitudeOptions& options) {
  if (output != 0) return fail(without(arguments, output));
  ASSAY_TRY(Magnitudes magnitudes, ggml::rounding(arguments.call(), options.jobs));
  for (Wide* values : {&magnitudes.c, &magnitudes.variance, &magnitudes.allowed}) {
    ASSAY_TRY(*values, rows_only(arguments, std::move(*values), options.rows));
  }
  return magnitudes;
}

Result<Magnitudes> of_class(const Arguments& arguments, size_t output,
                            const MagnitudeOptions& options) {
  if (ggml::is_ggml(arguments.call().name)) return of_ggml(arguments, output, options);
  switch (class_of(arguments.call().name)) {
    case OperatorClass::Product:
      if (output != 0) return fail(without(arguments, output));
      return of_product(arguments, options);
    case OperatorClass::Reduction:
      return of_reduction(arguments, output, options);
    case OperatorClass::Softmax:
      return of_softmax(arguments, output, options);
    case OperatorClass::Norm:
      return of_norm(arguments, output, options);
    case OperatorClass::Attention:
      return of_attention(arguments, output, options);
    default:
      return fail(without(arguments, output));
  }
}

}  // namespace

Result<Magnitudes> magnitudes(const Call& call, size_t output, const MagnitudeOptions& options) {
  Result<Magnitudes> found = of_class(Arguments(call), output, options);
  if (!found) return fail(in_operator(call.name, std::move(found).error()));
  return found;
}

Result<Wide> product_rows(const Call& call, std::span<const int64_t> rows, int jobs) {
  const Arguments arguments(call);
  if (class_of(call.name) != OperatorClass::Product || ggml::is_ggml(call.name))
    return fail(arguments.unsupported("no product"));
  if (operation_of(call.name) == "einsum") {
    ASSAY_TRY(const std::vector<Tensor> whole_result, evaluate(call, {.jobs = jobs}));
    ASSAY_TRY(Wide values, widen(whole_result[0].view));
    return rows_only(arguments, std::move(values), rows);
  }
  Result<Wide> values = product_values(arguments, {.jobs = jobs, .rows = rows}, false);
  if (!values) return fail(in_operator(call.name, std::move(values).error()));
  return values;
}

Rounding rounding_of(std::string_view name) {
  if (!ggml::is_ggml(name)) return Rounding::ByClass;
  return ggml::has_rounding(name) ? Rounding::Given : Rounding::Once;
}

}  // namespace assay::reference::aten

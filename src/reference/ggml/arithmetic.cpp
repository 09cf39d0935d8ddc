// SPDX-License-Identifier: Apache-2.0
// Sums, products and roots of single elements; sums over rows.
#include <cmath>

#include "reference/ggml/volume.hpp"

namespace assay::reference::ggml {
namespace {

// ---- Two sources ------------------------------------------------------------------------------

/// The second source is repeated to the sizes of the first.
template <typename F>
Result<Volume> of_pairs(const Arguments& arguments, F compute) {
  ASSAY_TRY(Volume a, source(arguments, "src0"));
  ASSAY_TRY(const Volume b, source(arguments, "src1"));
  for (size_t i = 0; i < 4; ++i) {
    if (b.ne[i] == 0 ? a.ne[i] != 0 : a.ne[i] % b.ne[i] != 0)
      return fail(arguments.invalid(text_of(b.ne) + " does not repeat to " + text_of(a.ne)));
  }
  for (int64_t i3 = 0; i3 < a.ne[3]; ++i3)
    for (int64_t i2 = 0; i2 < a.ne[2]; ++i2)
      for (int64_t i1 = 0; i1 < a.ne[1]; ++i1) {
        double* out = a.row(i1, i2, i3);
        const double* other = b.row(i1 % b.ne[1], i2 % b.ne[2], i3 % b.ne[3]);
        for (int64_t i0 = 0; i0 < a.ne[0]; ++i0) out[i0] = compute(out[i0], other[i0 % b.ne[0]]);
      }
  return a;
}

template <typename F>
Result<Values> values_of_pairs(const Arguments& arguments, F compute) {
  ASSAY_TRY(Volume result, of_pairs(arguments, compute));
  return single(std::move(result));
}

Result<Values> add(const Arguments& arguments, const EvaluateOptions&) {
  return values_of_pairs(arguments, [](double a, double b) { return a + b; });
}
Result<Values> sub(const Arguments& arguments, const EvaluateOptions&) {
  return values_of_pairs(arguments, [](double a, double b) { return a - b; });
}
Result<Values> mul(const Arguments& arguments, const EvaluateOptions&) {
  return values_of_pairs(arguments, [](double a, double b) { return a * b; });
}
double quotient(double a, double b) { return a / b; }
Result<Values> div(const Arguments& arguments, const EvaluateOptions&) {
  return values_of_pairs(arguments, quotient);
}
Result<Magnitudes> rounding_of_div(const Arguments& arguments, int) {
  ASSAY_TRY(Volume y, of_pairs(arguments, quotient));
  return scaled_rounding(std::move(y.values), 4 * kFloat32Roundoff);
}

/// Row ids[i1, i2] of the second source is added to every row of the first.
Result<Values> add_id(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Volume a, source(arguments, "src0"));
  ASSAY_TRY(const Volume b, source(arguments, "src1"));
  Sizes of_ids{};
  ASSAY_TRY(const Whole ids, integers_of(arguments, "src2", &of_ids));
  if (of_ids[0] != a.ne[1] || of_ids[1] != a.ne[2] || b.ne[0] != a.ne[0] || a.ne[3] != 1)
    return fail(arguments.invalid("ids " + text_of(of_ids) + " for " + text_of(a.ne)));
  for (int64_t i2 = 0; i2 < a.ne[2]; ++i2)
    for (int64_t i1 = 0; i1 < a.ne[1]; ++i1) {
      const int64_t id = ids.values[static_cast<size_t>(i1 + of_ids[0] * i2)];
      if (id < 0 || id >= b.ne[1]) return fail(arguments.invalid("an id outside the table"));
      double* out = a.row(i1, i2, 0);
      for (int64_t i0 = 0; i0 < a.ne[0]; ++i0) out[i0] += b.row(id, 0, 0)[i0];
    }
  return single(std::move(a));
}

// ---- One source -------------------------------------------------------------------------------

template <typename F>
Result<Volume> of_elements(const Arguments& arguments, F compute) {
  ASSAY_TRY(Volume x, source(arguments, "src0"));
  for (double& value : x.values.values) value = compute(value);
  return x;
}
template <double (*kCompute)(double)>
Result<Values> element_values(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Volume result, of_elements(arguments, kCompute));
  return single(std::move(result));
}
/// Functions of libm and of vectors that stand for them: 4 u |y|.
template <double (*kCompute)(double)>
Result<Magnitudes> rounding_of_function(const Arguments& arguments, int) {
  ASSAY_TRY(Volume result, of_elements(arguments, kCompute));
  return scaled_rounding(std::move(result.values), 4 * kFloat32Roundoff);
}
/// Of sines and cosines relative to 1.
Result<Magnitudes> rounding_of_angle(const Arguments& arguments, int) {
  ASSAY_TRY(Volume result, of_elements(arguments, [](double) { return 1.0; }));
  return scaled_rounding(std::move(result.values), 4 * kFloat32Roundoff);
}
double square(double x) { return x * x; }
double square_root(double x) { return std::sqrt(x); }
double logarithm(double x) { return std::log(x); }
double sine(double x) { return std::sin(x); }
double cosine(double x) { return std::cos(x); }

struct Scale {
  double factor = 1;
  double bias = 0;
};
Result<Scale> scale_of(const Arguments& arguments) {
  Scale scale;
  ASSAY_TRY(scale.factor, real(arguments, "scale", 0));
  ASSAY_TRY(scale.bias, real(arguments, "bias", 1, 0.0));
  return scale;
}
Result<Values> scale(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Scale by, scale_of(arguments));
  ASSAY_TRY(Volume y, of_elements(arguments, [&](double x) { return x * by.factor + by.bias; }));
  return single(std::move(y));
}
Result<Magnitudes> rounding_of_scale(const Arguments& arguments, int) {
  ASSAY_TRY(const Scale by, scale_of(arguments));
  ASSAY_TRY(Volume c, of_elements(arguments, [&](double x) {
              return std::fabs(x * by.factor) + std::fabs(by.bias);
            }));
  return scaled_rounding(std::move(c.values), 2 * kFloat32Roundoff);
}

Result<Values> clamp(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const double min, real(arguments, "min", 0));
  ASSAY_TRY(const double max, real(arguments, "max", 1));
  // As C's comparisons have it, so that NaN stays NaN.
  ASSAY_TRY(Volume y, of_elements(arguments, [=](double x) {
              return x < min ? min : x > max ? max : x;
            }));
  return single(std::move(y));
}

Result<Values> leaky_relu(const Arguments& arguments, const EvaluateOptions&) {
  // The capture's name first; op_params otherwise.
  ASSAY_TRY(const double slope, real(arguments, "slope", 0));
  ASSAY_TRY(Volume y, of_elements(arguments, [=](double x) { return x > 0 ? x : x * slope; }));
  return single(std::move(y));
}

// ---- Sums -------------------------------------------------------------------------------------

/// `all`: one sum, not one a row. C of means and sums is the same of |x|.
Result<Volume> summed(const Arguments& arguments, bool all, bool mean, bool absolute,
                      double* terms) {
  ASSAY_TRY(const Volume x, source(arguments, "src0"));
  Volume sums(all ? Sizes{1, 1, 1, 1} : Sizes{1, x.ne[1], x.ne[2], x.ne[3]});
  const int64_t length = all ? x.values.size() : x.ne[0];
  for (int64_t row = 0; row < sums.values.size(); ++row) {
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) {
      const double value = x.values.data()[row * length + i];
      sum += absolute ? std::fabs(value) : value;
    }
    sums.values.data()[row] = mean ? sum / static_cast<double>(length) : sum;
  }
  *terms = static_cast<double>(length);
  return sums;
}
template <bool kAll, bool kMean>
Result<Values> sum(const Arguments& arguments, const EvaluateOptions&) {
  double terms = 0;
  ASSAY_TRY(Volume sums, summed(arguments, kAll, kMean, false, &terms));
  return single(std::move(sums));
}
template <bool kAll, bool kMean>
Result<Magnitudes> rounding_of_sum(const Arguments& arguments, int) {
  double terms = 0;
  ASSAY_TRY(Volume sums, summed(arguments, kAll, kMean, true, &terms));
  return scaled_rounding(std::move(sums.values), 2 * kFloat32Roundoff, terms);
}

}  // namespace

std::span<const Operator> arithmetic_operators() {
  using enum OperatorClass;
  static constexpr Operator kTable[] = {
      {"ggml.add", Arithmetic, add},
      {"ggml.add1", Arithmetic, add},
      {"ggml.add_id", Arithmetic, add_id},
      {"ggml.clamp", Move, clamp},
      {"ggml.cos", Trigonometric, element_values<cosine>, rounding_of_angle},
      {"ggml.div", Arithmetic, div, rounding_of_div},
      {"ggml.leaky_relu", Arithmetic, leaky_relu},
      {"ggml.log", Function, element_values<logarithm>, rounding_of_function<logarithm>},
      {"ggml.mean", Reduction, sum<false, true>, rounding_of_sum<false, true>},
      {"ggml.mul", Arithmetic, mul},
      {"ggml.scale", Arithmetic, scale, rounding_of_scale},
      {"ggml.sin", Trigonometric, element_values<sine>, rounding_of_angle},
      {"ggml.sqr", Arithmetic, element_values<square>},
      {"ggml.sqrt", Function, element_values<square_root>, rounding_of_function<square_root>},
      {"ggml.sub", Arithmetic, sub},
      {"ggml.sum", Reduction, sum<true, false>, rounding_of_sum<true, false>},
      {"ggml.sum_rows", Reduction, sum<false, false>, rounding_of_sum<false, false>},
  };
  return kTable;
}

}  // namespace assay::reference::ggml

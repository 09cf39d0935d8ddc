// SPDX-License-Identifier: Apache-2.0
// Softmax, its logarithm and logarithms of sums, row by row: the largest value is taken off before
// the exponentials.
#include <algorithm>
#include <cmath>

#include "reference/aten/reductions_rows.hpp"
#include "reference/aten/softmax_rows.hpp"
#include "reference/attention/softmax_row.hpp"

namespace assay::reference::aten {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// f(values) of every row along `dim`, in place.
template <typename F>
Result<Values> along(const Arguments& arguments, F f) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim"));
  ASSAY_TRY(const size_t at, axis(arguments, dim, self.view.shape.size()));
  ASSAY_TRY(const Rows rows, rows_along(arguments, self, dim, true));
  Wide result(rows.view.shape);
  ASSAY_TRY_STATUS(for_each_row<double>(rows, [&](int64_t row, std::span<double> values) {
    f(values);
    std::copy(values.begin(), values.end(), result.data() + row * rows.length);
  }));
  return single(rows_back(to_tensor(std::move(result)), rows, at, rows.length));
}

int64_t length_of(std::span<const double> values) { return static_cast<int64_t>(values.size()); }

Result<Values> evaluate_softmax(const Arguments& arguments, const EvaluateOptions&) {
  return along(arguments,
               [](std::span<double> values) { softmax_row(values.data(), length_of(values)); });
}
Result<Values> evaluate_safe_softmax(const Arguments& arguments, const EvaluateOptions&) {
  // Rows without a number above -inf are 0 instead of NaN.
  return along(arguments, [](std::span<double> values) {
    if (std::ranges::all_of(values, [](double value) { return value == -kInfinity; }))
      std::ranges::fill(values, 0.0);
    else
      softmax_row(values.data(), length_of(values));
  });
}

Result<Values> evaluate_log_softmax(const Arguments& arguments, const EvaluateOptions&) {
  return along(arguments, [](std::span<double> values) {
    const LogSum sum = log_sum_of(values);
    for (double& value : values) value = value - sum.largest - sum.log;
  });
}

Result<Values> evaluate_logsumexp(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Rows rows, argument_rows(arguments));
  Wide result(rows.shape);
  ASSAY_TRY_STATUS(for_each_row<double>(rows, [&](int64_t row, std::span<double> values) {
    result.data()[row] = log_sum_exp(values);
  }));
  return single(to_tensor(std::move(result)));
}

/// The running logarithm keeps the largest value so far and the sum of exponentials against it.
Result<Values> evaluate_logcumsumexp(const Arguments& arguments, const EvaluateOptions&) {
  return along(arguments, [](std::span<double> values) {
    double largest = -kInfinity;
    double sum = 0;
    for (double& value : values) {
      if (value > largest) {
        sum = sum == 0 ? 0 : sum * std::exp(largest - value);
        largest = value;
      }
      if (std::isnan(value) || std::isnan(sum))
        sum = std::nan("");
      else if (value != -kInfinity)
        sum += std::isinf(largest) ? 1 : std::exp(value - largest);
      value = sum == 0 ? -kInfinity : largest + std::log(sum);
      if (std::isnan(sum)) value = sum;
    }
  });
}

}  // namespace

LogSum log_sum_of(std::span<const double> values) {
  const double largest = row_maximum(values.data(), length_of(values));
  std::vector<double> copy(values.begin(), values.end());
  return {largest, std::log(exponentials(copy.data(), length_of(copy), largest))};
}

double log_sum_exp(std::span<const double> values) {
  const LogSum sum = log_sum_of(values);
  if (!std::isinf(sum.largest)) return sum.largest + sum.log;
  const bool has_nan =
      std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); });
  return has_nan ? std::nan("") : sum.largest;
}

std::span<const Overloads> softmax_overloads() {
  constexpr auto kSoftmax = OperatorClass::Softmax;
  static constexpr Overloads kTable[] = {
      {"_log_softmax.default log_softmax.int special_log_softmax.default", kSoftmax,
       evaluate_log_softmax},
      {"_safe_softmax.default", kSoftmax, evaluate_safe_softmax},
      {"_softmax.default softmax.int special_softmax.default", kSoftmax, evaluate_softmax},
      {"logcumsumexp.default", kSoftmax, evaluate_logcumsumexp},
      {"logsumexp.default special_logsumexp.default", kSoftmax, evaluate_logsumexp},
  };
  return kTable;
}

}  // namespace assay::reference::aten

// SPDX-License-Identifier: Apache-2.0
// Source: Ascend/msit: msit/components/llm/msit_llm/logits_compare/logits_cmp.py,
// msit/components/utils/cmp_algorithm.py; rounding: pytorch/pytorch:
// aten/src/ATen/native/cpu/{SoftMaxKernel,BinaryOpsKernel}.cpp
#include "vendor/msit/logits.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "measure/pair_sums.hpp"
#include "measure/rounding.hpp"
#include "tensor/convert.hpp"

namespace assay::vendor::msit {
namespace {

// ---- names ----

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Python's int(): a sign and blanks around are fine.
std::optional<int64_t> python_int(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(" \t") - first + 1);
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') text.remove_prefix(1);
  return parse_number<int64_t>(text);
}

bool is_language(std::string_view part) {
  for (const std::string_view language : {"cpp", "go", "java", "js", "python"}) {
    if (part == language) return true;
  }
  return false;
}

// ---- arithmetic of a dtype ----

/// The dtype in which torch computes on a tensor. Integers and small floats have no softmax in
/// torch; they are computed as fp32.
DType arithmetic_of(DType dtype) {
  const bool is_native =
      dtype == DType::Float64 || dtype == DType::Float16 || dtype == DType::BFloat16;
  return is_native ? dtype : DType::Float32;
}

bool is_half(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }

/// Half types are computed in fp32 and rounded once at the end, as torch's kernels do.
double store(DType dtype, double value) {
  if (dtype == DType::Float64) return value;
  const auto single = static_cast<double>(static_cast<float>(value));
  static const measure::Rounding float16(DType::Float16);
  static const measure::Rounding bfloat16(DType::BFloat16);
  if (!is_half(dtype)) return single;
  return (dtype == DType::Float16 ? float16 : bfloat16).nearest(single);
}

DType promoted(DType a, DType b) {
  if (a == b) return a;
  return a == DType::Float64 || b == DType::Float64 ? DType::Float64 : DType::Float32;
}

/// Sum of exp(x - max), its terms and max of one row.
struct Exponentials {
  std::vector<double> terms;
  double sum = 0;
  double max = 0;
};

Exponentials exponentials(std::span<const double> row, DType dtype) {
  // Between the steps torch keeps fp32, or fp64 for fp64.
  const DType between = dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  Exponentials out;
  out.max = *std::max_element(row.begin(), row.end());
  out.terms.reserve(row.size());
  for (const double value : row) {
    out.terms.push_back(store(between, std::exp(store(between, value - out.max))));
    out.sum += out.terms.back();
  }
  out.sum = store(between, out.sum);
  return out;
}

/// Adds the terms of one row. `log_total` is what torch's log_softmax subtracts behind the maximum:
/// for half types it went through the half type twice.
double kl_of_row(std::span<const double> golden, std::span<const double> mine, DType golden_dtype,
                 DType mine_dtype) {
  const Exponentials p_parts = exponentials(golden, golden_dtype);
  const Exponentials q_parts = exponentials(mine, mine_dtype);
  const DType between = mine_dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const double total = is_half(mine_dtype) ? store(mine_dtype, q_parts.sum) : q_parts.sum;
  const double log_total = store(is_half(mine_dtype) ? mine_dtype : between, std::log(total));
  const DType result = promoted(golden_dtype, mine_dtype);
  double sum = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double p = store(golden_dtype, p_parts.terms[i] / p_parts.sum);
    const double log_q = store(mine_dtype, store(between, mine[i] - q_parts.max) - log_total);
    const double own = p == 0 ? 0 : store(golden_dtype, p * store(golden_dtype, std::log(p)));
    sum += store(result, own - store(result, p * log_q));
  }
  return sum;
}

std::vector<double> values_of(const TensorView& view) {
  std::vector<double> values(static_cast<size_t>(view.element_count()) *
                             static_cast<size_t>(values_per_element(view.dtype)));
  read_values(view, 0, view.element_count(), values);
  return values;
}

size_t row_length(const TensorView& view, size_t value_count) {
  const int64_t last = view.shape.size() == 0 ? 1 : view.shape[view.shape.size() - 1];
  const size_t length =
      static_cast<size_t>(last) * static_cast<size_t>(values_per_element(view.dtype));
  return length == 0 ? value_count : length;
}

double kl_of_values(const TensorView& golden, const std::vector<double>& golden_values,
                    const TensorView& mine, const std::vector<double>& mine_values) {
  const DType golden_dtype = arithmetic_of(golden.dtype);
  const DType mine_dtype = arithmetic_of(mine.dtype);
  const size_t length = row_length(golden, golden_values.size());
  double sum = 0;
  for (size_t first = 0; first + length <= golden_values.size(); first += length) {
    sum += kl_of_row(std::span(golden_values).subspan(first, length),
                     std::span(mine_values).subspan(first, length), golden_dtype, mine_dtype);
  }
  const double result = store(promoted(golden_dtype, mine_dtype), sum);
  return result < 0 ? 0 : result;
}

double sum_of_magnitudes(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::abs(value);
  return sum;
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

Dims without_leading_one(const Dims& shape) {
  if (shape.size() == 0 || shape[0] != 1) return shape;
  Dims rest;
  for (size_t i = 1; i < shape.size(); ++i) rest.push_back(shape[i]);
  return rest;
}

}  // namespace

std::string LogitsName::key_text() const {
  return (language.empty() ? "" : language + "/") + std::to_string(key);
}

Result<LogitsName> parse_logits_name(std::string_view file_name) {
  const size_t dot = file_name.rfind('.');
  const std::string_view stem =
      dot == std::string_view::npos || dot == 0 ? file_name : file_name.substr(0, dot);
  const std::vector<std::string_view> parts = split(stem, '_');
  LogitsName name;
  for (const std::string_view part : parts) {
    if (is_language(part)) name.language = part;  // the last one counts
  }
  if (!name.language.empty()) {
    std::vector<int64_t> numbers;  // from the end
    for (auto part = parts.rbegin(); part != parts.rend() && numbers.size() < 2; ++part) {
      if (!is_digits(*part)) continue;
      const std::optional<int64_t> number = parse_number<int64_t>(*part);
      if (!number) return fail(Errc::Invalid, "invalid_digits_" + std::string(*part));
      numbers.push_back(*number);
    }
    if (numbers.size() < 2) return fail(Errc::Invalid, "missing_digits_after_" + name.language);
    name.token = numbers[0];
    name.key = numbers[1];
    return name;
  }
  if (parts.size() < 2) return fail(Errc::Invalid, "invalid logits file name");
  const std::string_view key = parts[parts.size() - 2];
  const std::string_view token = parts[parts.size() - 1];
  const std::optional<int64_t> key_number = python_int(key);
  const std::optional<int64_t> token_number = python_int(token);
  if (!key_number || !token_number) {
    return fail(Errc::Invalid, "invalid_format_" + std::string(key) + "_" + std::string(token));
  }
  name.key = *key_number;
  name.token = *token_number;
  return name;
}

double kl_divergence_in_own_dtype(const TensorView& golden, const TensorView& mine) {
  return kl_of_values(golden, values_of(golden), mine, values_of(mine));
}

Result<LogitsMetrics> compare_logits(const TensorView& golden, const TensorView& mine,
                                     double spacing) {
  const std::vector<double> golden_values = values_of(golden);
  const std::vector<double> mine_values = values_of(mine);
  std::string problem;
  const auto add = [&](bool applies, const char* text) {
    if (applies) problem += (problem.empty() ? "" : " ") + std::string(text);
  };
  add(without_leading_one(golden.shape) != without_leading_one(mine.shape),
      "data shape doesn't match.");
  add(!all_finite(golden_values), "golden_data includes NAN or inf.");
  add(!all_finite(mine_values), "my_data includes NAN or inf.");
  add(problem.empty() && golden_values.size() != mine_values.size(), "data shape doesn't match.");
  add(problem.empty() && golden_values.empty(), "data is empty.");
  if (!problem.empty()) return fail(Errc::Invalid, problem);

  const auto max_of = [](const std::vector<double>& values) {
    // As float, like the original: fp64 logits have the maximum of their fp32 copy.
    return static_cast<float>(*std::max_element(values.begin(), values.end()));
  };
  const float golden_max = max_of(golden_values);
  const float mine_max = max_of(mine_values);
  if (mine_max == 0) return fail(Errc::Invalid, "max value is 0, cannot compute ulp");
  LogitsMetrics metrics;
  metrics.cosine_similarity = measure::cosine_like_torch(measure::sums_of(golden, mine));
  metrics.kl_divergence = kl_of_values(golden, golden_values, mine, mine_values);
  const double golden_sum = sum_of_magnitudes(golden_values);
  const double mine_sum = sum_of_magnitudes(mine_values);
  metrics.l1_is_defined = golden_sum != 0;
  metrics.l1_norm = golden_sum != 0 ? mine_sum / golden_sum - 1 : (mine_sum == 0 ? 0 : 1);
  metrics.ulp_max_diff = std::abs(golden_max - mine_max);
  metrics.ulp = mine_max < 0 ? NAN : std::exp2(std::floor(std::log2(mine_max))) * spacing;
  return metrics;
}

}  // namespace assay::vendor::msit

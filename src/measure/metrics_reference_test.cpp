// SPDX-License-Identifier: Apache-2.0
// The metrics as docs/metrics.md writes them down, one loop each, in long double: the twin of
// metrics.cpp.
#include "measure/test_metrics_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/convert.hpp"

namespace assay::measure {
namespace {

using Values = std::vector<double>;
using Real = long double;

/// All values of a side, as pairs count them.
Values values_of(const TensorView& view, const TensorView& other, MetricRules rules) {
  const int64_t elements = view.element_count();
  Values raw(static_cast<size_t>(elements * values_per_element(view.dtype)));
  read_values(view, 0, elements, raw);
  Values out;
  const bool real_part = rules == MetricRules::Float32 && is_complex(view.dtype);
  const bool pads =
      rules != MetricRules::Float32 && !is_complex(view.dtype) && is_complex(other.dtype);
  for (size_t i = 0; i < raw.size(); ++i) {
    if (real_part && i % 2 == 1) continue;
    out.push_back(rules == MetricRules::Float32 ? static_cast<double>(static_cast<float>(raw[i]))
                                                : raw[i]);
    if (pads) out.push_back(0);
  }
  return out;
}

/// KL(softmax(golden) || softmax(mine)) as a sum of positive terms q - p - p log(q / p).
Real divergence_of(const Values& golden, const Values& mine) {
  // Logarithms of a softmax; values are taken relative to the largest first, so that their size
  // does not matter.
  const auto log_softmax = [](const Values& values) {
    const auto largest = static_cast<Real>(*std::max_element(values.begin(), values.end()));
    std::vector<Real> out;
    Real sum = 0;
    for (const double value : values) {
      out.push_back(static_cast<Real>(value) - largest);
      sum += std::exp(out.back());
    }
    for (Real& value : out) value -= std::log(sum);
    return out;
  };
  const std::vector<Real> golden_log = log_softmax(golden);
  const std::vector<Real> mine_log = log_softmax(mine);
  Real sum = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const Real log_p = golden_log[i];
    const Real log_ratio = mine_log[i] - log_p;
    const Real p = std::exp(log_p);
    if (std::fabs(log_ratio) < 1) {
      sum += p * (std::expm1(log_ratio) - log_ratio);
    } else {
      sum += std::exp(mine_log[i]) - p - p * log_ratio;
    }
  }
  return std::max(sum, Real{0});
}

struct Errors {
  Real absolute;
  Real relative;
};
Errors errors_corrected(double golden, double mine) {
  const Real absolute = std::fabs(static_cast<Real>(mine) - static_cast<Real>(golden));
  return {absolute, absolute / std::max(std::fabs(static_cast<Real>(golden)),
                                        static_cast<Real>(kRelativeErrorFloor))};
}
Errors errors_float32(double golden, double mine) {
  const auto g = static_cast<float>(golden);
  const auto m = static_cast<float>(mine);
  if (!(std::fabs(g) > static_cast<float>(kRelativeErrorFloor))) return {0, 0};
  const float ratio = m / g;
  const float relative = ratio - 1.0f;
  const float absolute = m - g;
  return {static_cast<Real>(std::fabs(absolute)), static_cast<Real>(std::fabs(relative))};
}

double as_float(Real value) { return static_cast<double>(static_cast<float>(value)); }

void count_pattern(double golden, double mine, PairMetrics& out) {
  if (std::isnan(golden) && std::isnan(mine))
    ++out.nan_in_both;
  else if (std::isnan(golden))
    ++out.nan_only_in_golden;
  else if (std::isnan(mine))
    ++out.nan_only_in_mine;
  else if (std::isinf(golden) && std::isinf(mine)) {
    ++out.inf_in_both;
    if (golden != mine) ++out.inf_sign_mismatches;
  } else if (std::isinf(golden))
    ++out.inf_only_in_golden;
  else
    ++out.inf_only_in_mine;
}

void set_row_divergence(const TensorView& golden_view, const Values& golden, const Values& mine,
                        PairMetrics& out) {
  size_t row = 1;
  if (!golden_view.shape.empty()) {
    const auto per_element = golden.size() / static_cast<size_t>(golden_view.element_count());
    row = static_cast<size_t>(golden_view.shape[golden_view.shape.size() - 1]) * per_element;
  }
  Real sum = 0;
  Real largest = 0;
  int64_t rows = 0;
  for (size_t begin = 0; begin < golden.size(); begin += row) {
    Values g;
    Values m;
    for (size_t i = begin; i < begin + row; ++i) {
      if (!std::isfinite(golden[i]) || !std::isfinite(mine[i])) continue;
      g.push_back(golden[i]);
      m.push_back(mine[i]);
    }
    if (g.empty()) continue;
    const Real divergence = divergence_of(g, m);
    sum += divergence;
    largest = std::max(largest, divergence);
    ++rows;
  }
  out.kl_row_mean = static_cast<double>(sum / static_cast<Real>(rows));
  out.kl_row_max = static_cast<double>(largest);
}

struct Sums {
  Real gg = 0, mm = 0, gm = 0, dd = 0, absolute = 0, relative = 0, max_absolute = 0,
       max_relative = 0;
};

void set_corrected(const Sums& sums, PairMetrics& out) {
  const auto count = static_cast<Real>(out.compared_count);
  if (sums.gg == 0 && sums.mm == 0)
    out.cosine_similarity = 1;
  else if (sums.gg == 0 || sums.mm == 0)
    out.cosine_similarity = 0;
  else
    out.cosine_similarity =
        static_cast<double>(sums.gm / (std::sqrt(sums.gg) * std::sqrt(sums.mm)));
  out.max_absolute_error = static_cast<double>(sums.max_absolute);
  out.mean_absolute_error = static_cast<double>(sums.absolute / count);
  out.max_relative_error = static_cast<double>(sums.max_relative);
  out.mean_relative_error = static_cast<double>(sums.relative / count);
  out.relative_euclidean_distance =
      sums.dd == 0 ? 0 : static_cast<double>(std::sqrt(sums.dd / sums.gg));
}

void set_float32(const Sums& sums, PairMetrics& out) {
  const auto count = static_cast<Real>(out.compared_count);
  const Real golden_norm = std::sqrt(sums.gg);
  const Real mine_norm = std::sqrt(sums.mm);
  if (golden_norm == 0 && mine_norm == 0) {
    out.cosine_similarity = 1;
  } else if (golden_norm == 0 || mine_norm == 0) {
    out.cosine_similarity = 0;
  } else {
    const Real cosine =
        sums.gm / (std::max<Real>(golden_norm, 1e-8L) * std::max<Real>(mine_norm, 1e-8L));
    out.cosine_similarity = std::nearbyint(static_cast<double>(cosine) * 1e10) / 1e10;
  }
  out.max_absolute_error = as_float(sums.max_absolute);
  out.mean_absolute_error = as_float(static_cast<Real>(as_float(sums.absolute)) / count);
  out.max_relative_error = as_float(sums.max_relative);
  out.mean_relative_error = as_float(static_cast<Real>(as_float(sums.relative)) / count);
  const auto numerator = static_cast<float>(sums.dd);
  const auto denominator = static_cast<float>(sums.gg);
  if (as_float(golden_norm) <= kRelativeErrorFloor) {
    out.relative_euclidean_distance = 0;
  } else if (std::isinf(numerator) || std::isinf(denominator)) {
    out.relative_euclidean_distance = static_cast<double>(std::sqrt(numerator / denominator));
  } else {
    out.relative_euclidean_distance = static_cast<double>(std::sqrt(sums.dd / sums.gg));
  }
}

stats::TensorStats float_stats(const Values& values) {
  const auto view = make_view(DType::Float64, {static_cast<int64_t>(values.size())},
                              std::as_bytes(std::span(values)));
  stats::TensorStats out = stats::compute_stats_reference(*view).with_non_finite();
  out.mean = as_float(
      static_cast<Real>(as_float(static_cast<Real>(out.mean) * static_cast<Real>(out.count))) /
      static_cast<Real>(out.count));
  out.l2_norm = as_float(static_cast<Real>(out.l2_norm));
  return out;
}

}  // namespace

PairMetrics compare_tensors_reference(const TensorView& golden_view, const TensorView& mine_view,
                                      const MetricOptions& options) {
  const bool as_float32 = options.rules == MetricRules::Float32;
  const Values golden = values_of(golden_view, mine_view, options.rules);
  const Values mine = values_of(mine_view, golden_view, options.rules);
  PairMetrics out;
  out.value_count = static_cast<int64_t>(golden.size());
  if (golden.size() != mine.size()) {
    out.state = PairState::CountMismatch;
    out.golden = stats::compute_stats_reference(golden_view);
    out.mine = stats::compute_stats_reference(mine_view);
    return out;
  }
  if (golden.empty()) return out;
  out.golden = as_float32 ? float_stats(golden) : stats::compute_stats_reference(golden_view);
  out.mine = as_float32 ? float_stats(mine) : stats::compute_stats_reference(mine_view);

  Sums sums;
  Values finite_golden;
  Values finite_mine;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double g = golden[i];
    const double m = mine[i];
    if (!std::isfinite(g) || !std::isfinite(m)) {
      count_pattern(g, m, out);
      continue;
    }
    ++out.compared_count;
    if (std::fabs(g) <= kRelativeErrorFloor) ++out.masked_count;
    const Errors errors = as_float32 ? errors_float32(g, m) : errors_corrected(g, m);
    const Real difference = as_float32
                                ? static_cast<Real>(static_cast<float>(m) - static_cast<float>(g))
                                : static_cast<Real>(m) - static_cast<Real>(g);
    sums.gg += static_cast<Real>(g) * static_cast<Real>(g);
    sums.mm += static_cast<Real>(m) * static_cast<Real>(m);
    sums.gm += static_cast<Real>(g) * static_cast<Real>(m);
    sums.dd += difference * difference;
    sums.absolute += errors.absolute;
    sums.relative += errors.relative;
    if (errors.absolute > sums.max_absolute) {
      sums.max_absolute = errors.absolute;
      out.worst_absolute_index = static_cast<int64_t>(i);
    }
    if (errors.relative > sums.max_relative) {
      sums.max_relative = errors.relative;
      out.worst_relative_index = static_cast<int64_t>(i);
    }
    finite_golden.push_back(g);
    finite_mine.push_back(m);
  }
  if (finite_golden.empty() || (as_float32 && out.compared_count != out.value_count)) {
    out.state = PairState::NonFinite;
    out.worst_absolute_index = out.worst_relative_index = -1;
    return out;
  }
  out.state = PairState::Compared;
  if (as_float32)
    set_float32(sums, out);
  else
    set_corrected(sums, out);
  if (!options.kl_divergence) return out;
  const Real divergence = divergence_of(finite_golden, finite_mine);
  out.kl_divergence = static_cast<double>(divergence);
  if (!as_float32) set_row_divergence(golden_view, golden, mine, out);
  return out;
}

}  // namespace assay::measure

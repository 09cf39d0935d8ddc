// SPDX-License-Identifier: Apache-2.0
// One pass over both sides in blocks, joined in index order. The loop over elements here defines
// the measures; finite blocks of the usual float types go through measures_kernel.cpp.
#include "measure/measures.hpp"

#include <algorithm>
#include <optional>

#include "measure/measures_kernel.hpp"
#include "measure/metrics.hpp"
#include "measure/pair_sums.hpp"
#include "measure/rounding.hpp"
#include "measure/standards.hpp"
#include "stats/tensor_stats.hpp"
#include "stats/whole_tensor.hpp"
#include "tensor/convert.hpp"
#include "tensor/equal_bytes.hpp"

namespace assay::measure {
namespace {

constexpr std::array<int64_t, 5> kUlpLimits = {0, 1, 2, 4, 8};

PairSource source_of(const TensorView& golden, const TensorView& mine) {
  PairSource source = make_source(golden, mine, MetricRules::Corrected);
  source.value_count = mine.element_count();
  return source;
}

class Meter {
 public:
  Meter(const TensorView& golden, const TensorView& mine, const MeasureOptions& options)
      : source_(source_of(golden, mine)), rounding_(mine.dtype) {
    out_.count = source_.value_count;
    out_.dtype = mine.dtype;
    moved_ = golden.dtype == mine.dtype && is_float(mine.dtype);
    half_ = mine.dtype == DType::Float16 || mine.dtype == DType::BFloat16;
    const MixedLimits mixed = mixed_limits(mine.dtype);
    const std::optional<LegacyLimits> o4 = legacy_limits(Standard::LegacyO4, mine.dtype);
    const std::optional<LegacyLimits> o1 = legacy_limits(Standard::LegacyO1, mine.dtype);
    has_legacy_ = o4 && o1;
    limits_ = {options.atb_error, mixed.tolerance, mixed.floor, has_legacy_ ? o4->etol : 0,
               has_legacy_ ? o1->etol : 0};
    // Integers divide in torch's default type.
    if (!is_float(mine.dtype)) quotient_rounding_ = Rounding(DType::Float32);
    has_kernel_ = !moved_ && (half_ || mine.dtype == DType::Float32);
  }

  Measures run();

 private:
  void add_block();
  BlockSums measure_plain_block();
  void add_equal_block();
  void set_worst(double worst);
  void measure_element(int64_t i, BlockSums* sums);
  void measure_not_finite(int64_t index, double golden, double mine);
  void measure_legacy(double golden, double mine);
  void measure_rounding(int64_t index, double golden, double mine, double difference);
  void finish();

  const PairSource source_;
  Rounding rounding_;
  Rounding quotient_rounding_{rounding_};
  bool moved_ = false;
  bool half_ = false;
  bool has_kernel_ = false;
  bool has_legacy_ = false;
  BlockLimits limits_;
  Measures out_;
  PairSums total_;
  double balance_ = 0, ratio_error_ = 0, worst_ = 0;
  int64_t first_ = 0;  // of the block
  Block block_;
};

void Meter::measure_not_finite(int64_t index, double golden, double mine) {
  out_.golden_nan += std::isnan(golden);
  out_.golden_inf += std::isinf(golden);
  out_.mine_nan += std::isnan(mine);
  out_.mine_inf += std::isinf(mine);
  bool same = std::isnan(golden) && std::isnan(mine);
  if (std::isinf(mine) && std::signbit(mine) == std::signbit(golden)) {
    const double magnitude = std::fabs(golden);
    same = std::isinf(golden) ||
           magnitude + limits_.atb_error * std::max(1.0, magnitude) >= rounding_.overflow();
  }
  if (same) {
    ++out_.atb_within;
    ++out_.mixed_within;
    ++out_.ulp_histogram.front();
    return;
  }
  ++out_.ulp_histogram.back();
  if (out_.pattern_mismatches++ == 0) out_.first_pattern_mismatch = index;
}

// The arithmetic of the original: golden stored in the dtype of mine, every operation rounded to
// that dtype.
void Meter::measure_legacy(double golden, double mine) {
  if (mine == golden && std::fabs(golden) <= std::numeric_limits<float>::max()) {
    ++out_.legacy_o4_within;
    ++out_.legacy_abs_within;
    ++out_.legacy_o1_within;
    ++out_.legacy_o1_abs_within;
    return;
  }
  const double stored = rounding_.nearest(golden);
  const bool counts = std::fabs(stored) > kMeasureEpsilon;  // false for NaN
  double relative = 0;
  if (counts) {
    // The half types divide in float32 and store the result.
    const double wide_quotient = mine / stored;
    const double quotient =
        quotient_rounding_.nearest(half_ ? to_float32(wide_quotient) : wide_quotient);
    relative = std::fabs(quotient_rounding_.nearest(quotient - 1.0));
  }
  out_.legacy_o4_within += relative <= quotient_rounding_.nearest(limits_.o4_etol);
  raise(relative, &out_.legacy_o4_max_rel);
  const double from_stored = std::fabs(mine - stored);
  const double absolute = counts ? from_stored : 0;
  out_.legacy_abs_within += absolute <= limits_.o4_etol;
  raise(absolute, &out_.legacy_max_abs);

  const auto g = static_cast<float>(stored);
  const auto o = static_cast<float>(mine);
  const float divisor = g == 0 ? static_cast<float>(kO1ZeroStandIn) : g;
  out_.legacy_o1_within += std::fabs((o - g) / divisor) <= static_cast<float>(limits_.o1_etol);
  out_.legacy_o1_abs_within += from_stored <= limits_.o1_etol;
  raise(from_stored, &out_.legacy_o1_max_abs);
  raise(std::fabs(g) > kMeasureEpsilon ? static_cast<double>(std::fabs(o / g - 1.0f)) : 0,
        &out_.legacy_o1_max_rel);
}

void Meter::measure_rounding(int64_t index, double golden, double mine, double difference) {
  const double stored = rounding_.nearest(golden);
  if (std::isinf(stored)) {  // golden overflows, mine does not
    ++out_.ulp_histogram.back();
    return;
  }
  const uint64_t distance = source_.exact_integers
                                ? static_cast<uint64_t>(std::min(std::fabs(difference), 0x1p63))
                                : rounding_.distance(stored, mine);
  size_t bin = 0;
  while (bin < kUlpLimits.size() && distance > static_cast<uint64_t>(kUlpLimits[bin])) ++bin;
  ++out_.ulp_histogram[bin];
  if (moved_ && golden == 0 && mine == 0 && std::signbit(golden) != std::signbit(mine)) {
    if (out_.zero_sign_mismatches++ == 0 && out_.worst_index < 0) out_.worst_index = index;
  }
  if (!half_ || stored == golden) return;
  ++out_.inexact;
  const double cut = rounding_.truncated(golden);
  out_.truncated += mine == cut;
  if (stored == cut) return;
  ++out_.away;
  out_.away_truncated += mine == cut;
  // 64 classes from the last digits of the number of the value.
  out_.away_values |= uint64_t{1} << (rounding_.distance(0, stored) % 64);
}

void Meter::measure_element(int64_t i, BlockSums* sums) {
  const int64_t index = first_ + i;
  const double golden = block_.golden[i];
  const double mine = block_.mine[i];
  if (has_legacy_) measure_legacy(golden, mine);
  if (!std::isfinite(golden) || !std::isfinite(mine)) {
    measure_not_finite(index, golden, mine);
    return;
  }
  const double difference = block_.difference[i];
  const double error = std::fabs(difference);
  const double magnitude = std::fabs(golden);
  const double scale = std::max(1.0, magnitude);
  const double ratio = error / (magnitude + kRatioFloor);
  sums->balance += difference / scale;
  sums->ratio_error += ratio;
  sums->worst = std::max(sums->worst, error / scale);
  out_.mare = std::max(out_.mare, ratio);
  out_.atb_within += error <= limits_.atb_error * scale;
  out_.mixed_within += error <= limits_.mixed_tolerance * (1 + magnitude);
  out_.mixed_too_far += error > std::max(limits_.mixed_floor, kMixedUnits * rounding_.unit(golden));
  measure_rounding(index, golden, mine, difference);
}

BlockSums Meter::measure_plain_block() {
  BlockSums sums;
  for (int64_t i = 0; i < block_.count; ++i) measure_element(i, &sums);
  return sums;
}

// Quantised outputs are, nearly all of them, equal to their goldens.
void Meter::add_equal_block() {
  for (int64_t* within : {&out_.atb_within, &out_.mixed_within, &out_.ulp_histogram.front()})
    *within += block_.count;
  if (!has_legacy_) return;
  for (int64_t* within : {&out_.legacy_o4_within, &out_.legacy_abs_within, &out_.legacy_o1_within,
                          &out_.legacy_o1_abs_within})
    *within += block_.count;
}

void Meter::set_worst(double worst) {
  if (!(worst > worst_)) return;
  worst_ = worst;
  int64_t i = 0;
  while (std::fabs(block_.difference[i]) / std::max(1.0, std::fabs(block_.golden[i])) != worst) ++i;
  out_.worst_index = first_ + i;
}

void Meter::finish() {
  if (out_.first_pattern_mismatch >= 0) out_.worst_index = out_.first_pattern_mismatch;
  const auto places = static_cast<double>(std::max<int64_t>(total_.count, 1));
  out_.max_abs_error = total_.max_absolute;
  out_.max_rel_error = total_.max_relative;
  out_.mean_abs_error = total_.absolute / places;
  out_.mean_rel_error = total_.relative / places;
  out_.mere = ratio_error_ / places;
  out_.rmse = std::sqrt(total_.difference_squared / places);
  out_.error_balance = std::fabs(balance_) / static_cast<double>(std::max<int64_t>(out_.count, 1));
  out_.nmse =
      total_.difference_squared == 0 ? 0 : total_.difference_squared / total_.golden_squared;
  out_.relative_l2 = std::sqrt(out_.nmse);
  out_.cosine = cosine_of(total_.golden_squared, total_.mine_squared, total_.product);
}

void Meter::add_block() {
  const auto sum_block = [&] {
    return sum_pairs(MetricRules::Corrected, block_.golden, block_.mine, block_.difference,
                     block_.count);
  };
  PairSums sums = sum_block();
  BlockSums own;
  const bool finite = std::isfinite(sums.golden_squared) && std::isfinite(sums.mine_squared);
  if (!is_float(out_.dtype) && finite && sums.max_absolute == 0) {
    add_equal_block();
  } else if (has_kernel_ && finite &&
             std::max(-sums.golden_min, sums.golden_max) < rounding_.overflow()) {
    measure_block(block_, limits_, &own, &out_);
  } else {
    own = measure_plain_block();
  }
  balance_ += own.balance;
  ratio_error_ += own.ratio_error;
  set_worst(own.worst);
  if (!finite) {
    keep_finite_pairs(block_, [](int64_t, double, double) {});
    sums = sum_block();
  }
  total_.merge(sums);
}

Measures Meter::run() {
  for_each_block(source_, block_, [&](int64_t first) {
    first_ = first;
    add_block();
  });
  finish();
  return out_;
}

// ---- measures of their own ----

/// KL(softmax(golden) || softmax(mine)) over all places where both sides are finite.
double kl_divergence(const TensorView& golden, const TensorView& mine) {
  const PairMetrics metrics = compare_tensors(golden, mine);
  return metrics.state == PairState::Compared ? metrics.kl_divergence : 0;
}

/// Two-sample test of Kolmogorov and Smirnov; the probability by the asymptotic series with
/// Stephens' correction.
/// source  M. A. Stephens, J. R. Stat. Soc. B 32 (1970) 115
void kolmogorov_smirnov(const TensorView& golden, const TensorView& mine, Measures* out) {
  std::vector<double> g, m;
  Block block;
  for_each_block(source_of(golden, mine), block, [&](int64_t) {
    keep_finite_pairs(block, [](int64_t, double, double) {});
    g.insert(g.end(), block.golden, block.golden + block.count);
    m.insert(m.end(), block.mine, block.mine + block.count);
  });
  std::sort(g.begin(), g.end());
  std::sort(m.begin(), m.end());
  const auto count = static_cast<double>(g.size());
  double distance = 0;
  for (size_t i = 0, j = 0; i < g.size() && j < m.size();) {
    const double value = std::min(g[i], m[j]);
    while (i < g.size() && g[i] == value) ++i;
    while (j < m.size() && m[j] == value) ++j;
    const double apart = std::fabs(static_cast<double>(i) - static_cast<double>(j)) / count;
    distance = std::max(distance, apart);
  }
  out->kolmogorov_smirnov = distance;
  const double root = std::sqrt(count / 2);
  const double lambda = (root + 0.12 + 0.11 / root) * distance;
  double probability = 0;
  for (int k = 1; k <= 100; ++k) {
    const double term = std::exp(-2.0 * k * k * lambda * lambda);
    probability += k % 2 == 1 ? 2 * term : -2 * term;
    if (term < 1e-16) break;
  }
  // The series does not converge near 0, where the distributions are as good as equal.
  out->kolmogorov_smirnov_p = lambda < 0.2 ? 1 : std::clamp(probability, 0.0, 1.0);
}

// ---- equal bytes ----

Measures measures_of_equal(const TensorView& mine) {
  Measures out;
  out.count = mine.element_count();
  out.dtype = mine.dtype;
  out.cosine = 1;
  if (has_non_finite(mine.dtype)) {
    const stats::TensorStats values = stats::statistics_of(mine);
    out.golden_nan = out.mine_nan = values.nan_count;
    out.golden_inf = out.mine_inf = values.positive_inf_count + values.negative_inf_count;
  }
  out.atb_within = out.mixed_within = out.ulp_histogram.front() = out.count;
  // Legacy: infinity / infinity is NaN, and so are all differences of NaN and of infinities.
  if (legacy_limits(Standard::LegacyO4, mine.dtype)) {
    out.legacy_o4_within = out.legacy_abs_within = out.count - out.mine_inf;
    out.legacy_o1_within = out.legacy_o1_abs_within = out.count - out.mine_inf - out.mine_nan;
    if (out.mine_inf + out.mine_nan > 0) out.legacy_o1_max_abs = NAN;
    if (out.mine_inf > 0) out.legacy_o4_max_rel = out.legacy_max_abs = out.legacy_o1_max_rel = NAN;
  }
  return out;
}

Status check_measurable(const TensorView& view) {
  const DTypeInfo& type = info(view.dtype);
  if (type.kind == DTypeKind::Complex || type.kind == DTypeKind::Bits || type.element_values != 1)
    return fail(Errc::Unsupported, std::string(name(view.dtype)) + " values cannot be judged");
  return {};
}

}  // namespace

Result<Measures> measures_of(const TensorView& golden, const TensorView& mine,
                             const MeasureOptions& options) {
  ASSAY_TRY_STATUS(check_measurable(golden));
  ASSAY_TRY_STATUS(check_measurable(mine));
  if (golden.element_count() != mine.element_count())
    return fail(Errc::Invalid, "golden has shape " + list_text(golden.shape.span()) +
                                   ", the output has " + list_text(mine.shape.span()));
  // What was moved is usually equal byte for byte, and all there is to count then are NaN and
  // infinities. Of float64 beyond the range of float32 the legacy errors are others.
  Measures measures = mine.dtype != DType::Float64 && has_equal_bytes(golden, mine)
                          ? measures_of_equal(mine)
                          : Meter(golden, mine, options).run();
  if (options.kl_divergence) measures.kl_divergence = kl_divergence(golden, mine);
  if (options.kolmogorov_smirnov) kolmogorov_smirnov(golden, mine, &measures);
  return measures;
}

Neighbourhood neighbourhood_of(const TensorView& golden, const TensorView& mine,
                               int64_t flat_index) {
  constexpr int64_t kBefore = 2;
  constexpr int64_t kLength = 5;
  const int64_t count = std::min(golden.element_count(), mine.element_count());
  Neighbourhood out;
  if (flat_index < 0 || flat_index >= count) return out;
  int64_t rest = flat_index;
  out.index.resize(mine.shape.size());
  for (size_t axis = mine.shape.size(); axis-- > 0;) {
    out.index[axis] = rest % mine.shape[axis];
    rest /= mine.shape[axis];
  }
  out.first = std::max<int64_t>(0, flat_index - kBefore);
  const int64_t length = std::min(kLength, count - out.first);
  out.golden_values.resize(static_cast<size_t>(length));
  out.mine_values.resize(static_cast<size_t>(length));
  read_values(golden, out.first, length, out.golden_values);
  read_values(mine, out.first, length, out.mine_values);
  out.golden = out.golden_values[static_cast<size_t>(flat_index - out.first)];
  out.mine = out.mine_values[static_cast<size_t>(flat_index - out.first)];
  return out;
}

}  // namespace assay::measure

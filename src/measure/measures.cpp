// SPDX-License-Identifier: Apache-2.0
// One pass over both sides in blocks, joined in index order. The loop over elements here defines the measures; finite
// blocks of the usual float types go through measures_kernel.cpp.
#include "measure/measures.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "base/interruption.hpp"
#include "measure/measures_kernel.hpp"
#include "measure/rounding.hpp"
#include "measure/standards.hpp"
#include "stats/tensor_stats.hpp"
#include "stats/whole_tensor.hpp"
#include "tensor/convert.hpp"

namespace assay::measure {
namespace {

constexpr int64_t kBlockValues = kMeasureBlock;
constexpr std::array<int64_t, 5> kUlpLimits = {0, 1, 2, 4, 8};

/// Values of both sides and their exact differences.
struct Block {
  int64_t first = 0;
  int64_t count = 0;
  std::array<double, kBlockValues> golden, mine, difference;
};

/// What has to be added; each block starts from zero, so that the result does not depend on how many there are.
struct Sums {
  double abs_error = 0, rel_error = 0, balance = 0, ratio_error = 0;
  double difference_squared = 0, golden_squared = 0, mine_squared = 0, product = 0;

  void add(const Sums& block) {
    abs_error += block.abs_error;
    rel_error += block.rel_error;
    balance += block.balance;
    ratio_error += block.ratio_error;
    difference_squared += block.difference_squared;
    golden_squared += block.golden_squared;
    mine_squared += block.mine_squared;
    product += block.product;
  }
};

void raise(double value, double* largest) {
  if (std::isnan(value) || value > *largest) *largest = std::isnan(*largest) ? *largest : value;
}

// ---- 64-bit integers, which a double cannot tell apart ----

bool is_wide_integer(DType dtype) { return dtype == DType::Int64 || dtype == DType::UInt64; }

__extension__ typedef __int128 int128;

void read_integers(const TensorView& view, int64_t first, int64_t count, std::vector<int128>* out) {
  out->resize(static_cast<size_t>(count));
  if (is_wide_integer(view.dtype)) {
    std::vector<uint64_t> bits(out->size());
    gather_bytes(view, first, count, std::as_writable_bytes(std::span(bits)));
    std::transform(bits.begin(), bits.end(), out->begin(), [&](uint64_t value) {
      return view.dtype == DType::UInt64 ? int128{value} : int128{static_cast<int64_t>(value)};
    });
    return;
  }
  std::vector<double> values(out->size());
  read_values(view, first, count, values);
  std::transform(values.begin(), values.end(), out->begin(),
                 [](double value) { return static_cast<int128>(value); });
}

class Meter {
 public:
  Meter(const TensorView& golden, const TensorView& mine, const MeasureOptions& options)
      : golden_(golden), mine_(mine), options_(options), rounding_(mine.dtype) {
    out_.count = mine.element_count();
    out_.dtype = mine.dtype;
    const auto whole = [](DType dtype) { return is_integer(dtype) || dtype == DType::Bool; };
    exact_integers_ = whole(golden.dtype) && whole(mine.dtype) &&
                      (is_wide_integer(golden.dtype) || is_wide_integer(mine.dtype));
    moved_ = golden.dtype == mine.dtype && is_float(mine.dtype);
    half_ = mine.dtype == DType::Float16 || mine.dtype == DType::BFloat16;
    mixed_ = mixed_limits(mine.dtype);
    o4_ = legacy_limits(Standard::LegacyO4, mine.dtype);
    o1_ = legacy_limits(Standard::LegacyO1, mine.dtype);
    // Integers divide in torch's default type.
    if (!is_float(mine.dtype)) quotient_rounding_ = Rounding(DType::Float32);
    if (o4_) o4_etol_ = quotient_rounding_.nearest(o4_->etol);
    has_kernel_ = !moved_ && (half_ || mine.dtype == DType::Float32);
    if (has_kernel_)
      limits_ = {options.atb_error, mixed_.tolerance, mixed_.floor, o4_->etol, o1_->etol};
  }

  Measures run();

 private:
  void read(int64_t first, int64_t count);
  void measure_plain_block();
  void add_block(const BlockMeasures& block);
  [[nodiscard]] bool is_equal_integer_block() const;
  void add_equal_block();
  void measure_element(int64_t i, Sums* sums);
  void measure_not_finite(int64_t index, double golden, double mine);
  void measure_legacy(double golden, double mine);
  void measure_rounding(int64_t index, double golden, double mine, double difference);
  void finish();

  const TensorView& golden_;
  const TensorView& mine_;
  MeasureOptions options_;
  Rounding rounding_;
  Rounding quotient_rounding_{rounding_};
  bool exact_integers_ = false;
  bool moved_ = false;
  bool half_ = false;
  bool has_kernel_ = false;
  BlockLimits limits_;
  MixedLimits mixed_;
  std::optional<LegacyLimits> o4_, o1_;
  double o4_etol_ = 0;  // in the type of the quotient
  Measures out_;
  Sums total_;
  double worst_ = 0;
  int64_t finite_ = 0;
  std::unique_ptr<Block> block_ = std::make_unique<Block>();
  std::vector<int128> golden_integers_, mine_integers_;
};

void Meter::read(int64_t first, int64_t count) {
  Block& block = *block_;
  block.first = first;
  block.count = count;
  const auto length = static_cast<size_t>(count);
  read_values(golden_, first, count, std::span(block.golden).first(length));
  read_values(mine_, first, count, std::span(block.mine).first(length));
  if (!exact_integers_) {
    for (size_t i = 0; i < length; ++i) block.difference[i] = block.mine[i] - block.golden[i];
    return;
  }
  read_integers(golden_, first, count, &golden_integers_);
  read_integers(mine_, first, count, &mine_integers_);
  for (size_t i = 0; i < length; ++i)
    block.difference[i] = static_cast<double>(mine_integers_[i] - golden_integers_[i]);
}

void Meter::measure_not_finite(int64_t index, double golden, double mine) {
  out_.golden_nan += std::isnan(golden);
  out_.golden_inf += std::isinf(golden);
  out_.mine_nan += std::isnan(mine);
  out_.mine_inf += std::isinf(mine);
  bool same = std::isnan(golden) && std::isnan(mine);
  if (std::isinf(mine) && std::signbit(mine) == std::signbit(golden)) {
    const double magnitude = std::fabs(golden);
    same = std::isinf(golden) ||
           magnitude + options_.atb_error * std::max(1.0, magnitude) >= rounding_.overflow();
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

// The arithmetic of the original: golden stored in mine's dtype, every operation rounded to that dtype.
void Meter::measure_legacy(double golden, double mine) {
  if (mine == golden && std::fabs(golden) <= std::numeric_limits<float>::max()) {
    out_.legacy_o4_within += o4_.has_value();
    out_.legacy_abs_within += o4_.has_value();
    out_.legacy_o1_within += o1_.has_value();
    out_.legacy_o1_abs_within += o1_.has_value();
    return;
  }
  const double stored = rounding_.nearest(golden);
  const bool counts = std::fabs(stored) > kMeasureEpsilon;  // false for NaN
  if (o4_) {
    double relative = 0;
    if (counts) {
      // The half types divide in float32 and store the result.
      const double wide_quotient = mine / stored;
      const double quotient = quotient_rounding_.nearest(
          half_ ? static_cast<double>(static_cast<float>(wide_quotient)) : wide_quotient);
      relative = std::fabs(quotient_rounding_.nearest(quotient - 1.0));
    }
    out_.legacy_o4_within += relative <= o4_etol_;
    raise(relative, &out_.legacy_o4_max_rel);
    const double absolute = counts ? std::fabs(mine - stored) : 0;
    out_.legacy_abs_within += absolute <= o4_->etol;
    raise(absolute, &out_.legacy_max_abs);
  }
  if (o1_) {
    const auto g = static_cast<float>(stored);
    const auto o = static_cast<float>(mine);
    const float divisor = g == 0 ? static_cast<float>(kO1ZeroStandIn) : g;
    const float relative = std::fabs((o - g) / divisor);
    out_.legacy_o1_within += relative <= static_cast<float>(o1_->etol);
    const double absolute = std::fabs(mine - stored);
    out_.legacy_o1_abs_within += absolute <= o1_->etol;
    raise(absolute, &out_.legacy_o1_max_abs);
    raise(std::fabs(g) > kMeasureEpsilon ? static_cast<double>(std::fabs(o / g - 1.0f)) : 0,
          &out_.legacy_o1_max_rel);
  }
}

void Meter::measure_rounding(int64_t index, double golden, double mine, double difference) {
  const double stored = rounding_.nearest(golden);
  if (std::isinf(stored)) {  // golden overflows, mine does not
    ++out_.ulp_histogram.back();
    return;
  }
  const uint64_t distance = exact_integers_
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

void Meter::measure_element(int64_t i, Sums* sums) {
  const int64_t index = block_->first + i;
  const auto place = static_cast<size_t>(i);
  const double golden = block_->golden[place];
  const double mine = block_->mine[place];
  measure_legacy(golden, mine);
  if (!std::isfinite(golden) || !std::isfinite(mine)) {
    measure_not_finite(index, golden, mine);
    return;
  }
  ++finite_;
  const double difference = block_->difference[place];
  const double error = std::fabs(difference);
  const double magnitude = std::fabs(golden);
  const double scale = std::max(1.0, magnitude);
  const double balance = difference / scale;
  const double relative = error / std::max(magnitude, kMeasureEpsilon);
  const double ratio = error / (magnitude + kRatioFloor);
  sums->abs_error += error;
  sums->rel_error += relative;
  sums->balance += balance;
  sums->ratio_error += ratio;
  sums->difference_squared += difference * difference;
  sums->golden_squared += golden * golden;
  sums->mine_squared += mine * mine;
  sums->product += golden * mine;
  out_.max_abs_error = std::max(out_.max_abs_error, error);
  out_.max_rel_error = std::max(out_.max_rel_error, relative);
  out_.mare = std::max(out_.mare, ratio);
  if (std::fabs(balance) > worst_) {
    worst_ = std::fabs(balance);
    out_.worst_index = index;
  }
  out_.atb_within += error <= options_.atb_error * scale;
  out_.mixed_within += error <= mixed_.tolerance * (1 + magnitude);
  out_.mixed_too_far +=
      error > std::max(mixed_.floor, static_cast<double>(kMixedUnits) * rounding_.unit(golden));
  measure_rounding(index, golden, mine, difference);
}

void Meter::measure_plain_block() {
  Sums sums;
  for (int64_t i = 0; i < block_->count; ++i) measure_element(i, &sums);
  total_.add(sums);
}

void Meter::add_block(const BlockMeasures& block) {
  finite_ += block_->count;
  total_.add({block.abs_error, block.rel_error, block.balance, block.ratio_error,
              block.difference_squared, block.golden_squared, block.mine_squared, block.product});
  out_.max_abs_error = std::max(out_.max_abs_error, block.max_abs_error);
  out_.max_rel_error = std::max(out_.max_rel_error, block.max_rel_error);
  out_.mare = std::max(out_.mare, block.mare);
  if (block.worst > worst_) {
    worst_ = block.worst;
    const auto is_worst = [&](size_t i) {
      const double scale = std::max(1.0, std::fabs(block_->golden[i]));
      return std::fabs(block_->difference[i] / scale) == worst_;
    };
    size_t place = 0;
    while (!is_worst(place)) ++place;
    out_.worst_index = block_->first + static_cast<int64_t>(place);
  }
  out_.atb_within += block.atb_within;
  out_.mixed_within += block.mixed_within;
  out_.mixed_too_far += block.mixed_too_far;
  out_.legacy_o4_within += block.o4_within;
  raise(block.o4_max_rel, &out_.legacy_o4_max_rel);
  out_.legacy_abs_within += block.legacy_abs_within;
  raise(block.legacy_max_abs, &out_.legacy_max_abs);
  out_.legacy_o1_within += block.o1_within;
  raise(block.o1_max_rel, &out_.legacy_o1_max_rel);
  out_.legacy_o1_abs_within += block.o1_abs_within;
  raise(block.o1_max_abs, &out_.legacy_o1_max_abs);
  int64_t counted = 0;
  for (size_t bin = 0; bin < kUlpLimits.size(); ++bin) {
    out_.ulp_histogram[bin] += block.ulp_at_most[bin] - counted;
    counted = block.ulp_at_most[bin];
  }
  out_.ulp_histogram.back() += block_->count - counted;
  out_.inexact += block.inexact;
  out_.truncated += block.truncated;
  out_.away += block.away;
  out_.away_truncated += block.away_truncated;
  out_.away_values |= block.away_values;
}

// Quantised outputs are, nearly all of them, equal to their goldens.
bool Meter::is_equal_integer_block() const {
  const double* first = block_->difference.data();
  return !is_float(mine_.dtype) &&
         std::all_of(first, first + block_->count, [](double value) { return value == 0; });
}

void Meter::add_equal_block() {
  double squares = 0;
  for (int64_t i = 0; i < block_->count; ++i) {
    const double value = block_->mine[static_cast<size_t>(i)];
    squares += value * value;
  }
  Sums sums;
  sums.golden_squared = sums.mine_squared = sums.product = squares;
  total_.add(sums);
  finite_ += block_->count;
  out_.atb_within += block_->count;
  out_.mixed_within += block_->count;
  out_.ulp_histogram.front() += block_->count;
  if (o4_) {
    out_.legacy_o4_within += block_->count;
    out_.legacy_abs_within += block_->count;
  }
  if (o1_) {
    out_.legacy_o1_within += block_->count;
    out_.legacy_o1_abs_within += block_->count;
  }
}

void Meter::finish() {
  if (out_.first_pattern_mismatch >= 0) out_.worst_index = out_.first_pattern_mismatch;
  const auto places = static_cast<double>(std::max<int64_t>(finite_, 1));
  out_.mean_abs_error = total_.abs_error / places;
  out_.mean_rel_error = total_.rel_error / places;
  out_.mere = total_.ratio_error / places;
  out_.rmse = std::sqrt(total_.difference_squared / places);
  out_.error_balance =
      std::fabs(total_.balance) / static_cast<double>(std::max<int64_t>(out_.count, 1));
  out_.nmse =
      total_.difference_squared == 0 ? 0 : total_.difference_squared / total_.golden_squared;
  out_.relative_l2 = std::sqrt(out_.nmse);
  if (total_.golden_squared == 0 || total_.mine_squared == 0) {
    out_.cosine = total_.golden_squared == total_.mine_squared ? 1 : 0;
  } else {
    // Equal (or opposite) values have equal sums; the product of two roots would be a unit or two off.
    const bool parallel = total_.golden_squared == total_.mine_squared &&
                          std::fabs(total_.product) == total_.golden_squared;
    out_.cosine = parallel ? std::copysign(1.0, total_.product)
                           : std::clamp(total_.product / (std::sqrt(total_.golden_squared) *
                                                          std::sqrt(total_.mine_squared)),
                                        -1.0, 1.0);
  }
}

Measures Meter::run() {
  for (int64_t first = 0; first < out_.count; first += kBlockValues) {
    throw_if_interrupted();
    read(first, std::min(kBlockValues, out_.count - first));
    BlockMeasures block;
    if (is_equal_integer_block()) {
      add_equal_block();
    } else if (has_kernel_ && measure_block(mine_.dtype, block_->golden.data(), block_->mine.data(),
                                            block_->count, limits_, &block)) {
      add_block(block);
    } else {
      measure_plain_block();
    }
  }
  finish();
  return out_;
}

// ---- measures that need more than one pass ----

/// Calls pair(golden, mine) for every place where both are finite.
template <typename Pair>
void for_each_finite(const TensorView& golden, const TensorView& mine, Pair pair) {
  std::vector<double> g(kBlockValues), m(kBlockValues);
  const int64_t count = mine.element_count();
  for (int64_t first = 0; first < count; first += kBlockValues) {
    throw_if_interrupted();
    const auto length = static_cast<size_t>(std::min(kBlockValues, count - first));
    read_values(golden, first, static_cast<int64_t>(length), std::span(g).first(length));
    read_values(mine, first, static_cast<int64_t>(length), std::span(m).first(length));
    for (size_t i = 0; i < length; ++i) {
      if (std::isfinite(g[i]) && std::isfinite(m[i])) pair(g[i], m[i]);
    }
  }
}

/// KL(softmax(golden) || softmax(mine)) over all finite places. With d = m - g, p = softmax(g) and mu = sum p d it is
/// log sum p e^(d - mu) = log1p(sum p (e^(d - mu) - 1 - (d - mu))): every term is positive and nothing cancels.
double kl_divergence(const TensorView& golden, const TensorView& mine) {
  double largest = -std::numeric_limits<double>::infinity();
  for_each_finite(golden, mine, [&](double g, double) { largest = std::max(largest, g); });
  if (std::isinf(largest)) return 0;  // nothing finite
  double weights = 0;
  double shift = 0;
  for_each_finite(golden, mine, [&](double g, double m) {
    const double weight = std::exp(g - largest);
    weights += weight;
    shift += weight * (m - g);
  });
  shift /= weights;
  double excess = 0;
  double largest_exponent = -std::numeric_limits<double>::infinity();
  for_each_finite(golden, mine, [&](double g, double m) {
    const double x = (m - g) - shift;
    const double exponent = (g - largest) + x;
    largest_exponent = std::max(largest_exponent, exponent);
    // Far from the mean, weight and e^x one by one would leave the range of a double.
    const double weight = std::exp(g - largest);
    excess +=
        std::fabs(x) < 1 ? weight * (std::expm1(x) - x) : std::exp(exponent) - weight * (1 + x);
  });
  if (std::isinf(excess)) {  // the logarithm of an overflowing sum is its largest exponent, to 1e-2
    return largest_exponent - std::log(weights);
  }
  return std::max(0.0, std::log1p(excess / weights));
}

/// Two-sample test of Kolmogorov and Smirnov; the probability by the asymptotic series with Stephens' correction.
/// source  M. A. Stephens, J. R. Stat. Soc. B 32 (1970) 115
void kolmogorov_smirnov(const TensorView& golden, const TensorView& mine, Measures* out) {
  std::vector<double> g, m;
  for_each_finite(golden, mine, [&](double a, double b) {
    g.push_back(a);
    m.push_back(b);
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

/// What was moved is usually equal byte for byte, and all there is to count then are NaN and infinities.
bool are_equal_bytes(const TensorView& golden, const TensorView& mine) {
  // float64 beyond the range of float32 has other legacy errors.
  if (golden.dtype != mine.dtype || mine.dtype == DType::Float64) return false;
  for (const TensorView* view : {&golden, &mine}) {
    if (!view->is_contiguous() || view->conjugate || view->negative ||
        info(view->dtype).element_bits < 8)
      return false;
  }
  const ByteSpan left = golden.contiguous_bytes();
  const ByteSpan right = mine.contiguous_bytes();
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

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
  Measures measures =
      are_equal_bytes(golden, mine) ? measures_of_equal(mine) : Meter(golden, mine, options).run();
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

// SPDX-License-Identifier: Apache-2.0
// A function for each standard says whether limits are kept and, in one sentence, what breaks them.
// The limits by type are at the end.   docs/opcheck.md, "Standards"
#include "measure/standards.hpp"

#include <array>
#include <cstdio>

#include "base/text.hpp"

namespace assay::measure {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"atb", "legacy-o4", "legacy-o4-strict",
                                                    "legacy-o1", "mixed"};

// CvFusion: errors in units of the errors of a second implementation.   docs/opcheck.md, "atb"
constexpr double kMareRatio = 10;
constexpr double kMereRatio = 2;
constexpr double kRmseRatio = 2;
// Rand: two-sample test, probability below which the distributions differ.
constexpr double kSignificance = 0.01;
// mixed   docs/opcheck.md, "mixed"
constexpr double kMixedPercent = 99;
// Cutting digits off shows in at least this many results; the same value over and over proves
// nothing.
constexpr int64_t kLeastInexact = 64;
constexpr int64_t kLeastAway = 16;
constexpr int kLeastValues = 8;
constexpr double kTruncatedShare = 0.99;

bool is_exact(Precision precision) {
  return precision == Precision::Move || precision == Precision::Cast ||
         precision == Precision::Integer;
}
bool is_byte_float(DType dtype) { return is_float(dtype) && info(dtype).element_bits == 8; }

/// Columns of the tables of docs/opcheck.md, "atb": float64 is judged as float32.
enum class Column : uint8_t { Half, BrainHalf, Single };
Column column_of(DType dtype) {
  if (dtype == DType::Float16) return Column::Half;
  return dtype == DType::BFloat16 ? Column::BrainHalf : Column::Single;
}
double pick(Column column, double half, double brain_half, double single) {
  return column == Column::Half ? half : column == Column::BrainHalf ? brain_half : single;
}

/// QUANT and FLOAT by the number of accumulated terms.
AtbLimits float_limits(Column column, int64_t terms) {
  if (terms < 2048)
    return {pick(column, 0x1p-8, 0x1p-7, 0x1p-11), pick(column, 0x1p-10, 0x1p-7, 0x1p-14)};
  const double single = terms < 16384 ? 0x1p-10 : 0x1p-9;
  return {pick(column, 0x1p-7, 0x1p-6, single), pick(column, 0x1p-10, 0x1p-6, 0x1p-14)};
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}
/// "2^-9" for powers of two, which limits are.
std::string limit_text(double value) {
  int exponent = 0;
  if (std::frexp(value, &exponent) == 0.5) return "2^" + std::to_string(exponent - 1);
  return number(value);
}
std::string of_count(int64_t part, int64_t whole) {
  return std::to_string(part) + " of " + std::to_string(whole) +
         (whole == 1 ? " element" : " elements");
}
std::string verb(int64_t count, const char* one, const char* several) {
  return std::string(" ") + (count == 1 ? one : several);
}
double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 100 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

void fail_with(std::string reason, Judgement* out) {
  out->passed = false;
  out->reason += (out->reason.empty() ? "" : "; ") + std::move(reason);
}

std::string pattern_reason(const Measures& m) {
  return of_count(m.pattern_mismatches, m.count) + verb(m.pattern_mismatches, "is", "are") +
         " NaN or infinite on one side only, or infinite with the other sign";
}

// ---- atb ----

std::string element_reason(const Measures& m, double error) {
  const int64_t outside = m.count - m.atb_within;
  return of_count(outside, m.count) + verb(outside, "is", "are") + " off by more than " +
         limit_text(error) + " * max(1, |golden|)";
}

void judge_units(const Measures& m, const AtbLimits& limits, Judgement* out) {
  int64_t within = m.ulp_histogram[0];
  for (size_t bin = 1; bin <= 2 && static_cast<int64_t>(bin) <= limits.ulp; ++bin)
    within += m.ulp_histogram[bin];
  out->rate = percent(within, m.count);
  if (within == m.count) return;
  const std::string which =
      of_count(m.count - within, m.count) + verb(m.count - within, "differs", "differ");
  if (limits.ulp == 0) {
    fail_with(which + " from golden, which must be met exactly", out);
  } else if (is_float(m.dtype)) {
    fail_with(which + " from golden by more than one unit of the last place", out);
  } else {
    fail_with(which + " from golden by more than 1", out);
  }
}

void judge_random(const Measures& m, Judgement* out) {
  out->rate = m.kolmogorov_smirnov_p > kSignificance ? 100 : 0;
  if (m.count == 0 || m.kolmogorov_smirnov_p > kSignificance) return;
  fail_with("values are distributed unlike the golden ones: Kolmogorov-Smirnov distance " +
                number(m.kolmogorov_smirnov) + ", p " + number(m.kolmogorov_smirnov_p) +
                " (needs more than 0.01)",
            out);
}

/// Errors of attention in units of those of a model of the kernel.
struct Ratios {
  double mare = 0, mere = 0, rmse = 0;
  [[nodiscard]] bool within() const {
    return mare < kMareRatio && mere < kMereRatio && rmse < kRmseRatio;
  }
  [[nodiscard]] std::string text() const {
    return "MARE " + number(mare) + ", MERE " + number(mere) + ", RMSE " + number(rmse);
  }
};
double ratio_floor(DType dtype) { return pick(column_of(dtype), 0x1p-11, 0x1p-8, 0x1p-14); }
Ratios ratios_of(const Measures& mine, const Measures& second) {
  const double floor = ratio_floor(mine.dtype);
  const auto ratio = [&](double a, double b) { return a / std::max(b, floor); };
  return {ratio(mine.mare, second.mare), ratio(mine.mere, second.mere),
          ratio(mine.rmse, second.rmse)};
}

void judge_attention(const Measures& m, const AtbLimits& limits, const Measures* second,
                     Judgement* out) {
  const bool elements = m.atb_within == m.count;
  if (second == nullptr) {
    const double floor = ratio_floor(m.dtype);
    if (!elements) fail_with(element_reason(m, limits.error), out);
    out->remark = "by elements; no model of the kernel to compare errors with";
    if (m.mare > kMareRatio * floor || m.mere > kMereRatio * floor)
      out->remark += "; warning: MARE " + number(m.mare) + ", MERE " + number(m.mere) +
                     " exceed 10 * " + limit_text(floor) + ", 2 * " + limit_text(floor);
    return;
  }
  const Ratios ratios = ratios_of(m, *second);
  // Goldens near zero make the model's relative errors huge, behind which a single wrong element
  // could hide: the largest error itself has to stand beside the model's, too.
  const double bound = kMareRatio * std::max(second->max_abs_error, ratio_floor(m.dtype));
  const bool has_outlier = m.max_abs_error >= bound;
  if (ratios.within() && !has_outlier) {
    out->remark = "errors relative to a model of the kernel: " + ratios.text();
  } else if (elements) {
    out->remark =
        "by elements; errors relative to a model of the kernel exceed 10, 2, 2: " + ratios.text();
  } else if (ratios.within()) {
    fail_with("the largest error " + number(m.max_abs_error) +
                  " is more than 10 times that of a model of the kernel; and " +
                  element_reason(m, limits.error),
              out);
  } else {
    fail_with("errors relative to a model of the kernel exceed 10, 2, 2: " + ratios.text() +
                  "; and " + element_reason(m, limits.error),
              out);
  }
}

void judge_truncation(const Measures& m, Precision precision, Judgement* out) {
  if (precision != Precision::Float && precision != Precision::VectorFusion &&
      precision != Precision::FloatHighPrecision)
    return;
  const auto most = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) >= kTruncatedShare * static_cast<double>(whole);
  };
  if (m.inexact < kLeastInexact || m.away < kLeastAway ||
      __builtin_popcountll(m.away_values) < kLeastValues)
    return;
  if (!most(m.truncated, m.inexact) || !most(m.away_truncated, m.away)) return;
  fail_with("rounded towards zero: " + std::to_string(m.truncated) + " of " +
                std::to_string(m.inexact) + " inexact results",
            out);
}

Judgement judge_atb(const Measures& m, const Accuracy& accuracy, const Measures* second) {
  Judgement out;
  out.passed = true;
  const AtbLimits limits = atb_limits(accuracy, m.dtype);
  if (m.pattern_mismatches > 0) fail_with(pattern_reason(m), &out);
  if (accuracy.precision == Precision::Rand) {
    judge_random(m, &out);
    return out;
  }
  if (limits.error == 0) {
    judge_units(m, limits, &out);
    if (m.zero_sign_mismatches > 0 && is_exact(accuracy.precision))
      fail_with(of_count(m.zero_sign_mismatches, m.count) +
                    verb(m.zero_sign_mismatches, "is", "are") + " a zero of the other sign",
                &out);
    return out;
  }
  out.rate = percent(m.atb_within, m.count);
  if (accuracy.precision == Precision::CvFusion) {
    judge_attention(m, limits, second, &out);
  } else if (m.atb_within != m.count) {
    fail_with(element_reason(m, limits.error), &out);
  }
  if (limits.error_balance > 0) {
    out.error_balance = 100 * m.error_balance / limits.error_balance;
    if (out.error_balance > 100)
      fail_with("results are biased: error balance " + number(m.error_balance) + " exceeds " +
                    limit_text(limits.error_balance),
                &out);
  }
  judge_truncation(m, accuracy.precision, &out);
  return out;
}

// ---- legacy and mixed ----

/// A limit as Python prints the literal it was written as: 99.9, but 99 and 1.
std::string literal(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e15)
    return std::to_string(static_cast<int64_t>(value));
  return python_repr(value);
}

Judgement judge_legacy(Standard standard, const Measures& m) {
  Judgement out;
  const std::optional<LegacyLimits> limits = legacy_limits(standard, m.dtype);
  if (!limits) {
    out.reason = torch_name(m.dtype) + " not supported!";
    return out;
  }
  const int64_t within = standard == Standard::LegacyO1 ? m.legacy_o1_within : m.legacy_o4_within;
  // A division of float32 tensors, then a Python float.
  out.rate =
      m.count == 0
          ? 0
          : static_cast<double>(static_cast<float>(within) / static_cast<float>(m.count)) * 100;
  out.passed =
      standard == Standard::LegacyO4Strict ? out.rate > limits->needed : out.rate >= limits->needed;
  if (!out.passed)
    out.reason = "relative pass rate: " + python_repr(out.rate) +
                 " not met standart: " + literal(limits->needed) + ".";
  return out;
}

Judgement judge_mixed(const Measures& m, const Accuracy& accuracy) {
  Judgement out;
  out.passed = true;
  const MixedLimits limits = mixed_limits(m.dtype);
  if (m.pattern_mismatches > 0) fail_with(pattern_reason(m), &out);
  if (is_exact(accuracy.precision) || limits.tolerance == 0) {
    judge_units(m, {.ulp = accuracy.precision == Precision::Quant ? 1 : 0}, &out);
    return out;
  }
  out.rate = percent(m.mixed_within, m.count);
  if (out.rate < kMixedPercent)
    fail_with(of_count(m.count - m.mixed_within, m.count) +
                  verb(m.count - m.mixed_within, "is", "are") + " off by more than " +
                  limit_text(limits.tolerance) + " * (1 + |golden|); 1 % may be",
              &out);
  if (m.mixed_too_far > 0)
    fail_with(of_count(m.mixed_too_far, m.count) + verb(m.mixed_too_far, "is", "are") +
                  " off by more than " + literal(limits.floor) +
                  " and more than 32 units of the last place",
              &out);
  return out;
}

}  // namespace

std::string_view standard_name(Standard standard) { return kNames[static_cast<size_t>(standard)]; }

std::optional<Standard> standard_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Standard>(i);
  }
  return std::nullopt;
}

AtbLimits atb_limits(const Accuracy& accuracy, DType dtype) {
  if (is_exact(accuracy.precision) || dtype == DType::Bool) return {};
  const int64_t one_off = accuracy.precision == Precision::Quant ? 1 : 0;
  if (!is_float(dtype)) return {.ulp = info(dtype).element_bits <= 8 ? one_off : 0};
  if (is_byte_float(dtype)) return {.ulp = 1};
  const Column column = column_of(dtype);
  switch (accuracy.precision) {
    case Precision::FloatHighPrecision:
      return {pick(column, 0x1p-11, 0x1p-8, 0x1p-14), pick(column, 0x1p-10, 0x1p-7, 0x1p-14)};
    case Precision::VectorFusion:
      return {pick(column, 0x1p-9, 0x1p-7, 0x1p-12), pick(column, 0x1p-10, 0x1p-7, 0x1p-14)};
    case Precision::CvFusion:
      return {float_limits(column, accuracy.terms).error, pick(column, 0x1p-10, 0x1p-7, 0x1p-14)};
    default:
      return float_limits(column, accuracy.terms);
  }
}

std::optional<LegacyLimits> legacy_limits(Standard standard, DType dtype) {
  const bool o1 = standard == Standard::LegacyO1;
  switch (dtype) {
    case DType::Float64:
    case DType::UInt32:
    case DType::Int64:
    case DType::Int32:
    case DType::UInt64:
      return LegacyLimits{1e-4, 99.99};
    case DType::Float32:
      return LegacyLimits{o1 ? 1e-4 : 0x1p-20, 99.99};
    case DType::Float16:
      return LegacyLimits{o1 ? 1e-3 : 0x1p-10, 99.9};
    case DType::BFloat16:
      return o1 ? LegacyLimits{4e-3, 99.6} : LegacyLimits{0x1p-8, 99.9};
    case DType::Int8:
    case DType::Int16:
    case DType::UInt16:
      return LegacyLimits{1, 99.9};
    case DType::UInt8:
      return LegacyLimits{1, 99};
    case DType::Bool:
      return LegacyLimits{1e-4, 100};
    default:
      return std::nullopt;
  }
}

MixedLimits mixed_limits(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return {0x1p-10, 0.1};
    case DType::BFloat16:
      return {0x1p-7, 0.1};
    case DType::Float32:
    case DType::Float64:
      return {0x1p-13, 0.01};
    case DType::Float8E4M3FN:
      return {0x1p-3, 1};
    case DType::Float8E5M2:
      return {0x1p-2, 1};
    default:
      return {};
  }
}

std::string precision_standard_text(const LegacyLimits& limits) {
  return literal(limits.needed) + "%(error<" + literal(limits.etol) + ")";
}

Judgement judge(Standard standard, const Measures& measures, const Accuracy& accuracy,
                const Measures* second) {
  switch (standard) {
    case Standard::Atb:
      return judge_atb(measures, accuracy, second);
    case Standard::Mixed:
      return judge_mixed(measures, accuracy);
    case Standard::LegacyO4:
    case Standard::LegacyO4Strict:
    case Standard::LegacyO1:
      break;
  }
  return judge_legacy(standard, measures);
}

}  // namespace assay::measure

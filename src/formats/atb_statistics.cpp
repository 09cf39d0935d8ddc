// SPDX-License-Identifier: Apache-2.0
// Statistics are taken as of any tensor and printed as the library prints them; NaN and infinities
// count in the sums as in IEEE addition. Complex numbers and the extremes of 64-bit integers are
// computed here.   docs/formats/atb-bin.md
#include "formats/atb_statistics.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "formats/atb_bin.hpp"
#include "formats/atb_types.hpp"
#include "stats/tensor_stats.hpp"

namespace assay::formats {
namespace {

constexpr int kFloatDigits = 9;    // enough to read a float32 back
constexpr int kDoubleDigits = 17;  // the same for float64
constexpr int kDecimals = 6;

// to_chars and not printf: the host's locale may have a comma for a decimal point.
std::string number_text(double value, int digits, AtbStatisticsForm form) {
  char text[400];  // 309 digits, a point, six decimals
  const auto end =
      form == AtbStatisticsForm::Decimals
          ? std::to_chars(text, std::end(text), value, std::chars_format::fixed, kDecimals)
          : std::to_chars(text, std::end(text), value, std::chars_format::general, digits);
  return {text, end.ptr};
}

// By way of double, since 2^64 is no integer of 64 bits; adding 0.0 makes 0 of -0.
std::string integer_text(double value) {
  char text[400];
  const auto end =
      std::to_chars(text, std::end(text), value + 0.0, std::chars_format::fixed, /*precision=*/0);
  return {text, end.ptr};
}

std::string complex_text(double re, double im, int digits, AtbStatisticsForm form) {
  return "(" + number_text(re, digits, form) + "," + number_text(im, digits, form) + ")";
}

// What IEEE addition makes of values of which some are not finite. The processor's own NaN, from
// infinities of both signs, is negative; one among the values usually is not.
double sum_result(const stats::TensorStats& s, double of_finite) {
  if (s.nan_count > 0) return std::numeric_limits<double>::quiet_NaN();
  if (s.positive_inf_count > 0 && s.negative_inf_count > 0) {
    return std::copysign(std::numeric_limits<double>::quiet_NaN(), -1.0);
  }
  if (s.positive_inf_count > 0) return std::numeric_limits<double>::infinity();
  if (s.negative_inf_count > 0) return -std::numeric_limits<double>::infinity();
  return of_finite;
}

double norm_result(const stats::TensorStats& s) {
  if (s.nan_count > 0) return std::numeric_limits<double>::quiet_NaN();
  if (s.positive_inf_count + s.negative_inf_count > 0) {
    return std::numeric_limits<double>::infinity();
  }
  return s.l2_norm;
}

void set_sums(const stats::TensorStats& s, AtbStatisticsForm form, AtbStatisticsTexts* texts) {
  texts->mean = number_text(sum_result(s, s.mean), kDoubleDigits, form);
  texts->l2norm = number_text(norm_result(s), kDoubleDigits, form);
  if (form == AtbStatisticsForm::Decimals) return;
  texts->nan_count = std::to_string(s.nan_count);
  texts->inf_count = std::to_string(s.positive_inf_count + s.negative_inf_count);
}

struct Extremes {
  double max;
  double min;
};

Extremes extremes_of(const stats::TensorStats& s, bool is_double, AtbStatisticsForm form) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  double max = s.positive_inf_count > 0 ? kInf : s.max;
  double min = s.negative_inf_count > 0 ? -kInf : s.min;
  if (s.finite_count() == 0 && s.positive_inf_count == 0 && s.negative_inf_count > 0) max = -kInf;
  if (s.finite_count() == 0 && s.negative_inf_count == 0 && s.positive_inf_count > 0) min = kInf;
  if (form == AtbStatisticsForm::Exact) return {max, min};
  // The original compares with "greater" from the lowest finite value on: nothing lower is found.
  const double largest =
      is_double ? std::numeric_limits<double>::max() : double{std::numeric_limits<float>::max()};
  return {std::isnan(max) ? -largest : std::max(max, -largest),
          std::isnan(min) ? largest : std::min(min, largest)};
}

void set_float_extremes(const stats::TensorStats& s, bool is_double, AtbStatisticsForm form,
                        AtbStatisticsTexts* texts) {
  const Extremes extremes = extremes_of(s, is_double, form);
  const int digits = is_double ? kDoubleDigits : kFloatDigits;
  texts->max = number_text(extremes.max, digits, form);
  texts->min = number_text(extremes.min, digits, form);
}

// Through the type itself: a double holds integers up to 2^53 only, which is enough for 32 bits.
template <typename Integer>
void set_integer_extremes(ByteSpan data, AtbStatisticsTexts* texts) {
  Integer max = std::numeric_limits<Integer>::min();
  Integer min = std::numeric_limits<Integer>::max();
  for (size_t offset = 0; offset + sizeof(Integer) <= data.size(); offset += sizeof(Integer)) {
    const auto value = load<Integer>(data.data() + offset);
    max = std::max(max, value);
    min = std::min(min, value);
  }
  texts->max = std::to_string(max);
  texts->min = std::to_string(min);
}

AtbStatisticsTexts real_statistics(DType dtype, const stats::TensorStats& statistics,
                                   AtbStatisticsForm form) {
  AtbStatisticsTexts texts;
  if (is_float(dtype)) {
    set_float_extremes(statistics, dtype == DType::Float64, form, &texts);
  } else {
    texts.max = integer_text(statistics.max);
    texts.min = integer_text(statistics.min);
  }
  set_sums(statistics, form, &texts);
  return texts;
}

AtbStatisticsTexts complex_statistics(ByteSpan data, AtbStatisticsForm form) {
  struct Value {
    float re;
    float im;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  double max_re = nan, max_im = nan, min_re = nan, min_im = nan;
  double max_square = -1, min_square = std::numeric_limits<double>::infinity();
  double sum_re = 0, sum_im = 0, sum_of_squares = 0;
  int64_t count = 0, nan_count = 0, inf_count = 0;
  for (size_t offset = 0; offset + sizeof(Value) <= data.size(); offset += sizeof(Value)) {
    const auto value = load<Value>(data.data() + offset);
    const double re = value.re;
    const double im = value.im;
    const double square = re * re + im * im;
    ++count;
    nan_count += std::isnan(re) || std::isnan(im);
    inf_count += std::isinf(re) || std::isinf(im);
    sum_re += re;
    sum_im += im;
    sum_of_squares += square;
    if (square > max_square) max_square = square, max_re = re, max_im = im;
    if (square < min_square || (std::isnan(min_re) && square <= min_square)) {
      min_square = square, min_re = re, min_im = im;
    }
  }
  AtbStatisticsTexts texts;
  if (count == 0) return texts;
  const auto n = static_cast<double>(count);
  texts.max = complex_text(max_re, max_im, kFloatDigits, form);
  texts.min = complex_text(min_re, min_im, kFloatDigits, form);
  texts.mean = complex_text(sum_re / n, sum_im / n, kDoubleDigits, form);
  texts.l2norm = number_text(std::sqrt(sum_of_squares), kDoubleDigits, form);
  if (form == AtbStatisticsForm::Exact) {
    texts.nan_count = std::to_string(nan_count);
    texts.inf_count = std::to_string(inf_count);
  }
  return texts;
}

bool is_supported(DType dtype) {
  switch (dtype) {
    case DType::Float64:
    case DType::Float32:
    case DType::Float16:
    case DType::BFloat16:
    case DType::Complex64:
      return true;
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::UInt8:
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt64:
      return true;
    default:
      return false;
  }
}

}  // namespace

AtbStatisticsTexts atb_statistics(int64_t atb_dtype, ByteSpan data, AtbStatisticsForm form) {
  AtbStatisticsTexts texts;
  const std::optional<DType> dtype = dtype_from_atb(atb_dtype);
  if (!dtype || !is_supported(*dtype)) return texts;
  if (*dtype == DType::Complex64) return complex_statistics(data, form);
  const size_t element_bytes = info(*dtype).element_bits / 8;
  const auto count = static_cast<int64_t>(data.size() / element_bytes);
  if (count == 0) return texts;
  const Result<TensorView> view = make_view(*dtype, Dims{count}, data);
  if (!view) return texts;
  texts = real_statistics(*dtype, stats::compute_stats(*view), form);
  if (*dtype == DType::Int64) set_integer_extremes<int64_t>(data, &texts);
  if (*dtype == DType::UInt64) set_integer_extremes<uint64_t>(data, &texts);
  return texts;
}

AtbStatisticsTexts atb_statistics(int64_t atb_dtype, const stats::TensorStats& statistics) {
  const std::optional<DType> dtype = dtype_from_atb(atb_dtype);
  if (!dtype || !is_supported(*dtype) || is_complex(*dtype) || statistics.count == 0) return {};
  return real_statistics(*dtype, statistics, AtbStatisticsForm::Exact);
}

std::string atb_dims_text(std::span<const int64_t> sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ",") + std::to_string(size);
  return text;
}

std::string atb_record_header(const AtbDescription& tensor,
                              const std::optional<AtbStatisticsTexts>& statistics,
                              std::optional<uint64_t> payload_bytes) {
  std::vector<AtbAttribute> attributes = {
      {"format", tensor.format}, {"dtype", tensor.dtype}, {"dims", tensor.dims}};
  if (statistics) {
    attributes.insert(attributes.end(), {{"max", statistics->max},
                                         {"min", statistics->min},
                                         {"mean", statistics->mean},
                                         {"l2norm", statistics->l2norm}});
    if (statistics->nan_count) attributes.push_back({"nan_count", *statistics->nan_count});
    if (statistics->inf_count) attributes.push_back({"inf_count", *statistics->inf_count});
  }
  return atb_bin_header(attributes, payload_bytes);
}

}  // namespace assay::formats

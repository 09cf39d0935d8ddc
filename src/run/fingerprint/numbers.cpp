// SPDX-License-Identifier: Apache-2.0
// Statistics of many tensors as columns: bytes of one meaning stand beside each other, which gzip
// makes less of.
#include "run/fingerprint/numbers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/bytes.hpp"

namespace assay::run::fingerprint {
namespace {

using stats::TensorStats;

constexpr size_t kNumberBytes = 3;  // of a float32 without its last byte
constexpr double kMeanSteps = 32767;
constexpr double kScaleSteps = 32;  // steps of a scale in one norm
constexpr double kMostScale = 255;
constexpr int kSumSteps = 2047;
constexpr int kSumOffset = 2048;
constexpr size_t kSketchBytes = 24;        // sixteen times 12 bits
constexpr double kSmallestNumber = 1e-37;  // below lie numbers with fewer bits
constexpr double kLargestNumber = 3e38;

double root_mean_square(const TensorStats& stats) {
  const auto count = static_cast<double>(std::max<int64_t>(stats.finite_count(), 1));
  return stats.l2_norm / std::sqrt(count);
}

// ---- one number ---------------------------------------------------------------------------------

/// The three upper bytes of the nearest float32 that has no others.
uint32_t code_of(double value) {
  if (std::isnan(value)) return std::bit_cast<uint32_t>(NAN) >> 8;
  return (std::bit_cast<uint32_t>(static_cast<float>(value)) + 0x80) >> 8;
}

double number_of(uint32_t code) { return std::bit_cast<float>(code << 8); }

/// Rounds once from the fp64 value: via float32 a tie could go the other way.
int16_t mean_code(const TensorStats& stats) {
  const double share = stats.mean / root_mean_square(stats);
  if (!std::isfinite(share)) return 0;
  return static_cast<int16_t>(std::lround(std::clamp(share, -1.0, 1.0) * kMeanSteps));
}

double mean_of(int16_t code, const TensorStats& stats) {
  if (stats.finite_count() <= 0) return NAN;
  return code / kMeanSteps * root_mean_square(stats);
}

double largest_sum(const stats::Sketch& sketch) {
  double largest = 0;
  for (const float sum : sketch) largest = std::max(largest, std::abs(static_cast<double>(sum)));
  return largest;
}

/// In 1/32 of the rounded norm, so large that no sum is beyond it.
double scale_code(const TensorStats& stats) {
  const double norm = number_of(code_of(stats.l2_norm));
  const double largest = largest_sum(*stats.sketch);
  return largest == 0 ? 0 : std::ceil(kScaleSteps * largest / norm);
}

int sum_code(double sum, double scale) {
  if (scale == 0) return kSumOffset;
  return kSumOffset + static_cast<int>(std::lround(sum / scale * kSumSteps));
}

// ---- columns ------------------------------------------------------------------------------------

/// Byte `i` of every number, for each i: bytes of one weight are alike.
std::string planes(const std::vector<uint32_t>& codes, size_t bytes) {
  std::string out;
  for (size_t i = bytes; i-- > 0;) {
    for (const uint32_t code : codes) out += static_cast<char>(code >> (8 * i) & 255);
  }
  return out;
}

uint32_t from_planes(std::string_view planes, size_t count, size_t bytes, size_t at) {
  uint32_t code = 0;
  for (size_t i = 0; i < bytes; ++i)
    code = code << 8 | static_cast<unsigned char>(planes[i * count + at]);
  return code;
}

/// Two numbers of 12 bits are three bytes, the first number in the upper bits.
void append_sketch(const stats::Sketch& sketch, double scale, std::string* out) {
  for (size_t i = 0; i < sketch.size(); i += 2) {
    const auto pair = static_cast<uint32_t>(sum_code(sketch[i], scale)) << 12 |
                      static_cast<uint32_t>(sum_code(sketch[i + 1], scale));
    for (const int shift : {16, 8, 0}) *out += static_cast<char>(pair >> shift & 255);
  }
}

stats::Sketch read_sketch(std::string_view bytes, double scale) {
  stats::Sketch sketch{};
  for (size_t i = 0; i < sketch.size(); ++i) {
    const uint32_t group = from_planes(bytes.substr(i / 2 * 3, 3), 1, 3, 0);
    const auto code = static_cast<int>(i % 2 == 0 ? group >> 12 : group & 4095);
    sketch[i] = static_cast<float>((code - kSumOffset) / double{kSumSteps} * scale);
  }
  return sketch;
}

size_t count_sketches(const std::vector<TensorStats>& all) {
  return static_cast<size_t>(
      std::ranges::count_if(all, [](const TensorStats& one) { return one.sketch.has_value(); }));
}

Status check_size(std::string_view column, size_t bytes, std::string_view what) {
  if (column.size() == bytes) return {};
  return fail(Errc::Invalid, "statistics: " + std::string(what) + " has " +
                                 std::to_string(column.size()) + " bytes instead of " +
                                 std::to_string(bytes));
}

/// Sums of float64 may be infinite.
bool is_plausible(const TensorStats& stats) {
  if (stats.finite_count() <= 0) return true;
  const auto is_finite = [](double value) { return std::isfinite(value); };
  return is_finite(stats.min) && is_finite(stats.max) && !std::isnan(stats.mean) &&
         stats.l2_norm >= 0 && (!stats.sketch || std::ranges::all_of(*stats.sketch, is_finite));
}

Status check_plausible(const std::vector<TensorStats>& all) {
  if (std::ranges::all_of(all, is_plausible)) return {};
  return fail(Errc::Invalid, "statistics: a number is not finite");
}

}  // namespace

bool can_be_rounded(const TensorStats& stats) {
  for (const double value : {stats.min, stats.max, stats.l2_norm}) {
    const double size = std::abs(value);
    if (size > kLargestNumber || (size > 0 && size < kSmallestNumber)) return false;
  }
  return !stats.sketch || scale_code(stats) <= kMostScale;
}

Columns pack_rounded(const std::vector<TensorStats>& all) {
  std::vector<uint32_t> l2, min, max, mean;
  Columns columns;
  for (const TensorStats& one : all) {
    l2.push_back(code_of(one.l2_norm));
    min.push_back(code_of(one.min));
    max.push_back(code_of(one.max));
    mean.push_back(static_cast<uint16_t>(mean_code(one)));
    if (!one.sketch) continue;
    const double steps = scale_code(one);
    columns.scale += static_cast<char>(static_cast<unsigned char>(steps));
    append_sketch(*one.sketch, steps / kScaleSteps * number_of(l2.back()), &columns.sketches);
  }
  columns.l2 = planes(l2, kNumberBytes);
  columns.min = planes(min, kNumberBytes);
  columns.max = planes(max, kNumberBytes);
  columns.mean = planes(mean, 2);
  return columns;
}

Status unpack_rounded(const Columns& columns, std::vector<TensorStats>* all) {
  const size_t count = all->size();
  const size_t sketches = count_sketches(*all);
  ASSAY_TRY_STATUS(check_size(columns.l2, kNumberBytes * count, "l2"));
  ASSAY_TRY_STATUS(check_size(columns.min, kNumberBytes * count, "min"));
  ASSAY_TRY_STATUS(check_size(columns.max, kNumberBytes * count, "max"));
  ASSAY_TRY_STATUS(check_size(columns.mean, 2 * count, "mean"));
  ASSAY_TRY_STATUS(check_size(columns.scale, sketches, "scale"));
  ASSAY_TRY_STATUS(check_size(columns.sketches, kSketchBytes * sketches, "sketches"));
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    TensorStats& one = (*all)[i];
    one.l2_norm = number_of(from_planes(columns.l2, count, kNumberBytes, i));
    one.min = number_of(from_planes(columns.min, count, kNumberBytes, i));
    one.max = number_of(from_planes(columns.max, count, kNumberBytes, i));
    one.mean = mean_of(static_cast<int16_t>(from_planes(columns.mean, count, 2, i)), one);
    if (!one.sketch) continue;
    const double scale = static_cast<unsigned char>(columns.scale[next]) / kScaleSteps;
    one.sketch = read_sketch(std::string_view(columns.sketches).substr(kSketchBytes * next++),
                             scale * one.l2_norm);
  }
  return check_plausible(*all);
}

Columns pack_exact(const std::vector<TensorStats>& all) {
  Columns columns;
  for (const TensorStats& one : all) {
    append(columns.l2, one.l2_norm);
    append(columns.min, one.min);
    append(columns.max, one.max);
    append(columns.mean, one.mean);
    if (one.sketch) append(columns.sketches, *one.sketch);
  }
  return columns;
}

Status unpack_exact(const Columns& columns, std::vector<TensorStats>* all) {
  const size_t count = all->size();
  for (const auto& [column, what] :
       {std::pair(&columns.l2, "l2"), std::pair(&columns.min, "min"),
        std::pair(&columns.max, "max"), std::pair(&columns.mean, "mean")})
    ASSAY_TRY_STATUS(check_size(*column, sizeof(double) * count, what));
  ASSAY_TRY_STATUS(
      check_size(columns.sketches, sizeof(stats::Sketch) * count_sketches(*all), "sketches"));
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    TensorStats& one = (*all)[i];
    const size_t at = sizeof(double) * i;
    one.l2_norm = load<double>(columns.l2.data() + at);
    one.min = load<double>(columns.min.data() + at);
    one.max = load<double>(columns.max.data() + at);
    one.mean = load<double>(columns.mean.data() + at);
    if (one.sketch)
      one.sketch = load<stats::Sketch>(columns.sketches.data() + sizeof(stats::Sketch) * next++);
  }
  return check_plausible(*all);
}

TensorStats rounded(const TensorStats& stats) {
  std::vector<TensorStats> one = {stats};
  const Status status = unpack_rounded(pack_rounded({stats}), &one);
  ASSAY_CHECK(status.has_value(), "what was packed can be unpacked");
  return one.front();
}

}  // namespace assay::run::fingerprint

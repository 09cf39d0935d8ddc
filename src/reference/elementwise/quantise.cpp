// SPDX-License-Identifier: Apache-2.0
// Scales and offsets are applied block by block; rounding is a step of its own, by which the 8-bit
// floats are reached, HiFloat8 by a search among its magnitudes.
#include "reference/elementwise/quantise.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "reference/elementwise/broadcast.hpp"
#include "tensor/half.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

constexpr double kLargestFloat16 = 65504.0;

/// values[i] = combine(values[i], scale, offset), both broadcast to the values' shape.
template <typename Combine>
Status combine_channels(Wide& values, const TensorView& scale, const TensorView* offset,
                        Combine combine) {
  ASSAY_TRY(const BroadcastValues scales, BroadcastValues::make(scale, values.shape));
  const bool has_offset = offset != nullptr && offset->element_count() != 0;
  BroadcastValues offsets;
  if (has_offset) {
    ASSAY_TRY(offsets, BroadcastValues::make(*offset, values.shape));
  }
  std::array<double, kBlock> scale_block{};
  std::array<double, kBlock> offset_block{};
  for (int64_t first = 0; first < values.size(); first += kBlock) {
    const int64_t length = std::min(kBlock, values.size() - first);
    scales.read(first, length, scale_block.data());
    if (has_offset) offsets.read(first, length, offset_block.data());
    double* block = values.data() + first;
    for (int64_t i = 0; i < length; ++i) {
      const auto k = static_cast<size_t>(i);
      block[i] = combine(block[i], scale_block[k], offset_block[k]);
    }
  }
  return {};
}

/// The largest number that values of a row are scaled to; 0 for a type that nothing is quantised
/// to.
double scale_limit(DType target) {
  switch (target) {
    case DType::Int8:
      return 127;
    case DType::HiFloat8:
      return 32768;
    case DType::Float8E5M2:
      return 57344;
    case DType::Float8E4M3FN:
      return 448;
    default:
      return 0;
  }
}

// NaN stays once it is there: nothing is larger than it, and it replaces everything.
double larger(double most, double value) { return value > most || value != value ? value : most; }
double smaller(double least, double value) {
  return value < least || value != value ? value : least;
}

/// Magnitudes of HiFloat8's finite values, ascending.
const std::vector<double>& hifloat8_magnitudes() {
  static const std::vector<double> magnitudes = [] {
    std::vector<double> values;
    for (int bits = 0; bits < 0x80; ++bits) {
      const auto value = static_cast<double>(hifloat8_to_float(static_cast<uint8_t>(bits)));
      if (std::isfinite(value)) values.push_back(value);
    }
    std::sort(values.begin(), values.end());
    return values;
  }();
  return magnitudes;
}

double round_to_hifloat8(double value) {
  if (std::isnan(value)) return value;
  const std::vector<double>& magnitudes = hifloat8_magnitudes();
  const double magnitude = std::fabs(value);
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude);
  if (above == magnitudes.end()) return std::copysign(magnitudes.back(), value);
  if (above == magnitudes.begin()) return std::copysign(*above, value);
  const double below = *(above - 1);
  return std::copysign(magnitude - below < *above - magnitude ? below : *above, value);
}

}  // namespace

Result<Wide> quantise_per_channel(Wide x, const TensorView& scale, const TensorView* offset,
                                  ScaleUse use) {
  ASSAY_TRY_STATUS(
      use == ScaleUse::Divide
          ? combine_channels(x, scale, offset,
                             [](double value, double s, double o) { return value / s + o; })
          : combine_channels(x, scale, offset,
                             [](double value, double s, double o) { return value * s + o; }));
  return x;
}

Result<Wide> dequantise_per_channel(Wide y, const TensorView& scale, const TensorView* offset) {
  ASSAY_TRY_STATUS(combine_channels(y, scale, offset, [](double value, double s, double o) {
    const double result = (value - o) * s;
    return std::isnan(result) ? result : std::clamp(result, -kLargestFloat16, kLargestFloat16);
  }));
  return y;
}

Result<DynamicQuantised> dynamic_quantise(Wide x, bool asymmetric, DType target) {
  const double limit = scale_limit(target);
  if (limit == 0 || (asymmetric && target != DType::Int8))
    return fail(Errc::Unsupported, asymmetric ? "asymmetric" : "symmetric", " quantisation to ",
                target);
  if (x.shape.empty())
    return fail(Errc::Invalid, "quantisation by row of a tensor without dimensions");
  const int64_t columns = x.shape[x.shape.size() - 1];
  Dims row_shape = x.shape;
  row_shape.resize(x.shape.size() - 1);
  // Rows without values cost no memory, so their number is checked; their scale is that of zeros.
  ASSAY_TRY(const int64_t rows, checked_count(row_shape));

  DynamicQuantised result;
  result.scales = Wide(row_shape);
  result.offsets = Wide(asymmetric ? row_shape : Dims{0});
  for (int64_t row = 0; row < rows; ++row) {
    double* values = x.data() + row * columns;
    double scale = 0;
    double offset = 0;
    if (asymmetric) {
      double most = columns > 0 ? values[0] : 0;
      double least = most;
      for (int64_t i = 1; i < columns; ++i) {
        most = larger(most, values[i]);
        least = smaller(least, values[i]);
      }
      scale = (most - least) / 255;
      offset = scale == 0 ? 0 : -(most + least) / (2 * scale);
      result.offsets.values[static_cast<size_t>(row)] = offset;
    } else {
      double most = 0;
      for (int64_t i = 0; i < columns; ++i) most = larger(most, std::fabs(values[i]));
      scale = most / limit;
    }
    result.scales.values[static_cast<size_t>(row)] = scale;
    if (scale == 0) {
      std::fill_n(values, columns, 0.0);
      ++result.rows_without_scale;
      continue;
    }
    for (int64_t i = 0; i < columns; ++i) values[i] = values[i] / scale + offset;
    if (asymmetric) {
      for (int64_t i = 0; i < columns; ++i)
        if (!std::isnan(values[i])) values[i] = std::clamp(values[i], -128.0, 127.0);
    }
  }
  result.values = std::move(x);
  return result;
}

Wide rounded_to_int8(Wide values) {
  // quantise_int8() without a library call a value: cut off first, which changes no result, then
  // rounded by a sum whose last digit is the unit. A NaN passes through all of it.
  constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52
  for (double& value : values.values) {
    const double low = value < -128.0 ? -128.0 : value;
    const double cut = low > 127.0 ? 127.0 : low;
    value = (cut + kRounder) - kRounder;
  }
  return values;
}

Result<Wide> rounded_to(Wide values, DType target) {
  switch (target) {
    case DType::Int8:
      return rounded_to_int8(std::move(values));
    case DType::HiFloat8:
      for (double& value : values.values) value = round_to_hifloat8(value);
      return values;
    case DType::Float8E5M2:
    case DType::Float8E4M3FN:
      for (double& value : values.values) value = round_to(value, target);
      return values;
    default:
      return fail(Errc::Unsupported, target, " is no 8-bit float to round to");
  }
}

}  // namespace assay::reference

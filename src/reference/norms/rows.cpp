// SPDX-License-Identifier: Apache-2.0
// The core of the norms: rows of the summed terms are read a block at a time, measured, and
// normalised while they are in the cache, by kernels whose sums have a fixed order.
//   docs/opcheck/norms.md
#include "reference/norms/rows.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "base/simd.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

using simd::f64x8;
using simd::load;
using simd::store;

double lanes_of(f64x8 lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

bool ends_with(const Dims& shape, const Dims& tail) {
  return tail.size() <= shape.size() &&
         std::equal(tail.begin(), tail.end(),
                    shape.begin() + static_cast<std::ptrdiff_t>(shape.size() - tail.size()));
}

ASSAY_CLONES void add_scaled(double* out, const double* values, double factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] += factor * values[i];
}

ASSAY_CLONES void scale(double* out, double factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] *= factor;
}

}  // namespace

Error shapes_differ(std::string_view name, const Dims& shape, std::string_view other,
                    const Dims& other_shape) {
  return {Errc::Invalid,
          {},
          {},
          sentence(name, " has shape ", shape, ", ", other, " has shape ", other_shape)};
}

Dims without_leading_ones(const Dims& shape) {
  size_t first = 0;
  while (first + 1 < shape.size() && shape[first] == 1) ++first;
  return Dims(shape.span().subspan(shape.empty() ? 0 : first));
}

Result<Summed> Summed::of(std::span<const Term> terms) {
  if (terms.empty()) return fail(Errc::Invalid, "a sum of nothing");
  Summed result;
  result.first_ = terms[0];
  const Dims& shape = result.shape();
  ASSAY_TRY_STATUS(check_real(terms[0].view));
  for (const Term& term : terms.subspan(1)) {
    const Dims tail = without_leading_ones(term.view.shape);
    if (!ends_with(shape, tail) && without_leading_ones(shape) != tail)
      return fail(shapes_differ("an addend", term.view.shape, "x", shape));
    ASSAY_TRY_STATUS(check_real(term.view));
    if (term.view.element_count() == terms[0].view.element_count()) {
      result.whole_.push_back(term);
    } else {
      ASSAY_TRY(Wide values, widen(term.view));
      result.short_.push_back({std::move(values), term.factor});
    }
  }
  return result;
}

void Summed::read(int64_t first, int64_t count, double* out) {
  if (count == 0) return;
  const auto size = static_cast<size_t>(count);
  read_values(first_.view, first, count, std::span(out, size));
  if (first_.factor != 1.0) scale(out, first_.factor, count);
  for (const Term& term : whole_) {
    block_.resize(std::max(block_.size(), size));
    read_values(term.view, first, count, std::span(block_).first(size));
    add_scaled(out, block_.data(), term.factor, count);
  }
  for (const Short& term : short_) {
    const int64_t period = term.values.size();
    for (int64_t done = 0; done < count;) {
      const int64_t from = (first + done) % period;
      const int64_t length = std::min(period - from, count - done);
      add_scaled(out + done, term.values.data() + from, term.factor, length);
      done += length;
    }
  }
}

Result<Wide> sum_of(std::span<const Term> terms) {
  ASSAY_TRY(Summed sum, Summed::of(terms));
  Wide result(sum.shape());
  constexpr int64_t kBlock = 8192;
  for (int64_t first = 0; first < result.size(); first += kBlock)
    sum.read(first, std::min(kBlock, result.size() - first), result.data() + first);
  return result;
}

Result<Repeated> Repeated::over(const Dims& shape, int64_t row_length, const TensorView& value,
                                std::string_view name, std::string_view whole) {
  const Dims tail = without_leading_ones(value.shape);
  if (!ends_with(shape, tail)) return fail(shapes_differ(name, value.shape, whole, shape));
  ASSAY_TRY(const Wide wide, widen(value));
  Repeated result;
  result.row_length_ = row_length;
  // Both are products of the last sizes of one shape, so one divides the other.
  const int64_t count = std::max<int64_t>(wide.size(), 1);
  result.values_.assign(wide.values.begin(), wide.values.end());
  if (result.values_.empty()) result.values_.push_back(0);
  while (static_cast<int64_t>(result.values_.size()) < row_length) {
    const size_t have = result.values_.size();
    const size_t more = std::min(have, static_cast<size_t>(row_length) - have);
    result.values_.resize(have + more);
    std::copy_n(result.values_.begin(), more,
                result.values_.begin() + static_cast<std::ptrdiff_t>(have));
  }
  result.period_ = std::max<int64_t>({count, row_length, 1});
  return result;
}

void Repeated::add(double summand) {
  for (double& value : values_) value += summand;
}

Result<RowShape> rows_of(const Dims& shape, size_t dims) {
  if (dims == 0 || dims > shape.size())
    return fail(Errc::Invalid, "x has shape ", shape, ", the last ", dims,
                " dimensions are to be normalised");
  const size_t outer = shape.size() - dims;
  ASSAY_TRY_STATUS(checked_count(shape));
  ASSAY_TRY(const int64_t count, checked_count(Dims(shape.span().first(outer))));
  ASSAY_TRY(const int64_t length, checked_count(Dims(shape.span().subspan(outer))));
  return RowShape{count, length};
}

int64_t rows_in_block(const RowShape& rows) {
  constexpr int64_t kElements = 8192;  // 64 KB of doubles
  return std::max<int64_t>(1, kElements / std::max<int64_t>(rows.length, 1));
}

Dims reduced_shape(const Dims& shape, size_t dims) {
  Dims result = shape;
  for (size_t i = shape.size() - dims; i < shape.size(); ++i) result[i] = 1;
  return result;
}

ASSAY_CLONES double row_sum(const double* values, int64_t count) {
  f64x8 even{};
  f64x8 odd{};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    even += load<f64x8>(values + i);
    odd += load<f64x8>(values + i + 8);
  }
  double sum = lanes_of(even + odd);
  for (; i < count; ++i) sum += values[i];
  return sum;
}

ASSAY_CLONES double row_sum_of_squares(const double* values, int64_t count, double mean) {
  f64x8 even{};
  f64x8 odd{};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const f64x8 a = load<f64x8>(values + i) - mean;
    const f64x8 b = load<f64x8>(values + i + 8) - mean;
    even += a * a;
    odd += b * b;
  }
  double sum = lanes_of(even + odd);
  for (; i < count; ++i) sum += (values[i] - mean) * (values[i] - mean);
  return sum;
}

ASSAY_CLONES double row_dot(const double* a, const double* b, int64_t count) {
  f64x8 even{};
  f64x8 odd{};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    even += load<f64x8>(a + i) * load<f64x8>(b + i);
    odd += load<f64x8>(a + i + 8) * load<f64x8>(b + i + 8);
  }
  double sum = lanes_of(even + odd);
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

RowStatistics row_statistics(const double* values, int64_t count, bool centred, double eps) {
  const auto length = static_cast<double>(count);
  const double mean = centred ? row_sum(values, count) / length : 0.0;
  return {mean, 1.0 / std::sqrt(row_sum_of_squares(values, count, mean) / length + eps)};
}

ASSAY_CLONES void normalise_row(double* values, int64_t count, double mean, double factor,
                                const double* gamma, const double* beta) {
  if (gamma == nullptr) {
    for (int64_t i = 0; i < count; ++i) values[i] = (values[i] - mean) * factor;
  } else {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
      const f64x8 centred = load<f64x8>(values + i) - mean;
      store(values + i, centred * factor * load<f64x8>(gamma + i));
    }
    for (; i < count; ++i) values[i] = (values[i] - mean) * factor * gamma[i];
  }
  if (beta == nullptr) return;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) store(values + i, load<f64x8>(values + i) + load<f64x8>(beta + i));
  for (; i < count; ++i) values[i] += beta[i];
}

Result<Wide> normalised(std::span<const Term> terms, const std::optional<TensorView>& gamma,
                        const std::optional<TensorView>& beta, const NormOptions& options) {
  ASSAY_TRY(Summed x, Summed::of(terms));
  ASSAY_TRY(const RowShape rows, rows_of(x.shape(), options.dims));
  std::optional<Repeated> weights, shifts;
  if (gamma) {
    ASSAY_TRY(weights, Repeated::over(x.shape(), rows.length, *gamma, "gamma"));
    if (options.unit_offset) weights->add(1.0);
  }
  if (beta) {
    ASSAY_TRY(shifts, Repeated::over(x.shape(), rows.length, *beta, "beta"));
  }
  Wide result(x.shape());
  for_each_row(x, rows, result, [&](int64_t row) {
    double* values = result.data() + row * rows.length;
    const double* gamma_row = weights ? weights->row(row) : nullptr;
    const double* beta_row = shifts ? shifts->row(row) : nullptr;
    const auto [mean, rstd] = row_statistics(values, rows.length, options.centred, options.eps);
    if (!options.round_to_float16)
      return normalise_row(values, rows.length, mean, rstd, gamma_row, beta_row);
    normalise_row(values, rows.length, mean, rstd, nullptr, nullptr);
    round_row_to_float16(values, rows.length);
    normalise_row(values, rows.length, 0.0, 1.0, gamma_row, beta_row);
  });
  return result;
}

void round_row_to_float16(double* values, int64_t count) {
  // 42 of a double's 52 fraction bits go. Adding just under half of the last kept bit, and that bit
  // itself as one, rounds halves to even; a carry into the exponent is right as it is.
  constexpr uint64_t kDropped = (uint64_t{1} << 42) - 1;
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    const double magnitude = std::fabs(value);
    if (!(magnitude >= 0x1p-14)) {
      // Subnormals are multiples of 2^-24; adding 1.5 * 2^28 leaves a double with just those. NaN
      // stays.
      values[i] = std::copysign((magnitude + 0x1.8p28) - 0x1.8p28, value);
    } else if (magnitude >= 65520.0) {
      values[i] = std::copysign(std::numeric_limits<double>::infinity(), value);
    } else {
      const auto bits = std::bit_cast<uint64_t>(magnitude);
      const uint64_t rounded = (bits + (kDropped >> 1) + ((bits >> 42) & 1)) & ~kDropped;
      values[i] = std::copysign(std::bit_cast<double>(rounded), value);
    }
  }
}

}  // namespace assay::reference

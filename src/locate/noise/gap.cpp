// SPDX-License-Identifier: Apache-2.0
// One pass over the rows takes the sums and the noise of rows and columns, a second one the largest
// element. Rows and columns in units of what is expected of them come last: largest_of_columns(),
// or largest_of_rows() where there are few rows.
#include "locate/noise/gap.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>
#include <vector>

#include "base/numbers.hpp"
#include "base/simd.hpp"
#include "reference/wide.hpp"
#include "tensor/convert.hpp"
#include "tensor/float_grid.hpp"

namespace assay::locate {
namespace {

constexpr double kMaskFill = 1e4;  // docs/localisation.md, "Pair tests"

using simd::f64x8;
using simd::i64x8;
using simd::load;
using simd::store;

constexpr int64_t kLanes = 8;
constexpr double kColumnDeviations = 5.2;
constexpr size_t kFewestRows = 8;      // of a column that is judged on its own
constexpr size_t kFewestColumns = 16;  // of a row, where there are fewer rows
constexpr size_t kBuckets = 256;       // of sketches of the noise: the highest eight bits of a hash
constexpr uint64_t kHash = 0x9E3779B97F4A7C15;

/// What of a type decides how elements are held against each other; and what counts as a fill.
struct GapGrid {
  double largest = 0;
  double smallest = 0;  // normal number
  double ulp_of_one = 0;
  double tiny = 0;
  double mask_fill = kInfinity;  // beyond it values of one sign are the same
};

struct GapSums {
  double error = 0, reference = 0, noise = 0, steps = 0;  // of squares
  bool nan_differs = false;
};

[[gnu::always_inline]] inline f64x8 absolute(f64x8 x) { return x < 0 ? -x : x; }
[[gnu::always_inline]] inline f64x8 larger(f64x8 a, f64x8 b) { return a > b ? a : b; }
/// NaN stays.
[[gnu::always_inline]] inline f64x8 clamped(f64x8 x, double largest) {
  const f64x8 limit = f64x8{} + largest;
  return x > limit ? limit : (x < -limit ? -limit : x);
}
/// ULP at |x|.
[[gnu::always_inline]] inline f64x8 ulp_at(f64x8 size, const GapGrid& grid) {
  const f64x8 power = (f64x8)((i64x8)size & int64_t{0x7FF0000000000000});
  return larger(power, f64x8{} + grid.smallest) * grid.ulp_of_one;
}

/// Up to eight values; those behind the end are 0, which counts as nothing.
[[gnu::always_inline]] inline f64x8 load_some(const double* values, int64_t count) {
  if (count >= kLanes) return load<f64x8>(values);
  f64x8 some{};
  std::memcpy(&some, values, static_cast<size_t>(count) * sizeof(double));
  return some;
}
[[gnu::always_inline]] inline void store_some(double* values, int64_t count, f64x8 some) {
  std::memcpy(values, &some, static_cast<size_t>(std::min(count, kLanes)) * sizeof(double));
}
[[gnu::always_inline]] inline void add_some(double* values, int64_t count, f64x8 some) {
  store_some(values, count, load_some(values, count) + some);
}

/// One row: values are clamped, what does not count becomes 0; noisy values become their distance
/// from the reference, which is added to the noise of the columns.
/// expected  the larger of noise and step of each element, squared; null: not wanted
ASSAY_CLONES GapSums sum_row(const GapGrid& grid, int64_t columns, double* mine, double* reference,
                             double* noise, double* column_noise, double* expected) {
  const f64x8 zero{};
  f64x8 error2{}, reference2{}, noise2{}, steps{};
  i64x8 differs{};
  for (int64_t i = 0; i < columns; i += kLanes) {
    const int64_t left = columns - i;
    f64x8 m = load_some(mine + i, left);
    f64x8 y = load_some(reference + i, left);
    f64x8 n = load_some(noise + i, left);
    differs |= (m != m) ^ (y != y);
    m = clamped(m, grid.largest);
    y = clamped(y, grid.largest);
    n = clamped(n, grid.largest) - y;
    const f64x8 m_size = absolute(m);
    const f64x8 y_size = absolute(y);
    // Equal signs leave the sign bit of the exclusive or clear.
    const i64x8 filled =
        (m_size > grid.mask_fill) & (y_size > grid.mask_fill) & (((i64x8)m ^ (i64x8)y) >= 0);
    const i64x8 counts =
        (m == m) & (y == y) & ~filled & ((m_size >= grid.smallest) | (y_size >= grid.smallest));
    m = counts ? m : zero;
    y = counts ? y : zero;
    n = (counts & (n == n)) ? n : zero;
    const f64x8 unit = ulp_at(larger(absolute(m), absolute(y)), grid);
    error2 += (m - y) * (m - y);
    reference2 += y * y;
    noise2 += n * n;
    const f64x8 step = counts ? unit * unit / 12 : zero;
    steps += step;
    if (expected != nullptr) store_some(expected + i, left, larger(n * n, step));
    store_some(mine + i, left, m);
    store_some(reference + i, left, y);
    store_some(noise + i, left, absolute(n));
    add_some(column_noise + i, left, n * n);
  }
  GapSums sums;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sums.error += error2[lane];
    sums.reference += reference2[lane];
    sums.noise += noise2[lane];
    sums.steps += steps[lane];
    sums.nan_differs = sums.nan_differs || differs[lane] != 0;
  }
  return sums;
}

/// The largest |m - y| / (4 max(row, column, own) + U / 2 + t_d) of a row.
/// own  |noise| of each element; null: not known
ASSAY_CLONES double largest_excess(const GapGrid& grid, int64_t columns, const double* mine,
                                   const double* reference, double row_noise,
                                   const double* column_noise, const double* own) {
  f64x8 largest{};
  const f64x8 of_row = f64x8{} + row_noise;
  for (int64_t i = 0; i < columns; i += kLanes) {
    const int64_t left = columns - i;
    const f64x8 m = load_some(mine + i, left);
    const f64x8 y = load_some(reference + i, left);
    const f64x8 unit = ulp_at(larger(absolute(m), absolute(y)), grid);
    f64x8 noise = larger(of_row, load_some(column_noise + i, left));
    if (own != nullptr) noise = larger(load_some(own + i, left), noise);
    const f64x8 allowed = 4 * noise + unit / 2 + grid.tiny;
    largest = larger(largest, absolute(m - y) / allowed);
  }
  double result = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) result = std::max(result, largest[lane]);
  return result;
}

/// x / scale is added to each column.
ASSAY_CLONES void add_to_columns(int64_t columns, const double* x, double scale, double* sums) {
  for (int64_t j = 0; j < columns; ++j) sums[j] += x[j] / scale;
}

/// Sum of x over its columns, each in units of its own.
ASSAY_CLONES double sum_in_units(int64_t columns, const double* x, const double* units) {
  f64x8 sum{};
  for (int64_t j = 0; j < columns; j += kLanes) {
    const f64x8 unit = load_some(units + j, columns - j);
    sum += unit > 0 ? load_some(x + j, columns - j) / unit : f64x8{};
  }
  double total = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return total;
}

std::optional<DType> real_type(DType complex) {
  switch (complex) {
    case DType::Complex32:
      return DType::Float16;
    case DType::Complex64:
      return DType::Float32;
    case DType::Complex128:
      return DType::Float64;
    default:
      return std::nullopt;
  }
}

/// R_c
/// mine, reference   [rows, columns], as sum_row() leaves them
/// expected          the square of what is expected of each element's error
double largest_of_columns(size_t rows, size_t columns, const double* mine, const double* reference,
                          const double* expected) {
  const auto length = static_cast<int64_t>(columns);
  // In units of its row a column has no large row in it, and in units of such columns a row has no
  // large column.
  std::vector<double> of_columns(columns, 0.0), of_rows(rows);
  for (size_t i = 0; i < rows; ++i) {
    const double* x = expected + i * columns;
    if (const double whole = std::accumulate(x, x + columns, 0.0); whole > 0)
      add_to_columns(length, x, whole, of_columns.data());
  }
  for (size_t i = 0; i < rows; ++i)
    of_rows[i] = sum_in_units(length, expected + i * columns, of_columns.data());

  std::vector<double> errors(columns, 0.0), sums(columns, 0.0), squares(columns, 0.0);
  for (size_t i = 0; i < rows; ++i) {
    if (!(of_rows[i] > 0)) continue;
    for (size_t j = 0; j < columns; ++j) {
      const size_t at = i * columns + j;
      const double x = expected[at] / of_rows[i];
      const double error = mine[at] - reference[at];
      errors[j] += error * error / of_rows[i];
      sums[j] += x;
      squares[j] += x * x;
    }
  }
  // What a kernel's accumulator errs shows in columns that are tiny, where neither the noise nor
  // the steps have it: they are given what is expected of the middle one.
  std::vector<double> sorted = sums;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(columns / 2);
  std::ranges::nth_element(sorted, middle);
  double largest = 0, total = 0;
  size_t counted = 0;
  for (size_t j = 0; j < columns; ++j) {
    if (!(sums[j] > 0)) continue;
    const double square = errors[j] / std::max(sums[j], *middle);
    const double sources = sums[j] * sums[j] / squares[j];
    largest = std::max(largest, std::sqrt(square) / usual_excess(sources, kColumnDeviations));
    total += square;
    ++counted;
  }
  return counted > 0 ? std::max(largest, std::sqrt(total / static_cast<double>(counted))) : 0;
}

/// R_c of fewer rows: each in units of what is expected of it.
double largest_of_rows(size_t rows, size_t columns, const double* mine, const double* reference,
                       const double* expected) {
  double largest = 0;
  for (size_t i = 0; i < rows; ++i) {
    double error = 0, sum = 0, square = 0;
    for (size_t at = i * columns; at < (i + 1) * columns; ++at) {
      error += (mine[at] - reference[at]) * (mine[at] - reference[at]);
      sum += expected[at];
      square += expected[at] * expected[at];
    }
    if (sum > 0)
      largest = std::max(
          largest, std::sqrt(error / sum) / usual_excess(sum * sum / square, kColumnDeviations));
  }
  return largest;
}

Result<reference::Wide> rounded_values(const TensorView& simulated, DType dtype) {
  ASSAY_TRY(const Tensor rounded, reference::narrow(simulated, dtype));
  return reference::widen(rounded.view);
}

}  // namespace

double usual_excess(double count, double deviations) {
  const double spread = 2 / (9 * std::max(1.0, count));
  return std::pow(1 - spread + deviations * std::sqrt(spread), 1.5);
}

Result<bool> equal_integers(const TensorView& a, const TensorView& b) {
  ASSAY_TRY(const reference::Whole first, reference::whole(a));
  ASSAY_TRY(const reference::Whole second, reference::whole(b));
  return first.values == second.values;
}

bool is_judged_type(DType dtype) {
  return is_float(dtype) && dtype != DType::Float64 && float_grid(dtype).has_value();
}

TensorView as_reals(TensorView view) {
  const std::optional<DType> real = real_type(view.dtype);
  if (!real) return view;
  for (size_t i = 0; i < view.strides.size(); ++i) view.strides[i] *= 2;
  view.shape.push_back(2);
  view.strides.push_back(1);
  view.offset_elements *= 2;
  view.dtype = *real;
  return view;
}

Status NoiseDraws::add(const Tensor& reference, const Tensor& simulated, DType dtype) {
  ASSAY_TRY(const reference::Wide drawn,
            rounded_values(as_reals(simulated.view), real_type(dtype).value_or(dtype)));
  if (count_ == 0) {
    ASSAY_TRY(reference_, reference::widen(as_reals(reference.view)));
    squares_ = reference::Wide(reference_.shape, 0.0);
  }
  if (drawn.size() != squares_.size()) return fail(Errc::Invalid, "draws of different shapes");
  std::vector<double> sketch(kBuckets, 0.0);
  for (size_t i = 0; i < drawn.values.size(); ++i) {
    const double noise = drawn.values[i] - reference_.values[i];
    squares_.values[i] += noise * noise;
    const uint64_t hash = (i + 1) * kHash;
    if (std::isfinite(noise)) sketch[hash >> 56U] += (hash >> 55U & 1U) == 0 ? noise : -noise;
  }
  sketches_.push_back(std::move(sketch));
  ++count_;
  return {};
}

Tensor NoiseDraws::usual() const {
  reference::Wide values = reference_;
  for (size_t i = 0; i < values.values.size(); ++i)
    values.values[i] += std::sqrt(squares_.values[i] / count_);
  return reference::to_tensor(std::move(values));
}

double NoiseDraws::effective_count() const {
  double energy = 0, products = 0;
  size_t pairs = 0;
  for (size_t i = 0; i < sketches_.size(); ++i) {
    const std::vector<double>& one = sketches_[i];
    energy += std::inner_product(one.begin(), one.end(), one.begin(), 0.0);
    for (size_t j = 0; j < i; ++j, ++pairs) {
      const double product = std::inner_product(one.begin(), one.end(), sketches_[j].begin(), 0.0);
      products += product * product;
    }
  }
  energy /= static_cast<double>(sketches_.size());
  products /= static_cast<double>(pairs);
  // Draws that have no noise in common at all: as many sources as the buckets can tell apart.
  return products > 0 ? std::min(energy * energy / products, static_cast<double>(kBuckets))
                      : static_cast<double>(kBuckets);
}

Result<Gap> measure_gap(const TensorView& mine, const TensorView& reference,
                        const TensorView& simulated, DType dtype, bool masks, NoiseOf of) {
  if (is_complex(mine.dtype) && is_complex(reference.dtype))
    return measure_gap(as_reals(mine), as_reals(reference), as_reals(simulated),
                       real_type(dtype).value_or(dtype), masks, of);
  if (!(mine.shape == reference.shape) || !(mine.shape == simulated.shape))
    return fail(Errc::Invalid, "program differs here, cannot judge: shape " +
                                   list_text(mine.shape.span()) + " against " +
                                   list_text(reference.shape.span()));
  Gap gap;
  if (is_float(mine.dtype) != is_float(reference.dtype))
    return fail(Errc::Invalid,
                "program differs here, cannot judge: " + std::string(name(mine.dtype)) +
                    " against " + std::string(name(reference.dtype)));
  if (!is_float(mine.dtype)) {
    ASSAY_TRY(const bool equal, equal_integers(mine, reference));
    if (!equal) gap.r = gap.r_element = gap.err_own = kInfinity;
    return gap;
  }
  const std::optional<FloatGrid> grid = float_grid(dtype);
  if (!grid || !is_judged_type(dtype))
    return fail(Errc::Unsupported,
                "no wider reference than " + std::string(name(dtype)) + " to judge by");

  ASSAY_TRY(reference::Wide t, reference::widen(mine));
  ASSAY_TRY(reference::Wide ref, reference::widen(reference));
  // One draw is rounded to the type, as the result of a kernel is; several were rounded one by one.
  ASSAY_TRY(reference::Wide noise,
            of == NoiseOf::Draws ? reference::widen(simulated) : rounded_values(simulated, dtype));
  const size_t count = t.values.size();
  const size_t columns =
      mine.shape.empty()
          ? 1
          : static_cast<size_t>(std::max<int64_t>(mine.shape[mine.shape.size() - 1], 1));
  const size_t rows = count / columns;

  std::vector<double> row_noise(rows, 0.0);
  const bool apart = rows >= kFewestRows || (rows > 1 && columns >= kFewestColumns);
  std::vector<double> expected(apart ? count : 0);
  std::vector<double> column_noise(columns, 0.0);
  const GapGrid limits{grid->largest, grid->smallest_normal(),
                       FloatGrid::power_of_two(-grid->fraction_bits), grid->tiny,
                       masks ? kMaskFill : kInfinity};
  GapSums sums;
  for (size_t row = 0; row < rows; ++row) {
    const size_t first = row * columns;
    const GapSums of_row = sum_row(limits, static_cast<int64_t>(columns), t.data() + first,
                                   ref.data() + first, noise.data() + first, column_noise.data(),
                                   expected.empty() ? nullptr : expected.data() + first);
    row_noise[row] = std::sqrt(of_row.noise / static_cast<double>(columns));
    sums.error += of_row.error;
    sums.reference += of_row.reference;
    sums.noise += of_row.noise;
    sums.steps += of_row.steps;
    sums.nan_differs = sums.nan_differs || of_row.nan_differs;
  }
  if (sums.nan_differs) {
    gap.r = gap.r_element = gap.err_own = kInfinity;
    return gap;
  }
  for (double& column : column_noise)
    column = std::sqrt(column / static_cast<double>(std::max<size_t>(rows, 1)));
  for (size_t row = 0; row < rows; ++row) {
    const size_t first = row * columns;
    gap.r_element = std::max(gap.r_element,
                             largest_excess(limits, static_cast<int64_t>(columns), t.data() + first,
                                            ref.data() + first, row_noise[row], column_noise.data(),
                                            of == NoiseOf::Draws ? noise.data() + first : nullptr));
  }
  if (!expected.empty()) {
    const auto largest = rows < kFewestRows ? largest_of_rows : largest_of_columns;
    gap.r_column = largest(rows, columns, t.data(), ref.data(), expected.data());
  }
  const double floor = std::sqrt(std::max(sums.noise, sums.steps));
  const double norm = std::sqrt(sums.reference);
  const double error = std::sqrt(sums.error);
  if (error > 0) gap.r = floor > 0 ? error / floor : kInfinity;
  if (norm > 0) {
    gap.err_own = error / norm;
    gap.noise_floor = floor / norm;
  } else if (error > 0) {
    gap.err_own = kInfinity;
  }
  return gap;
}

}  // namespace assay::locate

// SPDX-License-Identifier: Apache-2.0
#include "locate/walk_measure.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "locate/float_grid.hpp"
#include "reference/wide.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMaskFill = 1e4;  // localisation 3, constants

double clamped(double value, double largest) {
  return std::isnan(value) ? value : std::clamp(value, -largest, largest);
}

bool equal_integers(const TensorView& a, const TensorView& b, Status* status) {
  const Result<reference::Whole> first = reference::whole(a);
  const Result<reference::Whole> second = reference::whole(b);
  if (!first || !second) {
    *status = fail(!first ? first.error() : second.error());
    return false;
  }
  return first->values == second->values;
}

}  // namespace

bool is_judged_type(DType dtype) {
  return is_float(dtype) && dtype != DType::Float64 && float_grid(dtype).has_value();
}

Result<Gap> measure_gap(const TensorView& mine, const TensorView& reference,
                        const TensorView& simulated, DType dtype, bool masks) {
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
    Status status;
    const bool equal = equal_integers(mine, reference, &status);
    if (!status) return fail(status.error());
    if (!equal) gap.r = gap.r_element = gap.err_own = kInfinity;
    return gap;
  }
  const std::optional<FloatGrid> grid = float_grid(dtype);
  if (!grid || !is_judged_type(dtype))
    return fail(Errc::Unsupported,
                "no wider reference than " + std::string(name(dtype)) + " to judge by");

  ASSAY_TRY(reference::Wide t, reference::widen(mine));
  ASSAY_TRY(reference::Wide ref, reference::widen(reference));
  // Noise of the simulation, rounded to the type as the kernel's result is.
  ASSAY_TRY(const Tensor rounded, reference::narrow(simulated, dtype));
  ASSAY_TRY(reference::Wide noise, reference::widen(rounded.view));
  const size_t count = t.values.size();
  const size_t columns =
      mine.shape.empty()
          ? 1
          : static_cast<size_t>(std::max<int64_t>(mine.shape[mine.shape.size() - 1], 1));
  const size_t rows = count / columns;
  const double smallest = grid->smallest_normal();

  std::vector<double> row_noise(rows, 0.0);
  std::vector<double> column_noise(columns, 0.0);
  double error = 0, reference_energy = 0, noise_energy = 0, steps = 0;
  bool nan_differs = false;
  for (size_t i = 0, column = 0, row = 0; i < count; ++i) {
    nan_differs = nan_differs || std::isnan(t.values[i]) != std::isnan(ref.values[i]);
    double& m = t.values[i];
    double& y = ref.values[i];
    m = clamped(m, grid->largest);
    y = clamped(y, grid->largest);
    double& n = noise.values[i];
    n = clamped(n, grid->largest) - y;
    const bool skip = std::isnan(m) || std::isnan(y) ||
                      (std::abs(m) < smallest && std::abs(y) < smallest) ||
                      (masks && std::abs(m) > kMaskFill && std::abs(y) > kMaskFill &&
                       std::signbit(m) == std::signbit(y));
    if (skip) m = y = n = 0;
    if (std::isnan(n)) n = 0;
    const double unit = grid->ulp(std::max(std::abs(m), std::abs(y)));
    error += (m - y) * (m - y);
    reference_energy += y * y;
    noise_energy += n * n;
    if (!skip) steps += unit * unit / 12;
    row_noise[row] += n * n;
    column_noise[column] += n * n;
    if (++column == columns) {
      column = 0;
      ++row;
    }
  }
  if (nan_differs) {
    gap.r = gap.r_element = gap.err_own = kInfinity;
    return gap;
  }
  for (double& row : row_noise) row = std::sqrt(row / static_cast<double>(columns));
  for (double& column : column_noise)
    column = std::sqrt(column / static_cast<double>(std::max<size_t>(rows, 1)));
  for (size_t i = 0, column = columns - 1, row = SIZE_MAX; i < count; ++i) {
    if (++column == columns) {
      column = 0;
      ++row;
    }
    const double difference = std::abs(t.values[i] - ref.values[i]);
    if (difference == 0) continue;
    const double unit = grid->ulp(std::max(std::abs(t.values[i]), std::abs(ref.values[i])));
    const double allowed =
        4 * std::max(row_noise[row], column_noise[column]) + unit / 2 + grid->tiny;
    gap.r_element = std::max(gap.r_element, difference / allowed);
  }
  const double floor = std::sqrt(std::max(noise_energy, steps));
  const double norm = std::sqrt(reference_energy);
  error = std::sqrt(error);
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

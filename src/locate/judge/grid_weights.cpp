// SPDX-License-Identifier: Apache-2.0
// Every way of cutting the tensor into groups is tried with every kind of code. The largest value
// of a group, divided by a code, gives its step; all other values must then lie on that grid. Which
// grid is judged on decides how likely chance would have made it.
#include "locate/judge/grid_weights.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "compare/dequantise.hpp"
#include "locate/program/pairing.hpp"
#include "reference/wide.hpp"
#include "tensor/float_grid.hpp"

namespace assay::locate {
namespace {

/// Values that share a step: every `stride`-th from `first` on.
struct Group {
  int64_t first = 0, count = 0, stride = 1;
};

/// A way of cutting a tensor into groups.
struct Cut {
  std::string name;  // "per channel"
  std::vector<Group> groups;
};

/// Levels of one kind of code, as multiples of a scale.
struct Levels {
  std::string name;
  std::vector<double> values;    // ascending; empty: the whole numbers
  bool largest_is_last = false;  // the scale is that of the largest value of each group
};

Levels levels_of_float(std::string name, int exponent_bits, int fraction_bits, double largest) {
  Levels levels{std::move(name), {0.0}};
  const int bias = (1 << (exponent_bits - 1)) - 1;
  for (int exponent = 0; exponent < 1 << exponent_bits; ++exponent) {
    for (int fraction = 0; fraction < 1 << fraction_bits; ++fraction) {
      const double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                         : std::ldexp((1 << fraction_bits) + fraction,
                                                      exponent - bias - fraction_bits);
      if (value == 0 || value > largest) continue;
      levels.values.push_back(value);
      levels.values.push_back(-value);
    }
  }
  std::ranges::sort(levels.values);
  return levels;
}

const std::vector<Levels>& all_levels() {
  static const std::vector<Levels> kinds = [] {
    std::vector<Levels> made{
        {"int", {}},
        {"nf4", {compare::kNormalFloat4.begin(), compare::kNormalFloat4.end()}, true},
        levels_of_float("fp4", 2, 1, 6),
        levels_of_float("float8_e4m3", 4, 3, 448),
        levels_of_float("float8_e5m2", 5, 2, 57344)};
    return made;
  }();
  return kinds;
}

std::vector<Cut> cuts_of(const Dims& shape) {
  const int64_t columns = shape[shape.size() - 1];
  int64_t count = 1;
  for (const int64_t size : shape.span()) count *= size;
  const int64_t rows = count / columns;
  const auto blocks = [&](std::string name, int64_t size) {
    Cut cut{std::move(name), {}};
    for (int64_t first = 0; first < count; first += size)
      cut.groups.push_back({first, std::min(size, count - first), 1});
    return cut;
  };
  const auto of_columns = [&](std::string name, int64_t size) {
    Cut cut{std::move(name), {}};
    for (int64_t row = 0; row < rows; row += size) {
      for (int64_t column = 0; column < columns; ++column)
        cut.groups.push_back({row * columns + column, std::min(size, rows - row), columns});
    }
    return cut;
  };
  std::vector<Cut> cuts{blocks("per tensor", count), blocks("per channel", columns),
                        of_columns("per column", rows)};
  for (const int64_t size : {256, 128, 64, 32, 16, 8}) {
    const std::string name = "per group of " + std::to_string(size);
    if (size < columns || columns % size != 0) cuts.push_back(blocks(name, size));
    if (size < rows) cuts.push_back(of_columns(name + " rows", size));
  }
  return cuts;
}

constexpr int kMostCodes = 255;

/// What the values of one group are multiples of.
struct Fit {
  double step = 0, offset = 0;
  double range = 0;     // largest code less smallest
  double evidence = 0;  // -log of the chance that other values lie on such a grid
};

class Grid {
 public:
  Grid(const Levels& levels, double roundoff, bool has_offset)
      : levels_(levels), roundoff_(roundoff), has_offset_(has_offset) {}

  /// The coarsest that holds all values; nothing: none does.
  [[nodiscard]] std::optional<Fit> fit(std::span<const double> values) const {
    double largest = 0;
    for (const double value : values) {
      if (!std::isfinite(value)) return std::nullopt;
      largest = std::max(largest, std::abs(value));
    }
    if (largest == 0) return Fit{};
    const auto [low, high] = std::ranges::minmax(values);
    const double offset = has_offset_ ? low : 0;
    const double reach = has_offset_ ? high - low : std::abs(high) == largest ? high : low;
    if (reach == 0) return Fit{.offset = offset};
    const double slack = has_offset_ ? largest : 0;
    double tried = 0;
    const auto attempt = [&](double level) -> std::optional<Fit> {
      ++tried;
      Fit found{.step = reach / level, .offset = offset};
      for (const double value : values) {
        const double place = (value - offset) / found.step;
        const double of_step = tolerance(std::abs(value) + slack) / found.step;
        if (std::abs(place - nearest(place)) > of_step) return std::nullopt;
      }
      found.range = std::nearbyint((high - low) / std::abs(found.step));
      found.evidence = evidence(found, values, reach, slack) - std::log(tried);
      return found;
    };
    if (!levels_.values.empty()) {
      if (levels_.largest_is_last) return attempt(reach > 0 ? 1.0 : -1.0);
      for (const double level : levels_.values) {
        if (level * reach <= 0) continue;
        if (std::optional<Fit> found = attempt(level)) return found;
      }
      return std::nullopt;
    }
    for (int level = 1; level <= kMostCodes; ++level) {
      if (std::optional<Fit> found = attempt(reach < 0 ? -level : level)) return found;
    }
    return std::nullopt;
  }

  /// -log of the chance that values lie within the tolerance of a level. Those that the step and
  /// the offset were taken from lie on any grid, and zero on most.
  [[nodiscard]] double evidence(const Fit& fit, std::span<const double> values, double reach,
                                double slack) const {
    double chance = 1, sum = 0;
    for (const double value : values) {
      if (value == 0 || value == fit.offset || value == fit.offset + reach) continue;
      const double of_step = tolerance(std::abs(value) + slack) / fit.step;
      chance *= std::min(1.0, 2 * of_step / gap(nearest((value - fit.offset) / fit.step)));
      if (chance > 1e-200) continue;
      sum -= std::log(chance);
      chance = 1;
    }
    return sum - std::log(chance);
  }

  /// Distance of the neighbouring levels, as a multiple of the scale: the larger of both.
  [[nodiscard]] double gap(double level) const {
    if (levels_.values.empty()) return 1;
    const auto at = std::ranges::lower_bound(levels_.values, level - 1e-9);
    return gap_at(levels_.values, static_cast<size_t>(at - levels_.values.begin()));
  }
  [[nodiscard]] double nearest(double place) const {
    if (levels_.values.empty()) return std::nearbyint(place);
    const auto above = std::ranges::lower_bound(levels_.values, place);
    if (above == levels_.values.end()) return levels_.values.back();
    if (above == levels_.values.begin()) return *above;
    return *above - place < place - *(above - 1) ? *above : *(above - 1);
  }
  /// How far rounding may move a value: that of its scale, and that of code times scale.
  [[nodiscard]] double rounding(double size) const { return 2 * roundoff_ * size; }
  /// The same with the rounding of the largest value, which the scale is taken from.
  [[nodiscard]] double tolerance(double size) const { return 3 * roundoff_ * size; }

 private:
  const Levels& levels_;
  double roundoff_;
  bool has_offset_;
};

std::string scheme_of(const Levels& levels, const Cut& cut, double range, bool has_offset) {
  std::string name = levels.name;
  if (levels.values.empty()) {
    int bits = 2;
    while (std::ldexp(1.0, bits) < range + 1) ++bits;
    name += std::to_string(bits);
  }
  return name + " " + cut.name + (has_offset ? ", asymmetric" : "") + ", in place";
}

/// From here on a grid is no chance: e^-30 happens to no weight of any model.
constexpr double kLeastEvidence = 30;
/// So many groups without any evidence tell that the type is too coarse: any value is near a level.
constexpr size_t kGroupsToTell = 64;

std::optional<StepDifference> difference_on(const Grid& grid, const Cut& cut,
                                            std::span<const double> golden,
                                            std::span<const double> mine, double* range) {
  StepDifference out;
  double evidence = 0, error = 0, energy = 0;
  size_t groups = 0;
  std::vector<double> values;
  for (const Group& group : cut.groups) {
    values.clear();
    for (int64_t i = 0; i < group.count; ++i)
      values.push_back(mine[static_cast<size_t>(group.first + i * group.stride)]);
    const std::optional<Fit> fit = grid.fit(values);
    if (!fit) return std::nullopt;
    evidence += fit->evidence;
    if (++groups % kGroupsToTell == 0 && evidence <= 0) return std::nullopt;
    *range = std::max(*range, fit->range);
    const auto [low, high] = std::ranges::minmax(values);
    for (int64_t i = 0; i < group.count; ++i) {
      const int64_t at = group.first + i * group.stride;
      const double m = values[static_cast<size_t>(i)];
      const double g = golden[static_cast<size_t>(at)];
      error += (m - g) * (m - g);
      energy += g * g;
      const double step =
          fit->step == 0
              ? 0
              : std::abs(fit->step) * grid.gap(grid.nearest((m - fit->offset) / fit->step));
      double off = std::abs(m - g);
      // What lies beyond the last code was clipped to it.
      const bool clipped = (m == high && g > m) || (m == low && g < m);
      if (clipped && off <= (high - low) / 4) off = std::min(off, step / 2);
      const double allowed = step / 2 + grid.rounding(std::abs(m));
      const double half_steps = off == 0 ? 0 : allowed > 0 ? off / allowed : INFINITY;
      if (out.worst >= 0 && !(half_steps > out.half_steps)) continue;
      out.half_steps = half_steps;
      out.worst = at;
      out.golden_value = g;
      out.mine_value = m;
    }
  }
  if (evidence < kLeastEvidence) return std::nullopt;
  out.error = error;
  out.energy = energy;
  return out;
}

}  // namespace

std::optional<StepDifference> grid_difference(const TensorView& golden, const TensorView& mine) {
  const std::optional<FloatGrid> type = float_grid(mine.dtype);
  if (!type || !(golden.shape == mine.shape) || mine.shape.size() < 2 || mine.element_count() == 0)
    return std::nullopt;
  const Result<reference::Wide> g = reference::widen(golden);
  const Result<reference::Wide> m = reference::widen(mine);
  if (!g || !m) return std::nullopt;
  std::optional<StepDifference> best;
  for (const Cut& cut : cuts_of(mine.shape)) {
    for (const Levels& levels : all_levels()) {
      for (const bool has_offset : {false, true}) {
        if (has_offset && !levels.values.empty()) continue;
        const Grid grid(levels, type->roundoff(), has_offset);
        double range = 0;
        std::optional<StepDifference> found =
            difference_on(grid, cut, g->values, m->values, &range);
        if (!found) continue;
        found->scheme = scheme_of(levels, cut, range, has_offset);
        if (found->half_steps <= kWeightLimit) return found;
        if (!best || found->half_steps < best->half_steps) best = std::move(found);
      }
    }
  }
  return best;
}

}  // namespace assay::locate

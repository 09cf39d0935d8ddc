// SPDX-License-Identifier: Apache-2.0
// Two copies of one parameter against what one rounding explains.
//   docs/localisation.md, "Pair tests"
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/numbers.hpp"
#include "base/thread_pool.hpp"
#include "locate/judge/pair_tests.hpp"
#include "reference/wide.hpp"
#include "tensor/convert.hpp"
#include "tensor/equal_bytes.hpp"
#include "tensor/float_grid.hpp"

namespace assay::locate {
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 15;  // 256 KiB of doubles a side

struct Worst {
  double half_ulp = 0;
  int64_t value = -1;  // counts values: a complex element has two
  double golden = 0, mine = 0;
  double error = 0, energy = 0;  // sums of squares of m - g and of g
};

/// |m - g| in half ULP. The ULP is that of the coarser of the two types at its own value: golden may be the side
/// that was rounded.
class Distance {
 public:
  /// largest   values beyond it count as it
  Distance(const FloatGrid& golden, const FloatGrid& mine, double largest)
      : golden_(golden),
        mine_(mine),
        largest_(std::min({golden.largest, mine.largest, largest})),
        smallest_(std::max(golden.smallest_normal(), mine.smallest_normal())),
        golden_is_coarser_(golden.fraction_bits < mine.fraction_bits) {}

  /// A factor closer to 1 than one rounding of the coarser type explains nothing.
  [[nodiscard]] bool is_beyond_rounding(double factor) const {
    return std::abs(factor - 1) >= FloatGrid::power_of_two(-fraction_bits() - 1);
  }

  [[nodiscard]] double operator()(double golden, double mine) const {
    if (std::isnan(golden) || std::isnan(mine))
      return std::isnan(golden) == std::isnan(mine) ? 0 : kInfinity;
    // Overflow to infinity is what a conversion does to values beyond the narrower type.
    const double g = std::clamp(golden, -largest_, largest_);
    const double m = std::clamp(mine, -largest_, largest_);
    // Below the smallest normal number a conversion may flush to zero.
    if (std::abs(g) < smallest_ && std::abs(m) < smallest_) return 0;
    const double ulp = golden_is_coarser_ ? golden_.ulp(g) : mine_.ulp(m);
    return std::abs(m - g) /
           (0.5 * ulp * (computed_ && g != 0 ? 1 + std::abs(std::log(std::abs(g))) : 1));
  }

  /// Values are powers, each computed in its type: exp(t) is |t| times as far off as t is.
  [[nodiscard]] Distance of_powers() const {
    Distance distance = *this;
    distance.computed_ = true;
    return distance;
  }
  [[nodiscard]] int fraction_bits() const {
    return std::min(golden_.fraction_bits, mine_.fraction_bits);
  }

 private:
  FloatGrid golden_;
  FloatGrid mine_;
  double largest_;
  double smallest_;
  bool golden_is_coarser_;
  bool computed_ = false;
};

/// Calls compare(index of the block) -> Worst for all blocks on all cores; the first of the worst
/// counts.
template <typename Compare>
Worst worst_of_blocks(int64_t element_count, const Compare& compare) {
  const auto blocks = static_cast<size_t>((element_count + kBlockElements - 1) / kBlockElements);
  std::vector<Worst> found(blocks);
  parallel_for(blocks, resolve_job_count(0), [&](size_t block) { found[block] = compare(block); });
  Worst worst;
  for (const Worst& one : found) {
    const double error = worst.error + one.error;
    const double energy = worst.energy + one.energy;
    if (one.value >= 0 && (worst.value < 0 || one.half_ulp > worst.half_ulp)) worst = one;
    worst.error = error;
    worst.energy = energy;
  }
  return worst;
}

struct BlockRange {
  int64_t first = 0;
  int64_t count = 0;
};
BlockRange range_of(size_t block, int64_t element_count) {
  const int64_t first = static_cast<int64_t>(block) * kBlockElements;
  return {first, std::min(kBlockElements, element_count - first)};
}

/// factor   golden's values count times it
Worst worst_of_floats(const TensorView& golden, const TensorView& mine, const Distance& distance,
                      double factor = 1) {
  const int64_t count = mine.element_count();
  const int values = values_per_element(mine.dtype);
  return worst_of_blocks(count, [&](size_t block) {
    const BlockRange range = range_of(block, count);
    std::vector<double> g(static_cast<size_t>(range.count * values));
    std::vector<double> m(g.size());
    read_values(golden, range.first, range.count, g);
    read_values(mine, range.first, range.count, m);
    Worst worst;
    for (size_t i = 0; i < m.size(); ++i) {
      const double half_ulp = distance(g[i] * factor, m[i]);
      worst.error += (m[i] - g[i]) * (m[i] - g[i]);
      worst.energy += g[i] * g[i];
      if (half_ulp <= worst.half_ulp) continue;
      worst.half_ulp = half_ulp;
      worst.value = range.first * values + static_cast<int64_t>(i);
      worst.golden = g[i];
      worst.mine = m[i];
    }
    return worst;
  });
}

/// Integers and truth values are equal or infinitely far apart.
Worst worst_of_integers(const reference::Whole& golden, const reference::Whole& mine) {
  return worst_of_blocks(mine.size(), [&](size_t block) {
    const BlockRange range = range_of(block, mine.size());
    for (int64_t i = range.first; i < range.first + range.count; ++i) {
      const int64_t g = golden.data()[i];
      const int64_t m = mine.data()[i];
      if (g != m)
        return Worst{kInfinity, i, static_cast<double>(g), static_cast<double>(m), NAN, NAN};
    }
    return Worst{};
  });
}

bool is_whole(DType dtype) { return is_integer(dtype) || dtype == DType::Bool; }

/// errors  Unsupported: no floats with a grid
Result<Distance> distance_of(const TensorView& golden, const TensorView& mine, double largest) {
  const std::optional<FloatGrid> golden_grid = float_grid(golden.dtype);
  const std::optional<FloatGrid> mine_grid = float_grid(mine.dtype);
  if (!golden_grid || !mine_grid ||
      values_per_element(golden.dtype) != values_per_element(mine.dtype)) {
    return fail(Errc::Unsupported, std::string(name(mine.dtype)) + " against " +
                                       std::string(name(golden.dtype)) + " has no common grid");
  }
  return Distance(*golden_grid, *mine_grid, largest);
}

Result<Worst> worst_of(const TensorView& golden, const TensorView& mine, double largest) {
  if (is_whole(golden.dtype) && is_whole(mine.dtype)) {
    ASSAY_TRY(const reference::Whole g, reference::whole(golden));
    ASSAY_TRY(const reference::Whole m, reference::whole(mine));
    return worst_of_integers(g, m);
  }
  ASSAY_TRY(const Distance distance, distance_of(golden, mine, largest));
  return worst_of_floats(golden, mine, distance);
}

Result<WeightDifference> difference_of(const TensorView& golden, const TensorView& mine,
                                       double largest) {
  WeightDifference difference;
  if (!(golden.shape == mine.shape)) {
    difference.shape_differs = true;
    difference.half_ulp = kInfinity;
    return difference;
  }
  if (has_equal_bytes(golden, mine)) {
    difference.identical = true;
    return difference;
  }
  ASSAY_TRY(const Worst worst, worst_of(golden, mine, largest));
  if (worst.value < 0) return difference;
  difference.half_ulp = worst.half_ulp;
  difference.worst = worst.value / values_per_element(mine.dtype);
  difference.golden_value = worst.golden;
  difference.mine_value = worst.mine;
  if (worst.energy > 0 && std::isfinite(worst.error))
    difference.relative_l2 = std::sqrt(worst.error / worst.energy);
  return difference;
}

/// Sums over one block, then over blocks in their order.
struct Products {
  double golden_mine = 0;
  double golden_golden = 0;
};
Products products_of(const TensorView& golden, const TensorView& mine) {
  const int64_t count = mine.element_count();
  const int values = values_per_element(mine.dtype);
  const auto blocks = static_cast<size_t>((count + kBlockElements - 1) / kBlockElements);
  std::vector<Products> found(blocks);
  parallel_for(blocks, resolve_job_count(0), [&](size_t block) {
    const BlockRange range = range_of(block, count);
    std::vector<double> g(static_cast<size_t>(range.count * values));
    std::vector<double> m(g.size());
    read_values(golden, range.first, range.count, g);
    read_values(mine, range.first, range.count, m);
    for (size_t i = 0; i < m.size(); ++i) {
      found[block].golden_mine += g[i] * m[i];
      found[block].golden_golden += g[i] * g[i];
    }
  });
  Products sum;
  for (const Products& one : found) {
    sum.golden_mine += one.golden_mine;
    sum.golden_golden += one.golden_golden;
  }
  return sum;
}

/// One column of a table of sines and cosines of positions. A wave of frequency w has
/// v(p + 1) + v(p - 1) = 2 cos(w) v(p), which tells w; its angle is off by its own rounding, that of w
/// among it, so the value by as much at most.
bool is_same_wave(const double* golden, const double* mine, size_t positions, size_t stride) {
  double product = 0, square = 0;
  const auto at = [stride](const double* wave, size_t position) { return wave[position * stride]; };
  for (size_t p = 1; p + 1 < positions; ++p) {
    product += at(golden, p) * (at(golden, p + 1) + at(golden, p - 1));
    square += 2 * at(golden, p) * at(golden, p);
  }
  const double frequency = square > 0 ? std::acos(std::clamp(product / square, -1.0, 1.0)) : 0;
  const double of_power = frequency > 0 ? 1 + std::abs(std::log(frequency)) : 1;
  constexpr double kRoundoff = 0x1p-24;
  for (size_t p = 0; p < positions; ++p) {
    const double g = at(golden, p), m = at(mine, p);
    const double angle = static_cast<double>(p + 1) * frequency;
    if (!(std::abs(g) <= 1 && std::abs(m - g) <= kWeightLimit * kRoundoff * (angle * of_power + 1)))
      return false;
  }
  return true;
}

}  // namespace

Result<WeightDifference> weight_difference(const TensorView& golden, const TensorView& mine) {
  return difference_of(golden, mine, kInfinity);
}

bool is_same_table(const TensorView& golden, const TensorView& mine) {
  const Result<Distance> distance = distance_of(golden, mine, kInfinity);
  const std::optional<FloatGrid> narrowest = float_grid(DType::Float32);
  if (!distance || !(golden.shape == mine.shape) ||
      distance->fraction_bits() < narrowest->fraction_bits)
    return false;
  if (worst_of_floats(golden, mine, distance->of_powers()).half_ulp <= kWeightLimit) return true;
  const Result<reference::Wide> g = reference::widen(golden);
  const Result<reference::Wide> m = reference::widen(mine);
  const size_t axes = golden.shape.size();
  if (!g || !m || axes < 2) return false;
  const auto columns = static_cast<size_t>(golden.shape[axes - 1]);
  const auto positions = static_cast<size_t>(golden.shape[axes - 2]);
  if (g->values.size() != columns * positions) return false;
  for (size_t column = 0; column < columns; ++column) {
    if (!is_same_wave(g->values.data() + column, m->values.data() + column, positions, columns))
      return false;
  }
  return true;
}

Result<WeightDifference> constant_difference(const TensorView& golden, const TensorView& mine) {
  return difference_of(golden, mine, kMaskValue);
}

std::optional<double> constant_factor(const TensorView& golden, const TensorView& mine) {
  const Result<Distance> distance = distance_of(golden, mine, kInfinity);
  if (!distance || !(golden.shape == mine.shape)) return std::nullopt;
  const Products products = products_of(golden, mine);
  const double factor = products.golden_mine / products.golden_golden;
  if (!std::isfinite(factor) || factor == 0 || !distance->is_beyond_rounding(factor))
    return std::nullopt;
  // Mine was rounded after the product, and golden's values before it when they came in the run
  // under test's type: half an ULP and one of up to twice its size.
  constexpr double kTwoRoundings = 3.1;
  const Worst worst = worst_of_floats(golden, mine, *distance, factor);
  if (!(worst.half_ulp <= kTwoRoundings)) return std::nullopt;
  return factor;
}

std::string place_text(int64_t flat, const Dims& shape) {
  Dims place = shape;
  for (size_t axis = shape.size(); axis-- > 0;) {
    const int64_t size = std::max<int64_t>(shape[axis], 1);
    place[axis] = flat % size;
    flat /= size;
  }
  return list_text(place.span());
}

}  // namespace assay::locate

// SPDX-License-Identifier: Apache-2.0
// Cells with large errors are parted from the rest where a gap of sizes is; what they have in
// common on each axis becomes words.
#include "measure/error_shape.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.hpp"
#include "measure/pair_picture.hpp"

namespace assay::measure {
namespace {

constexpr int kGap = 24;              // codes: a factor of 8 between two sizes
constexpr double kNearlyAll = 0.99;   // of the squared error: "all"
constexpr double kMost = 0.5;         // "mostly"
constexpr double kEverywhere = 0.95;  // of the cells
constexpr double kFilled = 0.9;       // of a block of cells that is called one
constexpr double kPartOfRow = 0.25;   // of the fullest bin of an axis
constexpr size_t kEdgeCells = 4;      // looked at to find the edge within a bin

/// Codes from which on cells are set apart from smaller ones, largest first; the last takes in all
/// errors.
std::vector<uint8_t> thresholds(const std::vector<uint8_t>& codes) {
  std::array<bool, 256> has{};
  for (const uint8_t code : codes) has[code] = true;
  std::vector<uint8_t> found;
  int above = 0;  // the size met last, going down
  for (int code = 255; code >= 0; --code) {
    if (!has[static_cast<size_t>(code)] && code != 0) continue;
    const bool is_apart = code == 0 || above - code >= kGap || above == ErrorScale::kNotFinite;
    if (above > 0 && is_apart) found.push_back(static_cast<uint8_t>(above));
    above = code;
  }
  return found;
}

/// Bins of one axis that hold large errors.
struct AxisSet {
  std::vector<bool> has;
  int64_t count = 0;
};

struct HotCells {
  std::vector<int64_t> cells;
  std::vector<AxisSet> axes;
  int64_t block = 1;  // cells of the product of the axes' sets
};

std::vector<AxisSet> common_bins(const CellGrid& grid, const std::vector<int64_t>& cells) {
  std::vector<std::vector<int64_t>> counts(grid.bins.size());
  for (size_t k = 0; k < counts.size(); ++k) counts[k].resize(static_cast<size_t>(grid.bins[k]));
  for (const int64_t cell : cells) {
    int64_t rest = cell;
    for (size_t k = counts.size(); k-- > 0; rest /= grid.bins[k])
      ++counts[k][static_cast<size_t>(rest % grid.bins[k])];
  }
  std::vector<AxisSet> axes(counts.size());
  for (size_t k = 0; k < counts.size(); ++k) {
    const double least = kPartOfRow * static_cast<double>(std::ranges::max(counts[k]));
    for (const int64_t count : counts[k]) {
      axes[k].has.push_back(count > 0 && static_cast<double>(count) >= least);
      axes[k].count += axes[k].has.back() ? 1 : 0;
    }
  }
  return axes;
}

HotCells hot_cells(const CellGrid& grid, const std::vector<uint8_t>& codes, uint8_t least) {
  HotCells hot;
  for (size_t i = 0; i < codes.size(); ++i)
    if (codes[i] >= least) hot.cells.push_back(static_cast<int64_t>(i));
  hot.axes = common_bins(grid, hot.cells);
  for (const AxisSet& axis : hot.axes) hot.block *= axis.count;
  return hot;
}

/// The cells are, but for a few, the product of a set of bins of each axis.
bool is_block(const CellGrid& grid, const HotCells& hot) {
  const auto is_inside = [&](int64_t cell) {
    for (size_t k = grid.bins.size(); k-- > 0; cell /= grid.bins[k])
      if (!hot.axes[k].has[static_cast<size_t>(cell % grid.bins[k])]) return false;
    return true;
  };
  const auto inside = static_cast<double>(std::ranges::count_if(hot.cells, is_inside));
  return inside >= kFilled * static_cast<double>(hot.block) &&
         inside >= kEverywhere * static_cast<double>(hot.cells.size());
}

/// Distance of equally far bins that reach over the whole axis; 0 where they do not.
int64_t period_of(const AxisSet& axis) {
  const auto size = static_cast<int64_t>(axis.has.size());
  int64_t first = -1, last = -1, step = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (!axis.has[static_cast<size_t>(i)]) continue;
    if (first < 0) first = i;
    if (last >= 0 && step == 0) step = i - last;
    if (last >= 0 && i - last != step) return 0;
    last = i;
  }
  return axis.count >= 3 && step >= 2 && first < step && last + step >= size ? step : 0;
}

class Describer {
 public:
  Describer(const CellGrid& grid, const HotCells& hot, const PositionsOf& positions, double least)
      : grid_(grid), hot_(hot), positions_(positions), least_(least) {}

  /// "in rows 5 to 7 of 512, in channel 3 of 64"; "" of all axes as a whole.
  std::string text() const {
    std::string out;
    for (size_t k = 0; k < hot_.axes.size(); ++k) {
      if (hot_.axes[k].count == grid_.bins[k] && !may_be_finer(k)) continue;
      const std::string phrase = axis_text(k);
      if (!phrase.empty()) out += (out.empty() ? "" : ", ") + phrase;
    }
    return out;
  }

 private:
  // One bin may be all of an axis that is no more than one of its positions.
  bool may_be_finer(size_t k) const { return grid_.bins[k] == 1 && grid_.sizes[k] > 1; }

  std::string axis_text(size_t k) const {
    const AxisSet& axis = hot_.axes[k];
    const auto first_bin = std::ranges::find(axis.has, true) - axis.has.begin();
    int64_t last_bin = static_cast<int64_t>(axis.has.size()) - 1;
    while (!axis.has[static_cast<size_t>(last_bin)]) --last_bin;
    const std::string size = " of " + std::to_string(grid_.sizes[k]);
    if (last_bin - first_bin + 1 != axis.count) return spread_text(k);
    const int64_t first = edge(k, first_bin, true);
    const int64_t last = edge(k, last_bin, false);
    if (first == 0 && last == grid_.sizes[k] - 1) return "";
    if (first == last) return "in " + name_of(k) + " " + std::to_string(first) + size;
    if (last == grid_.sizes[k] - 1)
      return "from " + name_of(k) + " " + std::to_string(first) + size + " on";
    return "in " + name_of(k) + "s " + std::to_string(first) + " to " + std::to_string(last) + size;
  }

  std::string spread_text(size_t k) const {
    const int64_t period = grid_.widths[k] == 1 ? period_of(hot_.axes[k]) : 0;
    if (period == 2) return "in every second " + name_of(k);
    if (period > 2) return "in one " + name_of(k) + " of every " + std::to_string(period);
    const int64_t width = grid_.widths[k];
    const std::string part = width == 1
                                 ? name_of(k) + "s"
                                 : "parts of " + std::to_string(width) + " " + name_of(k) + "s";
    return "in " + std::to_string(hot_.axes[k].count) + " of " + std::to_string(grid_.bins[k]) +
           " " + part;
  }

  /// First or last position of a bin that holds a large error, as far as a few cells tell.
  int64_t edge(size_t k, int64_t bin, bool is_first) const {
    const int64_t begin = bin * grid_.widths[k];
    const int64_t end = std::min(begin + grid_.widths[k], grid_.sizes[k]);
    if (end - begin == 1) return begin;
    int64_t found = -1;
    size_t looked = 0;
    for (const int64_t cell : hot_.cells) {
      if (grid_.bin_of(cell, k) != bin) continue;
      const auto [first, last] = positions_(cell, k, least_);
      if (last >= 0)
        found = is_first ? (found < 0 ? first : std::min(found, first)) : std::max(found, last);
      if (++looked == kEdgeCells) break;
    }
    return found >= 0 ? found : is_first ? begin : end - 1;
  }

  std::string name_of(size_t k) const {
    const size_t axes = grid_.axes.size();
    if (axes == 1) return "element";
    if (k + 1 == axes) return "channel";
    if (k + 2 == axes) return "row";
    return "axis " + std::to_string(grid_.axes[k]) + " index";
  }

  const CellGrid& grid_;
  const HotCells& hot_;
  const PositionsOf& positions_;
  double least_;
};

/// What stands at and above each code.
struct CodeTotals {
  std::array<double, 257> squares{};
  std::array<int64_t, 257> cells{};

  CodeTotals(const PooledErrors& pooled, const std::vector<uint8_t>& codes) {
    for (size_t i = 0; i < codes.size(); ++i) {
      squares[codes[i]] += pooled.squares[i];
      ++cells[codes[i]];
    }
    for (size_t code = 256; code-- > 0;) {
      squares[code] += squares[code + 1];
      cells[code] += cells[code + 1];
    }
  }
  /// Of all squared errors; those that are not finite have no shares.
  [[nodiscard]] double share(uint8_t least) const {
    return std::isfinite(squares[0]) ? squares[least] / squares[0] : 1;
  }
  /// Of all cells.
  [[nodiscard]] double filled(uint8_t least) const {
    return static_cast<double>(cells[least]) / static_cast<double>(cells[0]);
  }
};

}  // namespace

std::string shape_of_error(const PooledErrors& pooled, const std::vector<uint8_t>& codes,
                           const std::function<double(uint8_t)>& error_of,
                           const PositionsOf& positions) {
  const std::vector<uint8_t> levels = thresholds(codes);
  if (levels.empty()) return "";
  const CodeTotals totals(pooled, codes);
  for (const uint8_t level : levels) {
    const bool is_finite = level != ErrorScale::kNotFinite;
    const double share = totals.share(level);
    if (share < kMost) continue;
    const std::string what = is_finite ? "" : "NaN or infinity ";
    if (codes.size() > 1 && totals.filled(level) >= kEverywhere) return what + "everywhere";
    const HotCells hot = hot_cells(pooled.grid, codes, level);
    if (!is_block(pooled.grid, hot)) continue;
    // Codes are rounded: half a step lower nothing is left out.
    const double least = is_finite ? error_of(level) * 0.95 : HUGE_VAL;
    const std::string where = Describer(pooled.grid, hot, positions, least).text();
    if (where.empty()) return what + "everywhere";
    return what + (share >= kNearlyAll ? "all " : "mostly ") + where;
  }
  const int percent = static_cast<int>(totals.filled(levels.back()) * 100 + 0.5);
  return "scattered over " + std::to_string(std::max(percent, 1)) + " % of the places";
}

}  // namespace assay::measure

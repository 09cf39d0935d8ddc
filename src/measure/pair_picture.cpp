// SPDX-License-Identifier: Apache-2.0
// A picture is the pooled errors as codes, what a sample of the values says, and the values of the
// cells with the largest errors.
#include "measure/pair_picture.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "measure/error_shape.hpp"
#include "measure/pair_values.hpp"
#include "tensor/float_grid.hpp"

namespace assay::measure {
namespace {

// ---- codes ----

constexpr int kCodesPerOctave = 8;
constexpr int kLargestCode = 254;

/// Halfway, in the logarithm, from one eighth of an octave to the next.
std::array<double, kCodesPerOctave> make_halves() {
  std::array<double, kCodesPerOctave> halves{};
  for (size_t i = 0; i < halves.size(); ++i)
    halves[i] = std::exp2((static_cast<double>(i) + 0.5) / kCodesPerOctave);
  return halves;
}
const std::array<double, kCodesPerOctave> kHalves = make_halves();

/// Exponent of a positive finite double, and its value divided by that power of two in `fraction`.
int split(double value, double* fraction) {
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<uint64_t>(value);
  if (bits >> 52 == 0) {  // subnormal
    int exponent = 0;
    *fraction = 2 * std::frexp(value, &exponent);
    return exponent - 1;
  }
  *fraction = std::bit_cast<double>((bits & kFraction) | uint64_t{1023} << 52);
  return static_cast<int>(bits >> 52) - 1023;
}

/// Nearest to 8 log2(value) of a positive finite value.
int eighths_of(double value) {
  double fraction = 1;
  int eighths = split(value, &fraction) * kCodesPerOctave;
  for (const double half : kHalves) eighths += fraction >= half ? 1 : 0;
  return eighths;
}

/// The root of the mean of the squares of a cell, between the bounds that its largest error sets
/// where squares leave the range of a double.
double rms_of(double largest, double squares, int64_t count) {
  if (count == 1 || std::isinf(largest)) return largest;
  const auto values = static_cast<double>(count);
  return std::clamp(std::sqrt(squares / values), largest / std::sqrt(values), largest);
}

void code_cells(const PooledErrors& pooled, PairPicture* picture) {
  const auto cells = static_cast<size_t>(pooled.grid.cell_count());
  picture->largest.assign(cells, 0);
  picture->rms.assign(cells, 0);
  double most = 0;
  for (const double error : pooled.largest)
    if (std::isfinite(error)) most = std::max(most, error);
  picture->scale = ErrorScale::up_to(most);
  for (size_t i = 0; i < pooled.largest.size(); ++i) {
    const double error = pooled.largest[i];
    if (error == 0) continue;
    const double rms =
        rms_of(error, pooled.squares[i], pooled.grid.value_count(static_cast<int64_t>(i)));
    picture->largest[i] = picture->scale.code_of(error);
    picture->rms[i] = rms == error ? picture->largest[i] : picture->scale.code_of(rms);
  }
}

// ---- units of the last place ----

/// The unit of the last place of the coarser of two types, at a value.
class UlpUnit {
 public:
  static std::optional<UlpUnit> of(DType golden, DType mine) {
    const std::optional<FloatGrid> golden_grid = float_grid(golden);
    const std::optional<FloatGrid> mine_grid = float_grid(mine);
    // Bytes without a meaning, and floats of a few bits that have no fraction.
    if ((!golden_grid && !is_whole(golden)) || (!mine_grid && !is_whole(mine))) return std::nullopt;
    if (!golden_grid && !mine_grid)
      return UlpUnit(std::nullopt,
                     info(mine).element_bits < info(golden).element_bits ? mine : golden);
    if (!mine_grid || (golden_grid && golden_grid->fraction_bits <= mine_grid->fraction_bits))
      return UlpUnit(golden_grid, golden);
    return UlpUnit(mine_grid, mine);
  }

  [[nodiscard]] double ulps(double golden, double error) const {
    return grid_ ? error / grid_->ulp(golden) : error;
  }
  /// From 2^(bits + 1) units on an error is as large as golden's value itself.
  [[nodiscard]] int bits() const { return grid_ ? grid_->fraction_bits : kIntegerBits; }
  [[nodiscard]] DType type() const { return type_; }

 private:
  static constexpr int kIntegerBits = 23;

  UlpUnit(std::optional<FloatGrid> grid, DType type) : grid_(grid), type_(type) {}
  static bool is_whole(DType dtype) { return is_integer(dtype) || dtype == DType::Bool; }

  std::optional<FloatGrid> grid_;  // none of integers, whose unit is 1
  DType type_;
};

UlpHistogram empty_histogram(const UlpUnit& unit) {
  UlpHistogram out;
  out.type = std::string(name(unit.type()));
  out.edges.push_back(0);
  for (int k = 0; k <= unit.bits() + 1; ++k) out.edges.push_back(std::ldexp(1.0, k));
  out.counts.resize(out.edges.size());
  return out;
}

// 0, 1, 2-3, 4-7, ... units: as many bits as the whole number has.
size_t bin_of(double ulps, size_t bins) {
  const double above = ulps + 0.5;  // cut off, the nearest whole number
  if (!(above >= 1)) return 0;
  const auto exponent = static_cast<size_t>(std::bit_cast<uint64_t>(above) >> 52) - 1023;
  return std::min(exponent + 1, bins - 1);
}

// ---- histograms of a sample ----

constexpr int64_t kMinSample = 4096;
constexpr int64_t kMaxSample = 65536;
constexpr int64_t kSampleShare = 16;  // one value in so many, between the two
constexpr int64_t kRun = 16;          // neighbours, which lie in one line or two of the cache

/// Calls use(block) for all values, or for runs that are evenly spread over them. A run's place
/// within its stretch turns by the golden ratio: no column is met more often than another.
template <typename Use>
int64_t sample(const PairSource& source, Block& block, Use use) {
  const int64_t limit = std::clamp(source.value_count / kSampleShare, kMinSample, kMaxSample);
  if (source.value_count <= limit) {
    for_each_block(source, block, [&](int64_t) { use(block); });
    return source.value_count;
  }
  constexpr double kGoldenRatio = 0.6180339887498949;
  const int64_t runs = limit / kRun;
  const int64_t stretch = source.value_count / runs;
  for (int64_t i = 0; i < runs; ++i) {
    const double turn = static_cast<double>(i) * kGoldenRatio;
    const double place = (turn - std::floor(turn)) * static_cast<double>(stretch);
    const int64_t first = stretch * i + static_cast<int64_t>(place);
    read_block(source, std::min(first, source.value_count - kRun), kRun, block);
    use(block);
  }
  return runs * kRun;
}

/// Values of one side by sign and exponent: the upper twelve bits of a double.
struct ExponentCounts {
  std::array<int32_t, 4096> counts{};
  int64_t nan = 0;
  int64_t inf = 0;

  void add(const double* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) ++counts[std::bit_cast<uint64_t>(values[i]) >> 52];
    for (int64_t i = 0; i < count; ++i) {
      nan += std::isnan(values[i]) ? 1 : 0;
      inf += std::isinf(values[i]) ? 1 : 0;
    }
  }
};

constexpr size_t kNegative = 2048;
constexpr int kBias = 1023;
constexpr int kOctaves = 16;

/// Exponents of the finite values of both sides but 0, as the bits have them; none: the first is
/// behind the last.
struct Octaves {
  int first = 2047;
  int last = 0;
};

Octaves octaves_of(const ExponentCounts& golden, const ExponentCounts& mine) {
  Octaves found;
  for (int e = 1; e < 2047; ++e) {
    const auto i = static_cast<size_t>(e);
    if (golden.counts[i] + golden.counts[kNegative + i] + mine.counts[i] +
            mine.counts[kNegative + i] ==
        0)
      continue;
    found.first = std::min(found.first, e);
    found.last = e;
  }
  found.first = std::max(found.first, found.last - kOctaves + 1);
  return found;
}

/// A bin for each octave of either sign, and one in the middle for what is smaller.
Histogram histogram_of(const ExponentCounts& side, Octaves octaves) {
  Histogram out;
  out.nan = side.nan;
  out.inf = side.inf;
  int64_t middle = 0;
  for (int e = 0; e < std::min(octaves.first, 2047); ++e) {
    const auto i = static_cast<size_t>(e);
    middle += side.counts[i] + side.counts[kNegative + i];
  }
  for (int e = octaves.last; e >= octaves.first; --e) {
    out.edges.push_back(-std::ldexp(1.0, e + 1 - kBias));
    out.counts.push_back(side.counts[kNegative + static_cast<size_t>(e)]);
  }
  const double least = octaves.first > octaves.last ? 1 : std::ldexp(1.0, octaves.first - kBias);
  out.edges.push_back(-least);
  out.counts.push_back(middle);
  out.edges.push_back(least);
  for (int e = octaves.first; e <= octaves.last; ++e) {
    out.counts.push_back(side.counts[static_cast<size_t>(e)]);
    out.edges.push_back(std::ldexp(1.0, e + 1 - kBias));
  }
  return out;
}

void add_ulps(const Block& block, const UlpUnit& unit, UlpHistogram* out) {
  for (int64_t i = 0; i < block.count; ++i) {
    if (!std::isfinite(block.golden[i]) || !std::isfinite(block.mine[i])) continue;
    const double error = std::fabs(block.difference[i]);
    const size_t bin =
        error == 0 ? 0 : bin_of(unit.ulps(block.golden[i], error), out->counts.size());
    ++out->counts[bin];
  }
}

void add_histograms(const PairSource& source, const std::optional<UlpUnit>& unit, Block& block,
                    PairPicture* picture) {
  ExponentCounts golden;
  ExponentCounts mine;
  if (unit) picture->ulp = empty_histogram(*unit);
  picture->sampled = sample(source, block, [&](const Block& part) {
    golden.add(part.golden, part.count);
    mine.add(part.mine, part.count);
    if (unit) add_ulps(part, *unit, &*picture->ulp);
  });
  const Octaves octaves = octaves_of(golden, mine);
  picture->golden = histogram_of(golden, octaves);
  picture->mine = histogram_of(mine, octaves);
}

// ---- the values of a cell ----

/// Calls use(first) for the block with values from `first` on, until the whole cell is read.
template <typename Use>
void for_each_block_of(const PairSource& source, const CellGrid& grid, int64_t cell, Block& block,
                       Use use) {
  const std::vector<int64_t> bins = grid.bins_of(cell);
  const size_t axes = bins.size();
  std::vector<int64_t> begin(axes), end(axes);
  for (size_t k = 0; k < axes; ++k) {
    begin[k] = bins[k] * grid.widths[k];
    end[k] = std::min(begin[k] + grid.widths[k], grid.sizes[k]);
  }
  std::vector<int64_t> at = begin;
  const int64_t run = (end.back() - begin.back()) * grid.parts;
  // Short runs, each in another line of memory, would wait for one after the other.
  constexpr int64_t kRowsAhead = 16;
  const bool prefetches =
      run <= kBlockValues && source.golden->is_contiguous() && source.mine->is_contiguous();
  const int64_t ahead = kRowsAhead * grid.sizes.back() * grid.parts;
  for (;;) {
    int64_t first = 0;
    for (size_t k = 0; k < axes; ++k) first = first * grid.sizes[k] + at[k];
    first *= grid.parts;
    if (prefetches) {
      prefetch_values(*source.golden, first + ahead, run);
      prefetch_values(*source.mine, first + ahead, run);
    }
    for (int64_t done = 0; done < run; done += kBlockValues) {
      read_block(source, first + done, std::min(kBlockValues, run - done), block);
      use(first + done);
    }
    size_t axis = axes - 1;  // the next row of the cell
    do {
      if (axis == 0) return;
      --axis;
      if (++at[axis] < end[axis]) break;
      at[axis] = begin[axis];
    } while (true);
  }
}

struct Place {
  double error;
  int64_t value;
  bool operator<(const Place& other) const {  // worse ones first
    return error != other.error ? error > other.error : value < other.value;
  }
};

constexpr size_t kWorst = 8;

/// A sorted list of the worst few.
class WorstPlaces {
 public:
  void add(Place place) {
    if (is_full() && !(place < places_.back())) return;
    places_.insert(std::upper_bound(places_.begin(), places_.end(), place), place);
    if (places_.size() > kWorst) places_.pop_back();
  }
  [[nodiscard]] bool is_full() const { return places_.size() == kWorst; }
  [[nodiscard]] const std::vector<Place>& places() const { return places_; }

 private:
  std::vector<Place> places_;
};

/// The worst values are in the cells with the largest errors, of as many.
std::vector<Place> find_worst_places(const PairSource& source, const PooledErrors& pooled,
                                     Block& block) {
  WorstPlaces cells;
  for (size_t i = 0; i < pooled.largest.size(); ++i)
    if (pooled.largest[i] > 0) cells.add({pooled.largest[i], static_cast<int64_t>(i)});
  WorstPlaces found;
  for (const Place& cell : cells.places()) {
    if (found.is_full() && found.places().back().error >= cell.error) break;
    for_each_block_of(source, pooled.grid, cell.value, block, [&](int64_t first) {
      double difference[kBlockValues];
      pooled_differences(block, difference);
      for (int64_t i = 0; i < block.count; ++i)
        if (difference[i] != 0) found.add({std::fabs(difference[i]), first + i});
    });
  }
  return found.places();
}

Dims index_in(const Dims& shape, int64_t element) {
  Dims index = shape;
  for (size_t k = shape.size(); k-- > 0; element /= shape[k]) index[k] = element % shape[k];
  return index;
}

WorstElement describe_place(const PairSource& source, const CellGrid& grid, const Place& place,
                            const std::optional<UlpUnit>& unit, Block& block) {
  constexpr int64_t kToEachSide = 3;
  const int64_t element = place.value / grid.parts;
  const int64_t part = place.value % grid.parts;
  const int64_t column = element % grid.sizes.back();
  const int64_t begin = std::max<int64_t>(column - kToEachSide, 0);
  const int64_t end = std::min(column + kToEachSide + 1, grid.sizes.back());
  read_block(source, (element - column + begin) * grid.parts, (end - begin) * grid.parts, block);
  WorstElement out;
  out.index = index_in(source.golden->shape, element);
  out.part = static_cast<int>(part);
  out.around_first = begin;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t at = (i - begin) * grid.parts + part;
    out.golden_around.push_back(block.golden[at]);
    out.mine_around.push_back(block.mine[at]);
    if (i != column) continue;
    out.golden = block.golden[at];
    out.mine = block.mine[at];
    const bool is_finite = std::isfinite(out.golden) && std::isfinite(out.mine);
    out.error = std::fabs(is_finite ? block.difference[at] : out.mine - out.golden);
    out.ulp = unit && is_finite ? unit->ulps(out.golden, out.error) : NAN;
  }
  return out;
}

/// Of the values of a cell whose error is at least `least`, the first and last position on an axis.
std::pair<int64_t, int64_t> positions_of(const PairSource& source, const CellGrid& grid,
                                         int64_t cell, size_t axis, double least, Block& block) {
  int64_t step = grid.parts;
  for (size_t k = axis + 1; k < grid.sizes.size(); ++k) step *= grid.sizes[k];
  std::pair<int64_t, int64_t> range{grid.sizes[axis], -1};
  for_each_block_of(source, grid, cell, block, [&](int64_t first) {
    double difference[kBlockValues];
    pooled_differences(block, difference);
    for (int64_t i = 0; i < block.count; ++i) {
      if (!(std::fabs(difference[i]) >= least)) continue;
      const int64_t position = (first + i) / step % grid.sizes[axis];
      range = {std::min(range.first, position), std::max(range.second, position)};
    }
  });
  return range;
}

}  // namespace

ErrorScale ErrorScale::up_to(double largest) {
  if (!(largest > 0)) return {};
  return {static_cast<double>(eighths_of(largest) - kLargestCode) / kCodesPerOctave};
}

uint8_t ErrorScale::code_of(double error) const {
  if (!std::isfinite(error)) return kNotFinite;
  if (error == 0) return 0;
  const int code = eighths_of(error) - static_cast<int>(base * kCodesPerOctave);
  return static_cast<uint8_t>(std::clamp(code, 1, kLargestCode));
}

double ErrorScale::error_of(uint8_t code) const {
  if (code == 0) return 0;
  return code == kNotFinite ? HUGE_VAL : std::exp2(base + code / double{kCodesPerOctave});
}

std::optional<PairPicture> picture_of(const TensorView& golden, const TensorView& mine,
                                      MetricRules rules, const PooledErrors& pooled) {
  PairSource source = make_source(golden, mine, rules);
  source.value_count = value_count_of(source, golden);
  if (source.value_count == 0 || source.value_count != value_count_of(source, mine))
    return std::nullopt;
  Block block;
  PairPicture picture;
  picture.golden_type = golden.dtype;
  picture.mine_type = mine.dtype;
  picture.grid = pooled.grid;
  picture.values = source.value_count;
  code_cells(pooled, &picture);
  const std::optional<UlpUnit> unit = UlpUnit::of(golden.dtype, mine.dtype);
  add_histograms(source, unit, block, &picture);
  for (const Place& place : find_worst_places(source, pooled, block))
    picture.worst.push_back(describe_place(source, pooled.grid, place, unit, block));
  picture.shape_of_error = shape_of_error(
      pooled, picture.largest, [&](uint8_t code) { return picture.scale.error_of(code); },
      [&](int64_t cell, size_t axis, double least) {
        return positions_of(source, pooled.grid, cell, axis, least, block);
      });
  return picture;
}

std::optional<PairPicture> picture_of(const TensorView& golden, const TensorView& mine,
                                      const PictureOptions& options) {
  PooledErrors pooled;
  (void)compare_tensors(
      golden, mine,
      {.rules = options.rules, .kl_divergence = false, .jobs = options.jobs, .pooled = &pooled});
  return picture_of(golden, mine, options.rules, pooled);
}

}  // namespace assay::measure

// SPDX-License-Identifier: Apache-2.0
// Two views -> blocks of up to 2048 value pairs as doubles -> partial sums -> chunks -> one result.
//
//   rows of the last axis   |--row--|--row--|--row--| ...         a long row is cut into pieces
//   blocks                  |-- whole rows, <= 2048 --|           unit of the kernels, stays in the
//   L1 cache chunks                  |-- whole rows or pieces, <= 65536 --|  unit of a thread,
//   merged in index order
//
// All cuts depend on the shape alone, so the number of threads does not change a bit of the result.
#include "compare/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "base/simd.hpp"
#include "base/thread_pool.hpp"
#include "compare/kl_divergence.hpp"
#include "stats/block_stats.hpp"
#include "tensor/convert.hpp"

namespace assay::compare {
namespace {

using simd::f32x8;
using simd::f64x8;
using simd::load;
using simd::store;
using simd::u64x8;
using stats::BlockStats;
using stats::TensorStats;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kLanes = 8;
constexpr int64_t kBlockValues = kKlBlock;
constexpr int64_t kChunkValues = 65536;
constexpr int64_t kWaveChunks = 256;  // partial results held at a time
// Cosines of msit clamp each norm to this from below.
constexpr double kMsitNormFloor = 1e-8;

// ---- Sums over value pairs
// ----------------------------------------------------------------------------------------------

/// What the error metrics need of positions where both sides are finite.
struct PairSums {
  double golden = 0;  // sums of values
  double mine = 0;
  double golden_squared = 0;  // sums of squares and products
  double mine_squared = 0;
  double product = 0;
  double difference_squared = 0;
  double absolute = 0;  // sum of absolute errors
  double relative = 0;  // sum of relative errors
  double max_absolute = 0;
  double max_relative = 0;
  double golden_min = kInfinity;
  double golden_max = -kInfinity;
  double mine_min = kInfinity;
  double mine_max = -kInfinity;
  int64_t count = 0;
  int64_t masked = 0;  // |golden| <= kRelativeErrorFloor

  void merge(const PairSums& next) {
    golden += next.golden;
    mine += next.mine;
    golden_squared += next.golden_squared;
    mine_squared += next.mine_squared;
    product += next.product;
    difference_squared += next.difference_squared;
    absolute += next.absolute;
    relative += next.relative;
    max_absolute = std::max(max_absolute, next.max_absolute);
    max_relative = std::max(max_relative, next.max_relative);
    golden_min = std::min(golden_min, next.golden_min);
    golden_max = std::max(golden_max, next.golden_max);
    mine_min = std::min(mine_min, next.mine_min);
    mine_max = std::max(mine_max, next.mine_max);
    count += next.count;
    masked += next.masked;
  }
};

double to_float32(double value) { return static_cast<double>(static_cast<float>(value)); }

struct PairErrors {
  double absolute;
  double relative;
};

/// Both errors of one position; the vector kernel below is the same, eight at a time. Under Msit
/// every operation is rounded to float32: the double result of +, -, / of two floats, rounded
/// again, is the float32 result.
template <MetricRules kRules>
[[gnu::always_inline]] inline PairErrors errors_of(double golden, double mine, double difference) {
  const double magnitude = std::fabs(golden);
  if constexpr (kRules == MetricRules::Corrected) {
    const double absolute = std::fabs(difference);
    return {absolute,
            absolute / (magnitude > kRelativeErrorFloor ? magnitude : kRelativeErrorFloor)};
  }
  if (!(magnitude > kRelativeErrorFloor)) return {0, 0};
  return {std::fabs(difference), std::fabs(to_float32(to_float32(mine / golden) - 1))};
}

[[gnu::always_inline]] inline f64x8 absolute_of(f64x8 v) {
  return (f64x8)((u64x8)v & 0x7FFFFFFFFFFFFFFFu);
}
[[gnu::always_inline]] inline f64x8 to_float32(f64x8 v) {
  return __builtin_convertvector(__builtin_convertvector(v, f32x8), f64x8);
}
[[gnu::always_inline]] inline double add_lanes(f64x8 v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
[[gnu::always_inline]] inline double largest_lane(f64x8 v) {
  double largest = v[0];
  for (int i = 1; i < kLanes; ++i) largest = v[i] > largest ? v[i] : largest;
  return largest;
}

template <MetricRules kRules>
[[gnu::always_inline]] inline PairSums sum_pairs(const double* golden, const double* mine,
                                                 const double* difference, int64_t count) {
  f64x8 sum_g = {}, sum_m = {}, sum_gg = {}, sum_mm = {}, sum_gm = {}, sum_dd = {}, sum_a = {},
        sum_r = {};
  f64x8 max_a = {}, max_r = {};
  f64x8 min_g = f64x8{} + kInfinity, max_g = f64x8{} - kInfinity, min_m = min_g, max_m = max_g;
  f64x8 masked = {};
  const f64x8 floor = f64x8{} + kRelativeErrorFloor;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const f64x8 g = load<f64x8>(golden + i);
    const f64x8 m = load<f64x8>(mine + i);
    const f64x8 d = load<f64x8>(difference + i);
    const f64x8 magnitude = absolute_of(g);
    const f64x8 safe_magnitude = magnitude > floor ? magnitude : floor;
    f64x8 a = absolute_of(d);
    f64x8 r;
    if constexpr (kRules == MetricRules::Corrected) {
      r = a / safe_magnitude;
    } else {
      // The sign of m / g does not matter to |m / g - 1| once g is replaced by its magnitude and m by m sign(g).
      const f64x8 signed_mine = (f64x8)((u64x8)m ^ ((u64x8)g & 0x8000000000000000u));
      const f64x8 error = absolute_of(to_float32(to_float32(signed_mine / safe_magnitude) - 1.0));
      a = magnitude > floor ? a : f64x8{};
      r = magnitude > floor ? error : f64x8{};
    }
    sum_g += g;
    sum_m += m;
    sum_gg += g * g;
    sum_mm += m * m;
    sum_gm += g * m;
    sum_dd += d * d;
    sum_a += a;
    sum_r += r;
    max_a = a > max_a ? a : max_a;
    max_r = r > max_r ? r : max_r;
    min_g = g < min_g ? g : min_g;
    max_g = g > max_g ? g : max_g;
    min_m = m < min_m ? m : min_m;
    max_m = m > max_m ? m : max_m;
    masked += magnitude > floor ? f64x8{} : f64x8{} + 1.0;
  }
  PairSums out;
  out.golden = add_lanes(sum_g);
  out.mine = add_lanes(sum_m);
  out.golden_squared = add_lanes(sum_gg);
  out.mine_squared = add_lanes(sum_mm);
  out.product = add_lanes(sum_gm);
  out.difference_squared = add_lanes(sum_dd);
  out.absolute = add_lanes(sum_a);
  out.relative = add_lanes(sum_r);
  out.max_absolute = largest_lane(max_a);
  out.max_relative = largest_lane(max_r);
  out.golden_min = -largest_lane(-min_g);
  out.golden_max = largest_lane(max_g);
  out.mine_min = -largest_lane(-min_m);
  out.mine_max = largest_lane(max_m);
  out.masked = static_cast<int64_t>(add_lanes(masked));
  for (; i < count; ++i) {
    const double g = golden[i];
    const double m = mine[i];
    const PairErrors errors = errors_of<kRules>(g, m, difference[i]);
    out.golden += g;
    out.mine += m;
    out.golden_squared += g * g;
    out.mine_squared += m * m;
    out.product += g * m;
    out.difference_squared += difference[i] * difference[i];
    out.absolute += errors.absolute;
    out.relative += errors.relative;
    out.max_absolute = std::max(out.max_absolute, errors.absolute);
    out.max_relative = std::max(out.max_relative, errors.relative);
    out.golden_min = std::min(out.golden_min, g);
    out.golden_max = std::max(out.golden_max, g);
    out.mine_min = std::min(out.mine_min, m);
    out.mine_max = std::max(out.mine_max, m);
    out.masked += std::fabs(g) > kRelativeErrorFloor ? 0 : 1;
  }
  out.count = count;
  return out;
}

ASSAY_CLONES PairSums sum_pairs_corrected(const double* golden, const double* mine,
                                          const double* difference, int64_t count) {
  return sum_pairs<MetricRules::Corrected>(golden, mine, difference, count);
}
ASSAY_CLONES PairSums sum_pairs_msit(const double* golden, const double* mine,
                                     const double* difference, int64_t count) {
  return sum_pairs<MetricRules::Msit>(golden, mine, difference, count);
}

ASSAY_CLONES void subtract(const double* golden, const double* mine, int64_t count, double* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(out + i, load<f64x8>(mine + i) - load<f64x8>(golden + i));
  }
  for (; i < count; ++i) out[i] = mine[i] - golden[i];
}

ASSAY_CLONES void round_to_float32(double* values, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(values + i, to_float32(load<f64x8>(values + i)));
  for (; i < count; ++i) values[i] = to_float32(values[i]);
}

// ---- Reading a block
// ------------------------------------------------------------------------------------------------------

/// How the two sides are read so that position i of both is one pair.
struct PairSource {
  const TensorView* golden;
  const TensorView* mine;
  MetricRules rules;
  // Complex sides under Msit count by their real part; a real side against a complex one has
  // imaginary part 0.
  bool real_part_only;
  bool pads_imaginary;
  bool exact_integers;  // both 64-bit integers: differences are taken before rounding to double
  int64_t value_count;
};

struct Block {
  alignas(64) double golden[kBlockValues];
  alignas(64) double mine[kBlockValues];
  alignas(64) double difference[kBlockValues];
  int64_t count = 0;
};

bool is_64_bit_integer(DType dtype) { return dtype == DType::Int64 || dtype == DType::UInt64; }

/// Values [first, first + count) of a view: whole elements are read, then the part of them that was asked for.
void read_parts(const TensorView& view, int64_t first, int64_t count, double* out) {
  const int64_t parts = values_per_element(view.dtype);
  if (parts == 1) {
    read_values(view, first, count, {out, static_cast<size_t>(count)});
    return;
  }
  double buffer[kBlockValues + 16];
  const int64_t first_element = first / parts;
  const int64_t elements = (first + count + parts - 1) / parts - first_element;
  read_values(view, first_element, elements, {buffer, static_cast<size_t>(elements * parts)});
  std::copy_n(buffer + (first - first_element * parts), count, out);
}

/// The same, counted in the pair's values.
void read_side(const PairSource& source, const TensorView& view, int64_t first, int64_t count,
               double* out) {
  if (source.real_part_only && is_complex(view.dtype)) {
    double both[kBlockValues];
    for (int64_t done = 0; done < count; done += kBlockValues / 2) {
      const int64_t part = std::min(kBlockValues / 2, count - done);
      read_values(view, first + done, part, {both, static_cast<size_t>(2 * part)});
      for (int64_t i = 0; i < part; ++i) out[done + i] = both[2 * i];
    }
  } else if (source.pads_imaginary && !is_complex(view.dtype)) {
    double real[kBlockValues / 2 + 1];
    const int64_t first_real = first / 2;
    read_parts(view, first_real, (first + count + 1) / 2 - first_real, real);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = (first + i) % 2 == 0 ? real[(first + i) / 2 - first_real] : 0;
    }
  } else {
    read_parts(view, first, count, out);
  }
}

/// mine - golden for 64-bit integers, rounded once.
void subtract_integers(const PairSource& source, int64_t first, Block& block) {
  alignas(64) int64_t golden[kBlockValues];
  alignas(64) int64_t mine[kBlockValues];
  const auto bytes = static_cast<size_t>(block.count) * sizeof(int64_t);
  gather_bytes(*source.golden, first, block.count, {reinterpret_cast<std::byte*>(golden), bytes});
  gather_bytes(*source.mine, first, block.count, {reinterpret_cast<std::byte*>(mine), bytes});
  const auto widen = [](int64_t bits, DType dtype) {
    return dtype == DType::UInt64 ? static_cast<__int128>(static_cast<uint64_t>(bits))
                                  : static_cast<__int128>(bits);
  };
  for (int64_t i = 0; i < block.count; ++i) {
    block.difference[i] = static_cast<double>(widen(mine[i], source.mine->dtype) -
                                              widen(golden[i], source.golden->dtype));
  }
}

/// Asks for the bytes of values that are read next. The hardware's prefetcher follows a run of addresses, and here two
/// runs of some kilobytes take turns.
void prefetch_values(const TensorView& view, int64_t first, int64_t count) {
  const int64_t bits = info(view.dtype).element_bits / info(view.dtype).element_values;
  const auto begin = static_cast<size_t>((view.offset_elements + first) * bits / 8);
  const size_t end = std::min(view.storage.size(), begin + static_cast<size_t>(count * bits / 8));
  for (size_t at = begin; at < end; at += 64) __builtin_prefetch(view.storage.data() + at, 0, 2);
}

void read_block(const PairSource& source, int64_t first, int64_t count, Block& block) {
  block.count = count;
  read_side(source, *source.golden, first, count, block.golden);
  read_side(source, *source.mine, first, count, block.mine);
  if (source.rules == MetricRules::Msit) {
    round_to_float32(block.golden, count);
    round_to_float32(block.mine, count);
  }
  if (source.exact_integers) {
    subtract_integers(source, first, block);
  } else {
    subtract(block.golden, block.mine, count, block.difference);
    if (source.rules == MetricRules::Msit) round_to_float32(block.difference, count);
  }
}

// ---- Positions that are not finite
// ----------------------------------------------------------------------------------------

struct Patterns {
  int64_t nan_only_in_golden = 0;
  int64_t nan_only_in_mine = 0;
  int64_t nan_in_both = 0;
  int64_t inf_only_in_golden = 0;
  int64_t inf_only_in_mine = 0;
  int64_t inf_in_both = 0;
  int64_t inf_sign_mismatches = 0;

  void merge(const Patterns& next) {
    nan_only_in_golden += next.nan_only_in_golden;
    nan_only_in_mine += next.nan_only_in_mine;
    nan_in_both += next.nan_in_both;
    inf_only_in_golden += next.inf_only_in_golden;
    inf_only_in_mine += next.inf_only_in_mine;
    inf_in_both += next.inf_in_both;
    inf_sign_mismatches += next.inf_sign_mismatches;
  }

  /// Counts a position where at least one side is not finite.
  void add(double golden, double mine) {
    const bool golden_nan = std::isnan(golden);
    const bool mine_nan = std::isnan(mine);
    if (golden_nan || mine_nan) {
      ++(golden_nan && mine_nan ? nan_in_both : golden_nan ? nan_only_in_golden : nan_only_in_mine);
      return;
    }
    const bool golden_inf = std::isinf(golden);
    const bool mine_inf = std::isinf(mine);
    if (golden_inf && mine_inf) {
      ++inf_in_both;
      if (golden != mine) ++inf_sign_mismatches;
    } else {
      ++(golden_inf ? inf_only_in_golden : inf_only_in_mine);
    }
  }
};

void add_to_side(BlockStats& side, double value) {
  if (std::isnan(value)) {
    ++side.nan_count;
  } else if (std::isinf(value)) {
    ++(value > 0 ? side.positive_inf_count : side.negative_inf_count);
  } else {
    side.sum += value;
    side.sum_of_squares += value * value;
    side.min = std::min(side.min, value);
    side.max = std::max(side.max, value);
  }
}

// ---- One chunk
// ------------------------------------------------------------------------------------------------------------

struct Worst {
  int64_t absolute = -1;
  int64_t relative = -1;
};

struct ChunkResult {
  PairSums sums;
  Patterns patterns;
  BlockStats golden_alone;  // positions that are not finite on both sides, each side by itself
  BlockStats mine_alone;
  Worst worst;
  KlPart kl;
  bool has_kl = false;    // at least one position took part
  double row_kl_sum = 0;  // of the whole rows in this chunk
  double row_kl_max = 0;
  int64_t row_count = 0;  // of these, with at least one compared position
};

/// The shape as the kernels see it: rows of the last axis, in values.
struct Cuts {
  int64_t row = 1;             // values of a row, >= 1
  int64_t block = 1;           // whole rows, or up to kBlockValues of one
  int64_t chunk = 1;           // whole rows, or up to kChunkValues of one
  int64_t chunks_per_row = 1;  // 1 when a chunk holds whole rows
  int64_t chunk_count = 0;

  Cuts(int64_t value_count, int64_t row_values) : row(row_values) {
    block = row <= kBlockValues ? kBlockValues / row * row : kBlockValues;
    if (row <= kChunkValues) {
      chunk = kChunkValues / row * row;
      chunk_count = (value_count + chunk - 1) / chunk;
    } else {
      chunk = kChunkValues;
      chunks_per_row = (row + chunk - 1) / chunk;
      chunk_count = value_count / row * chunks_per_row;
    }
  }
  [[nodiscard]] int64_t chunk_begin(int64_t index) const {
    return index / chunks_per_row * (chunks_per_row == 1 ? chunk : row) +
           index % chunks_per_row * chunk;
  }
};

class ChunkWorker {
 public:
  ChunkWorker(const PairSource& source, const Cuts& cuts, bool kl)
      : source_(source), cuts_(cuts), kl_(kl) {}

  ChunkResult run(int64_t index) {
    result_ = ChunkResult{};
    int64_t at = cuts_.chunk_begin(index);
    const int64_t row_end =
        cuts_.chunks_per_row == 1 ? source_.value_count : (at / cuts_.row + 1) * cuts_.row;
    const int64_t end = std::min(at + cuts_.chunk, row_end);
    while (at < end) {
      // A block is a number of whole rows, or a piece of one row.
      const int64_t left = cuts_.row <= kBlockValues
                               ? end - at
                               : std::min(end, (at / cuts_.row + 1) * cuts_.row) - at;
      const int64_t count = std::min(cuts_.block, left);
      add_block(at, count);
      at += count;
      if (cuts_.row > kBlockValues && at % cuts_.row == 0 && cuts_.chunks_per_row == 1) end_row();
    }
    if (!row_.empty()) whole_.push(row_.finish());
    if (!whole_.empty()) {
      result_.kl = whole_.finish();
      result_.has_kl = true;
    }
    return result_;
  }

 private:
  void add_block(int64_t first, int64_t count) {
    read_block(source_, first, count, block_);
    if (prefetches_) {
      prefetch_values(*source_.golden, first + count, cuts_.block);
      prefetch_values(*source_.mine, first + count, cuts_.block);
    }
    PairSums sums = sum_block();
    // A NaN or infinity leaves its mark in the squares; so can fp64 values beyond 1e154, which are
    // finite.
    const bool may_have_non_finite =
        !std::isfinite(sums.golden_squared) || !std::isfinite(sums.mine_squared);
    const int64_t* row_lengths = nullptr;
    if (may_have_non_finite) {
      row_lengths = keep_finite_pairs();
      sums = sum_block();
    }
    if (sums.max_absolute > result_.sums.max_absolute ||
        sums.max_relative > result_.sums.max_relative) {
      find_worst(first, count, sums);
    }
    result_.sums.merge(sums);
    if (kl_) add_kl(count, row_lengths);
  }

  PairSums sum_block() const {
    return source_.rules == MetricRules::Msit
               ? sum_pairs_msit(block_.golden, block_.mine, block_.difference, block_.count)
               : sum_pairs_corrected(block_.golden, block_.mine, block_.difference, block_.count);
  }

  /// Moves the pairs that are finite on both sides together; what is left of each row is in the
  /// returned array.
  const int64_t* keep_finite_pairs() {
    int64_t kept = 0;
    int64_t kept_of_row = 0;
    for (int64_t i = 0; i < block_.count; ++i) {
      const double golden = block_.golden[i];
      const double mine = block_.mine[i];
      if (std::isfinite(golden) && std::isfinite(mine)) {
        block_.golden[kept] = golden;
        block_.mine[kept] = mine;
        block_.difference[kept] = block_.difference[i];
        ++kept;
        ++kept_of_row;
      } else {
        result_.patterns.add(golden, mine);
        add_to_side(result_.golden_alone, golden);
        add_to_side(result_.mine_alone, mine);
      }
      if (cuts_.row <= kBlockValues && (i + 1) % cuts_.row == 0) {
        row_lengths_[i / cuts_.row] = kept_of_row;
        kept_of_row = 0;
      }
    }
    block_.count = kept;
    if (cuts_.row > kBlockValues) row_lengths_[0] = kept;
    return row_lengths_;
  }

  /// The block is read again: after keep_finite_pairs() its positions are lost, and new maxima are
  /// rare.
  void find_worst(int64_t first, int64_t count, const PairSums& sums) {
    const bool wants_absolute = sums.max_absolute > result_.sums.max_absolute;
    const bool wants_relative = sums.max_relative > result_.sums.max_relative;
    read_block(source_, first, count, scratch_);
    int64_t absolute = -1;
    int64_t relative = -1;
    for (int64_t i = 0;
         i < count && ((wants_absolute && absolute < 0) || (wants_relative && relative < 0)); ++i) {
      if (!std::isfinite(scratch_.golden[i]) || !std::isfinite(scratch_.mine[i])) continue;
      const PairErrors errors =
          source_.rules == MetricRules::Msit
              ? errors_of<MetricRules::Msit>(scratch_.golden[i], scratch_.mine[i],
                                             scratch_.difference[i])
              : errors_of<MetricRules::Corrected>(scratch_.golden[i], scratch_.mine[i],
                                                  scratch_.difference[i]);
      if (absolute < 0 && errors.absolute == sums.max_absolute) absolute = first + i;
      if (relative < 0 && errors.relative == sums.max_relative) relative = first + i;
    }
    if (wants_absolute) result_.worst.absolute = absolute;
    if (wants_relative) result_.worst.relative = relative;
  }

  /// row_lengths   pairs left of each row of the block, or null when all are
  void add_kl(int64_t count, const int64_t* row_lengths) {
    if (cuts_.row > kBlockValues) {
      if (block_.count != 0)
        row_.push(
            kl_of_values(block_.golden, block_.mine, block_.difference, nullptr, block_.count));
      return;
    }
    if (cuts_.row == 1 && row_lengths == nullptr) {
      result_.row_count += count;  // a softmax over one value is 1 on both sides
      whole_.push(kl_of_values(block_.golden, block_.mine, block_.difference, nullptr, count));
      return;
    }
    const int64_t rows = count / cuts_.row;
    int64_t at = 0;
    int64_t parts = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t length = row_lengths != nullptr ? row_lengths[r] : cuts_.row;
      if (length == 0) continue;
      const KlPart part = kl_of_values(block_.golden + at, block_.mine + at, block_.difference + at,
                                       nullptr, length);
      at += length;
      add_row(part.divergence);
      golden_log_sum_[parts] = part.golden_log_sum;
      mine_log_sum_[parts] = part.mine_log_sum;
      shift_[parts] = part.shift;
      divergence_[parts] = part.divergence;
      ++parts;
    }
    if (parts != 0)
      whole_.push(kl_of_values(golden_log_sum_, mine_log_sum_, shift_, divergence_, parts));
  }
  void add_row(double divergence) {
    ++result_.row_count;
    result_.row_kl_sum += divergence;
    result_.row_kl_max = std::max(result_.row_kl_max, divergence);
  }
  void end_row() {
    if (row_.empty()) return;
    const KlPart part = row_.finish();
    add_row(part.divergence);
    whole_.push(part);
  }

  const PairSource& source_;
  const Cuts& cuts_;
  const bool kl_;
  const bool prefetches_ = source_.golden->is_contiguous() && source_.mine->is_contiguous();
  ChunkResult result_;
  KlReducer row_;
  KlReducer whole_;
  Block block_;
  Block scratch_;
  double golden_log_sum_[kBlockValues];
  double mine_log_sum_[kBlockValues];
  double shift_[kBlockValues];
  double divergence_[kBlockValues];
  int64_t row_lengths_[kBlockValues];
};

// ---- The whole pair
// -------------------------------------------------------------------------------------------------------

/// Joins chunks in index order.
class PairAccumulator {
 public:
  explicit PairAccumulator(const Cuts& cuts) : cuts_(cuts) {}

  void add(int64_t index, const ChunkResult& chunk) {
    if (chunk.sums.max_absolute > sums.max_absolute) worst.absolute = chunk.worst.absolute;
    if (chunk.sums.max_relative > sums.max_relative) worst.relative = chunk.worst.relative;
    sums.merge(chunk.sums);
    patterns.merge(chunk.patterns);
    golden_alone.merge(chunk.golden_alone);
    mine_alone.merge(chunk.mine_alone);
    row_kl_sum += chunk.row_kl_sum;
    row_kl_max = std::max(row_kl_max, chunk.row_kl_max);
    row_count += chunk.row_count;
    if (cuts_.chunks_per_row == 1) {
      if (chunk.has_kl) whole_.push(chunk.kl);
      return;
    }
    if (chunk.has_kl) row_.push(chunk.kl);
    if ((index + 1) % cuts_.chunks_per_row == 0 && !row_.empty()) {
      const KlPart part = row_.finish();
      ++row_count;
      row_kl_sum += part.divergence;
      row_kl_max = std::max(row_kl_max, part.divergence);
      whole_.push(part);
    }
  }
  /// NaN when no position took part.
  double whole_divergence() { return whole_.empty() ? NAN : whole_.finish().divergence; }

  PairSums sums;
  Patterns patterns;
  BlockStats golden_alone;
  BlockStats mine_alone;
  Worst worst;
  double row_kl_sum = 0;
  double row_kl_max = 0;
  int64_t row_count = 0;

 private:
  const Cuts& cuts_;
  KlReducer row_;
  KlReducer whole_;
};

void accumulate(const PairSource& source, const Cuts& cuts, const MetricOptions& options,
                PairAccumulator& total) {
  const unsigned jobs = cuts.chunk_count > 1 ? resolve_job_count(options.jobs) : 1;
  if (jobs == 1) {
    const auto worker = std::make_unique<ChunkWorker>(source, cuts, options.kl_divergence);
    for (int64_t i = 0; i < cuts.chunk_count; ++i) total.add(i, worker->run(i));
    return;
  }
  std::vector<ChunkResult> results;
  for (int64_t begin = 0; begin < cuts.chunk_count; begin += kWaveChunks) {
    const int64_t count = std::min(kWaveChunks, cuts.chunk_count - begin);
    results.assign(static_cast<size_t>(count), {});
    // A thread takes runs of chunks, so that its worker is set up rarely.
    constexpr int64_t kRun = 8;
    parallel_for(static_cast<size_t>((count + kRun - 1) / kRun), jobs, [&](size_t run) {
      const auto worker = std::make_unique<ChunkWorker>(source, cuts, options.kl_divergence);
      const int64_t first = static_cast<int64_t>(run) * kRun;
      for (int64_t i = first; i < std::min(first + kRun, count); ++i) {
        results[static_cast<size_t>(i)] = worker->run(begin + i);
      }
    });
    for (int64_t i = 0; i < count; ++i) total.add(begin + i, results[static_cast<size_t>(i)]);
  }
}

/// Values beyond this, or below its inverse, have squares that leave the range of a double.
constexpr double kSafeMagnitude = 1e140;

bool needs_scaling(double min, double max) {
  if (!(min <= max)) return false;
  const double largest = std::max(std::fabs(min), std::fabs(max));
  return largest > kSafeMagnitude || (largest != 0 && largest < 1 / kSafeMagnitude);
}
double scale_for(double min, double max) {
  const double largest = std::max(std::fabs(min), std::fabs(max));
  return largest == 0 ? 1 : std::ldexp(1.0, std::clamp(-std::ilogb(largest), -1000, 1000));
}

/// The squares and products again, each side brought near 1 by a power of two: cosine and distance
/// do not change.
struct ScaledSums {
  double golden_squared = 0;
  double mine_squared = 0;
  double product = 0;
  double difference_squared = 0;  // both sides by the scale of the larger
  double distance_factor = 1;     // what the two scales do to the distance
};

ScaledSums sum_scaled(const PairSource& source, const PairSums& sums) {
  const double golden_scale = scale_for(sums.golden_min, sums.golden_max);
  const double mine_scale = scale_for(sums.mine_min, sums.mine_max);
  const double common = std::min(golden_scale, mine_scale);
  ScaledSums out;
  out.distance_factor = golden_scale / common;
  const auto block = std::make_unique<Block>();
  for (int64_t first = 0; first < source.value_count; first += kBlockValues) {
    read_block(source, first, std::min(kBlockValues, source.value_count - first), *block);
    for (int64_t i = 0; i < block->count; ++i) {
      const double golden = block->golden[i];
      const double mine = block->mine[i];
      if (!std::isfinite(golden) || !std::isfinite(mine)) continue;
      const double difference = mine * common - golden * common;
      out.golden_squared += golden * golden_scale * (golden * golden_scale);
      out.mine_squared += mine * mine_scale * (mine * mine_scale);
      out.product += golden * golden_scale * (mine * mine_scale);
      out.difference_squared += difference * difference;
    }
  }
  return out;
}

double cosine_of(double golden_squared, double mine_squared, double product) {
  if (golden_squared == 0 && mine_squared == 0) return 1;
  if (golden_squared == 0 || mine_squared == 0) return 0;
  return std::clamp(product / (std::sqrt(golden_squared) * std::sqrt(mine_squared)), -1.0, 1.0);
}

double distance_of(double golden_squared, double difference_squared) {
  if (difference_squared == 0) return 0;
  return std::sqrt(difference_squared) / std::sqrt(golden_squared);  // +inf when golden is all zero
}

TensorStats side_stats(double sum, double squared, double min, double max, int64_t count,
                       BlockStats alone) {
  BlockStats all;
  all.sum = sum;
  all.sum_of_squares = squared;
  all.min = min;
  all.max = max;
  const int64_t alone_not_finite =
      alone.nan_count + alone.positive_inf_count + alone.negative_inf_count;
  all.merge(alone);
  TensorStats out;
  out.count = count;
  out.nan_count = alone.nan_count;
  out.positive_inf_count = alone.positive_inf_count;
  out.negative_inf_count = alone.negative_inf_count;
  if (count == alone_not_finite) return out;
  out.min = all.min;
  out.max = all.max;
  out.mean = all.sum / static_cast<double>(out.finite_count());
  out.l2_norm = std::sqrt(all.sum_of_squares);
  return out;
}

TensorStats rounded_to_float32(const TensorStats& stats) {
  TensorStats out = stats.with_non_finite();
  out.mean = to_float32(to_float32(out.mean * static_cast<double>(out.count)) /
                        static_cast<double>(out.count));
  out.l2_norm = to_float32(out.l2_norm);
  return out;
}

/// The numbers of the original from fp64 sums. Its float32 sums depend on the order of a library's additions from the
/// seventh digit on; divergence and distance are given as the exact sums make them.
void finish_msit(const PairSums& sums, double divergence, PairMetrics& out) {
  const auto count = static_cast<double>(sums.count);
  const double golden_norm = std::sqrt(sums.golden_squared);
  const double mine_norm = std::sqrt(sums.mine_squared);
  if (golden_norm == 0 && mine_norm == 0) {
    out.cosine_similarity = 1;
  } else if (golden_norm == 0 || mine_norm == 0) {
    out.cosine_similarity = 0;
  } else {
    const double cosine = sums.product / (std::max(golden_norm, kMsitNormFloor) *
                                          std::max(mine_norm, kMsitNormFloor));
    out.cosine_similarity = std::nearbyint(cosine * 1e10) / 1e10;
  }
  out.max_relative_error = sums.max_relative;
  out.mean_relative_error = to_float32(to_float32(sums.relative) / count);
  out.max_absolute_error = sums.max_absolute;
  out.mean_absolute_error = to_float32(to_float32(sums.absolute) / count);
  out.kl_divergence = divergence;
  const float difference_squared = static_cast<float>(sums.difference_squared);
  const float golden_squared = static_cast<float>(sums.golden_squared);
  if (to_float32(golden_norm) <= kRelativeErrorFloor) {
    out.relative_euclidean_distance = 0;
  } else if (std::isinf(difference_squared) || std::isinf(golden_squared)) {
    // Sums that overflowed in float32; infinity over infinity is NaN, which the original printed as an empty cell.
    out.relative_euclidean_distance =
        static_cast<double>(std::sqrt(difference_squared / golden_squared));
  } else {
    out.relative_euclidean_distance = std::sqrt(sums.difference_squared / sums.golden_squared);
  }
}

void finish_corrected(const PairSource& source, PairAccumulator& total, PairMetrics& out) {
  const PairSums& sums = total.sums;
  const auto count = static_cast<double>(sums.count);
  out.max_relative_error = sums.max_relative;
  out.mean_relative_error = sums.relative / count;
  out.max_absolute_error = sums.max_absolute;
  out.mean_absolute_error = sums.absolute / count;
  out.kl_divergence = total.whole_divergence();
  if (total.row_count != 0 && !std::isnan(out.kl_divergence)) {
    out.kl_row_mean = total.row_kl_sum / static_cast<double>(total.row_count);
    out.kl_row_max = total.row_kl_max;
  }
  if (needs_scaling(sums.golden_min, sums.golden_max) ||
      needs_scaling(sums.mine_min, sums.mine_max)) {
    const ScaledSums scaled = sum_scaled(source, sums);
    out.cosine_similarity = cosine_of(scaled.golden_squared, scaled.mine_squared, scaled.product);
    out.relative_euclidean_distance =
        distance_of(scaled.golden_squared, scaled.difference_squared) * scaled.distance_factor;
  } else {
    out.cosine_similarity = cosine_of(sums.golden_squared, sums.mine_squared, sums.product);
    out.relative_euclidean_distance = distance_of(sums.golden_squared, sums.difference_squared);
  }
}

PairSource make_source(const TensorView& golden, const TensorView& mine, MetricRules rules) {
  PairSource source{&golden, &mine, rules, rules == MetricRules::Msit, false, false, 0};
  const bool golden_complex = is_complex(golden.dtype);
  const bool mine_complex = is_complex(mine.dtype);
  source.pads_imaginary = !source.real_part_only && golden_complex != mine_complex;
  source.exact_integers = rules == MetricRules::Corrected && is_64_bit_integer(golden.dtype) &&
                          is_64_bit_integer(mine.dtype) && !golden.negative && !mine.negative;
  return source;
}

/// Values of one side as pairs count them.
int64_t value_count_of(const PairSource& source, const TensorView& view) {
  if (source.real_part_only && is_complex(view.dtype)) return view.element_count();
  const int64_t values = view.element_count() * values_per_element(view.dtype);
  return source.pads_imaginary && !is_complex(view.dtype) ? 2 * values : values;
}

/// Values of one row of golden's last axis; 1 for a 0-d tensor.
int64_t row_values_of(const TensorView& golden, int64_t value_count) {
  if (golden.shape.empty() || value_count == 0) return 1;
  return golden.shape[golden.shape.size() - 1] * (value_count / golden.element_count());
}

/// Sides whose statistics are not those of the pair's values: absolute values of complex numbers, Bits types.
bool is_measured_apart(const PairSource& source, DType dtype) {
  return source.pads_imaginary || is_complex(dtype) || info(dtype).kind == DTypeKind::Bits;
}

void set_side_stats(const PairSource& source, const PairAccumulator& total, PairMetrics& out) {
  const PairSums& sums = total.sums;
  out.golden = side_stats(sums.golden, sums.golden_squared, sums.golden_min, sums.golden_max,
                          out.value_count, total.golden_alone);
  out.mine = side_stats(sums.mine, sums.mine_squared, sums.mine_min, sums.mine_max, out.value_count,
                        total.mine_alone);
  if (source.rules == MetricRules::Msit) {
    out.golden = rounded_to_float32(out.golden);
    out.mine = rounded_to_float32(out.mine);
    return;
  }
  // Absolute values of complex numbers, and sums that leave the range of a double, are not among
  // the pair's sums.
  if (is_measured_apart(source, source.golden->dtype) ||
      needs_scaling(out.golden.min, out.golden.max)) {
    out.golden = stats::compute_stats(*source.golden);
  }
  if (is_measured_apart(source, source.mine->dtype) || needs_scaling(out.mine.min, out.mine.max)) {
    out.mine = stats::compute_stats(*source.mine);
  }
}

void set_patterns(const PairAccumulator& total, PairMetrics& out) {
  out.compared_count = total.sums.count;
  out.masked_count = total.sums.masked;
  const Patterns& patterns = total.patterns;
  out.nan_only_in_golden = patterns.nan_only_in_golden;
  out.nan_only_in_mine = patterns.nan_only_in_mine;
  out.nan_in_both = patterns.nan_in_both;
  out.inf_only_in_golden = patterns.inf_only_in_golden;
  out.inf_only_in_mine = patterns.inf_only_in_mine;
  out.inf_in_both = patterns.inf_in_both;
  out.inf_sign_mismatches = patterns.inf_sign_mismatches;
}

}  // namespace

PairMetrics compare_tensors(const TensorView& golden, const TensorView& mine,
                            const MetricOptions& options) {
  PairMetrics out;
  PairSource source = make_source(golden, mine, options.rules);
  const int64_t golden_count = value_count_of(source, golden);
  const int64_t mine_count = value_count_of(source, mine);
  out.value_count = golden_count;
  if (golden_count != mine_count) {
    out.state = PairState::CountMismatch;
    out.golden = stats::compute_stats(golden);
    out.mine = stats::compute_stats(mine);
    return out;
  }
  if (golden_count == 0) return out;
  source.value_count = golden_count;
  // The original knows no rows; without them nothing needs to be cut at their ends.
  const int64_t row = options.rules == MetricRules::Msit || !options.kl_divergence
                          ? golden_count
                          : row_values_of(golden, golden_count);
  const Cuts cuts(golden_count, row);
  const auto total = std::make_unique<PairAccumulator>(cuts);
  accumulate(source, cuts, options, *total);

  set_patterns(*total, out);
  set_side_stats(source, *total, out);
  const bool msit = options.rules == MetricRules::Msit;
  if (out.compared_count == 0 || (msit && out.compared_count != out.value_count)) {
    out.state = PairState::NonFinite;
    return out;
  }
  out.state = PairState::Compared;
  out.worst_absolute_index = total->worst.absolute;
  out.worst_relative_index = total->worst.relative;
  if (msit) {
    finish_msit(total->sums, total->whole_divergence(), out);
  } else {
    finish_corrected(source, *total, out);
  }
  return out;
}

std::string msit_fail_reason(const PairMetrics& metrics) {
  if (metrics.state == PairState::CountMismatch) return "data shape doesn't match.";
  std::string reason;
  if (metrics.golden.has_non_finite()) reason = "golden_data includes NAN or inf.";
  if (metrics.mine.has_non_finite()) {
    if (!reason.empty()) reason += ' ';
    reason += "my_data includes NAN or inf.";
  }
  return reason;
}

ShapeRelation shape_relation(const Dims& golden, const Dims& mine) {
  if (golden == mine) return ShapeRelation::Same;
  const auto golden_count = element_count(golden);
  if (!golden_count || golden_count != element_count(mine)) return ShapeRelation::Different;
  const auto squeezed = [](const Dims& shape) {
    Dims out;
    for (const int64_t size : shape) {
      if (size != 1) out.push_back(size);
    }
    return out;
  };
  const Dims left = squeezed(golden);
  const Dims right = squeezed(mine);
  if (left == right) return ShapeRelation::Squeezed;
  // The shorter shape keeps its trailing axes; its first one is the product of what the longer has
  // in front.
  const Dims& shorter = left.size() < right.size() ? left : right;
  const Dims& longer = left.size() < right.size() ? right : left;
  if (shorter.empty() || shorter.size() == longer.size()) return ShapeRelation::Reshaped;
  const size_t extra = longer.size() - shorter.size();
  for (size_t i = 1; i < shorter.size(); ++i) {
    if (shorter[i] != longer[i + extra]) return ShapeRelation::Reshaped;
  }
  return ShapeRelation::Merged;
}

namespace {

SummaryError summary_error(double golden, double mine) {
  if (std::isnan(golden) || std::isnan(mine)) return {};
  if (golden == mine) return {0, 0};
  const double absolute = std::fabs(mine - golden);
  return {absolute, absolute / std::max(std::fabs(golden), kRelativeErrorFloor)};
}

}  // namespace

SummaryErrors compare_summaries(const SummaryValues& golden, const SummaryValues& mine) {
  return {summary_error(golden.max, mine.max), summary_error(golden.min, mine.min),
          summary_error(golden.mean, mine.mean), summary_error(golden.l2_norm, mine.l2_norm)};
}

}  // namespace assay::compare

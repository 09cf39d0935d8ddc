// SPDX-License-Identifier: Apache-2.0
// A pair of tensors cut into chunks, computed on any number of threads and joined in index order.
//
//   rows of the last axis   |--row--|--row--|--row--| ...         a long row is cut into pieces
//   blocks                  |-- whole rows, <= 1024 --|           unit of the kernels, stays in the L1 cache
//   chunks                  |-- whole rows or pieces, <= 65536 --|  unit of a thread
//
// All cuts depend on the shape alone, so the number of threads does not change a bit of the result.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "measure/cell_grid.hpp"
#include "measure/kl_divergence.hpp"
#include "measure/pair_sums.hpp"
#include "measure/pair_values.hpp"
#include "stats/block_stats.hpp"

namespace assay::measure {

inline constexpr int64_t kChunkValues = 65536;

/// Values of one block; count 0 when there is none.
struct BlockRange {
  int64_t first = 0;
  int64_t count = 0;
};

/// The first blocks that hold the two maxima of PairSums.
struct WorstBlocks {
  BlockRange absolute;
  BlockRange relative;
};

struct ChunkResult {
  PairSums sums;
  Patterns patterns;
  /// Positions that are not finite on both sides, each side by itself.
  stats::BlockStats golden_alone;
  stats::BlockStats mine_alone;
  WorstBlocks worst;
  KlPart kl;
  bool has_kl = false;    // at least one position took part
  double row_kl_sum = 0;  // of the whole rows in this chunk
  double row_kl_max = 0;
  int64_t row_count = 0;  // of these, with at least one compared position
  CellSums cells;         // where errors are pooled
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

/// Joins chunks in index order.
class PairAccumulator {
 public:
  /// pooled   null: errors are not pooled
  explicit PairAccumulator(const Cuts& cuts, PooledErrors* pooled = nullptr)
      : cuts_(cuts), pooled_(pooled) {}

  void add(int64_t index, const ChunkResult& chunk) {
    if (pooled_ != nullptr) pooled_->merge(chunk.cells);
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
  stats::BlockStats golden_alone;
  stats::BlockStats mine_alone;
  WorstBlocks worst;
  double row_kl_sum = 0;
  double row_kl_max = 0;
  int64_t row_count = 0;

 private:
  const Cuts& cuts_;
  PooledErrors* pooled_;
  KlReducer row_;
  KlReducer whole_;
};

/// First flat positions of the two largest errors; -1 when every error is 0.
struct WorstPositions {
  int64_t absolute = -1;
  int64_t relative = -1;
};
/// Reads the two blocks again: looking while the maxima still grow would read many.
[[nodiscard]] WorstPositions find_worst(const PairSource& source, const PairAccumulator& total);

/// Computes every chunk of the pair and joins them into `total`.
void accumulate(const PairSource& source, const Cuts& cuts, const MetricOptions& options,
                PairAccumulator& total);

}  // namespace assay::measure

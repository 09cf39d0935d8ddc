// SPDX-License-Identifier: Apache-2.0
// A worker goes through a chunk block by block: read and add up, take out what is not finite if the
// sums tell of any, divergences of rows. Chunks go in waves, so that few results wait to be joined.
#include "measure/pair_chunks.hpp"

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "base/interruption.hpp"
#include "base/thread_pool.hpp"

namespace assay::measure {
namespace {

using stats::BlockStats;

constexpr int64_t kWaveChunks = 4096;       // partial results held at a time, some 2 MiB
constexpr int64_t kPooledWaveChunks = 256;  // the same with cells, at most 128 KiB of each

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

/// Null where values are not read as they stand, one after the other.
ReadPairs reader_of(const PairSource& source) {
  const auto is_plain = [](const TensorView& view) {
    return !view.negative && view.is_contiguous();
  };
  if (source.rules != MetricRules::Corrected || !is_plain(*source.golden) ||
      !is_plain(*source.mine))
    return nullptr;
  return pair_reader(source.golden->dtype, source.mine->dtype);
}

/// Computes chunks, one after the other. About 64 KiB, for the stack of a thread.
class ChunkWorker {
 public:
  ChunkWorker(const PairSource& source, const Cuts& cuts, const MetricOptions& options)
      : source_(source), cuts_(cuts), kl_(options.kl_divergence) {
    if (options.pooled != nullptr) pooler_.emplace(options.pooled->grid);
  }

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
    if (pooler_) result_.cells = pooler_->take();
    return std::move(result_);
  }

 private:
  void add_block(int64_t first, int64_t count) {
    PairSums sums = read_and_sum(first, count);
    if (prefetches_) {
      prefetch_values(*source_.golden, first + count, cuts_.block);
      prefetch_values(*source_.mine, first + count, cuts_.block);
    }
    // A NaN or infinity leaves its mark in the squares; so can fp64 values beyond 1e154, which are
    // finite.
    const bool may_have_non_finite =
        !std::isfinite(sums.golden_squared) || !std::isfinite(sums.mine_squared);
    if (pooler_) pool(first, sums, may_have_non_finite);
    const int64_t* row_lengths = nullptr;
    if (may_have_non_finite) {
      row_lengths = take_finite_pairs();
      sums = sum_block();
    }
    if (sums.max_absolute > result_.sums.max_absolute) result_.worst.absolute = {first, count};
    if (sums.max_relative > result_.sums.max_relative) result_.worst.relative = {first, count};
    result_.sums.merge(sums);
    if (kl_) add_kl(count, row_lengths);
  }

  PairSums read_and_sum(int64_t first, int64_t count) {
    if (reader_ == nullptr) {
      read_block(source_, first, count, block_);
      return sum_block();
    }
    block_.count = count;
    return reader_({bytes_at(*source_.golden, first), bytes_at(*source_.mine, first), count,
                    block_.golden, block_.mine, block_.difference});
  }

  static const std::byte* bytes_at(const TensorView& view, int64_t element) {
    return view.contiguous_bytes().data() + element * info(view.dtype).element_bits / 8;
  }

  /// A block without errors leaves no trace.
  void pool(int64_t first, const PairSums& sums, bool may_have_non_finite) {
    if (!may_have_non_finite) {
      if (sums.max_absolute > 0) pooler_->add(block_.difference, first, block_.count);
      return;
    }
    double difference[kBlockValues];
    pooled_differences(block_, difference);
    pooler_->add(difference, first, block_.count);
  }

  PairSums sum_block() const {
    return sum_pairs(source_.rules, block_.golden, block_.mine, block_.difference, block_.count);
  }

  /// Leaves the pairs that are finite on both sides; how many of each row is in the returned array.
  const int64_t* take_finite_pairs() {
    std::fill_n(row_lengths_, block_.count / cuts_.row, cuts_.row);
    keep_finite_pairs(block_, [this](int64_t i, double golden, double mine) {
      result_.patterns.add(golden, mine);
      add_to_side(result_.golden_alone, golden);
      add_to_side(result_.mine_alone, mine);
      --row_lengths_[i / cuts_.row];
    });
    return row_lengths_;
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
  const ReadPairs reader_ = reader_of(source_);
  ChunkResult result_;
  KlReducer row_;
  KlReducer whole_;
  std::optional<CellPooler> pooler_;
  Block block_;
  double golden_log_sum_[kBlockValues];
  double mine_log_sum_[kBlockValues];
  double shift_[kBlockValues];
  double divergence_[kBlockValues];
  int64_t row_lengths_[kBlockValues];
};

}  // namespace

PairSums sums_of(const TensorView& golden, const TensorView& mine) {
  PairSource source = make_source(golden, mine, MetricRules::Corrected);
  source.value_count = value_count_of(source, golden);
  const Cuts cuts(source.value_count, std::max<int64_t>(source.value_count, 1));
  PairAccumulator total(cuts);
  accumulate(source, cuts, {.kl_divergence = false}, total);
  return total.sums;
}

WorstPositions find_worst(const PairSource& source, const PairAccumulator& total) {
  Block block;
  const auto find = [&](BlockRange range, double PairErrors::* error, double largest) -> int64_t {
    if (range.count == 0) return -1;
    read_block(source, range.first, range.count, block);
    const int64_t found = find_error(
        source.rules, {block.golden, block.mine, block.difference, range.count}, error, largest);
    return found < 0 ? -1 : range.first + found;
  };
  return {find(total.worst.absolute, &PairErrors::absolute, total.sums.max_absolute),
          find(total.worst.relative, &PairErrors::relative, total.sums.max_relative)};
}

void accumulate(const PairSource& source, const Cuts& cuts, const MetricOptions& options,
                PairAccumulator& total) {
  const auto jobs = static_cast<size_t>(std::min<int64_t>(
      cuts.chunk_count, cuts.chunk_count > 1 ? resolve_job_count(options.jobs) : 1));
  if (jobs <= 1) {
    ChunkWorker worker(source, cuts, options);
    for (int64_t i = 0; i < cuts.chunk_count; ++i) {
      throw_if_interrupted();
      total.add(i, worker.run(i));
    }
    return;
  }
  std::vector<ChunkResult> results;
  const int64_t wave = options.pooled != nullptr ? kPooledWaveChunks : kWaveChunks;
  for (int64_t begin = 0; begin < cuts.chunk_count; begin += wave) {
    const int64_t count = std::min(wave, cuts.chunk_count - begin);
    results.assign(static_cast<size_t>(count), {});
    // One worker a thread, which takes the next chunk until none is left.
    std::atomic<int64_t> next{0};
    parallel_for(jobs, static_cast<unsigned>(jobs), [&](size_t) {
      ChunkWorker worker(source, cuts, options);
      for (int64_t i = next++; i < count && !is_interrupted(); i = next++) {
        results[static_cast<size_t>(i)] = worker.run(begin + i);
      }
    });
    for (int64_t i = 0; i < count; ++i)
      total.add(begin + i, std::move(results[static_cast<size_t>(i)]));
  }
}

}  // namespace assay::measure

// SPDX-License-Identifier: Apache-2.0
// Four numbers and a count are members; a sketch and the counts of NaN and infinities are allocated
// where there are some. A TensorStats is put together when it is asked for.
#include "run/record_stats.hpp"

namespace assay::run {

RecordStats::MaybeOwned::MaybeOwned(const MaybeOwned& other) : bits_(other.bits_) {
  const bool is_own = bits_ != 0 && (bits_ & kElsewhere) == 0;
  if (is_own) bits_ = reinterpret_cast<uintptr_t>(new stats::Sketch(*other.get()));
}

RecordStats::RecordStats(const stats::TensorStats& stats) {
  set_numbers(stats);
  if (stats.sketch) sketch_ = MaybeOwned(*stats.sketch);
}

RecordStats RecordStats::with_sketch_at(const stats::Sketch* sketch,
                                        const stats::TensorStats& stats) {
  RecordStats made;
  made.set_numbers(stats);
  made.sketch_ = MaybeOwned(sketch);
  return made;
}

RecordStats::RecordStats(const RecordStats& other)
    : count_(other.count_),
      min_(other.min_),
      max_(other.max_),
      mean_(other.mean_),
      l2_norm_(other.l2_norm_),
      non_finite_(other.non_finite_ ? std::make_unique<const NonFinite>(*other.non_finite_)
                                    : nullptr),
      sketch_(other.sketch_) {}

RecordStats& RecordStats::operator=(const RecordStats& other) {
  if (this != &other) *this = RecordStats(other);
  return *this;
}

void RecordStats::set_numbers(const stats::TensorStats& stats) {
  count_ = stats.count;
  min_ = stats.min;
  max_ = stats.max;
  mean_ = stats.mean;
  l2_norm_ = stats.l2_norm;
  // Each count by itself: they come from a file and may be so large that their sum overflows.
  if (stats.nan_count != 0 || stats.positive_inf_count != 0 || stats.negative_inf_count != 0)
    non_finite_ = std::make_unique<const NonFinite>(
        NonFinite{stats.nan_count, stats.positive_inf_count, stats.negative_inf_count});
}

std::optional<stats::TensorStats> RecordStats::without_sketch() const {
  if (!has_value()) return std::nullopt;
  stats::TensorStats stats;
  stats.count = count_;
  stats.min = min_;
  stats.max = max_;
  stats.mean = mean_;
  stats.l2_norm = l2_norm_;
  if (non_finite_) {
    stats.nan_count = non_finite_->nan;
    stats.positive_inf_count = non_finite_->positive_inf;
    stats.negative_inf_count = non_finite_->negative_inf;
  }
  return stats;
}

stats::TensorStats RecordStats::operator*() const {
  stats::TensorStats stats = *without_sketch();
  if (const stats::Sketch* sketch = sketch_.get()) stats.sketch = *sketch;
  return stats;
}

bool operator==(const RecordStats& a, const RecordStats& b) {
  return std::optional<stats::TensorStats>(a) == std::optional<stats::TensorStats>(b);
}

}  // namespace assay::run

// SPDX-License-Identifier: Apache-2.0
// Which of the pictures that a comparison could make are kept: those of the rows with the largest
// errors and those that the user asked for, whatever the order in which threads bring them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "measure/pair_picture.hpp"

namespace assay::compare {

/// Safe to call from several threads. A pair's number is its place in the order of execution.
class PictureKeeper {
 public:
  using Picture = std::shared_ptr<const measure::PairPicture>;
  /// Makes the picture of a pair; holds what it needs for that.
  using Draft = std::function<Picture()>;

  /// worst    how many of the pairs with the largest errors
  /// always   by pair: it was asked for; may be empty
  PictureKeeper(size_t worst, std::vector<bool> always)
      : worst_count_(worst), always_(std::move(always)) {}

  /// Some picture may be kept.
  [[nodiscard]] bool is_active() const { return worst_count_ > 0 || !always_.empty(); }
  /// False: the picture of this pair would not be kept, now or later. Severities are above 0.
  [[nodiscard]] bool wants(size_t pair, double severity) const;
  /// Where errors grow from pair to pair, most pictures give way to others soon: they stay drafts
  /// until finish(), as far as there is room for what they hold.
  ///
  /// bytes   that the draft holds
  void keep(size_t pair, double severity, uint64_t bytes, Draft draft);
  /// Makes the pictures that are kept and calls use(pair, picture) for each, one at a time.
  void finish(int jobs, const std::function<void(size_t pair, const Picture& picture)>& use);

 private:
  using Key = std::pair<double, size_t>;  // worse ones first: the severity is negated
  struct Kept {
    Draft draft;
    uint64_t bytes = 0;
  };

  [[nodiscard]] bool is_asked_for(size_t pair) const {
    return pair < always_.size() && always_[pair];
  }
  [[nodiscard]] bool is_among_worst(const Key& key) const;
  [[nodiscard]] bool reserve(uint64_t bytes);

  const size_t worst_count_;
  const std::vector<bool> always_;
  mutable std::mutex mutex_;
  uint64_t draft_bytes_ = 0;
  std::map<Key, Kept> worst_;
  std::map<size_t, Kept> asked_for_;
};

}  // namespace assay::compare

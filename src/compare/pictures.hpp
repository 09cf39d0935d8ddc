// SPDX-License-Identifier: Apache-2.0
// Which of the pictures that a comparison could make are kept: those of the rows with the largest
// errors and those that the user asked for, whatever the order in which threads bring them.
#pragma once
#include <cstddef>
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

  /// worst    how many of the pairs with the largest errors
  /// always   by pair: it was asked for; may be empty
  PictureKeeper(size_t worst, std::vector<bool> always)
      : worst_count_(worst), always_(std::move(always)) {}

  /// Some picture may be kept.
  [[nodiscard]] bool is_active() const { return worst_count_ > 0 || !always_.empty(); }
  /// False: the picture of this pair would not be kept, now or later. Severities are above 0.
  [[nodiscard]] bool wants(size_t pair, double severity) const;
  void keep(size_t pair, double severity, Picture picture);
  /// Calls use(pair, picture) for all that are kept.
  void for_each(const std::function<void(size_t pair, const Picture& picture)>& use) const;

 private:
  using Key = std::pair<double, size_t>;  // worse ones first: the severity is negated

  [[nodiscard]] bool is_asked_for(size_t pair) const {
    return pair < always_.size() && always_[pair];
  }
  [[nodiscard]] bool is_among_worst(const Key& key) const;

  const size_t worst_count_;
  const std::vector<bool> always_;
  mutable std::mutex mutex_;
  std::map<Key, Picture> worst_;
  std::map<size_t, Picture> asked_for_;
};

}  // namespace assay::compare

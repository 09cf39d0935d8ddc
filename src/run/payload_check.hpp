// SPDX-License-Identifier: Apache-2.0
// Whether a payload is the one that its record was written for.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <string>

#include "run/run.hpp"

namespace assay::run {

/// What else statistics of the same values say than `said`; empty when nothing.
/// is_rough   they may be sums of float32 (a device's)
[[nodiscard]] std::string difference(const stats::TensorStats& said,
                                     const stats::TensorStats& found, bool is_rough);

/// Of one stored payload. Thread-safe; one that was found whole is not looked at again. Small:
/// there are as many as payloads.
class PayloadCheck {
 public:
  /// found   outlives this
  PayloadCheck(bool is_rough, FoundDamage* found)
      : bits_(reinterpret_cast<uintptr_t>(found) | (is_rough ? kIsRough : 0)) {}

  /// What is wrong with the values, which are said to be the record's; empty when nothing is. The
  /// record has a place, and statistics or a digest.
  [[nodiscard]] std::string problem(const TensorRecord& record, const TensorView& payload);
  /// The same for one who knows their statistics already.
  [[nodiscard]] std::string problem(const TensorRecord& record, const stats::TensorStats& payload);
  [[nodiscard]] bool is_rough() const {
    return (bits_.load(std::memory_order_relaxed) & kIsRough) != 0;
  }

 private:
  [[nodiscard]] std::string noted(const TensorRecord& record, const std::string& difference);

  [[nodiscard]] bool is_whole() const {
    return (bits_.load(std::memory_order_relaxed) & kIsWhole) != 0;
  }

  static constexpr uintptr_t kIsWhole = 1;
  static constexpr uintptr_t kIsRough = 2;
  static_assert(alignof(FoundDamage) >= 4);
  std::atomic<uintptr_t> bits_;  // where what is found goes, and the two above
};

/// Many of them, which live as long as one of them is held.
class PayloadChecks : public std::enable_shared_from_this<PayloadChecks> {
 public:
  explicit PayloadChecks(std::shared_ptr<FoundDamage> found) : found_(std::move(found)) {}
  [[nodiscard]] std::shared_ptr<PayloadCheck> add(bool is_rough) {
    return {shared_from_this(), &checks_.emplace_back(is_rough, found_.get())};
  }
  [[nodiscard]] size_t size() const { return checks_.size(); }
  [[nodiscard]] std::shared_ptr<PayloadCheck> at(size_t i) {
    return {shared_from_this(), &checks_[i]};
  }

 private:
  std::shared_ptr<FoundDamage> found_;
  std::deque<PayloadCheck> checks_;
};

}  // namespace assay::run

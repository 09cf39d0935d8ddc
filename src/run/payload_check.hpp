// SPDX-License-Identifier: Apache-2.0
// Whether a payload is the one that its record was written for.
#pragma once
#include <atomic>
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
  PayloadCheck(bool is_rough, std::shared_ptr<FoundDamage> found)
      : is_rough_(is_rough), found_(std::move(found)) {}

  /// What is wrong with the values, which are said to be the record's; empty when nothing is. The
  /// record has a place, and statistics or a digest.
  [[nodiscard]] std::string problem(const TensorRecord& record, const TensorView& payload);
  /// The same for one who knows their statistics already.
  [[nodiscard]] std::string problem(const TensorRecord& record, const stats::TensorStats& payload);

 private:
  [[nodiscard]] std::string noted(const TensorRecord& record, const std::string& difference);

  std::atomic<bool> is_whole_{false};
  bool is_rough_;
  std::shared_ptr<FoundDamage> found_;
};

}  // namespace assay::run

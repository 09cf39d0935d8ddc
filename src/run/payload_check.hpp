// SPDX-License-Identifier: Apache-2.0
// Whether a payload is the one that its record was written for.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stats/tensor_stats.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::run {

class FoundDamage;
struct TensorRecord;

/// What else statistics of the same values say than `said`; empty when nothing.
/// is_rough   they may be sums of float32 (a device's)
[[nodiscard]] std::string difference(const stats::TensorStats& said,
                                     const stats::TensorStats& found, bool is_rough);

/// Of one stored payload, whatever copies of it there are; null: nothing is known of it. One that
/// was found whole is not looked at again. Thread-safe as a std::shared_ptr is. There are as many
/// as records, so one takes eight bytes, and a byte in a block that many share.
class PayloadCheck {
 public:
  PayloadCheck() = default;
  PayloadCheck(std::nullptr_t) {}
  PayloadCheck(const PayloadCheck& other);
  PayloadCheck(PayloadCheck&& other) noexcept : flags_(std::exchange(other.flags_, nullptr)) {}
  PayloadCheck& operator=(PayloadCheck other) noexcept {
    std::swap(flags_, other.flags_);
    return *this;
  }
  ~PayloadCheck();

  [[nodiscard]] explicit operator bool() const { return flags_ != nullptr; }
  /// They are copies of one. Ordered by place in memory.
  friend auto operator<=>(const PayloadCheck& a, const PayloadCheck& b) = default;

  /// What is wrong with the values, which are said to be the record's; empty when nothing is. The
  /// record has a place, and statistics or a digest.
  [[nodiscard]] std::string problem(const TensorRecord& record, const TensorView& payload) const;
  /// The same for one who knows their statistics already.
  [[nodiscard]] std::string problem(const TensorRecord& record,
                                    const stats::TensorStats& payload) const;
  [[nodiscard]] bool is_rough() const { return has(kIsRough); }

 private:
  friend class PayloadChecks;
  struct Block;
  using Flags = std::atomic<uint8_t>;
  static constexpr uint8_t kIsWhole = 1;
  static constexpr uint8_t kIsRough = 2;

  /// flags   in a block whose holders count this one
  explicit PayloadCheck(Flags* flags) : flags_(flags) {}
  [[nodiscard]] Block* block() const;
  [[nodiscard]] bool has(uint8_t flag) const {
    return (flags_->load(std::memory_order_relaxed) & flag) != 0;
  }
  [[nodiscard]] std::string noted(const TensorRecord& record, const std::string& difference) const;

  Flags* flags_ = nullptr;
};

/// Makes them, and numbers them in the order in which they were made.
class PayloadChecks {
 public:
  /// found   where damage goes
  explicit PayloadChecks(std::shared_ptr<FoundDamage> found) : found_(std::move(found)) {}
  [[nodiscard]] PayloadCheck add(bool is_rough);
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] PayloadCheck at(size_t i) const;

 private:
  std::shared_ptr<FoundDamage> found_;
  std::vector<PayloadCheck> blocks_;  // the first of each
  size_t size_ = 0;
};

}  // namespace assay::run

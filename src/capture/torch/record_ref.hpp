// SPDX-License-Identifier: Apache-2.0
// A record that was made in this run, or is going to be: those of device tensors get their numbers
// with their bytes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace assay::capture {

class RecordRef {
 public:
  RecordRef() = default;  // none
  [[nodiscard]] static RecordRef numbered(uint64_t number) {
    return RecordRef(static_cast<int64_t>(number), false);
  }
  /// Place in the list of what waits for the device.
  [[nodiscard]] static RecordRef waiting(size_t place) {
    return RecordRef(static_cast<int64_t>(place), true);
  }

  [[nodiscard]] bool is_none() const { return value_ < 0; }
  [[nodiscard]] bool is_waiting() const { return is_waiting_; }
  /// Precondition: is_waiting().
  [[nodiscard]] size_t place() const { return static_cast<size_t>(value_); }
  /// As records give it: -1 for none, and as long as it waits.
  [[nodiscard]] int64_t number() const { return is_waiting_ ? -1 : value_; }

 private:
  RecordRef(int64_t value, bool is_waiting) : value_(value), is_waiting_(is_waiting) {}

  int64_t value_ = -1;
  bool is_waiting_ = false;
};

}  // namespace assay::capture

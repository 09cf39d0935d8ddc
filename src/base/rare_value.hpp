// SPDX-License-Identifier: Apache-2.0
// An optional value of eight bytes for members that hardly any object of a type has.
#pragma once
#include <memory>
#include <utility>

namespace assay {

/// Reads as a std::optional<T>; one that holds something costs an allocation of its own.
template <typename T>
class RareValue {
 public:
  RareValue() = default;
  RareValue(T value) : held_(std::make_unique<T>(std::move(value))) {}
  RareValue(const RareValue& other) : held_(other ? std::make_unique<T>(*other) : nullptr) {}
  RareValue(RareValue&&) noexcept = default;
  RareValue& operator=(const RareValue& other) {
    if (this != &other) *this = RareValue(other);
    return *this;
  }
  RareValue& operator=(RareValue&&) noexcept = default;
  ~RareValue() = default;

  [[nodiscard]] bool has_value() const { return held_ != nullptr; }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] const T& operator*() const { return *held_; }
  [[nodiscard]] T& operator*() { return *held_; }
  [[nodiscard]] const T* operator->() const { return held_.get(); }
  [[nodiscard]] T* operator->() { return held_.get(); }
  T& emplace() {
    held_ = std::make_unique<T>();
    return *held_;
  }
  void reset() { held_.reset(); }

 private:
  std::unique_ptr<T> held_;
};

}  // namespace assay

// SPDX-License-Identifier: Apache-2.0
// A shared pointer of eight bytes for members that hardly any object of a type has.
#pragma once
#include <cstddef>
#include <memory>
#include <utility>

namespace assay {

/// Reads as a std::shared_ptr<T>; one that is not null costs an allocation of its own.
template <typename T>
class RarePointer {
 public:
  RarePointer() = default;
  RarePointer(std::nullptr_t) {}
  template <typename U>
  RarePointer(std::shared_ptr<U> pointer) {
    if (pointer) held_ = std::make_unique<std::shared_ptr<T>>(std::move(pointer));
  }
  RarePointer(const RarePointer& other)
      : held_(other.held_ ? std::make_unique<std::shared_ptr<T>>(*other.held_) : nullptr) {}
  RarePointer(RarePointer&&) noexcept = default;
  RarePointer& operator=(const RarePointer& other) {
    if (this != &other) *this = RarePointer(other);
    return *this;
  }
  RarePointer& operator=(RarePointer&&) noexcept = default;
  ~RarePointer() = default;

  [[nodiscard]] T* get() const { return held_ ? held_->get() : nullptr; }
  explicit operator bool() const { return held_ != nullptr; }
  T* operator->() const { return get(); }
  T& operator*() const { return *get(); }
  friend bool operator==(const RarePointer& a, std::nullptr_t) { return a.held_ == nullptr; }

 private:
  std::unique_ptr<std::shared_ptr<T>> held_;  // never holds null
};

}  // namespace assay

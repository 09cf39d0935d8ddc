// SPDX-License-Identifier: Apache-2.0
// An optional value, and values, of eight bytes for members that hardly any object of a type has.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

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

/// Reads as a std::vector<T> of eight bytes; one that is not empty costs an allocation of its own.
template <typename T>
class RareVector {
 public:
  RareVector() = default;
  RareVector(std::vector<T> values) {
    if (!values.empty()) held_ = std::move(values);
  }
  RareVector(std::initializer_list<T> values) : RareVector(std::vector<T>(values)) {}

  [[nodiscard]] size_t size() const { return values().size(); }
  [[nodiscard]] bool empty() const { return values().empty(); }
  [[nodiscard]] const T& operator[](size_t i) const { return values()[i]; }
  [[nodiscard]] auto begin() const { return values().begin(); }
  [[nodiscard]] auto end() const { return values().end(); }
  void clear() { held_.reset(); }
  [[nodiscard]] const std::vector<T>& values() const {
    static const std::vector<T> kNone;
    return held_ ? *held_ : kNone;
  }

 private:
  RareValue<std::vector<T>> held_;  // never holds an empty one
};

}  // namespace assay

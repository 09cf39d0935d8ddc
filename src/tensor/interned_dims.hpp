// SPDX-License-Identifier: Apache-2.0
// Shapes and strides of which millions of objects hold few different ones.
#pragma once
#include <cstdint>
#include <optional>

#include "tensor/dims.hpp"

namespace assay {

/// A handle of four bytes to a list of sizes that the process keeps once, until it ends; or none.
/// Reads as a std::optional<const Dims>.
class InternedDims {
 public:
  InternedDims() = default;
  InternedDims(std::nullopt_t) {}
  InternedDims(const Dims& dims) : handle_(add(dims)) {}
  InternedDims(const std::optional<Dims>& dims) : handle_(dims ? add(*dims) : 0) {}

  [[nodiscard]] bool has_value() const { return handle_ != 0; }
  explicit operator bool() const { return handle_ != 0; }
  /// There is a list.
  [[nodiscard]] const Dims& operator*() const { return get(); }
  [[nodiscard]] const Dims* operator->() const { return &get(); }
  [[nodiscard]] Dims value_or(const Dims& other) const { return has_value() ? get() : other; }
  void reset() { handle_ = 0; }
  operator std::optional<Dims>() const {
    return has_value() ? std::optional<Dims>(get()) : std::nullopt;
  }
  /// Equal exactly where the lists are; 0: none.
  [[nodiscard]] uint32_t handle() const { return handle_; }

  friend bool operator==(InternedDims a, InternedDims b) { return a.handle_ == b.handle_; }
  friend bool operator==(InternedDims a, const Dims& b) { return a.has_value() && *a == b; }
  friend bool operator==(InternedDims a, std::nullopt_t) { return !a.has_value(); }

 private:
  [[nodiscard]] static uint32_t add(const Dims& dims);
  [[nodiscard]] const Dims& get() const;

  uint32_t handle_ = 0;
};

}  // namespace assay

// SPDX-License-Identifier: Apache-2.0
// What every reference operator works on: values in C order as fp64 or as exact integers.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "tensor/sentence.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::reference {

/// Allocates without clearing: results are written whole, and memory of a gigabyte is not written
/// twice.
template <typename T>
struct NoInitAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = NoInitAllocator<U>;
  };
  NoInitAllocator() = default;
  template <typename U>
  explicit NoInitAllocator(const NoInitAllocator<U>&) {}
  template <typename U>
  void construct(U* place) {
    ::new (static_cast<void*>(place)) U;
  }
  template <typename U, typename First, typename... Rest>
  void construct(U* place, First&& first, Rest&&... rest) {
    ::new (static_cast<void*>(place)) U(std::forward<First>(first), std::forward<Rest>(rest)...);
  }
};

/// Values of `shape` in C order. resize() leaves new values undefined; Array(shape, value) fills.
template <typename T>
struct Array {
  Dims shape;
  std::vector<T, NoInitAllocator<T>> values;

  Array() = default;
  /// Undefined values. Precondition: element_count(shape) fits in memory; shapes out of a file go
  /// through checked_count() first.
  explicit Array(const Dims& dims)
      : shape(dims), values(static_cast<size_t>(element_count(dims).value_or(0))) {}
  Array(const Dims& dims, T value)
      : shape(dims), values(static_cast<size_t>(element_count(dims).value_or(0)), value) {}
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(values.size()); }
  [[nodiscard]] T* data() { return values.data(); }
  [[nodiscard]] const T* data() const { return values.data(); }
};
using Wide = Array<double>;    // real values
using Whole = Array<int64_t>;  // integers and truth values, exact

/// Elements of a result; 8 bytes each.
/// errors  Invalid (a negative size) | TooLarge (more than 2^36 elements, or overflow)
[[nodiscard]] Result<int64_t> checked_count(const Dims& shape);

/// What widen() refuses, before anything is read.
/// errors  Unsupported (types without real values) | TooLarge
[[nodiscard]] Status check_real(const TensorView& view);

/// All values of a view. Any strides; lazy bits are applied.
/// errors  Unsupported (complex, Bits, types with several values in an element other than Int4 and
///         UInt4) | TooLarge
[[nodiscard]] Result<Wide> widen(const TensorView& view);
/// The same of an integer or Bool view, exact for all 64-bit integers (UInt64 above 2^63 - 1:
/// TooLarge).
/// errors  Unsupported (not integers) | TooLarge
[[nodiscard]] Result<Whole> whole(const TensorView& view);

/// The array as a Float64 or Int64 tensor that owns it; nothing is copied.
[[nodiscard]] Tensor to_tensor(Wide array);
[[nodiscard]] Tensor to_tensor(Whole array);

/// The array as it lies. Precondition: it outlives the view.
[[nodiscard]] TensorView view_of(const Wide& array);

/// The same bytes under another shape of equal element count; a view that is not contiguous is
/// copied first.
/// errors  Invalid (other element count) | Unsupported (packed types that are not contiguous)
[[nodiscard]] Result<Tensor> reshaped(const Tensor& tensor, const Dims& shape);
/// A contiguous tensor of the same bytes; the argument itself when it is one.
/// errors  Unsupported (packed types)
[[nodiscard]] Result<Tensor> contiguous(const Tensor& tensor);

/// Every value rounded once, to nearest even, to a float type (overflow: infinity, or the largest
/// value for float8_e4m3fn), or for an integer type rounded to nearest even and clamped to its
/// range; NaN becomes 0 there. Bool: value != 0. The result is contiguous.
/// errors  Unsupported (complex, Bits, packed types)
[[nodiscard]] Result<Tensor> narrow(const TensorView& wide, DType dtype);

/// Round half to even, whatever the rounding mode of the process.
[[nodiscard]] inline double round_half_even(double value) { return std::nearbyint(value); }
/// int8(clamp(rne(x), -128, 127)); NaN gives NaN.
[[nodiscard]] inline double quantise_int8(double value) {
  return std::isnan(value) ? value : std::fmin(std::fmax(round_half_even(value), -128.0), 127.0);
}
/// 1 / (1 + e^-x) without overflow.
[[nodiscard]] inline double sigmoid(double x) {
  if (x >= 0) return 1.0 / (1.0 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1.0 + e);
}

/// The low bits of a value, as an integer type holds them; Bool: 0 or 1.
[[nodiscard]] int64_t wrap_to(int64_t value, DType dtype);
/// Sums, differences and products of 64-bit integers wrap as the machine's do.
[[nodiscard]] inline int64_t wrapping_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
[[nodiscard]] inline int64_t wrapping_subtract(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
[[nodiscard]] inline int64_t wrapping_multiply(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

/// Rounds to the nearest float16 / bfloat16 / float32 value, halves to even, and comes back as
/// double.
[[nodiscard]] double round_to(double value, DType dtype);
/// The float32 in the low 32 bits of a 64-bit integer: how scales of int8 products are stored.
[[nodiscard]] double scale_from_bits(int64_t bits);

/// The axis counted from the front.
/// errors  Invalid: "axis 3 of a tensor with 2 dimensions"
[[nodiscard]] Result<size_t> axis_of(int64_t axis, size_t rank);

}  // namespace assay::reference

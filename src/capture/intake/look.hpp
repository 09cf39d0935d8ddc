// SPDX-License-Identifier: Apache-2.0
// What every capture knows of a tensor before it reads a byte: where it lies, its type, sizes and
// strides.
#pragma once
#include <cstdint>
#include <optional>

#include "tensor/tensor_view.hpp"

namespace assay::capture {

inline constexpr int kMaxTensorDims = 64;

/// What can be done with a tensor.
enum class Readable : uint8_t {
  Memory,   // `data` is host memory; view_of() is valid
  Device,   // on an accelerator: dtype, shape and device are known, the bytes go the device path
  Nothing,  // no bytes to read; `reason` says why
};

/// One borrowed look at a tensor. Valid while its owner lives and nobody resizes it: use it inside
/// one hook.
struct TensorLook {
  Readable readable = Readable::Nothing;
  /// When Nothing, a text that stays: "no storage of its own: FakeTensor" ...
  const char* reason = "";
  const void* data = nullptr;
  DType dtype = DType::Float32;  // unspecified when dtype_name is nullptr
  /// The host's name without prefix; "int4" for torch.int4, whose dtype is Int8 here.
  const char* dtype_name = nullptr;
  int32_t device_type = 1;  // DLPack's code: 1 CPU, 2 CUDA, 3 pinned host memory ...
  int32_t device_index = 0;
  int ndim = 0;  // 0 also when the shape is not known
  bool has_shape = false;
  bool conjugate = false;  // the bytes are of the conjugate: readers negate the imaginary part
  bool negative = false;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;  // elements
  int64_t element_count = 0;

  /// Used where a host gives no arrays to borrow, deliberately not initialised.
  int64_t own_shape[kMaxTensorDims];
  int64_t own_strides[kMaxTensorDims];

  TensorLook() {}  // NOLINT: leaves the arrays alone
  TensorLook(const TensorLook&) = delete;
  TensorLook& operator=(const TensorLook&) = delete;

  [[nodiscard]] std::span<const int64_t> sizes() const { return dims(shape); }
  [[nodiscard]] std::span<const int64_t> steps() const { return dims(strides); }

 private:
  [[nodiscard]] std::span<const int64_t> dims(const int64_t* values) const {
    return {values, values != nullptr ? static_cast<size_t>(ndim) : 0};
  }
};

/// Element count times element size; whole bytes. Precondition: dtype_name is set.
[[nodiscard]] uint64_t payload_bytes(const TensorLook& look);
/// Whether a storage of `size_bytes` has all the elements that shape and strides claim.
/// Precondition: there are some.
[[nodiscard]] bool fits_storage(const TensorLook& look, int64_t storage_offset, int64_t size_bytes);
/// From the first to the last element, as they lie in memory; nothing where elements overlap
/// (expanded), share bytes (packed types), or are none.
[[nodiscard]] std::optional<uint64_t> spanned_bytes(const TensorLook& look);
/// The memory from the first to the last element, gaps included. Precondition: Readable::Memory, no
/// negative strides.
[[nodiscard]] ByteSpan memory_of(const TensorLook& look);
/// A view of the bytes as they lie in memory, with lazy bits. Precondition: Readable::Memory.
[[nodiscard]] TensorView view_of(const TensorLook& look);

[[nodiscard]] bool is_contiguous(const TensorLook& look);
/// No gaps between the elements in some order of the dimensions: every transpose of a contiguous
/// tensor.
[[nodiscard]] bool is_dense(const TensorLook& look);

}  // namespace assay::capture

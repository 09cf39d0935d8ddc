// SPDX-License-Identifier: Apache-2.0
// Arrays of numbers to and from NumPy, torch and others, without copies. The buffer protocol is in
// the stable ABI from Python 3.11 on only; these are the array interface of NumPy and DLPack.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "python/binding/class.hpp"
#include "tensor/dims.hpp"

namespace assay::binding {

/// Of an element, as DLPack has it.
struct ElementType {
  enum Code : uint8_t { Int = 0, UInt = 1, Float = 2, Complex = 5, Bool = 6 };
  uint8_t code = 0;
  uint8_t bits = 0;
  uint16_t lanes = 1;
};

/// Somebody's array in the memory of the CPU, in this machine's byte order.
struct ReadOnlyArray {
  Object owner;  // keeps the memory
  const std::byte* data = nullptr;
  ElementType type;
  Dims shape;
  Dims strides;  // in elements

  [[nodiscard]] size_t item_bytes() const { return type.bits * size_t{type.lanes} / 8; }
};

/// Takes NumPy's arrays, objects with __dlpack__(), and buffers.
template <>
struct Converter<ReadOnlyArray> : ValueConverter<ReadOnlyArray> {
  static std::string parameter() { return "ReadOnlyArray"; }
  static std::string expected() {
    return "array of numbers of this machine (NumPy's, with __dlpack__ or a buffer), its strides "
           "whole elements";
  }
  static Fit load(Handle source, ReadOnlyArray* stored);
};

/// What of an array is NumPy's own to read; false for other objects and for arrays that load()
/// refuses.
[[nodiscard]] bool load_numpy_array(Handle source, ReadOnlyArray* stored);

/// A read-only NumPy array over memory that `owner` keeps.
/// strides  in elements, negative ones too
[[nodiscard]] Object lend_to_numpy(const std::byte* data, ElementType type,
                                   std::span<const int64_t> shape, std::span<const int64_t> strides,
                                   Object owner);

/// Adds the class through which a module lends memory.
void bind_lent_memory(Module& module);

}  // namespace assay::binding

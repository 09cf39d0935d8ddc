// SPDX-License-Identifier: Apache-2.0
// A tensor written front to back: in memory while small, in a temporary file without a name beyond.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/file_descriptor.hpp"
#include "base/result.hpp"
#include "pair/scratch_tensor.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::pair {

/// Invariant: what was appended so far is the beginning of the tensor's bytes in C order.
class TensorBuilder {
 public:
  /// Tensors up to this size stay in memory.
  static constexpr uint64_t kMaxInMemory = kMaxScratchMemory;

  /// errors  TooLarge | NoSpace, Permission, NotFound, Io (of the temporary file in $TMPDIR or
  ///         /tmp)
  [[nodiscard]] static Result<TensorBuilder> create(DType dtype, const Dims& shape,
                                                    uint64_t max_in_memory = kMaxInMemory);

  /// Room for at least one and at most `wanted` bytes, to be filled and then committed. Never empty
  /// while bytes are missing.
  [[nodiscard]] std::span<std::byte> room(uint64_t wanted);
  [[nodiscard]] Status commit(uint64_t filled);
  [[nodiscard]] Status append(ByteSpan bytes);
  /// Elements [first, first + count) of the view in C order, unconverted. Whole-byte types of the
  /// builder's element size.
  [[nodiscard]] Status append_elements(const TensorView& view, int64_t first, int64_t count);

  /// The finished tensor; of a file a shared read-only mapping, as ResidentLimit wants it.
  [[nodiscard]] Result<Tensor> finish();

 private:
  TensorBuilder(ScratchTensor target, uint64_t block_bytes);

  ScratchTensor target_;
  uint64_t written_ = 0;          // in the target
  uint64_t filled_ = 0;           // of block_
  std::vector<std::byte> block_;  // goes to the file next; empty in memory
};

}  // namespace assay::pair

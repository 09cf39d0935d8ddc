// SPDX-License-Identifier: Apache-2.0
// A tensor that is made here and compared once: in memory while it is small, else in a temporary
// file without a name, whose pages can leave memory again.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "base/file_descriptor.hpp"
#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::pair {

/// Larger tensors go to a file in $TMPDIR, or /tmp.
inline constexpr uint64_t kMaxScratchMemory = uint64_t{64} << 20;

/// The bytes of a C-contiguous tensor, written piece by piece from any thread.
class ScratchTensor {
 public:
  /// errors  TooLarge | of open_unlinked_file()
  [[nodiscard]] static Result<ScratchTensor> create(DType dtype, const Dims& shape,
                                                    uint64_t max_memory = kMaxScratchMemory);
  /// Of float32.
  [[nodiscard]] static Result<ScratchTensor> create(const Dims& shape,
                                                    uint64_t max_memory = kMaxScratchMemory) {
    return create(DType::Float32, shape, max_memory);
  }
  /// Pieces must not overlap. errors  NoSpace | Io
  [[nodiscard]] Status write_bytes(uint64_t offset, ByteSpan bytes);
  [[nodiscard]] Status write(int64_t first_element, std::span<const float> values) {
    return write_bytes(static_cast<uint64_t>(first_element) * sizeof(float), std::as_bytes(values));
  }
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
  /// Where it is in memory; null when it is in a file.
  [[nodiscard]] std::byte* memory() const { return memory_.get(); }
  /// The finished tensor; a file is mapped read-only.
  [[nodiscard]] Result<Tensor> finish() &&;

 private:
  DType dtype_ = DType::Float32;
  Dims shape_;
  uint64_t size_bytes_ = 0;
  std::shared_ptr<std::byte[]> memory_;   // when small
  std::shared_ptr<FileDescriptor> file_;  // otherwise
};

}  // namespace assay::pair

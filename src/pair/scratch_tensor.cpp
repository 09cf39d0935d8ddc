// SPDX-License-Identifier: Apache-2.0
// A file gets its full size at once; it is written with pwrite() and at the end mapped through
// /proc/self/fd, as it has no name.
#include "pair/scratch_tensor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/mapped_file.hpp"
#include "base/temporary_files.hpp"

namespace assay::pair {

Result<ScratchTensor> ScratchTensor::create(DType dtype, const Dims& shape, uint64_t max_memory) {
  const auto count = element_count(shape);
  const auto size_bytes =
      count ? storage_bytes(dtype, static_cast<uint64_t>(*count)) : std::nullopt;
  if (!size_bytes || *size_bytes > PTRDIFF_MAX)
    return fail(Errc::TooLarge, "a tensor of shape " + shape_text(shape) + " is too large");
  ScratchTensor out;
  out.dtype_ = dtype;
  out.shape_ = shape;
  out.size_bytes_ = *size_bytes;
  if (*size_bytes <= max_memory) {
    out.memory_ = std::make_shared_for_overwrite<std::byte[]>(std::max<uint64_t>(1, *size_bytes));
    return out;
  }
  ASSAY_TRY(const int fd, open_unlinked_file());
  out.file_ = std::make_shared<FileDescriptor>(fd);
  if (::ftruncate(fd, static_cast<off_t>(*size_bytes)) != 0) {
    return fail(errno_error(errno, "grow", "a temporary file"));
  }
  return out;
}

Status ScratchTensor::write_bytes(uint64_t offset, ByteSpan bytes) {
  if (memory_) {
    if (!bytes.empty()) std::memcpy(memory_.get() + offset, bytes.data(), bytes.size());
    return {};
  }
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(file_->get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail(errno_error(errno, "write", "a temporary file"));
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Result<Tensor> ScratchTensor::finish() && {
  if (memory_) {
    ASSAY_TRY(const TensorView view, make_view(dtype_, shape_, {memory_.get(), size_bytes_}));
    return Tensor{view, memory_};
  }
  ASSAY_TRY(const MappedFile file,
            MappedFile::open("/proc/self/fd/" + std::to_string(file_->get())));
  ASSAY_TRY(const TensorView view, make_view(dtype_, shape_, file.bytes()));
  return Tensor{view, std::make_shared<const MappedFile>(file)};
}

}  // namespace assay::pair

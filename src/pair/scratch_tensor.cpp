// SPDX-License-Identifier: Apache-2.0
#include "pair/scratch_tensor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/mapped_file.hpp"

namespace assay::pair {

Result<int> open_unlinked_file() {
  const char* named = std::getenv("TMPDIR");
  const std::string folder = named != nullptr && *named != '\0' ? named : "/tmp";
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
  if (fd >= 0) return fd;
  // Not every file system makes files without a name.
  std::string path = folder + "/assay-XXXXXX";
  fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return fail(errno_error(errno, "create a temporary file in", folder));
  ::unlink(path.c_str());
  return fd;
}

Result<ScratchTensor> ScratchTensor::create(const Dims& shape, uint64_t max_memory) {
  const auto count = element_count(shape);
  uint64_t size_bytes = 0;
  if (!count ||
      mul_overflows(static_cast<uint64_t>(*count), uint64_t{sizeof(float)}, &size_bytes)) {
    return fail(Errc::TooLarge, "a tensor of shape " + list_text(shape.span()) + " does not fit");
  }
  ScratchTensor out;
  out.shape_ = shape;
  out.size_bytes_ = size_bytes;
  if (size_bytes <= max_memory) {
    out.memory_ = std::make_shared_for_overwrite<float[]>(static_cast<size_t>(*count));
    return out;
  }
  ASSAY_TRY(const int fd, open_unlinked_file());
  out.file_ = std::make_shared<FileDescriptor>(fd);
  if (::ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) {
    return fail(errno_error(errno, "grow", "a temporary file"));
  }
  return out;
}

Status ScratchTensor::write(int64_t first_element, std::span<const float> values) {
  if (memory_) {
    std::memcpy(memory_.get() + first_element, values.data(), values.size_bytes());
    return {};
  }
  ByteSpan left = std::as_bytes(values);
  auto offset = static_cast<off_t>(first_element) * static_cast<off_t>(sizeof(float));
  while (!left.empty()) {
    const ssize_t written = ::pwrite(file_->get(), left.data(), left.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail(errno_error(errno, "write", "a temporary file"));
    left = left.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return {};
}

Result<Tensor> ScratchTensor::finish() && {
  if (memory_) {
    const ByteSpan bytes{reinterpret_cast<const std::byte*>(memory_.get()), size_bytes_};
    ASSAY_TRY(const TensorView view, make_view(DType::Float32, shape_, bytes));
    return Tensor{view, memory_};
  }
  ASSAY_TRY(const MappedFile file,
            MappedFile::open("/proc/self/fd/" + std::to_string(file_->get())));
  ASSAY_TRY(const TensorView view, make_view(DType::Float32, shape_, file.bytes()));
  return Tensor{view, std::make_shared<const MappedFile>(file)};
}

}  // namespace assay::pair

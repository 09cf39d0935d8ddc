// SPDX-License-Identifier: Apache-2.0
#include "pair/tensor_builder.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/atomic_file.hpp"
#include "pair/scratch_tensor.hpp"
#include "tensor/convert.hpp"

namespace assay::pair {
namespace {

constexpr char kFileName[] = "a temporary file";    // for messages
constexpr uint64_t kFileBlock = uint64_t{4} << 20;  // written at once

struct Mapping {
  void* address;
  size_t size_bytes;
  Mapping(void* where, size_t size) : address(where), size_bytes(size) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(address, size_bytes); }
};

}  // namespace

TensorBuilder::TensorBuilder(DType dtype, const Dims& shape, uint64_t size_bytes)
    : dtype_(dtype), shape_(shape), size_bytes_(size_bytes), buffer_bytes_(size_bytes) {}

Result<TensorBuilder> TensorBuilder::create(DType dtype, const Dims& shape,
                                            uint64_t max_in_memory) {
  const auto count = element_count(shape);
  const auto size_bytes =
      count ? storage_bytes(dtype, static_cast<uint64_t>(*count)) : std::nullopt;
  if (!size_bytes || *size_bytes > PTRDIFF_MAX) {
    return fail(Errc::TooLarge, "a tensor of shape " + list_text(shape.span()) + " is too large");
  }
  TensorBuilder builder(dtype, shape, *size_bytes);
  if (*size_bytes > max_in_memory) {
    ASSAY_TRY(const int file, open_unlinked_file());
    builder.file_ = std::make_shared<FileDescriptor>(file);
    builder.buffer_bytes_ = std::min(kFileBlock, *size_bytes);
  }
  builder.buffer_ =
      std::make_shared_for_overwrite<std::byte[]>(std::max<uint64_t>(1, builder.buffer_bytes_));
  return builder;
}

std::span<std::byte> TensorBuilder::room(uint64_t wanted) {
  return {buffer_.get() + filled_, std::min(wanted, buffer_bytes_ - filled_)};
}

Status TensorBuilder::commit(uint64_t filled) {
  filled_ += filled;
  if (!file_ || filled_ < buffer_bytes_) return {};
  ASSAY_TRY_STATUS(write_all(file_->get(), {buffer_.get(), filled_}, kFileName));
  written_ += filled_;
  filled_ = 0;
  return {};
}

Status TensorBuilder::append(ByteSpan bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> target = room(bytes.size());
    ASSAY_CHECK(!target.empty(), "more bytes than the shape has");
    std::copy_n(bytes.begin(), target.size(), target.begin());
    ASSAY_TRY_STATUS(commit(target.size()));
    bytes = bytes.subspan(target.size());
  }
  return {};
}

Status TensorBuilder::append_elements(const TensorView& view, int64_t first, int64_t count) {
  const int64_t size = info(view.dtype).element_bits / 8;
  if (view.is_contiguous()) {
    return append(view.contiguous_bytes().subspan(static_cast<uint64_t>(first * size),
                                                  static_cast<uint64_t>(count * size)));
  }
  // Room ends at a multiple of 4 MiB from the beginning, so it always holds whole elements.
  while (count > 0) {
    const std::span<std::byte> target = room(static_cast<uint64_t>(count * size));
    ASSAY_CHECK(!target.empty(), "more bytes than the shape has");
    const int64_t part = static_cast<int64_t>(target.size()) / size;
    gather_bytes(view, first, part, target);
    ASSAY_TRY_STATUS(commit(target.size()));
    first += part;
    count -= part;
  }
  return {};
}

Result<Tensor> TensorBuilder::finish() {
  ASSAY_CHECK(written_ + filled_ == size_bytes_, "the tensor is not complete");
  if (!file_) {
    ASSAY_TRY(const TensorView view, make_view(dtype_, shape_, {buffer_.get(), size_bytes_}));
    return Tensor{view, buffer_};
  }
  ASSAY_TRY_STATUS(write_all(file_->get(), {buffer_.get(), filled_}, kFileName));
  buffer_.reset();
  void* const address = ::mmap(nullptr, size_bytes_, PROT_READ, MAP_SHARED, file_->get(), 0);
  if (address == MAP_FAILED) {
    return fail(errno_error(errno, "map", kFileName));
  }
  auto mapping = std::make_shared<const Mapping>(address, size_bytes_);
  ASSAY_TRY(const TensorView view,
            make_view(dtype_, shape_, {static_cast<const std::byte*>(address), size_bytes_}));
  return Tensor{view, std::move(mapping)};
}

}  // namespace assay::pair

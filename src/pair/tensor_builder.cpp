// SPDX-License-Identifier: Apache-2.0
// In memory bytes go straight to their place; for a file they are collected into blocks of 4 MiB.
#include "pair/tensor_builder.hpp"

#include <algorithm>
#include <utility>

#include "tensor/convert.hpp"

namespace assay::pair {
namespace {

constexpr uint64_t kFileBlock = uint64_t{4} << 20;  // written at once

}  // namespace

TensorBuilder::TensorBuilder(ScratchTensor target, uint64_t block_bytes)
    : target_(std::move(target)), block_(block_bytes) {}

Result<TensorBuilder> TensorBuilder::create(DType dtype, const Dims& shape,
                                            uint64_t max_in_memory) {
  ASSAY_TRY(ScratchTensor target, ScratchTensor::create(dtype, shape, max_in_memory));
  const bool is_in_memory = target.memory() != nullptr;
  const uint64_t block_bytes = is_in_memory ? 0 : std::min(kFileBlock, target.size_bytes());
  return TensorBuilder(std::move(target), block_bytes);
}

std::span<std::byte> TensorBuilder::room(uint64_t wanted) {
  if (target_.memory() != nullptr)
    return {target_.memory() + written_, std::min(wanted, target_.size_bytes() - written_)};
  return {block_.data() + filled_, std::min(wanted, block_.size() - filled_)};
}

Status TensorBuilder::commit(uint64_t filled) {
  if (target_.memory() != nullptr) {
    written_ += filled;
    return {};
  }
  filled_ += filled;
  const bool is_last = written_ + filled_ == target_.size_bytes();
  if (filled_ < block_.size() && !is_last) return {};
  ASSAY_TRY_STATUS(target_.write_bytes(written_, {block_.data(), filled_}));
  written_ += std::exchange(filled_, 0);
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
  ASSAY_CHECK(written_ == target_.size_bytes(), "the tensor is not complete");
  return std::move(target_).finish();
}

}  // namespace assay::pair

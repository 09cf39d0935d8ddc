// SPDX-License-Identifier: Apache-2.0
// scatter_bytes() goes row by row: a row is the trailing dimensions that lie in the target without
// gaps, or the last dimension with its stride.
#include "reference/movement/bytes.hpp"

#include <cstring>

#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

template <typename T>
void write_strided(const std::byte* source, int64_t count, std::byte* target, int64_t stride) {
  const int64_t step = stride * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(target + i * step, source + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
}

struct Bytes16 {
  uint64_t parts[2];
};

void write_row(const std::byte* source, int64_t count, int64_t element_bytes, std::byte* target,
               int64_t stride) {
  if (stride == 1 || count == 1) {
    std::memcpy(target, source, static_cast<size_t>(count * element_bytes));
    return;
  }
  switch (element_bytes) {
    case 1:
      return write_strided<uint8_t>(source, count, target, stride);
    case 2:
      return write_strided<uint16_t>(source, count, target, stride);
    case 4:
      return write_strided<uint32_t>(source, count, target, stride);
    case 8:
      return write_strided<uint64_t>(source, count, target, stride);
    default:
      return write_strided<Bytes16>(source, count, target, stride);
  }
}

}  // namespace

Tensor NewTensor::tensor() const {
  TensorView view;
  view.dtype = dtype;
  view.shape = shape;
  view.strides = contiguous_strides(shape);
  view.storage = ByteSpan(bytes->data(), bytes->values.size());
  return {view, bytes};
}

Result<NewTensor> new_tensor(DType dtype, const Dims& shape) {
  if (info(dtype).element_bits < 8)
    return fail(Errc::Unsupported, "packed values of type ", dtype, " cannot be moved one by one");
  ASSAY_TRY(const int64_t count, checked_count(shape));
  const int64_t element_bytes = info(dtype).element_bits / 8;
  return NewTensor{dtype, shape, element_bytes,
                   std::make_shared<Array<std::byte>>(Dims{count * element_bytes})};
}

Result<NewTensor> new_zeros(DType dtype, const Dims& shape) {
  ASSAY_TRY(NewTensor made, new_tensor(dtype, shape));
  if (!made.bytes->values.empty()) std::memset(made.data(), 0, made.bytes->values.size());
  return made;
}

Result<NewTensor> copy_of(const Tensor& tensor) {
  ASSAY_TRY(NewTensor made, new_tensor(tensor.view.dtype, tensor.view.shape));
  gather_bytes(tensor.view, 0, tensor.view.element_count(),
               {made.data(), made.bytes->values.size()});
  return made;
}

void scatter_bytes(const TensorView& source, std::byte* target, const Dims& strides) {
  const int64_t count = source.element_count();
  if (count == 0) return;
  const int64_t element_bytes = info(source.dtype).element_bits / 8;
  const size_t rank = source.shape.size();
  // One row: the trailing dimensions that lie in the target without gaps, or the last one.
  size_t outer = rank;
  int64_t row = 1;
  while (outer > 0 && (source.shape[outer - 1] == 1 || strides[outer - 1] == row)) {
    row *= source.shape[outer - 1];
    --outer;
  }
  int64_t stride = 1;
  if (row == 1 && outer > 0) {
    --outer;
    row = source.shape[outer];
    stride = strides[outer];
  }
  std::vector<std::byte> buffer;
  const bool direct = source.is_contiguous();
  if (!direct) buffer.resize(static_cast<size_t>(row * element_bytes));
  Dims index;
  index.resize(outer);
  int64_t offset = 0;
  for (int64_t done = 0;;) {
    const std::byte* from =
        direct ? source.storage.data() + (source.offset_elements + done) * element_bytes
               : buffer.data();
    if (!direct) gather_bytes(source, done, row, buffer);
    write_row(from, row, element_bytes, target + offset * element_bytes, stride);
    done += row;
    if (done == count) return;
    for (size_t i = outer; i-- > 0;) {
      offset += strides[i];
      if (++index[i] < source.shape[i]) break;
      offset -= source.shape[i] * strides[i];
      index[i] = 0;
    }
  }
}

}  // namespace assay::reference

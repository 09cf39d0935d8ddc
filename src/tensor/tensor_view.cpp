// SPDX-License-Identifier: Apache-2.0
// make_view() finds the lowest and the highest element that shape and strides address, every
// product checked, and holds both against the storage.
#include "tensor/tensor_view.hpp"

namespace assay {

bool TensorView::is_contiguous() const {
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

ByteSpan TensorView::contiguous_bytes() const {
  const uint64_t bits = info(dtype).element_bits;
  const uint64_t first = static_cast<uint64_t>(offset_elements) * bits / 8;
  const uint64_t count = static_cast<uint64_t>(element_count());
  return count == 0 ? ByteSpan{} : storage.subspan(first, storage_bytes(dtype, count).value_or(0));
}

Result<TensorView> make_view(DType dtype, const Dims& shape, const Dims& strides, ByteSpan storage,
                             int64_t offset_elements) {
  if (strides.size() != shape.size()) {
    return fail(Errc::Invalid, "shape has " + std::to_string(shape.size()) +
                                   " dimensions, strides have " + std::to_string(strides.size()));
  }
  for (const int64_t size : shape) {
    if (size < 0)
      return fail(Errc::Invalid, "shape " + list_text(shape.span()) + " has a negative size");
  }
  const auto count = element_count(shape);
  if (!count)
    return fail(Errc::TooLarge,
                "shape " + list_text(shape.span()) + " has more than 2^63 elements");
  TensorView view{dtype, shape, strides, storage, offset_elements, false, false};
  if (*count == 0) {
    view.offset_elements = 0;
    return view;
  }
  // First and last element addressed: negative strides reach back, positive ones forward.
  int64_t lowest = offset_elements;
  int64_t highest = offset_elements;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t reach = 0;
    int64_t& bound = strides[i] < 0 ? lowest : highest;
    if (mul_overflows(shape[i] - 1, strides[i], &reach) || add_overflows(bound, reach, &bound)) {
      return fail(Errc::TooLarge, "strides " + list_text(strides.span()) + " overflow");
    }
  }
  if (lowest < 0) return fail(Errc::Invalid, "the first element lies before the storage");
  if (highest == INT64_MAX) return fail(Errc::TooLarge, "strides overflow");
  const auto needed = storage_bytes(dtype, static_cast<uint64_t>(highest) + 1);
  if (!needed || *needed > storage.size()) {
    return fail(Errc::Truncated,
                "a tensor of shape " + list_text(shape.span()) + " needs " +
                    (needed ? std::to_string(*needed) : std::string("more than 2^64")) +
                    " bytes of storage, there are " + std::to_string(storage.size()));
  }
  return view;
}

Result<TensorView> make_view(DType dtype, const Dims& shape, ByteSpan storage) {
  return make_view(dtype, shape, contiguous_strides(shape), storage);
}

}  // namespace assay

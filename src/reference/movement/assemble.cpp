// SPDX-License-Identifier: Apache-2.0
// All of these move bytes, whatever the type: parts are scattered into new memory, tile() reads a
// view whose repeated dimensions have stride 0, where() and set_value() write into a copy.
#include "reference/movement/assemble.hpp"

#include <algorithm>
#include <cstring>

#include "reference/movement/bytes.hpp"
#include "reference/movement/views.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

tl::unexpected<Error> different_types(const Tensor& a, const Tensor& b) {
  return fail(Errc::Invalid, "tensors of ", a.view.dtype, " and ", b.view.dtype,
              " cannot be joined");
}

template <typename T>
void choose(const std::byte* chosen, const double* cond, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (cond[i] != 0)
      std::memcpy(out + i * static_cast<int64_t>(sizeof(T)),
                  chosen + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  }
}

struct Bytes16 {
  uint64_t parts[2];
};

/// out[i] = a[i] where cond[i] != 0; out already holds b.
void overwrite_where(const TensorView& cond, const TensorView& a, const NewTensor& out) {
  constexpr int64_t kBlock = 8192;
  const int64_t count = a.element_count();
  const int64_t size = out.element_bytes;
  std::vector<double> truth(static_cast<size_t>(std::min(count, kBlock)));
  std::vector<std::byte> chosen(truth.size() * static_cast<size_t>(size));
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t length = std::min(kBlock, count - first);
    const auto n = static_cast<size_t>(length);
    read_values(cond, first, length, std::span(truth).first(n));
    gather_bytes(a, first, length, std::span(chosen).first(n * static_cast<size_t>(size)));
    std::byte* target = out.data() + first * size;
    switch (size) {
      case 1:
        choose<uint8_t>(chosen.data(), truth.data(), length, target);
        break;
      case 2:
        choose<uint16_t>(chosen.data(), truth.data(), length, target);
        break;
      case 4:
        choose<uint32_t>(chosen.data(), truth.data(), length, target);
        break;
      case 8:
        choose<uint64_t>(chosen.data(), truth.data(), length, target);
        break;
      default:
        choose<Bytes16>(chosen.data(), truth.data(), length, target);
    }
  }
}

Result<Tensor> where_in(const Dims& shape, const Tensor& cond, const Tensor& a, const Tensor& b) {
  if (a.view.dtype != b.view.dtype) return different_types(a, b);
  if (values_per_element(cond.view.dtype) != 1)
    return fail(Errc::Unsupported, "a condition of type ", cond.view.dtype);
  ASSAY_TRY(const Tensor wide_cond, broadcast_to(cond, shape));
  ASSAY_TRY(const Tensor wide_a, broadcast_to(a, shape));
  ASSAY_TRY(const Tensor wide_b, broadcast_to(b, shape));
  ASSAY_TRY(const NewTensor made, copy_of(wide_b));
  overwrite_where(wide_cond.view, wide_a.view, made);
  return made.tensor();
}

/// x under `rank` dimensions, new ones of size 1 in front.
Tensor with_rank(const Tensor& x, size_t rank) {
  Tensor result = x;
  const size_t added = rank - x.view.shape.size();
  result.view.shape.resize(rank);
  result.view.strides.resize(rank);
  for (size_t i = rank; i-- > 0;) {
    result.view.shape[i] = i < added ? 1 : x.view.shape[i - added];
    result.view.strides[i] = i < added ? 0 : x.view.strides[i - added];
  }
  return result;
}

}  // namespace

Result<Tensor> concat(std::span<const Tensor> parts, int64_t axis) {
  if (parts.empty()) return fail(Errc::Invalid, "nothing to concatenate");
  const Tensor& first = parts.front();
  ASSAY_TRY(const size_t dim, axis_of(axis, first.view.shape.size()));
  Dims shape = first.view.shape;
  shape[dim] = 0;
  for (const Tensor& part : parts) {
    if (part.view.dtype != first.view.dtype) return different_types(first, part);
    Dims expected = first.view.shape;
    if (part.view.shape.size() == expected.size()) expected[dim] = part.view.shape[dim];
    if (part.view.shape != expected)
      return fail(Errc::Invalid, first.view.shape, " and ", part.view.shape,
                  " cannot be joined along dimension ", dim);
    if (add_overflows(shape[dim], part.view.shape[dim], &shape[dim]))
      return fail(Errc::TooLarge, "the joined dimension overflows");
  }
  ASSAY_TRY(const NewTensor made, new_tensor(first.view.dtype, shape));
  const Dims strides = contiguous_strides(shape);
  int64_t at = 0;
  for (const Tensor& part : parts) {
    if (part.view.element_count() != 0)
      scatter_bytes(part.view, made.data() + at * strides[dim] * made.element_bytes, strides);
    at += part.view.shape[dim];
  }
  return made.tensor();
}

Result<Tensor> stack(std::span<const Tensor> parts) {
  std::vector<Tensor> raised;
  for (const Tensor& part : parts) {
    if (part.view.shape != parts.front().view.shape)
      return fail(Errc::Invalid, parts.front().view.shape, " and ", part.view.shape,
                  " cannot be stacked");
    raised.push_back(with_rank(part, part.view.shape.size() + 1));
  }
  return concat(raised, 0);
}

Result<Tensor> tile(const Tensor& x, std::span<const int64_t> multiples) {
  const size_t rank = multiples.size();
  const auto wrong = [&](std::string_view why) {
    return fail(Errc::Invalid, "multiples ", multiples, " of ", x.view.shape, ": ", why);
  };
  if (rank < x.view.shape.size()) return wrong("too few");
  const Tensor base = with_rank(x, rank);
  // [m0, d0, m1, d1, ...] with strides [0, s0, 0, s1, ...] read in C order is the tiled tensor.
  TensorView view = base.view;
  view.shape.resize(2 * rank);
  view.strides.resize(2 * rank);
  Dims shape;
  for (size_t i = 0; i < rank; ++i) {
    if (multiples[i] < 0) return wrong("negative");
    int64_t size = 0;
    if (mul_overflows(multiples[i], base.view.shape[i], &size))
      return fail(Errc::TooLarge, "the tiled tensor overflows");
    shape.push_back(size);
    view.shape[2 * i] = multiples[i];
    view.strides[2 * i] = 0;
    view.shape[2 * i + 1] = base.view.shape[i];
    view.strides[2 * i + 1] = base.view.strides[i];
  }
  ASSAY_TRY(NewTensor made, new_tensor(x.view.dtype, shape));
  gather_bytes(view, 0, view.element_count(), {made.data(), made.bytes->values.size()});
  return made.tensor();
}

Result<Tensor> where(const Tensor& cond, const Tensor& a, const Tensor& b) {
  ASSAY_TRY(Dims shape, broadcast_shape(a.view.shape, b.view.shape));
  ASSAY_TRY(shape, broadcast_shape(shape, cond.view.shape));
  return where_in(shape, cond, a, b);
}

Result<Tensor> masked_fill(const Tensor& x, const Tensor& mask, double value) {
  ASSAY_TRY(const Tensor constant, full({}, value, x.view.dtype));
  return where_in(x.view.shape, mask, constant, x);
}

Result<Tensor> full(const Dims& shape, double value, DType dtype) {
  ASSAY_TRY(const Tensor one, narrow(to_tensor(Wide({}, value)).view, dtype));
  return broadcast_to(one, shape);
}

Result<Tensor> region(const Tensor& x, std::span<const int64_t> starts,
                      std::span<const int64_t> ends, std::span<const int64_t> strides) {
  const size_t rank = x.view.shape.size();
  if (starts.size() != rank || ends.size() != rank || strides.size() != rank)
    return fail(Errc::Invalid, "starts ", starts, ", ends ", ends, " and strides ", strides,
                " need one entry for each dimension of ", x.view.shape);
  Tensor part = x;
  for (size_t i = 0; i < rank; ++i) {
    if (strides[i] < 1) return fail(Errc::Invalid, "stride ", strides[i], " is below 1");
    if (starts[i] < 0 || starts[i] > ends[i] || ends[i] > x.view.shape[i])
      return fail(Errc::Invalid, "range [", starts[i], ", ", ends[i], ") lies outside dimension ",
                  i, " of ", x.view.shape);
    part.view.shape[i] =
        (ends[i] - starts[i]) / strides[i] + ((ends[i] - starts[i]) % strides[i] != 0 ? 1 : 0);
    if (part.view.shape[i] != 0) part.view.offset_elements += starts[i] * x.view.strides[i];
    // A stride that passes the end of the dimension belongs to a single element.
    part.view.strides[i] = part.view.shape[i] > 1 ? strides[i] * x.view.strides[i] : 1;
  }
  return part;
}

Result<Tensor> set_value(const Tensor& x, const Tensor& source, std::span<const int64_t> starts,
                         std::span<const int64_t> ends, std::span<const int64_t> strides) {
  if (x.view.dtype != source.view.dtype) return different_types(x, source);
  ASSAY_TRY(const NewTensor made, copy_of(x));
  ASSAY_TRY(const Tensor target, region(made.tensor(), starts, ends, strides));
  if (target.view.shape != source.view.shape)
    return fail(Errc::Invalid, "a region of shape ", target.view.shape,
                " cannot take a source of shape ", source.view.shape);
  if (source.view.element_count() != 0)
    scatter_bytes(source.view, made.data() + target.view.offset_elements * made.element_bytes,
                  target.view.strides);
  return made.tensor();
}

}  // namespace assay::reference

// SPDX-License-Identifier: Apache-2.0
// Operands of a dump file as tensors: values of less than a byte become whole elements, tiles a
// plain order.
//
//   int4   | v1 v0 |    uint1  | v0 v1 .. v7 |    float6  v0 in bits 0..5, v1 in 6..11 across the bytes, low bits first
#include <cstring>

#include "formats/cann_dump.hpp"
#include "tensor/half.hpp"
#include "tensor/layouts.hpp"

namespace assay::formats {
namespace {

constexpr int32_t kUndefinedType = 0;

/// A type of less than a byte, and what its values become.
struct Packing {
  uint8_t bits;
  DType decoded;
  bool first_in_highest_bits;  // as numpy.unpackbits has it; the others start in the lowest
  float (*decode)(uint8_t);    // nullptr: an integer
};

std::optional<Packing> packing_of(int32_t data_type) {
  switch (data_type) {
    case 28:  // int4
      return Packing{4, DType::Int8, false, nullptr};
    case 29:  // uint1
      return Packing{1, DType::UInt8, true, nullptr};
    case 30:  // int2
      return Packing{2, DType::Int8, false, nullptr};
    case 31:  // uint2
      return Packing{2, DType::UInt8, false, nullptr};
    case 37:
      return Packing{6, DType::Float32, false, float6_e3m2_to_float};
    case 38:
      return Packing{6, DType::Float32, false, float6_e2m3_to_float};
    case 39:
      return Packing{4, DType::Float32, false, float4_e2m1fn_to_float};
    case 40:
      return Packing{4, DType::Float32, false, float4_e1m2_to_float};
    default:
      return std::nullopt;
  }
}

/// errors  Truncated | TooLarge
Result<size_t> packed_count(const CannTensor& tensor, const Packing& packing) {
  const std::optional<int64_t> count = element_count(tensor.shape);
  uint64_t bits = 0;
  if (!count || mul_overflows(static_cast<uint64_t>(*count), uint64_t{packing.bits}, &bits))
    return fail(Errc::TooLarge, "the shape has too many elements");
  if (bits > tensor.data.size() * uint64_t{8})
    return fail(Errc::Truncated, "the shape needs " + std::to_string(bits) + " bits, there are " +
                                     std::to_string(tensor.data.size() * uint64_t{8}));
  return static_cast<size_t>(*count);
}

/// Value i as its bits. Those of six bits lie in a stream across bytes: 100 of them in 75 bytes.
uint8_t packed_bits(ByteSpan data, const Packing& packing, size_t i) {
  const size_t first_bit = i * packing.bits;
  const size_t byte = first_bit / 8;
  unsigned pair = static_cast<unsigned>(data[byte]);
  if (packing.first_in_highest_bits) return static_cast<uint8_t>(pair >> (7 - first_bit % 8) & 1u);
  if (first_bit % 8 + packing.bits > 8) pair |= static_cast<unsigned>(data[byte + 1]) << 8;
  return static_cast<uint8_t>(pair >> (first_bit % 8) & ((1u << packing.bits) - 1u));
}

std::byte packed_integer(const Packing& packing, uint8_t bits) {
  const bool is_negative = packing.decoded == DType::Int8 && (bits >> (packing.bits - 1)) != 0;
  return static_cast<std::byte>(is_negative ? bits - (1 << packing.bits) : bits);
}

/// One element for each value, in the stored order.
Result<Tensor> unpack(const CannTensor& tensor, const Packing& packing) {
  ASSAY_TRY(const size_t count, packed_count(tensor, packing));
  auto memory = std::make_shared<std::vector<std::byte>>();
  if (packing.decode == nullptr) {
    memory->resize(count);
    for (size_t i = 0; i < count; ++i)
      (*memory)[i] = packed_integer(packing, packed_bits(tensor.data, packing, i));
  } else {
    memory->resize(count * sizeof(float));
    for (size_t i = 0; i < count; ++i) {
      const float value = packing.decode(packed_bits(tensor.data, packing, i));
      std::memcpy(memory->data() + i * sizeof(float), &value, sizeof(float));
    }
  }
  ASSAY_TRY(const TensorView view, make_view(packing.decoded, tensor.shape, ByteSpan(*memory)));
  return Tensor{view, memory};
}

/// The first order of the framework's axes that explains the sizes: the header does not say it.
/// Nothing: the tensor stays as it is stored.
std::optional<Tiling> tiling_of(const CannTensor& tensor) {
  const CannFormat* format = cann_layout(tensor.format);
  // Of an undefined type only the bytes are known: their view does not have the tensor's shape.
  if (format == nullptr || !tensor.original_shape || *tensor.original_shape == tensor.shape ||
      tensor.data_type == kUndefinedType || element_count(tensor.shape).value_or(0) == 0)
    return std::nullopt;
  // Grouped weights interleave the groups.
  if (format->layout.starts_with('(') && tensor.sub_format > 1) return std::nullopt;
  for (const std::string_view order : format->orders) {
    if (order.empty()) break;
    auto tiling = find_tiling(format->layout, tensor.shape, order, *tensor.original_shape);
    if (tiling && tiling->uses_every_tile()) return tiling;
  }
  return std::nullopt;
}

/// Types that fill bytes, and int4 in its stored order, borrow the file.
std::optional<Packing> packing_to_undo(const CannTensor& tensor, bool is_untiled) {
  if (dtype_from_cann(tensor.data_type) && !is_untiled) return std::nullopt;
  return packing_of(tensor.data_type);
}

}  // namespace

Result<TensorView> cann_stored_view(const CannTensor& tensor) {
  if (!tensor.problem.empty()) return fail(Errc::Truncated, tensor.problem);
  const std::optional<DType> dtype = dtype_from_cann(tensor.data_type);
  if (!dtype)
    return fail(Errc::Unsupported, "element type " + std::to_string(tensor.data_type) + " (" +
                                       cann_dtype_name(tensor.data_type) +
                                       ") of a CANN dump cannot be read as numbers");
  const Dims shape = tensor.data_type == kUndefinedType
                         ? Dims{static_cast<int64_t>(tensor.data.size())}
                         : tensor.shape;
  return make_view(*dtype, shape, tensor.data);
}

Result<CannHeader> cann_header(const CannTensor& tensor) {
  if (!tensor.problem.empty()) return fail(Errc::Truncated, tensor.problem);
  const std::optional<Tiling> tiling = tiling_of(tensor);
  CannHeader header;
  if (const auto packing = packing_to_undo(tensor, tiling.has_value())) {
    ASSAY_TRY_STATUS(packed_count(tensor, *packing));
    header.dtype = packing->decoded;
    header.shape = tensor.shape;
  } else {
    ASSAY_TRY(const TensorView stored, cann_stored_view(tensor));
    header.dtype = stored.dtype;
    header.shape = stored.shape;
  }
  header.tiled = !tiling && is_cann_tiled(tensor.format);
  if (tiling) header.shape = *tensor.original_shape;
  return header;
}

Result<Tensor> cann_tensor(const CannTensor& tensor) {
  if (!tensor.problem.empty()) return fail(Errc::Truncated, tensor.problem);
  const std::optional<Tiling> tiling = tiling_of(tensor);
  Tensor stored;
  if (const auto packing = packing_to_undo(tensor, tiling.has_value())) {
    ASSAY_TRY(stored, unpack(tensor, *packing));
  } else {
    ASSAY_TRY(stored.view, cann_stored_view(tensor));
  }
  if (tiling) return untile(stored.view, *tiling);
  return stored;
}

}  // namespace assay::formats

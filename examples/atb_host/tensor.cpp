// SPDX-License-Identifier: Apache-2.0
#include "tensor.h"

#include <bit>
#include <cstring>

namespace atb_host {
namespace {

// float16: 1 sign, 5 exponent (bias 15), 10 fraction bits.
float widen_float16(uint16_t half) {
  const float sign = (half & 0x8000) != 0 ? -1.0F : 1.0F;
  const uint32_t exponent = (half >> 10) & 31U;
  const uint32_t fraction = half & 0x3ffU;
  if (exponent == 0) return sign * static_cast<float>(fraction) * 0x1p-24F;
  const uint32_t widened = exponent == 31 ? 255U : exponent + 112U;  // 127 - 15
  return std::bit_cast<float>((half & 0x8000U) << 16 | widened << 23 | fraction << 13);
}

uint16_t narrow_float16(float value, Rounding rounding) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);   // NaN
  if (magnitude >= 0x47800000U) return static_cast<uint16_t>(sign | 0x7c00U);  // from 65536 on
  if (magnitude <
      0x38800000U) {  // below 2^-14: multiples of 2^-24, which is the spacing of floats from 0.5 on
    const float small = std::bit_cast<float>(magnitude);
    const uint32_t units = rounding == Rounding::kTowardsZero
                               ? static_cast<uint32_t>(small * 0x1p24F)
                               : std::bit_cast<uint32_t>(small + 0.5F) - 0x3f000000U;
    return static_cast<uint16_t>(sign | units);
  }
  if (rounding == Rounding::kNearestEven) magnitude += 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000U) >> 13);
}

// bf16 is the upper half of a float.
uint16_t narrow_bfloat16(float value, Rounding rounding) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  if (rounding == Rounding::kNearestEven) bits += 0x7fffU + ((bits >> 16) & 1U);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

int64_t element_count(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

size_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return 1;
    case DType::kFloat:
    case DType::kInt32:
      return 4;
    case DType::kInt64:
      return 8;
    case DType::kFloat16:
    case DType::kBfloat16:
      break;
  }
  return 2;
}

size_t size_bytes(const TensorDesc& desc) {
  return static_cast<size_t>(element_count(desc.dims)) * element_bytes(desc.dtype);
}

const char* dtype_word(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return "float";
    case DType::kInt8:
      return "int8";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kBfloat16:
      return "bf16";
    case DType::kFloat16:
      break;
  }
  return "float16";
}

std::string dims_text(const Dims& dims) {
  std::string text;
  for (const int64_t dim : dims) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return text;
}

Tensor make_tensor(TensorDesc desc) {
  auto memory = std::make_shared<std::vector<std::byte>>(size_bytes(desc));
  return {std::move(desc), std::move(memory)};
}

Tensor make_int64(const std::vector<int64_t>& values) {
  Tensor tensor = make_tensor({DType::kInt64, {static_cast<int64_t>(values.size())}});
  std::memcpy(tensor.memory->data(), values.data(), values.size() * sizeof(int64_t));
  return tensor;
}

Tensor make_int32(const std::vector<int32_t>& values) {
  Tensor tensor = make_tensor({DType::kInt32, {static_cast<int64_t>(values.size())}});
  std::memcpy(tensor.memory->data(), values.data(), values.size() * sizeof(int32_t));
  return tensor;
}

Tensor with_dims(Tensor tensor, Dims dims) {
  tensor.desc.dims = std::move(dims);
  return tensor;
}

float widen(DType dtype, uint16_t half) {
  if (dtype == DType::kBfloat16) return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  return widen_float16(half);
}

uint16_t narrow(DType dtype, float value, Rounding rounding) {
  return dtype == DType::kBfloat16 ? narrow_bfloat16(value, rounding)
                                   : narrow_float16(value, rounding);
}

std::vector<float> load(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(element_count(tensor.desc.dims)));
  if (tensor.desc.dtype == DType::kFloat) {
    std::memcpy(values.data(), tensor.memory->data(), values.size() * sizeof(float));
    return values;
  }
  const auto* halves = tensor.data<const uint16_t>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = widen(tensor.desc.dtype, halves[i]);
  return values;
}

void store(const Tensor& tensor, const std::vector<float>& values, Rounding rounding) {
  if (tensor.desc.dtype == DType::kFloat) {
    std::memcpy(tensor.memory->data(), values.data(), values.size() * sizeof(float));
    return;
  }
  auto* halves = tensor.data<uint16_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    halves[i] = narrow(tensor.desc.dtype, values[i], rounding);
  }
}

}  // namespace atb_host

// SPDX-License-Identifier: Apache-2.0
// Tables in the order of DType, searched by name; an element's size and kind are looked up in them.
#include "tensor/dtype.hpp"

#include <array>

#include "base/bytes.hpp"

namespace assay {
namespace {

using K = DTypeKind;

// Indexed by DType. Safetensors names: huggingface/safetensors: safetensors/src/tensor.rs (enum
// Dtype).
constexpr std::array<DTypeInfo, kDTypeCount> kInfo = {{
    {"float64", K::Float, 64, 1, "F64"},
    {"float32", K::Float, 32, 1, "F32"},
    {"float16", K::Float, 16, 1, "F16"},
    {"bfloat16", K::Float, 16, 1, "BF16"},
    {"float8_e4m3fn", K::Float, 8, 1, "F8_E4M3"},
    {"float8_e5m2", K::Float, 8, 1, "F8_E5M2"},
    {"float8_e4m3fnuz", K::Float, 8, 1, "F8_E4M3FNUZ"},
    {"float8_e5m2fnuz", K::Float, 8, 1, "F8_E5M2FNUZ"},
    {"float8_e8m0fnu", K::Float, 8, 1, "F8_E8M0"},
    {"float4_e2m1fn_x2", K::Float, 8, 2, ""},
    {"complex128", K::Complex, 128, 1, ""},
    {"complex64", K::Complex, 64, 1, "C64"},
    {"complex32", K::Complex, 32, 1, ""},
    {"int64", K::SignedInt, 64, 1, "I64"},
    {"int32", K::SignedInt, 32, 1, "I32"},
    {"int16", K::SignedInt, 16, 1, "I16"},
    {"int8", K::SignedInt, 8, 1, "I8"},
    {"uint64", K::UnsignedInt, 64, 1, "U64"},
    {"uint32", K::UnsignedInt, 32, 1, "U32"},
    {"uint16", K::UnsignedInt, 16, 1, "U16"},
    {"uint8", K::UnsignedInt, 8, 1, "U8"},
    {"bool", K::Bool, 8, 1, "BOOL"},
    {"int4", K::SignedInt, 4, 1, ""},
    {"uint4", K::UnsignedInt, 4, 1, ""},
    {"qint8", K::SignedInt, 8, 1, ""},
    {"quint8", K::UnsignedInt, 8, 1, ""},
    {"qint32", K::SignedInt, 32, 1, ""},
    {"quint4x2", K::UnsignedInt, 8, 2, ""},
    {"quint2x4", K::UnsignedInt, 8, 4, ""},
    {"bits8", K::Bits, 8, 1, ""},
    {"bits16", K::Bits, 16, 1, ""},
    {"bits1x8", K::Bits, 8, 8, ""},
    {"bits2x4", K::Bits, 8, 4, ""},
    {"bits4x2", K::Bits, 8, 2, ""},
    {"hifloat8", K::Float, 8, 1, ""},
}};

struct Alias {
  std::string_view name;
  DType dtype;
};
constexpr Alias kAliases[] = {
    {"double", DType::Float64},  {"float", DType::Float32},    {"half", DType::Float16},
    {"long", DType::Int64},      {"int", DType::Int32},        {"short", DType::Int16},
    {"chalf", DType::Complex32}, {"cfloat", DType::Complex64}, {"cdouble", DType::Complex128},
};

// Codes of dlpack.h 1.3 (DLDataTypeCode).
enum DlpackCode : uint8_t {
  kDlInt = 0,
  kDlUInt = 1,
  kDlFloat = 2,
  kDlBFloat = 4,
  kDlComplex = 5,
  kDlBool = 6,
  kDlE4M3FN = 10,
  kDlE4M3FNUZ = 11,
  kDlE5M2 = 12,
  kDlE5M2FNUZ = 13,
  kDlE8M0FNU = 14,
  kDlE2M1FN = 17,
};

}  // namespace

const DTypeInfo& info(DType dtype) { return kInfo[static_cast<size_t>(dtype)]; }

std::string torch_name(DType dtype) { return "torch." + std::string(name(dtype)); }

std::optional<DType> dtype_from_name(std::string_view text) {
  if (text.starts_with("torch.")) text.remove_prefix(6);
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kInfo[static_cast<size_t>(i)].name == text) return static_cast<DType>(i);
  }
  for (const Alias& alias : kAliases) {
    if (alias.name == text) return alias.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_safetensors(std::string_view text) {
  if (text.empty()) return std::nullopt;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kInfo[static_cast<size_t>(i)].safetensors == text) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_dlpack(uint8_t code, uint8_t bits, uint16_t lanes) {
  if (code == kDlE2M1FN && bits == 4 && lanes == 2) return DType::Float4E2M1FNx2;
  if (lanes != 1) return std::nullopt;
  const auto by_bits = [bits](DType b8, DType b16, DType b32, DType b64) -> std::optional<DType> {
    switch (bits) {
      case 8:
        return b8;
      case 16:
        return b16;
      case 32:
        return b32;
      case 64:
        return b64;
      default:
        return std::nullopt;
    }
  };
  switch (code) {
    case kDlInt:
      return by_bits(DType::Int8, DType::Int16, DType::Int32, DType::Int64);
    case kDlUInt:
      return by_bits(DType::UInt8, DType::UInt16, DType::UInt32, DType::UInt64);
    case kDlFloat:
      if (bits == 8) return std::nullopt;
      return by_bits(DType::Float16, DType::Float16, DType::Float32, DType::Float64);
    case kDlBFloat:
      return bits == 16 ? std::optional(DType::BFloat16) : std::nullopt;
    case kDlComplex:
      if (bits == 128) return DType::Complex128;
      if (bits == 8 || bits == 16) return std::nullopt;
      return by_bits(DType::Complex32, DType::Complex32, DType::Complex32, DType::Complex64);
    case kDlBool:
      return bits == 8 ? std::optional(DType::Bool) : std::nullopt;
    case kDlE4M3FN:
      return DType::Float8E4M3FN;
    case kDlE4M3FNUZ:
      return DType::Float8E4M3FNUZ;
    case kDlE5M2:
      return DType::Float8E5M2;
    case kDlE5M2FNUZ:
      return DType::Float8E5M2FNUZ;
    case kDlE8M0FNU:
      return DType::Float8E8M0FNU;
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> storage_bytes(DType dtype, uint64_t element_count) {
  uint64_t bits = 0;
  if (mul_overflows<uint64_t>(element_count, info(dtype).element_bits, &bits)) {
    // The bit count may overflow although the byte count does not.
    uint64_t bytes = 0;
    if (info(dtype).element_bits < 8 ||
        mul_overflows<uint64_t>(element_count, info(dtype).element_bits / 8u, &bytes)) {
      return std::nullopt;
    }
    return bytes;
  }
  return bits / 8 + (bits % 8 != 0 ? 1 : 0);
}

}  // namespace assay

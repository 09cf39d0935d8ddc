// SPDX-License-Identifier: Apache-2.0
// Tables: number, word of the operation csv and our type, e.g. 27 "bf16" BFloat16; number and word
// of memory formats.
#include "formats/atb_types.hpp"

namespace assay::formats {
namespace {

struct AtbType {
  int64_t number;
  std::string_view text;
  std::optional<DType> dtype;
};

constexpr AtbType kTypes[] = {
    {-1, "undefined", std::nullopt},
    {0, "float", DType::Float32},
    {1, "float16", DType::Float16},
    {2, "int8", DType::Int8},
    {3, "int32", DType::Int32},
    {4, "uint8", DType::UInt8},
    {6, "int16", DType::Int16},
    {7, "uint16", DType::UInt16},
    {8, "uint32", DType::UInt32},
    {9, "int64", DType::Int64},
    {10, "uint64", DType::UInt64},
    {11, "double", DType::Float64},
    {12, "bool", DType::Bool},
    {13, "string", std::nullopt},
    {16, "complex64", DType::Complex64},
    {17, "complex128", DType::Complex128},
    {27, "bf16", DType::BFloat16},
    {29, "int4", DType::Int4},
    {30, "uint1", std::nullopt},
    {33, "complex32", DType::Complex32},
    {34, "hifloat8", DType::HiFloat8},
    {35, "float8_e5m2", DType::Float8E5M2},
    {36, "float8_e4m3fn", DType::Float8E4M3FN},
    {37, "float8_e8m0", DType::Float8E8M0FNU},
    {38, "float6_e3m2", std::nullopt},
    {39, "float6_e2m3", std::nullopt},
    {40, "float4_e2m1", std::nullopt},
    {41, "float4_e1m2", std::nullopt},
};

struct AtbFormat {
  int64_t number;
  std::string_view text;
};

constexpr AtbFormat kFormats[] = {
    {-1, "undefined"},
    {0, "nchw"},
    {1, "nhwc"},
    {2, "nd"},
    {3, "nc1hwc0"},
    {4, "fractal_z"},
    {12, "nc1hwc0_c04"},
    {16, "hwcn"},
    {27, "ndhwc"},
    {29, "fractal_nz"},
    {30, "ncdhw"},
    {32, "ndc1hwc0"},
    {33, "fractal_z_3d"},
    {35, "nc"},
    {47, "ncl"},
    {50, "fractal_nz_c0_16"},
    {51, "fractal_nz_c0_32"},
};

}  // namespace

std::optional<DType> dtype_from_atb(int64_t atb_dtype) {
  for (const AtbType& type : kTypes) {
    if (type.number == atb_dtype) return type.dtype;
  }
  return std::nullopt;
}

std::optional<int64_t> atb_from_dtype(DType dtype) {
  for (const AtbType& type : kTypes) {
    if (type.dtype == dtype) return type.number;
  }
  return std::nullopt;
}

std::string_view atb_dtype_text(int64_t atb_dtype) {
  for (const AtbType& type : kTypes) {
    if (type.number == atb_dtype) return type.text;
  }
  return {};
}

std::optional<int64_t> atb_dtype_from_text(std::string_view word) {
  for (const AtbType& type : kTypes) {
    if (type.text == word) return type.number;
  }
  if (const std::optional<DType> dtype = dtype_from_name(word)) return atb_from_dtype(*dtype);
  return std::nullopt;
}

std::string_view atb_format_text(int64_t atb_format) {
  for (const AtbFormat& format : kFormats) {
    if (format.number == atb_format) return format.text;
  }
  return {};
}

std::optional<int64_t> atb_format_from_text(std::string_view word) {
  for (const AtbFormat& format : kFormats) {
    if (format.text == word) return format.number;
  }
  return std::nullopt;
}

}  // namespace assay::formats

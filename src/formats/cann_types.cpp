// SPDX-License-Identifier: Apache-2.0
#include "formats/cann_types.hpp"

#include <algorithm>
#include <array>

namespace assay::formats {
namespace {

// Indexed by the message's number.
// source  Ascend/torchair: proto/ge_ir.proto; the last two: hicann/runtime: src/dfx/adump/proto/dump_task.proto
constexpr std::array<std::string_view, 43> kTypeNames = {
    "DT_UNDEFINED",      "DT_FLOAT",       "DT_FLOAT16",       "DT_INT8",        "DT_UINT8",
    "DT_INT16",          "DT_UINT16",      "DT_INT32",         "DT_INT64",       "DT_UINT32",
    "DT_UINT64",         "DT_BOOL",        "DT_DOUBLE",        "DT_STRING",      "DT_DUAL_SUB_INT8",
    "DT_DUAL_SUB_UINT8", "DT_COMPLEX64",   "DT_COMPLEX128",    "DT_QINT8",       "DT_QINT16",
    "DT_QINT32",         "DT_QUINT8",      "DT_QUINT16",       "DT_RESOURCE",    "DT_STRING_REF",
    "DT_DUAL",           "DT_VARIANT",     "DT_BF16",          "DT_INT4",        "DT_UINT1",
    "DT_INT2",           "DT_UINT2",       "DT_COMPLEX32",     "DT_HIFLOAT8",    "DT_FLOAT8_E5M2",
    "DT_FLOAT8_E4M3FN",  "DT_FLOAT8_E8M0", "DT_FLOAT6_E3M2",   "DT_FLOAT6_E2M3", "DT_FLOAT4_E2M1",
    "DT_FLOAT4_E1M2",    "DT_HIFLOAT4",    "DT_HIFLOAT4_SCALE"};

// Indexed by the run time's number; -1 where it has none.
constexpr std::array<int8_t, 42> kFromRuntime = {
    1,  2,  3,  7,  4,  -1, 5,  6, 9,  8,  10, 12, 11, 13, 14, 15, 16, 17, 18, 19, 20,
    21, 22, 23, 24, 25, 26, 27, 0, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40};

}  // namespace

std::optional<DType> dtype_from_cann(int32_t data_type) {
  switch (data_type) {
    case 0:   // undefined: bytes
    case 3:   // int8
    case 14:  // dual_sub_int8
      return DType::Int8;
    case 1:
      return DType::Float32;
    case 2:
      return DType::Float16;
    case 4:
    case 15:  // dual_sub_uint8
      return DType::UInt8;
    case 5:
    case 19:  // qint16
      return DType::Int16;
    case 6:
    case 22:  // quint16
      return DType::UInt16;
    case 7:
      return DType::Int32;
    case 8:
    case 23:  // resource handle
      return DType::Int64;
    case 9:
      return DType::UInt32;
    case 10:
      return DType::UInt64;
    case 11:
      return DType::Bool;
    case 12:
      return DType::Float64;
    case 16:
      return DType::Complex64;
    case 17:
      return DType::Complex128;
    case 18:
      return DType::QInt8;
    case 20:
      return DType::QInt32;
    case 21:
      return DType::QUInt8;
    case 27:
      return DType::BFloat16;
    case 28:
      return DType::Int4;
    case 32:
      return DType::Complex32;
    case 33:
      return DType::HiFloat8;
    case 34:
      return DType::Float8E5M2;
    case 35:
      return DType::Float8E4M3FN;
    case 36:
      return DType::Float8E8M0FNU;
    default:
      return std::nullopt;
  }
}

std::optional<int32_t> cann_from_dtype(DType dtype) {
  if (dtype == DType::Float4E2M1FNx2) return 39;
  // Several numbers mean int8 or int64; the plain type's is the lowest above 0.
  for (int32_t number = 1; number < static_cast<int32_t>(kTypeNames.size()); ++number) {
    if (dtype_from_cann(number) == dtype) return number;
  }
  return std::nullopt;
}

std::optional<int32_t> cann_runtime_from_dtype(DType dtype) {
  const std::optional<int32_t> number = cann_from_dtype(dtype);
  if (!number) return std::nullopt;
  const auto* found = std::find(kFromRuntime.begin(), kFromRuntime.end(), *number);
  if (found == kFromRuntime.end()) return std::nullopt;
  return static_cast<int32_t>(found - kFromRuntime.begin());
}

int32_t cann_from_runtime(int32_t data_type) {
  if (data_type < 0 || static_cast<size_t>(data_type) >= kFromRuntime.size()) return -1;
  return kFromRuntime[static_cast<size_t>(data_type)];
}

Dims cann_shape(DType dtype, const Dims& shape) {
  if (dtype != DType::Float4E2M1FNx2) return shape;
  if (shape.empty()) return {2};
  Dims doubled = shape;
  doubled[shape.size() - 1] *= 2;
  return doubled;
}

std::string cann_dtype_name(int32_t data_type) {
  const bool named = data_type >= 0 && static_cast<size_t>(data_type) < kTypeNames.size();
  return std::string(kTypeNames[named ? static_cast<size_t>(data_type) : 0]);
}

std::optional<int32_t> cann_dtype_from_name(std::string_view name) {
  const auto* found = std::find(kTypeNames.begin(), kTypeNames.end(), name);
  if (found == kTypeNames.end()) return std::nullopt;
  return static_cast<int32_t>(found - kTypeNames.begin());
}

std::string cann_format_name(int32_t format) {
  constexpr std::array<std::string_view, 50> kNames = {"NCHW",
                                                       "NHWC",
                                                       "ND",
                                                       "NC1HWC0",
                                                       "FRACTAL_Z",
                                                       "NC1C0HWPAD",
                                                       "NHWC1C0",
                                                       "FSR_NCHW",
                                                       "FRACTAL_DECONV",
                                                       "C1HWNC0",
                                                       "FRACTAL_DECONV_TRANSPOSE",
                                                       "FRACTAL_DECONV_SP_STRIDE_TRANS",
                                                       "NC1HWC0_C04",
                                                       "FRACTAL_Z_C04",
                                                       "CHWN",
                                                       "FRACTAL_DECONV_SP_STRIDE8_TRANS",
                                                       "HWCN",
                                                       "NC1KHKWHWC0",
                                                       "BN_WEIGHT",
                                                       "FILTER_HWCK",
                                                       "HASHTABLE_LOOKUP_LOOKUPS",
                                                       "HASHTABLE_LOOKUP_KEYS",
                                                       "HASHTABLE_LOOKUP_VALUE",
                                                       "HASHTABLE_LOOKUP_OUTPUT",
                                                       "HASHTABLE_LOOKUP_HITS",
                                                       "C1HWNCoC0",
                                                       "MD",
                                                       "NDHWC",
                                                       "FRACTAL_ZZ",
                                                       "FRACTAL_NZ",
                                                       "NCDHW",
                                                       "DHWCN",
                                                       "NDC1HWC0",
                                                       "FRACTAL_Z_3D",
                                                       "CN",
                                                       "NC",
                                                       "DHWNC",
                                                       "FRACTAL_Z_3D_TRANSPOSE",
                                                       "FRACTAL_ZN_LSTM",
                                                       "FRACTAL_Z_G",
                                                       "RESERVED",
                                                       "ALL",
                                                       "NULL",
                                                       "ND_RNN_BIAS",
                                                       "FRACTAL_ZN_RNN",
                                                       "YUV",
                                                       "YUV_A",
                                                       "NCL",
                                                       "FRACTAL_Z_WINO",
                                                       "C1HWC0"};
  if (format < 0 || static_cast<size_t>(format) >= kNames.size()) return std::to_string(format);
  return std::string(kNames[static_cast<size_t>(format)]);
}

}  // namespace assay::formats

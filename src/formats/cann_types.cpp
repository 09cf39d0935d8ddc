// SPDX-License-Identifier: Apache-2.0
// Tables: types by the number of the messages (1 DT_FLOAT), and by the number of the run time (0
// DT_FLOAT); formats.
#include "formats/cann_types.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

#include "tensor/layouts.hpp"

namespace assay::formats {
namespace {

struct ElementType {
  std::string_view name;
  std::optional<DType> dtype;  // nothing: without one here
};
// Indexed by the message's number. Undefined types are bytes.
// source  Ascend/torchair: proto/ge_ir.proto; the last two: hicann/runtime:
//         src/dfx/adump/proto/dump_task.proto
constexpr ElementType kTypes[] = {{"DT_UNDEFINED", DType::Int8},
                                  {"DT_FLOAT", DType::Float32},
                                  {"DT_FLOAT16", DType::Float16},
                                  {"DT_INT8", DType::Int8},
                                  {"DT_UINT8", DType::UInt8},
                                  {"DT_INT16", DType::Int16},
                                  {"DT_UINT16", DType::UInt16},
                                  {"DT_INT32", DType::Int32},
                                  {"DT_INT64", DType::Int64},
                                  {"DT_UINT32", DType::UInt32},
                                  {"DT_UINT64", DType::UInt64},
                                  {"DT_BOOL", DType::Bool},
                                  {"DT_DOUBLE", DType::Float64},
                                  {"DT_STRING", {}},
                                  {"DT_DUAL_SUB_INT8", DType::Int8},
                                  {"DT_DUAL_SUB_UINT8", DType::UInt8},
                                  {"DT_COMPLEX64", DType::Complex64},
                                  {"DT_COMPLEX128", DType::Complex128},
                                  {"DT_QINT8", DType::QInt8},
                                  {"DT_QINT16", DType::Int16},
                                  {"DT_QINT32", DType::QInt32},
                                  {"DT_QUINT8", DType::QUInt8},
                                  {"DT_QUINT16", DType::UInt16},
                                  {"DT_RESOURCE", DType::Int64},
                                  {"DT_STRING_REF", {}},
                                  {"DT_DUAL", {}},
                                  {"DT_VARIANT", {}},
                                  {"DT_BF16", DType::BFloat16},
                                  {"DT_INT4", DType::Int4},
                                  {"DT_UINT1", {}},
                                  {"DT_INT2", {}},
                                  {"DT_UINT2", {}},
                                  {"DT_COMPLEX32", DType::Complex32},
                                  {"DT_HIFLOAT8", DType::HiFloat8},
                                  {"DT_FLOAT8_E5M2", DType::Float8E5M2},
                                  {"DT_FLOAT8_E4M3FN", DType::Float8E4M3FN},
                                  {"DT_FLOAT8_E8M0", DType::Float8E8M0FNU},
                                  {"DT_FLOAT6_E3M2", {}},
                                  {"DT_FLOAT6_E2M3", {}},
                                  {"DT_FLOAT4_E2M1", {}},
                                  {"DT_FLOAT4_E1M2", {}},
                                  {"DT_HIFLOAT4", {}},
                                  {"DT_HIFLOAT4_SCALE", {}}};

// Indexed by the format's number.
constexpr CannFormat kFormats[] = {{"NCHW", "NCHW", {}},
                                   {"NHWC", "NHWC", {"NCHW"}},
                                   {"ND", {}, {}},
                                   {"NC1HWC0", "NCHWc", {"NCHW", "NHWC"}},
                                   {"FRACTAL_Z", "(CHW)Nnc", {"NCHW", "HWCN", "NHWC"}},
                                   {"NC1C0HWPAD", {}, {}},
                                   {"NHWC1C0", {}, {}},
                                   {"FSR_NCHW", {}, {}},
                                   {"FRACTAL_DECONV", {}, {}},
                                   {"C1HWNC0", "CHWNc", {"NCHW", "HWCN"}},
                                   {"FRACTAL_DECONV_TRANSPOSE", {}, {}},
                                   {"FRACTAL_DECONV_SP_STRIDE_TRANS", {}, {}},
                                   {"NC1HWC0_C04", "NCHWc", {"NCHW", "NHWC"}},
                                   {"FRACTAL_Z_C04", {}, {}},
                                   {"CHWN", "CHWN", {}},
                                   {"FRACTAL_DECONV_SP_STRIDE8_TRANS", {}, {}},
                                   {"HWCN", "HWCN", {"NCHW"}},
                                   {"NC1KHKWHWC0", {}, {}},
                                   {"BN_WEIGHT", {}, {}},
                                   {"FILTER_HWCK", {}, {}},
                                   {"HASHTABLE_LOOKUP_LOOKUPS", {}, {}},
                                   {"HASHTABLE_LOOKUP_KEYS", {}, {}},
                                   {"HASHTABLE_LOOKUP_VALUE", {}, {}},
                                   {"HASHTABLE_LOOKUP_OUTPUT", {}, {}},
                                   {"HASHTABLE_LOOKUP_HITS", {}, {}},
                                   {"C1HWNCoC0", {}, {}},
                                   {"MD", {}, {}},
                                   {"NDHWC", "NDHWC", {"NCDHW"}},
                                   {"FRACTAL_ZZ", "*RCrc", {"*RC"}},
                                   {"FRACTAL_NZ", "*CRrc", {"*RC"}},
                                   {"NCDHW", "NCDHW", {}},
                                   {"DHWCN", "DHWCN", {"NCDHW"}},
                                   {"NDC1HWC0", "NDCHWc", {"NCDHW", "NDHWC"}},
                                   {"FRACTAL_Z_3D", "(DCHW)Nnc", {"NCDHW"}},
                                   {"CN", "CN", {}},
                                   {"NC", "NC", {}},
                                   {"DHWNC", {}, {}},
                                   {"FRACTAL_Z_3D_TRANSPOSE", {}, {}},
                                   {"FRACTAL_ZN_LSTM", {}, {}},
                                   {"FRACTAL_Z_G", {}, {}},
                                   {"RESERVED", {}, {}},
                                   {"ALL", {}, {}},
                                   {"NULL", {}, {}},
                                   {"ND_RNN_BIAS", {}, {}},
                                   {"FRACTAL_ZN_RNN", {}, {}},
                                   {"YUV", {}, {}},
                                   {"YUV_A", {}, {}},
                                   {"NCL", "NCL", {}},
                                   {"FRACTAL_Z_WINO", {}, {}},
                                   {"C1HWC0", {}, {}}};
// Tiled as well, but nobody says how: NC1C0HWPAD, NHWC1C0, FRACTAL_Z_C04, FRACTAL_Z_G.
constexpr std::array<int32_t, 4> kUnknownTiles = {5, 6, 13, 39};

// Indexed by the run time's number; -1 where it has none.
constexpr int8_t kFromRuntime[] = {1,  2,  3,  7,  4,  -1, 5,  6,  9,  8,  10, 12, 11, 13,
                                   14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                                   0,  28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40};

bool has(const auto& table, int32_t number) { return number >= 0 && number < std::ssize(table); }

/// The number of the first row whose `member` is `value`.
std::optional<int32_t> index_of(const auto& table, const auto& value, auto member) {
  const auto* found = std::ranges::find(table, value, member);
  if (found == std::end(table)) return std::nullopt;
  return static_cast<int32_t>(found - std::begin(table));
}

}  // namespace

std::optional<DType> dtype_from_cann(int32_t data_type) {
  return has(kTypes, data_type) ? kTypes[data_type].dtype : std::nullopt;
}

std::optional<int32_t> cann_from_dtype(DType dtype) {
  if (dtype == DType::Float4E2M1FNx2) return 39;
  // Several numbers mean int8 or int64; the plain type's is the lowest above 0.
  for (int32_t number = 1; number < std::ssize(kTypes); ++number) {
    if (dtype_from_cann(number) == dtype) return number;
  }
  return std::nullopt;
}

std::optional<int32_t> cann_runtime_from_dtype(DType dtype) {
  const std::optional<int32_t> number = cann_from_dtype(dtype);
  if (!number) return std::nullopt;
  return index_of(kFromRuntime, static_cast<int8_t>(*number), std::identity());
}

int32_t cann_from_runtime(int32_t data_type) {
  return has(kFromRuntime, data_type) ? kFromRuntime[data_type] : -1;
}

Dims cann_shape(DType dtype, const Dims& shape) {
  if (dtype != DType::Float4E2M1FNx2) return shape;
  if (shape.empty()) return {2};
  Dims doubled = shape;
  doubled[shape.size() - 1] *= 2;
  return doubled;
}

std::string cann_dtype_name(int32_t data_type) {
  return std::string(kTypes[has(kTypes, data_type) ? data_type : 0].name);
}

std::optional<int32_t> cann_dtype_from_name(std::string_view name) {
  return index_of(kTypes, name, &ElementType::name);
}

std::string cann_format_name(int32_t format) {
  return has(kFormats, format) ? std::string(kFormats[format].name) : std::to_string(format);
}

std::optional<int32_t> cann_format_from_name(std::string_view name) {
  return index_of(kFormats, name, &CannFormat::name);
}

const CannFormat* cann_layout(int32_t format) {
  return has(kFormats, format) && !kFormats[format].layout.empty() ? &kFormats[format] : nullptr;
}

bool is_cann_tiled(int32_t format) {
  const CannFormat* known = cann_layout(format);
  if (known == nullptr) return std::ranges::find(kUnknownTiles, format) != kUnknownTiles.end();
  return has_tiles(known->layout);
}

}  // namespace assay::formats

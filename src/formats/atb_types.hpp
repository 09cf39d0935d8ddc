// SPDX-License-Identifier: Apache-2.0
// The numbers and words by which ATB dumps name element types and memory formats (Mki types, equal
// to ACL's
// aclDataType and aclFormat).   Table: docs/formats/atb-bin.md
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.hpp"

namespace assay::formats {

inline constexpr int64_t kAtbUndefined = -1;  // as dtype and as format
inline constexpr int64_t kAtbFormatNd = 2;
inline constexpr int64_t kAtbFormatFractalNz = 29;

/// Our type for an ATB number; nothing for numbers that are unknown or have no type here
/// (undefined, string, uint1, float6, float4_e1m2).
[[nodiscard]] std::optional<DType> dtype_from_atb(int64_t atb_dtype);
/// The ATB number of a type; nothing for types that ATB does not know.
[[nodiscard]] std::optional<int64_t> atb_from_dtype(DType dtype);
/// The word in the operation csv: "float16", "bf16", "float"; "" for an unknown number.
[[nodiscard]] std::string_view atb_dtype_text(int64_t atb_dtype);
/// The number behind a csv word; also accepts torch's words "float32", "bfloat16" ...
[[nodiscard]] std::optional<int64_t> atb_dtype_from_text(std::string_view word);
/// "nd", "fractal_nz"; "" for an unknown number.
[[nodiscard]] std::string_view atb_format_text(int64_t atb_format);
[[nodiscard]] std::optional<int64_t> atb_format_from_text(std::string_view word);

}  // namespace assay::formats

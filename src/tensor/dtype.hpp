// SPDX-License-Identifier: Apache-2.0
// Every element type that a dump can hold: torch 2.13, NumPy, safetensors, ATB and CANN dumps.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace assay {

enum class DType : uint8_t {
  Float64,
  Float32,
  Float16,
  BFloat16,
  Float8E4M3FN,
  Float8E5M2,
  Float8E4M3FNUZ,
  Float8E5M2FNUZ,
  Float8E8M0FNU,   // a power of two: 2^(byte - 127); 0xFF is NaN
  Float4E2M1FNx2,  // torch: one element is one byte holding two values, the low nibble first
  Complex128,
  Complex64,
  Complex32,  // two float16
  Int64,
  Int32,
  Int16,
  Int8,
  UInt64,
  UInt32,
  UInt16,
  UInt8,
  Bool,  // one byte; any value other than 0 counts as true
  Int4,  // packed two to a byte, the low nibble first; shapes count values, not bytes
  UInt4,
  // torch's quantised storages: integers whose scale and zero point stand elsewhere.
  QInt8,
  QUInt8,
  QInt32,
  QUInt4x2,
  QUInt2x4,
  // Bytes without arithmetic meaning.
  Bits8,
  Bits16,
  Bits1x8,
  Bits2x4,
  Bits4x2,
  // Types of CANN dump files that torch does not have.
  HiFloat8,
};
inline constexpr int kDTypeCount = static_cast<int>(DType::HiFloat8) + 1;

enum class DTypeKind : uint8_t { Float, Complex, SignedInt, UnsignedInt, Bool, Bits };

struct DTypeInfo {
  std::string_view name;  // torch's and NumPy's name without prefix: "bfloat16"
  DTypeKind kind;
  /// Storage of one element as counted by a shape: 4 for Int4, 8 for Float4E2M1FNx2.
  uint8_t element_bits;
  /// Numbers in one element: 2 for Float4E2M1FNx2, QUInt4x2 and Bits4x2, 4, 8 for ..x4, ..x8; a
  /// complex element counts as 1.
  uint8_t element_values;
  std::string_view safetensors;  // "BF16", or "" where that format has no name
};

[[nodiscard]] const DTypeInfo& info(DType dtype);
/// "bfloat16"
[[nodiscard]] inline std::string_view name(DType dtype) { return info(dtype).name; }
/// "torch.bfloat16", the text that the original wrote into its csv files
[[nodiscard]] std::string torch_name(DType dtype);
/// Accepts "bfloat16", "torch.bfloat16" and the older torch spellings "half", "float", "double",
/// "long", "int", "short".
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name);
[[nodiscard]] std::optional<DType> dtype_from_safetensors(std::string_view name);
/// From DLPack's (code, bits, lanes); nothing for a combination that no host produces.
[[nodiscard]] std::optional<DType> dtype_from_dlpack(uint8_t code, uint8_t bits, uint16_t lanes);

[[nodiscard]] inline bool is_float(DType dtype) { return info(dtype).kind == DTypeKind::Float; }
[[nodiscard]] inline bool is_complex(DType dtype) { return info(dtype).kind == DTypeKind::Complex; }
/// True when a value can be NaN or infinite.
[[nodiscard]] inline bool has_non_finite(DType dtype) {
  return is_float(dtype) || is_complex(dtype);
}
[[nodiscard]] inline bool is_integer(DType dtype) {
  const DTypeKind kind = info(dtype).kind;
  return kind == DTypeKind::SignedInt || kind == DTypeKind::UnsignedInt;
}
/// Bytes of `element_count` consecutive elements, rounded up to a whole byte; nothing on overflow.
[[nodiscard]] std::optional<uint64_t> storage_bytes(DType dtype, uint64_t element_count);

}  // namespace assay

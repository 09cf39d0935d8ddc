// SPDX-License-Identifier: Apache-2.0
// Numbers and names that CANN has for element types and memory formats. Tables:
// docs/formats/cann-dump.md
//
// There are two numberings of element types: the one of protobuf messages (dump files, graph
// texts), where float32 is 1, and the one of the run time (ge.Const(dtype=), message OriginalOp,
// Nano files), where it is 0.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dims.hpp"
#include "tensor/dtype.hpp"

namespace assay::formats {

inline constexpr int32_t kCannFormatNd = 2;

/// Type of a message's number; nothing for types without one here (text, handles, those of 1, 2 and
/// 6 bits).
[[nodiscard]] std::optional<DType> dtype_from_cann(int32_t data_type);

/// The message's number of a type: Float32 -> 1; nothing for types that CANN does not have.
[[nodiscard]] std::optional<int32_t> cann_from_dtype(DType dtype);

/// The same in the run time's numbering: Float32 -> 0.
[[nodiscard]] std::optional<int32_t> cann_runtime_from_dtype(DType dtype);

/// 0 -> 1; -1 for numbers that the run time does not have.
[[nodiscard]] int32_t cann_from_runtime(int32_t data_type);

/// Shape as CANN counts it: elements of Float4E2M1FNx2 hold two values, so that its last dimension
/// doubles.
[[nodiscard]] Dims cann_shape(DType dtype, const Dims& shape);

/// "DT_FLOAT", as in statistics and graph texts; "DT_UNDEFINED" for numbers without a name.
[[nodiscard]] std::string cann_dtype_name(int32_t data_type);

/// 1 for "DT_FLOAT"; nothing for other texts.
[[nodiscard]] std::optional<int32_t> cann_dtype_from_name(std::string_view name);

/// "FRACTAL_NZ"; the number as text when it has no name.
[[nodiscard]] std::string cann_format_name(int32_t format);

/// 29 for "FRACTAL_NZ"; nothing for other texts.
[[nodiscard]] std::optional<int32_t> cann_format_from_name(std::string_view name);

struct CannFormat {
  std::string_view name;
  std::string_view layout;  // as tensor/layouts.hpp writes it; empty: its axes have no names
  /// Of the framework's shapes that it is made of, the likeliest first.
  std::array<std::string_view, 3> orders;
};
/// Null for formats without named axes (ND), and for those that nobody says how to undo.
[[nodiscard]] const CannFormat* cann_layout(int32_t format);

/// Formats whose elements do not lie in the order of their logical axes.
[[nodiscard]] bool is_cann_tiled(int32_t format);

}  // namespace assay::formats

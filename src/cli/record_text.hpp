// SPDX-License-Identifier: Apache-2.0
// What a listing says of a record.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "run/record.hpp"
#include "tensor/block_types.hpp"

namespace assay::cli {

/// Of block-quantised values what they are stored as.
[[nodiscard]] std::optional<BlockType> block_type(const run::TensorRecord& record);

/// "float32", "q8_0"; "?" when it is not known.
[[nodiscard]] std::string dtype_text(const run::TensorRecord& record);

/// "bfloat16 [2, 3]", with the order in memory where that is not the plain one.
[[nodiscard]] std::string type_and_shape(const run::TensorRecord& record);

/// Bytes as they are stored; 0 when type or shape is not known.
[[nodiscard]] uint64_t tensor_bytes(const run::TensorRecord& record);

}  // namespace assay::cli

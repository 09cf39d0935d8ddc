// SPDX-License-Identifier: Apache-2.0
// Writes dump files of CANN's graph engine. Bytes: docs/formats/cann-dump.md
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/cann_dump.hpp"

namespace assay::formats {

/// An operand to be written: what CannTensor says, `data` being exactly `size_bytes` long.
///
/// dump      variant is ignored: the current one (version "2.0") is written; `inputs`, `outputs`, `buffers`,
///           `workspaces` give the payload in that order. A tensor without data must have size_bytes 0.
/// returns   header length and header: the first 8 + N bytes of the file; the operands' bytes follow as they are
/// errors    Invalid: data and size_bytes differ | TooLarge: the header exceeds 2 GiB
/// Sizes are 64 bits wide throughout.
[[nodiscard]] Result<std::vector<std::byte>> cann_dump_header(const CannDump& dump);

/// Number of the header's numbering for a type: Float32 -> 1; nothing for types it does not have.
[[nodiscard]] std::optional<int32_t> cann_from_dtype(DType dtype);

/// The same in the numbering of the run time (message OriginalOp, `ge.Const(dtype=)`): Float32 -> 0.
[[nodiscard]] std::optional<int32_t> cann_runtime_from_dtype(DType dtype);

/// "DT_FLOAT", as in statistics and graph texts; "DT_UNDEFINED" for numbers without a name.
[[nodiscard]] std::string cann_dtype_name(int32_t data_type);

}  // namespace assay::formats

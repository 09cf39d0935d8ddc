// SPDX-License-Identifier: Apache-2.0
// Writes dump files of CANN's graph engine. Bytes: docs/formats/cann-dump.md
#pragma once
#include <vector>

#include "formats/cann_dump.hpp"

namespace assay::formats {

/// The first 8 + N bytes of a file: header length and header. The bytes of inputs, outputs, buffers and workspaces
/// (with a message: workspaces, then buffers) follow in that order as they are, without gaps.
///
/// dump      `variant`, `version`, `warnings` and every `problem` are ignored: the current variant, version "2.0", is
///           written. Each operand's `data` is exactly `size_bytes` long: a reader finds a later tensor only by the
///           sizes of those before it. Sizes are 64 bits wide throughout.
///           With `has_operand_indices` the arg_index of every tensor is its index among the operator's inputs or
///           outputs, and the attribute that says so is added.
/// errors    Invalid: data and size_bytes differ, a negative dimension | TooLarge: the header exceeds 2 GiB, protobuf's
///           limit
[[nodiscard]] Result<std::vector<std::byte>> cann_dump_header(const CannDump& dump);

}  // namespace assay::formats

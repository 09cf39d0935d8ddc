// SPDX-License-Identifier: Apache-2.0
// Tensors to a dump file of CANN's graph engine.   Bytes: docs/formats/cann-dump.md
#pragma once
#include <string>
#include <vector>

#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::cli {

struct DumpContent {
  std::string op_name;
  std::vector<TensorView> inputs;  // in memory format ND
  std::vector<TensorView> outputs;
  uint64_t time_us = 0;  // since 1970; 0: now
};

/// Writes the file whole or not at all; strided and lazily negated tensors as the values they show.
///
/// errors    Unsupported: the format has no number for the dtype | NoSpace | Permission | NotFound
///           | Io
[[nodiscard]] Status write_dump_file(const std::string& path, const DumpContent& content,
                                     unsigned mode = 0666);

/// Microseconds since 1970.
[[nodiscard]] uint64_t now_us();

}  // namespace assay::cli

// SPDX-License-Identifier: Apache-2.0
// A dump of the ATB acceleration library in the native layout as the folders of files that the
// original tool leaves.   docs/formats/native.md, docs/formats/atb-tree.md
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace assay::cli {

struct AtbTreeFiles {
  uint64_t tensors = 0;
  std::vector<std::string> problems;  // of tensors that could not be written, one sentence each
};

/// Writes to `out` what is below `in`: for every recorded tensor and parameter the file that the
/// probe would have left, byte for byte; everything else is copied.
///
/// in        the dump, or a folder around it
/// errors    of opening the run | Usage: no such dump, or none of its processes is in the native
///           layout | Invalid: it is damaged | Interrupted | NoSpace | Permission | Io
[[nodiscard]] Result<AtbTreeFiles> write_atb_tree(const std::string& in, const std::string& out);

}  // namespace assay::cli

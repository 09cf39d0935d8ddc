// SPDX-License-Identifier: Apache-2.0
// Parts of a comparison on their way to another process, a driver, and back.
//
// The driver starts the command with ASSAY_PARTS=N, an open socket of both directions, and has
// every part done by `assay part`, anywhere. All numbers are little-endian.
//
//   to the driver     u32 number of parts; then for each, as long as the driver takes them
//                     u32 part, u64 bytes it will read, u8 1 when it puts tensors of several ranks
//                     together, u32 number of files, of each (u32 size, path); u64 size, body
//   from the driver   for each part, in any order: u32 part, u8 0 done, 1 failed, 2 stopped by the
//                     user; u64 size, the answer, or the reason
#pragma once
#include <memory>

#include "cli/cmd_compare.hpp"
#include "compare/parts.hpp"

namespace assay::cli {

/// The driver that started this process; null: none did.
/// request   what of the command line a part needs beside its pairs
/// errors    Usage: ASSAY_PARTS is no socket
[[nodiscard]] Result<std::unique_ptr<compare::PartRunner>> part_runner(
    const CompareRequest& request);

/// What compares a part beside its pairs: the conventions and algorithms of the command line.
struct PartSettings {
  std::string compat;
  std::vector<std::string> custom_algorithms;
};
/// The settings in front of a body, and the rest of it.
/// errors   Invalid
[[nodiscard]] Result<std::pair<PartSettings, ByteSpan>> settings_of(ByteSpan body);

}  // namespace assay::cli

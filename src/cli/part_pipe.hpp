// SPDX-License-Identifier: Apache-2.0
// Parts of a command's work on their way to another process, a driver, and back.
//
// The driver starts the command with ASSAY_PARTS=N, an open socket of both directions, and has
// every part done by `assay part`, anywhere. All numbers are little-endian. A command may have
// parts done several times, one round after the other, and ends the last by its own end:
//
//   to the driver     u32 number of parts; then for each, as long as the driver takes them
//                     u32 part, u64 bytes it will read, u8 1 when it puts tensors of several ranks
//                     together, u32 number of files, of each (u32 size, path); u64 size, body
//   from the driver   for each part, in any order: u32 part, u8 0 done, 1 failed, 2 stopped by the
//                     user; u64 size, the answer, or the reason
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "run/parts.hpp"

namespace assay::cli {

/// What does a part beside its tasks: the conventions and algorithms of the command line.
struct PartSettings {
  std::string compat;
  std::vector<std::string> custom_algorithms = {};
};

/// The driver that started this process; null: none did, or it was taken before.
/// errors    Usage: ASSAY_PARTS is no socket
[[nodiscard]] Result<std::unique_ptr<run::PartRunner>> part_runner(PartSettings settings);

/// The settings in front of a body, and the rest of it.
/// errors   Invalid
[[nodiscard]] Result<std::pair<PartSettings, ByteSpan>> settings_of(ByteSpan body);

}  // namespace assay::cli

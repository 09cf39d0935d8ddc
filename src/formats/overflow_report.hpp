// SPDX-License-Identifier: Apache-2.0
// The debug files of an overflow dump (Opdebug.Node_OpDebug...): which operator overflowed, and
// how. Bytes: docs/formats/overflow-report.md
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace assay::formats {

enum class OverflowCore : uint8_t { AiCore, AiVector, AiCpu, Sdma, DhaAtomicAdd, L2AtomicAdd };

/// One report. Fields that its kind does not have are 0.
struct OverflowEntry {
  OverflowCore core = OverflowCore::AiCore;
  uint64_t model_id = 0, stream_id = 0, task_id = 0, task_type = 0;
  uint64_t context_id = 0, thread_id = 0;                           // new form
  uint64_t pc_start = 0, para_base = 0;                             // AI Core, AI Vector
  uint64_t kernel_code = 0;                                         // old form, AI Core
  uint64_t core_id = 0, block_id = 0;                               // AI Core, AI Vector
  uint64_t cpu_id = 0;                                              // AI CPU
  uint64_t source_address = 0, target_address = 0, channel_id = 0;  // SDMA
  std::array<uint64_t, 4> status{};  // four words for the cores of version 1, else one
  friend bool operator==(const OverflowEntry&, const OverflowEntry&) = default;
};

struct OverflowReport {
  bool is_old = false;   // 2048 bytes at fixed places
  uint32_t version = 0;  // of the new form
  /// Of the old form those that are not all zero; of the new one at most one.
  std::vector<OverflowEntry> entries;
};

/// payload   the bytes of the debug file's output; never trusted
/// errors    Truncated | Invalid (neither form, a block too short for its kind) | Unsupported (a
///           kind of core without a number above)
[[nodiscard]] Result<OverflowReport> read_overflow_report(ByteSpan payload);

/// 2048 bytes: the new form, version 0; for atomic additions, which it does not have, the old one.
[[nodiscard]] std::vector<std::byte> write_overflow_report(const OverflowEntry& entry);

/// As JSON with the keys of the original: "DHA Atomic Add", "L2 Atomic Add", "AI Core" of the old
/// form (zeros where there is no report), "magic", "version", "acc_list" of the new one. Addresses
/// are hexadecimal texts, the rest numbers; the core's block is "block_id" in both forms.
[[nodiscard]] std::string overflow_report_json(const OverflowReport& report);

/// What the bits of the status mean, one sentence each: 0x110 of an AI Core gives two. Empty when
/// no bit is set.
[[nodiscard]] std::vector<std::string> overflow_causes(const OverflowEntry& entry);

}  // namespace assay::formats

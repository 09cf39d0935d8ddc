// SPDX-License-Identifier: Apache-2.0
// The debug files of an overflow dump (Opdebug.Node_OpDebug...): which operator overflowed, and how.
// Bytes: docs/formats/overflow-report.md
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
  std::array<uint64_t, 4> status{};  // version 1 of the new form has four words, the others one
};

struct OverflowReport {
  bool is_old = false;                 // 2048 bytes at fixed places
  uint32_t version = 0;                // of the new form
  std::vector<OverflowEntry> entries;  // of the old form those that are not all zero
};

/// payload   the bytes of the debug file's output
/// errors    Truncated | Invalid (neither form)
[[nodiscard]] Result<OverflowReport> read_overflow_report(ByteSpan payload);

/// The new form, version 0, padded with zeros to 2048 bytes. One entry of kind AiCore, AiVector, AiCpu or Sdma.
[[nodiscard]] std::vector<std::byte> write_overflow_report(const OverflowEntry& entry);

/// As JSON with the keys of the original ("DHA Atomic Add", "L2 Atomic Add", "AI Core" of the old form, "magic",
/// "version", "acc_list" of the new one); addresses and status in hexadecimal.
[[nodiscard]] std::string overflow_report_json(const OverflowReport& report);

/// What the bits of an AI Core's status mean, one sentence each: 0x110 gives two.
[[nodiscard]] std::vector<std::string> overflow_causes(const OverflowEntry& entry);

}  // namespace assay::formats

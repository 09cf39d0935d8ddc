// SPDX-License-Identifier: Apache-2.0
// Stops a capture before the disk is full: a host that cannot write its own files any more has
// noticed us.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace assay::writer {

struct DiskBudgetOptions {
  std::optional<uint64_t> limit_bytes = {};  // of this capture; none: only the reserve counts
  // Left free on the file system, at most a twentieth of its size.
  uint64_t reserve_bytes = 256ull << 20;
};

/// Free and total bytes of a file system.
struct DiskSpace {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

/// Used from one thread at a time. Sticky: after the first no, always no.
class DiskBudget {
 public:
  using Probe = std::function<std::optional<DiskSpace>()>;

  /// Asks statvfs for the file system of `folder`.
  DiskBudget(const std::string& folder, DiskBudgetOptions options);
  /// With another source of the free space, for tests.
  DiskBudget(Probe probe, DiskBudgetOptions options);

  /// Whether `size_bytes` more may be written. The file system is asked again after at most 64 MiB,
  /// or half of what may still be used. An unknown amount of space is no reason to stop.
  [[nodiscard]] bool admit(uint64_t size_bytes);
  [[nodiscard]] uint64_t used_bytes() const { return used_bytes_; }
  /// Why it stopped, empty while it has not: one sentence.
  [[nodiscard]] const std::string& stop_reason() const { return stop_reason_; }

 private:
  Probe probe_;
  DiskBudgetOptions options_;
  uint64_t used_bytes_ = 0;
  uint64_t window_bytes_ = 0;  // may be admitted before the next probe
  std::string stop_reason_;
};

}  // namespace assay::writer

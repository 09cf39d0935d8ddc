// SPDX-License-Identifier: Apache-2.0
// The file system is asked once for a window of bytes, not for each write; the windows become
// smaller as the disk fills.
#include "writer/disk_budget.hpp"

#include <sys/statvfs.h>

#include <algorithm>

#include "base/text.hpp"

namespace assay::writer {
namespace {

constexpr uint64_t kProbeEveryBytes = 64ull << 20;

std::optional<DiskSpace> space_of(const std::string& folder) {
  struct statvfs info{};
  if (statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return DiskSpace{static_cast<uint64_t>(info.f_bavail) * info.f_frsize,
                   static_cast<uint64_t>(info.f_blocks) * info.f_frsize};
}

}  // namespace

DiskBudget::DiskBudget(const std::string& folder, DiskBudgetOptions options)
    : DiskBudget([folder] { return space_of(folder); }, options) {}

DiskBudget::DiskBudget(Probe probe, DiskBudgetOptions options)
    : probe_(std::move(probe)), options_(options) {}

bool DiskBudget::admit(uint64_t size_bytes) {
  if (!stop_reason_.empty()) return false;
  if (options_.limit_bytes &&
      size_bytes > *options_.limit_bytes - std::min(used_bytes_, *options_.limit_bytes)) {
    stop_reason_ = "the disk limit of " + human_bytes(*options_.limit_bytes) + " is used up";
    return false;
  }
  if (size_bytes > window_bytes_) {
    const auto space = probe_();
    if (space) {
      const uint64_t reserve = std::min(options_.reserve_bytes, space->total_bytes / 20);
      const uint64_t usable = space->free_bytes - std::min(space->free_bytes, reserve);
      if (size_bytes > usable) {
        stop_reason_ = "only " + human_bytes(space->free_bytes) +
                       " are left on the disk, of which " + human_bytes(reserve) +
                       " stay free for the host";
        return false;
      }
      window_bytes_ = std::max(size_bytes, std::min(kProbeEveryBytes, usable / 2));
    } else {
      window_bytes_ = std::max(size_bytes, kProbeEveryBytes);
    }
  }
  window_bytes_ -= size_bytes;
  used_bytes_ += size_bytes;
  return true;
}

}  // namespace assay::writer

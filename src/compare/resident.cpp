// SPDX-License-Identifier: Apache-2.0
// A thread looks at the resident file pages of the process, and gives those of watched mappings
// back to the kernel when they are above the limit.
#include "compare/resident.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace assay::compare {
namespace {

constexpr uint64_t kSmallRange = uint64_t{4} << 20;     // not worth a look at the memory map
constexpr auto kPeriod = std::chrono::milliseconds(2);  // at 10 GB/s 20 MB pass between two looks
constexpr uint64_t kPageGrain = 65536;

// True when the whole range is one mapping of a file that is shared and not writable.
bool is_file_mapping(ByteSpan range) {
  const auto begin = reinterpret_cast<uint64_t>(range.data());
  std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen("/proc/self/maps", "re"), &std::fclose);
  if (!maps) return false;
  char line[4096];
  while (std::fgets(line, sizeof(line), maps.get()) != nullptr) {
    uint64_t low = 0;
    uint64_t high = 0;
    uint64_t inode = 0;
    char access[8] = "";
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*s %*s %" SCNu64, &low, &high, access,
                    &inode) != 4) {
      continue;
    }
    if (begin < low || begin >= high) continue;
    return begin + range.size() <= high && inode != 0 && access[1] != 'w' && access[3] == 's';
  }
  return false;
}

// File pages of this process that are in memory, from the third number of /proc/self/statm.
uint64_t resident_file_bytes() {
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[128] = "";
  const ssize_t size = ::read(fd, text, sizeof(text) - 1);
  ::close(fd);
  uint64_t pages = 0;
  if (size <= 0 || std::sscanf(text, "%*u %*u %" SCNu64, &pages) != 1) return 0;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

void drop_pages(ByteSpan range) {
  const auto begin = reinterpret_cast<uint64_t>(range.data());
  const uint64_t first = align_up(begin, kPageGrain);
  const uint64_t end = (begin + range.size()) / kPageGrain * kPageGrain;
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace

ResidentLimit::ResidentLimit(uint64_t max_bytes) : max_bytes_(max_bytes) {}

ResidentLimit::~ResidentLimit() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

ResidentLimit::Watch ResidentLimit::watch(ByteSpan range) {
  if (range.size() < kSmallRange || !is_file_mapping(range)) return {};
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  ranges_.push_front(range);
  wake_.notify_all();
  return {this, ranges_.begin()};
}

void ResidentLimit::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (ranges_.empty()) {
      wake_.wait(lock, [&] { return stop_ || !ranges_.empty(); });
      continue;
    }
    // The lock is held while dropping, so that a range cannot be unmapped meanwhile.
    if (resident_file_bytes() > max_bytes_) {
      for (const ByteSpan range : ranges_) drop_pages(range);
    }
    wake_.wait_for(lock, kPeriod);
  }
}

ResidentLimit::Watch::Watch(Watch&& other) noexcept : owner_(other.owner_), range_(other.range_) {
  other.owner_ = nullptr;
}

ResidentLimit::Watch::~Watch() {
  if (owner_ == nullptr) return;
  const std::lock_guard lock(owner_->mutex_);
  owner_->ranges_.erase(range_);
}

}  // namespace assay::compare

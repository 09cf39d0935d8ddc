// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program, counts what it allocates; at its end adds "calls bytes" as a line to
// the file that ASSAY_COUNTED_ALLOCATIONS names. Only for glibc, whose own functions it calls.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

std::atomic<uint64_t> calls{0};
std::atomic<uint64_t> bytes{0};

void count(size_t size) {
  calls.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(size, std::memory_order_relaxed);
}

struct Report {
  ~Report() {
    const char* const path = std::getenv("ASSAY_COUNTED_ALLOCATIONS");
    const int fd = path == nullptr ? -1 : ::open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0) return;
    char line[64];
    const int size = std::snprintf(line, sizeof(line), "%llu %llu\n",
                                   static_cast<unsigned long long>(calls.load()),
                                   static_cast<unsigned long long>(bytes.load()));
    if (::write(fd, line, static_cast<size_t>(size)) != size) std::abort();
    ::close(fd);
  }
} report;

}  // namespace

extern "C" {

void* malloc(size_t size) {
  count(size);
  return __libc_malloc(size);
}
void* calloc(size_t number, size_t size) {
  count(number * size);
  return __libc_calloc(number, size);
}
void* realloc(void* old, size_t size) {
  count(size);
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  count(size);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  *out = memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
}

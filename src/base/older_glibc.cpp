// SPDX-License-Identifier: Apache-2.0
// What programs linked for an older glibc (cmake/glibc_floor.cmake) call and it does not have: our
// own calls of `stat`, and what the C++ run time asks for that is linked into them. Linked into
// every program and library that is shipped, and seen by none but the one it is in.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "base/older_glibc.hpp"

#pragma GCC visibility push(hidden)
extern "C" {

// ---- since 2.33 ----

// The kernel's structure is that of glibc on machines of 64 bits.
int stat(const char* path, struct stat* out) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, 0));
}
int lstat(const char* path, struct stat* out) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW));
}
int fstat(int fd, struct stat* out) noexcept {
  return static_cast<int>(syscall(SYS_fstat, fd, out));
}
int fstatat(int folder, const char* path, struct stat* out, int flags) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, out, flags));
}
int stat64(const char* path, struct stat64* out) noexcept {
  return stat(path, reinterpret_cast<struct stat*>(out));
}
int lstat64(const char* path, struct stat64* out) noexcept {
  return lstat(path, reinterpret_cast<struct stat*>(out));
}
int fstat64(int fd, struct stat64* out) noexcept {
  return fstat(fd, reinterpret_cast<struct stat*>(out));
}

// ---- since 2.32 ----

// Whether atomic operations may be left out: never, since threads are not counted here.
char __libc_single_threaded = 0;

// ---- since 2.30 ----

int assay_wait_by_clock_of_day(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                               const struct timespec* until) {
  constexpr int64_t kSecond = 1'000'000'000;
  const auto nanoseconds = [](clockid_t of) {
    struct timespec now{};
    clock_gettime(of, &now);
    return now.tv_sec * kSecond + now.tv_nsec;
  };
  const int64_t end = until->tv_sec * kSecond + until->tv_nsec;
  const int64_t left = end - nanoseconds(clock);
  if (left <= 0) return ETIMEDOUT;
  const int64_t day = nanoseconds(CLOCK_REALTIME) + left;
  const struct timespec other{.tv_sec = day / kSecond, .tv_nsec = day % kSecond};
  const int result = pthread_cond_timedwait(condition, mutex, &other);
  // The clock of the day was put forward: a wake-up without a reason, which every caller expects.
  return result == ETIMEDOUT && nanoseconds(clock) < end ? 0 : result;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  using Function = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static const auto own = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  return (own != nullptr ? own : &assay_wait_by_clock_of_day)(condition, mutex, clock, until);
}

// ---- since 2.36 ----

uint32_t arc4random() noexcept {
  uint32_t value = 0;
  while (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
    if (errno != EINTR) abort();  // before Linux 3.17
  }
  return value;
}

// ---- since 2.35 ----

/// Where the unwinding tables of the code at `address` are. libgcc's, as GCC has it in
/// <dlfcn.h>; 0 when they were found, otherwise -1.
int _dl_find_object(void* address, struct dl_find_object* out) noexcept {
  struct Search {
    uintptr_t address;
    struct dl_find_object* out;
  } search{reinterpret_cast<uintptr_t>(address), out};
  const auto visit = [](struct dl_phdr_info* info, size_t, void* data) {
    auto* const wanted = static_cast<Search*>(data);
    const ElfW(Phdr)* tables = nullptr;
    bool is_inside = false;
    uintptr_t begin = UINTPTR_MAX;
    uintptr_t end = 0;
    for (size_t i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = info->dlpi_phdr[i];
      const uintptr_t first = info->dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_GNU_EH_FRAME) tables = &part;
      if (part.p_type != PT_LOAD) continue;
      begin = first < begin ? first : begin;
      end = first + part.p_memsz > end ? first + part.p_memsz : end;
      is_inside = is_inside || (wanted->address >= first && wanted->address < first + part.p_memsz);
    }
    if (!is_inside) return 0;
    if (tables == nullptr) return -1;
    *wanted->out = {};
    wanted->out->dlfo_map_start = reinterpret_cast<void*>(begin);
    wanted->out->dlfo_map_end = reinterpret_cast<void*>(end);
    wanted->out->dlfo_eh_frame = reinterpret_cast<void*>(info->dlpi_addr + tables->p_vaddr);
    return 1;
  };
  return dl_iterate_phdr(visit, &search) == 1 ? 0 : -1;
}

}  // extern "C"
#pragma GCC visibility pop

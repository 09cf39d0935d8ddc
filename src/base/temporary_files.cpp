// SPDX-License-Identifier: Apache-2.0
// A signal handler can neither lock nor allocate, so the names of unfinished files stand in a fixed
// array with an atomic state each, where it finds what to remove.
#include "base/temporary_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace assay {
namespace {

// A process writes a few files at a time; what finds no place is removed after an error, though not
// after a signal.
constexpr int kSlots = 64;
struct TemporarySlot {
  std::atomic<int> state{0};  // 0 free, 1 being written, 2 a path
  char path[PATH_MAX];
};
TemporarySlot temporary_slots[kSlots];

int remember(const std::string& path) {
  if (path.size() >= PATH_MAX) return -1;
  for (int i = 0; i < kSlots; ++i) {
    int free = 0;
    if (!temporary_slots[i].state.compare_exchange_strong(free, 1)) continue;
    std::memcpy(temporary_slots[i].path, path.c_str(), path.size() + 1);
    temporary_slots[i].state.store(2);
    return i;
  }
  return -1;
}

void forget(int slot) {
  if (slot >= 0) temporary_slots[slot].state.store(0);
}

}  // namespace

TemporaryFile::TemporaryFile(std::string path) : path_(std::move(path)), slot_(remember(path_)) {}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept { *this = std::move(other); }

TemporaryFile& TemporaryFile::operator=(TemporaryFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(slot_, other.slot_);
  return *this;
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
  forget(slot_);
}

void TemporaryFile::keep() {
  forget(std::exchange(slot_, -1));
  path_.clear();
}

void remove_temporary_files() {
  for (TemporarySlot& slot : temporary_slots) {
    if (slot.state.load() == 2) ::unlink(slot.path);
  }
}

void end_by_signal(int signal) {
  remove_temporary_files();
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

void remove_temporary_files_on_signals() {
  for (const int signal : {SIGTERM, SIGHUP, SIGINT}) {
    struct sigaction before{};
    if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction action{};
    action.sa_handler = end_by_signal;
    ::sigaction(signal, &action, nullptr);
  }
}

Result<int> open_unlinked_file() {
  const char* named = std::getenv("TMPDIR");
  const std::string folder = named != nullptr && *named != '\0' ? named : "/tmp";
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
  if (fd >= 0) return fd;
  // Not every file system makes files without a name.
  std::string path = folder + "/assay-XXXXXX";
  fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return fail(errno_error(errno, "create a temporary file in", folder));
  ::unlink(path.c_str());
  return fd;
}

}  // namespace assay

// SPDX-License-Identifier: Apache-2.0
// Mappings stand in slots that are never freed and whose addresses are atomic, so that the handler
// of SIGBUS can look through them at any moment. A mapping that goes leaves its change in a list,
// where a ReadingScope finds what happened since it was made.
#include "base/file_changes.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/temporary_files.hpp"
#include "base/text.hpp"

namespace assay {

/// What the signal handler reads is atomic: other mappings come and go while it looks for the one
/// that was read.
struct Slot {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};    // 0 for a slot that is free
  std::atomic<uint64_t> damage{0};  // number of the damage that was found first; 0 for none
  std::string path;
  std::string printable_path;
  struct stat info{};
  uint64_t serial = 0;
};

namespace {

constexpr const char* kSentence = "the file was changed while it was read";
constexpr size_t kChunkSlots = 1024;
constexpr size_t kMaxChunks = 1024;  // 2^20 mappings; Linux allows 65530 by default

struct Change {
  std::string path;
  uint64_t serial;
  uint64_t damage;
};

/// Never destroyed: mappings in static objects outlive every other static object.
struct Watch {
  std::mutex mutex;
  std::array<std::atomic<Slot*>, kMaxChunks> chunks{};
  std::atomic<size_t> slot_count{0};
  std::vector<Slot*> free_slots;
  std::vector<Change> changes;  // of mappings that are gone
  std::vector<Error> failures;  // see note_failed_reading()
  uint64_t next_serial = 1;
  size_t live = 0;
  std::atomic<uint64_t> damages{0};
  std::atomic<int> exit_status{-1};
  struct sigaction previous{};
  bool installed = false;
};
Watch& watch() {
  static Watch* const instance = new Watch;
  return *instance;
}
// For the handler, which must not run the initialisation of a static object.
std::atomic<Watch*> the_watch{nullptr};

Slot* slot_at(Watch& all, size_t index) {
  return all.chunks[index / kChunkSlots].load(std::memory_order_acquire) + index % kChunkSlots;
}

Slot* slot_of(Watch& all, uintptr_t address) {
  const size_t count = all.slot_count.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    Slot* const slot = slot_at(all, i);
    const uintptr_t end = slot->end.load(std::memory_order_acquire);
    if (address < end && address >= slot->begin.load(std::memory_order_relaxed)) return slot;
  }
  return nullptr;
}

void write_text(std::string_view text) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
}

[[noreturn]] void leave(const Slot& slot, int exit_status) {
  static std::atomic<bool> leaving{false};
  while (leaving.exchange(true)) ::pause();  // another thread says it
  write_text("error: ");
  write_text(slot.printable_path);
  write_text(": ");
  write_text(kSentence);
  write_text("\nhint: wait until the program that writes it has finished, then try again\n");
  remove_temporary_files();
  ::_exit(exit_status);
}

/// Zeros from the page of `address` to the end of the mapping.
bool put_zeros(const Slot& slot, uintptr_t address) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t first = address / page * page;
  const uintptr_t end = slot.end.load(std::memory_order_relaxed);
  return ::mmap(reinterpret_cast<void*>(first), end - first, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

void end_by_default(int signal, const siginfo_t& info) {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  // The instruction that failed is executed again; a signal that somebody sent has to be sent
  // again.
  if (info.si_code <= 0) ::raise(signal);
}

void pass_on(const Watch& all, int signal, siginfo_t* info, void* context) {
  static std::atomic<bool> passing{false};
  const struct sigaction& previous = all.previous;
  // A handler that passes on to the one before it may come back to us.
  if (previous.sa_handler == SIG_DFL || passing.exchange(true)) {
    end_by_default(signal, *info);
    return;
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else if (info->si_code > 0) {
    end_by_default(signal, *info);  // the kernel does not ignore a fault either
  }
  passing = false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  Watch& all = *the_watch.load();
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  Slot* const slot = info->si_code > 0 ? slot_of(all, address) : nullptr;
  if (slot == nullptr) {
    pass_on(all, signal, info, context);
    errno = saved_errno;
    return;
  }
  if (const int exit_status = all.exit_status.load(); exit_status >= 0) leave(*slot, exit_status);
  // Marked before anybody can see the zeros.
  uint64_t none = 0;
  slot->damage.compare_exchange_strong(none, all.damages.fetch_add(1) + 1);
  if (!put_zeros(*slot, address)) end_by_default(signal, *info);
  errno = saved_errno;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_bus_error;
}

/// Puts the handler on top when it is not there, or not any more.
void install(Watch* all) {
  struct sigaction current{};
  if (::sigaction(SIGBUS, nullptr, &current) != 0 || is_ours(current)) return;
  all->previous = current;
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGBUS, &action, nullptr);
}

/// Whoever has put a handler over ours keeps it.
void uninstall(const Watch& all) {
  struct sigaction current{};
  if (::sigaction(SIGBUS, nullptr, &current) == 0 && is_ours(current))
    ::sigaction(SIGBUS, &all.previous, nullptr);
}

Slot* take_slot(Watch* all) {
  if (!all->free_slots.empty()) {
    Slot* const slot = all->free_slots.back();
    all->free_slots.pop_back();
    return slot;
  }
  const size_t index = all->slot_count.load();
  if (index == kChunkSlots * kMaxChunks) return nullptr;
  if (index % kChunkSlots == 0)
    all->chunks[index / kChunkSlots].store(new Slot[kChunkSlots], std::memory_order_release);
  all->slot_count.store(index + 1, std::memory_order_release);
  return slot_at(*all, index);
}

// Asking costs 2 us, 3 % of comparing files of 256 KiB; what is smaller is read before anybody
// writes it twice.
constexpr off_t kAskedBytes = off_t{1} << 20;

/// A file that only grew keeps what was mapped; one that another was renamed over is still the one
/// that was mapped.
bool is_changed_on_disk(const Slot& slot) {
  if (slot.info.st_size < kAskedBytes) return false;
  struct stat now{};
  if (::stat(slot.path.c_str(), &now) != 0 || now.st_dev != slot.info.st_dev ||
      now.st_ino != slot.info.st_ino)
    return false;
  if (now.st_size != slot.info.st_size) return now.st_size < slot.info.st_size;
  return now.st_mtim.tv_sec != slot.info.st_mtim.tv_sec ||
         now.st_mtim.tv_nsec != slot.info.st_mtim.tv_nsec;
}

Status changed(const std::string& path) {
  return fail(Error{Errc::Io, path, std::nullopt, kSentence});
}

}  // namespace

WatchedMapping::WatchedMapping(std::string path, const void* address, size_t size,
                               const struct stat& info) {
  Watch& all = watch();
  const std::lock_guard lock(all.mutex);
  slot_ = take_slot(&all);
  if (slot_ == nullptr) return;
  the_watch.store(&all);
  if (all.exit_status.load() >= 0) slot_->printable_path = printable(path);
  slot_->path = std::move(path);
  slot_->info = info;
  slot_->serial = all.next_serial++;
  slot_->damage = 0;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  slot_->begin.store(begin, std::memory_order_relaxed);
  slot_->end.store(begin + size, std::memory_order_release);
  // Whether somebody put a handler over ours is a system call, so it is asked now and then.
  if (all.live++ == 0 || slot_->serial % 64 == 0) install(&all);
}

WatchedMapping::~WatchedMapping() {
  if (slot_ == nullptr) return;
  Watch& all = watch();
  const bool changed_on_disk = is_changed_on_disk(*slot_);
  const std::lock_guard lock(all.mutex);
  if (const uint64_t damage = slot_->damage; damage != 0 || changed_on_disk)
    all.changes.push_back({slot_->path, slot_->serial, damage});
  slot_->end.store(0, std::memory_order_release);
  all.free_slots.push_back(slot_);
  if (--all.live == 0) uninstall(all);
}

ReadingScope::ReadingScope() {
  Watch& all = watch();
  const std::lock_guard lock(all.mutex);
  first_change_ = all.changes.size();
  first_serial_ = all.next_serial;
  first_failure_ = all.failures.size();
  first_damage_ = all.damages.load() + 1;
}

Status ReadingScope::take_failure() const {
  Watch& all = watch();
  const std::lock_guard lock(all.mutex);
  if (all.failures.size() <= first_failure_) return {};
  Error first = all.failures[first_failure_];
  all.failures.resize(first_failure_);
  return fail(std::move(first));
}

void note_failed_reading(const Error& error) {
  Watch& all = watch();
  const std::lock_guard lock(all.mutex);
  all.failures.push_back(error);
}

Status ReadingScope::finish() const {
  ASSAY_TRY_STATUS(take_failure());
  Watch& all = watch();
  const std::lock_guard lock(all.mutex);
  for (size_t i = first_change_; i < all.changes.size(); ++i) {
    const Change& change = all.changes[i];
    if (change.serial >= first_serial_ || change.damage >= first_damage_)
      return changed(change.path);
  }
  for (size_t i = 0; i < all.slot_count.load(); ++i) {
    const Slot& slot = *slot_at(all, i);
    if (slot.end.load() == 0) continue;
    if (slot.damage.load() >= first_damage_ ||
        (slot.serial >= first_serial_ && is_changed_on_disk(slot)))
      return changed(slot.path);
  }
  return {};
}

Status check_unchanged(ByteSpan bytes) {
  Watch* const all = the_watch.load(std::memory_order_relaxed);
  if (all == nullptr || all->damages.load(std::memory_order_relaxed) == 0) return {};
  const std::lock_guard lock(all->mutex);
  const Slot* const slot = slot_of(*all, reinterpret_cast<uintptr_t>(bytes.data()));
  return slot == nullptr || slot->damage.load() == 0 ? Status() : changed(slot->path);
}

void end_process_on_changed_file(int exit_status) { watch().exit_status = exit_status; }

}  // namespace assay

// SPDX-License-Identifier: Apache-2.0
// The session of a preloaded probe: made at the first call that captures, and again in a forked
// child; never destroyed, since threads of the host may be inside it.
#pragma once
#include <atomic>
#include <cstdlib>

#include "base/result.hpp"
#include "capture/common/host_guard.hpp"
#include "writer/fork_guard.hpp"

namespace assay::capture {

/// Any thread. A static object: constant-initialised, trivially destroyed.
template <typename Session>
class ProcessSession {
 public:
  /// nullptr: there is none yet, or it is that of the process which forked this one.
  [[nodiscard]] Session* get() const noexcept {
    Session* session = current_.load(std::memory_order_acquire);
    const bool is_ours = session != nullptr && session->generation() == writer::fork_generation();
    return is_ours ? session : nullptr;
  }

  /// Whether this process, or one that forked it, had a session.
  [[nodiscard]] bool was_opened() const noexcept { return current_.load() != nullptr; }

  /// open         () -> Result<Session*>
  /// switch_off   noexcept (const char* where, const char* reason), when that fails; then nullptr
  /// at_end       finishes the session at the end of the process
  template <typename Open, typename SwitchOff>
  [[nodiscard]] Session* get_or_open(ForkLock* lock, Open open, SwitchOff switch_off,
                                     void (*at_end)()) {
    if (Session* session = get()) return session;
    const Held held(lock);
    if (Session* session = get()) return session;
    const Result<Session*> opened = open();
    if (!opened) {
      switch_off(opened.error().path.c_str(), opened.error().message.c_str());
      return nullptr;
    }
    const bool is_first = current_.exchange(*opened, std::memory_order_acq_rel) == nullptr;
    if (is_first) {
      std::atexit(at_end);
      std::at_quick_exit(at_end);
    }
    return *opened;
  }

 private:
  std::atomic<Session*> current_{nullptr};
};

}  // namespace assay::capture

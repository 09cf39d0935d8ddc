// SPDX-License-Identifier: Apache-2.0
// Leaving a long computation half way: whoever can throw its result away opens an InterruptScope,
// and the loops below look at its flag between blocks.
#pragma once
#include <atomic>
#include <exception>

namespace assay {

/// Thrown out of a computation whose flag was set. Whoever opens an InterruptScope catches it.
struct Interrupted : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

/// While it lives, loops of this thread, and of the threads that parallel_for starts for it, end
/// soon after *flag is set. Only this thread throws: its parallel_for, when all threads have
/// stopped, or throw_if_interrupted(). nullptr: nothing ends early. Scopes nest.
class InterruptScope {
 public:
  explicit InterruptScope(const std::atomic<bool>* flag);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  const std::atomic<bool>* previous_;
  bool threw_before_;
};

/// For the body of a parallel_for, which must not throw: what it leaves undone is thrown away.
[[nodiscard]] bool is_interrupted();
/// Does nothing on threads that parallel_for started.
void throw_if_interrupted();

}  // namespace assay

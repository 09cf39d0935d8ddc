// SPDX-License-Identifier: Apache-2.0
// What a program uses that sees it being captured: a profiler, a dispatch mode, a tracer of its own.
// It is said once, and the run keeps it. Why it cannot be hidden: docs/design/torch-capture.md
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <string>

namespace assay::capture {

inline constexpr size_t kWatcherCount = 3;

/// Needs the GIL; leaves no exception set.
class Watchers {
 public:
  /// Looks whether one of those is at work that see operators. Called for each of them: a look into
  /// a dict for each watcher that was not met yet.
  void look_around_operator();
  /// The same for those that see functions of Python: where ours, or torch's for us, are called.
  void look_around_functions();
  /// The names of those that were met, with commas.
  [[nodiscard]] std::string text() const;

 private:
  void meet(size_t watcher);

  std::array<bool, kWatcherCount> met_{};
};

}  // namespace assay::capture

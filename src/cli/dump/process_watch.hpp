// SPDX-License-Identifier: Apache-2.0
// How processes ended that are not our children: those that leave a report in a folder are held by
// pidfd from then on. A kernel before 6.15 does not tell; such an end is unknown.
#pragma once
#include <sys/types.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace assay::cli {

/// How a process ended, as a person says it: "ended with status 3", "was ended by signal 9
/// (Killed)".
[[nodiscard]] std::string end_text(int exit_status, int signal);

/// Runs on, and has not ended to be waited for only.
[[nodiscard]] bool is_running(pid_t pid);

class ProcessWatch {
 public:
  /// Watches `folder` for files torch_<pid>.json and ggml_<pid>.json until stop().
  explicit ProcessWatch(const std::string& folder);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  void stop();
  /// Nothing while it runs, and when nobody can tell.
  [[nodiscard]] std::optional<std::string> how_ended(pid_t pid) const;

 private:
  void watch();
  void take_events();

  int events_ = -1;  // inotify
  int stop_ = -1;    // eventfd
  mutable std::mutex mutex_;
  std::map<pid_t, int> held_;  // pidfds
  std::thread thread_;
};

}  // namespace assay::cli

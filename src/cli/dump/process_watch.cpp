// SPDX-License-Identifier: Apache-2.0
// Kernel interface: linux/pidfd.h of 6.15 (PIDFD_GET_INFO, PIDFD_INFO_EXIT), spelled out here for
// older headers.
#include "cli/dump/process_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::cli {
namespace {

struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup;
  uint32_t ids[11];  // pid, tgid, ppid, and the users and groups
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);  // PIDFD_INFO_SIZE_VER0
constexpr uint64_t kInfoExit = uint64_t{1} << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

/// The number in "torch_<pid>.json" or "ggml_<pid>.json".
std::optional<pid_t> pid_of_report(std::string_view name) {
  if (!name.ends_with(".json")) return std::nullopt;
  for (const std::string_view kind : {"torch_", "ggml_"}) {
    if (!name.starts_with(kind)) continue;
    name.remove_prefix(kind.size());
    return parse_number<pid_t>(name.substr(0, name.size() - std::strlen(".json")));
  }
  return std::nullopt;
}

/// /proc/<pid>/stat from its third field, the state, on; empty when there is none.
std::vector<std::string> stat_fields(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t behind_name = line.rfind(") ");
  if (behind_name == std::string::npos) return {};
  std::vector<std::string> fields;
  for (const std::string_view field : split(std::string_view(line).substr(behind_name + 2), ' '))
    fields.emplace_back(field);
  return fields;
}

/// The wait status of an ended process: of one that its parent has asked about from its pidfd, of a
/// zombie from /proc.
std::optional<int> wait_status(pid_t pid, int handle) {
  PidfdInfo info{};
  info.mask = kInfoExit;
  if (::ioctl(handle, kGetInfo, &info) == 0 && (info.mask & kInfoExit) != 0) return info.exit_code;
  constexpr size_t kExitCode = 52 - 3;  // proc(5) counts from 1
  const std::vector<std::string> fields = stat_fields(pid);
  if (fields.size() <= kExitCode || fields[0] != "Z") return std::nullopt;
  return parse_number<int>(fields[kExitCode]);
}

}  // namespace

std::string end_text(int exit_status, int signal) {
  if (signal == 0) return "ended with status " + std::to_string(exit_status);
  const char* name = ::strsignal(signal);
  return "was ended by signal " + std::to_string(signal) +
         (name == nullptr ? "" : " (" + std::string(name) + ")");
}

bool is_running(pid_t pid) {
  if (pid <= 0 || (::kill(pid, 0) != 0 && errno != EPERM)) return false;
  const std::vector<std::string> fields = stat_fields(pid);
  return fields.empty() || fields[0] != "Z";  // a zombie has ended: its parent has not asked yet
}

ProcessWatch::ProcessWatch(const std::string& folder)
    : events_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (events_ < 0 || stop_ < 0 || ::inotify_add_watch(events_, folder.c_str(), IN_MOVED_TO) < 0)
    return;
  // The new thread inherits the mask: signals are for the thread that waits for the program.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ProcessWatch::~ProcessWatch() {
  stop();
  for (const auto& [pid, handle] : held_) ::close(handle);
  if (events_ >= 0) ::close(events_);
  if (stop_ >= 0) ::close(stop_);
}

void ProcessWatch::stop() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_, 1);
  thread_.join();
}

void ProcessWatch::watch() {
  pollfd waits[] = {{events_, POLLIN, 0}, {stop_, POLLIN, 0}};
  while (::poll(waits, 2, -1) >= 0 || errno == EINTR) {
    take_events();
    if (waits[1].revents != 0) return;
  }
}

void ProcessWatch::take_events() {
  alignas(inotify_event) char buffer[4096];
  ssize_t size = 0;
  while ((size = ::read(events_, buffer, sizeof(buffer))) > 0) {
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      const std::optional<pid_t> pid = pid_of_report(event->len == 0 ? "" : event->name);
      if (!pid) continue;
      const std::lock_guard lock(mutex_);
      if (held_.contains(*pid)) continue;
      const int handle = static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0));
      if (handle >= 0) held_.emplace(*pid, handle);
    }
  }
}

std::optional<std::string> ProcessWatch::how_ended(pid_t pid) const {
  const std::lock_guard lock(mutex_);
  const auto held = held_.find(pid);
  if (held == held_.end()) return std::nullopt;
  const std::optional<int> status = wait_status(pid, held->second);
  if (!status) return std::nullopt;
  return WIFSIGNALED(*status) ? end_text(0, WTERMSIG(*status)) : end_text(WEXITSTATUS(*status), 0);
}

}  // namespace assay::cli

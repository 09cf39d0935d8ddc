// SPDX-License-Identifier: Apache-2.0
// Starts the program by fork and exec, passes on the signals that other processes send to us, and
// waits. The errno of a failed exec comes back through a pipe.
#include "cli/dump/child_process.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/text.hpp"

extern char** environ;

namespace assay::cli {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr size_t kForwardedCount = std::size(kForwarded);

volatile pid_t child_pid = 0;

void forward(int signal, siginfo_t* info, void*) {
  // What the terminal sends (Ctrl-C) goes to the whole foreground group, the program included.
  const bool from_a_process = info->si_code <= 0;
  const int kept = errno;
  if (from_a_process && child_pid > 0) ::kill(child_pid, signal);
  errno = kept;
}

/// Passes signals on while it lives.
class SignalForwarding {
 public:
  SignalForwarding() {
    sigset_t all;
    ::sigemptyset(&all);
    for (const int signal : kForwarded) ::sigaddset(&all, signal);
    // Blocked until the child's pid is known.
    ::sigprocmask(SIG_BLOCK, &all, &mask_before_);
    for (size_t i = 0; i < kForwardedCount; ++i) {
      struct sigaction action{};
      action.sa_sigaction = forward;
      action.sa_flags = SA_SIGINFO | SA_RESTART;
      ::sigemptyset(&action.sa_mask);
      ::sigaction(kForwarded[i], &action, &before_[i]);
    }
  }
  ~SignalForwarding() {
    restore_handlers();
    ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
    child_pid = 0;
  }
  SignalForwarding(const SignalForwarding&) = delete;
  SignalForwarding& operator=(const SignalForwarding&) = delete;

  void start(pid_t child) {
    child_pid = child;
    ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  /// In the child: everything as we found it.
  void undo_in_child() {
    restore_handlers();
    ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }

 private:
  void restore_handlers() {
    for (size_t i = 0; i < kForwardedCount; ++i) ::sigaction(kForwarded[i], &before_[i], nullptr);
  }
  struct sigaction before_[kForwardedCount] = {};
  sigset_t mask_before_{};
};

std::vector<std::string> changed_environment(const std::vector<EnvironmentChange>& changes) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const EnvironmentChange& change : changes) replaced |= change.first == name;
    if (!replaced) variables.emplace_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value) variables.push_back(name + "=" + *value);
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>* words) {
  std::vector<char*> out;
  for (std::string& word : *words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

bool is_executable_file(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

Result<ChildEnd> wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return fail(errno_error(errno, "wait for", ""));
  }
  ChildEnd end{child, 0, 0};
  if (WIFSIGNALED(status)) {
    end.signal = WTERMSIG(status);
    end.exit_status = 128 + end.signal;
  } else {
    end.exit_status = WEXITSTATUS(status);
  }
  return end;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_executable_file(name) ? name : std::string();
  const char* path = std::getenv("PATH");
  for (const std::string_view folder : split(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    const std::string candidate = (folder.empty() ? "." : std::string(folder)) + "/" + name;
    if (is_executable_file(candidate)) return candidate;
  }
  return {};
}

Result<ChildEnd> run_program(const std::vector<std::string>& command,
                             const std::vector<EnvironmentChange>& changes) {
  std::vector<std::string> words = command;
  std::vector<std::string> variables = changed_environment(changes);
  const std::vector<char*> argv = pointers(&words);
  const std::vector<char*> envp = pointers(&variables);
  // The errno of a failed exec comes back through a pipe that a successful one closes.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(errno_error(errno, "make a pipe for", command[0]));

  SignalForwarding forwarding;
  const pid_t child = ::fork();
  if (child == 0) {
    forwarding.undo_in_child();
    ::execvpe(argv[0], argv.data(), envp.data());
    const int why = errno;
    const ssize_t told = ::write(ends[1], &why, sizeof(why));
    ::_exit(told == sizeof(why) ? 127 : 126);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return fail(errno_error(errno, "start", command[0]));
  }
  forwarding.start(child);
  int why = 0;
  ssize_t size = 0;
  while ((size = ::read(ends[0], &why, sizeof(why))) < 0 && errno == EINTR) {
  }
  ::close(ends[0]);
  ASSAY_TRY(const ChildEnd end, wait_for(child));
  if (size == sizeof(why)) return fail(errno_error(why, "run", command[0]));
  return end;
}

}  // namespace assay::cli

// SPDX-License-Identifier: Apache-2.0
// The child gets its end of a socket pair and the files under numbers from 3 on. Lines are
// collected from the socket until a deadline; a process that does not end by itself in two seconds
// is killed.
#include "base/python_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <deque>
#include <vector>

#include "base/python_program.hpp"

extern "C" char** environ;

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPatienceAtEnd = std::chrono::seconds(2);  // for a process that was told to end

std::string exit_text(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Status PythonProcess::start(std::string script, std::span<const int> files) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return fail(errno_error(errno, "create", "a socket pair"));
  socket_.emplace(pair[0]);
  const FileDescriptor theirs(pair[1]);
  buffer_.clear();
  searched_ = 0;
  // Copies whose numbers lie above those in the child, so that no dup2() closes one still to come.
  constexpr int kFirst = 3;
  constexpr int kAbove = 16;
  std::vector<int> sources = {theirs.get()};
  sources.insert(sources.end(), files.begin(), files.end());
  std::deque<FileDescriptor> copies;
  std::vector<std::string> words = {python_program(), "-c", std::move(script)};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (size_t i = 0; i < sources.size(); ++i) {
    const int number = kFirst + static_cast<int>(i);
    copies.emplace_back(::fcntl(sources[i], F_DUPFD_CLOEXEC, kAbove));
    ::posix_spawn_file_actions_adddup2(&actions, copies.back().get(), number);
    words.push_back(std::to_string(number));
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int result =
      ::posix_spawnp(&process_, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (result == 0) return {};
  process_ = -1;
  return fail(errno_error(result, "start", words[0]));
}

Status PythonProcess::send(std::string_view line) {
  while (!line.empty()) {
    const ssize_t sent =
        socket_ ? ::send(socket_->get(), line.data(), line.size(), MSG_NOSIGNAL) : -1;
    if (sent < 0 && socket_ && errno == EINTR) continue;
    if (sent <= 0) return fail(Errc::Io, ended_sentence());
    line.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

Result<std::optional<std::string>> PythonProcess::receive(std::chrono::milliseconds patience,
                                                          size_t max_bytes) {
  const auto deadline = Clock::now() + patience;
  while (true) {
    if (const size_t end = buffer_.find('\n', searched_); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      searched_ = 0;
      return line;
    }
    searched_ = buffer_.size();
    if (buffer_.size() > max_bytes) {
      kill();
      return fail(Errc::TooLarge, "the Python process gave an answer that is too long");
    }
    if (!socket_) return fail(Errc::Io, ended_sentence());
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{socket_->get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    char block[65536];
    const ssize_t size = ::recv(socket_->get(), block, sizeof(block), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return fail(Errc::Io, ended_sentence());
    buffer_.append(block, static_cast<size_t>(size));
  }
}

/// Waits for a process that closed its end of the socket, and says how it ended.
std::string PythonProcess::ended_sentence() {
  socket_.reset();
  if (process_ <= 0) return "the Python process has ended";
  return "the Python process ended with " + exit_text(wait_or_kill());
}

void PythonProcess::kill() {
  socket_.reset();
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  wait_blocking();
}

void PythonProcess::stop() {
  socket_.reset();  // its loop ends with the stream
  if (process_ > 0) wait_or_kill();
}

int PythonProcess::wait_blocking() {
  int status = 0;
  while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  return status;
}

int PythonProcess::wait_or_kill() {
  const auto deadline = Clock::now() + kPatienceAtEnd;
  int status = 0;
  while (Clock::now() < deadline) {
    const pid_t done = ::waitpid(process_, &status, WNOHANG);
    if (done == process_ || (done < 0 && errno != EINTR)) {
      process_ = -1;
      return status;
    }
    ::poll(nullptr, 0, 1);
  }
  ::kill(process_, SIGKILL);
  return wait_blocking();
}

}  // namespace assay

// SPDX-License-Identifier: Apache-2.0
// A thread reads the pipe that stands in for the standard streams, passes all of it on to standard
// error, and keeps the last lines for the report.
#include "cli/gate/program_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/bytes.hpp"

namespace assay::cli {
namespace {

constexpr size_t kKeptLines = 20;
constexpr size_t kLongestLine = 2000;
constexpr int kLookMilliseconds = 20;

int copy_of(int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); }

void put_back(int* copy, int fd) {
  if (*copy < 0) return;
  ::dup2(*copy, fd);
  ::close(std::exchange(*copy, -1));
}

}  // namespace

ProgramOutput::ProgramOutput(bool show_output) {
  std::fflush(nullptr);
  standard_error_ = copy_of(STDERR_FILENO);
  // Without a pipe the programs print where we do: nothing but the last lines is lost.
  if (standard_error_ < 0 || ::pipe2(ends_, O_CLOEXEC) != 0) return;
  ::dup2(ends_[1], STDERR_FILENO);
  if (!show_output) {
    standard_output_ = copy_of(STDOUT_FILENO);
    ::dup2(ends_[1], STDOUT_FILENO);
  }
  ::close(std::exchange(ends_[1], -1));
  // Signals are for the thread that runs the programs.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  reader_ = std::thread([this] { pass_on(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ProgramOutput::~ProgramOutput() { finish(); }

std::vector<std::string> ProgramOutput::finish() {
  std::fflush(nullptr);
  // What the programs print from now on goes nowhere through us: the pipe's writing end is closed.
  const int error_stream = standard_error_;
  if (error_stream >= 0) ::dup2(error_stream, STDERR_FILENO);
  put_back(&standard_output_, STDOUT_FILENO);
  over_ = true;
  if (reader_.joinable()) reader_.join();
  if (standard_error_ >= 0) ::close(std::exchange(standard_error_, -1));
  if (ends_[0] >= 0) ::close(std::exchange(ends_[0], -1));
  if (!lines_.empty() && lines_.back().empty()) lines_.pop_back();
  return {lines_.begin(), lines_.end()};
}

/// Until the pipe has no writer any more; a process that a program left behind may hold it open, so
/// after the end only what is there already is read.
void ProgramOutput::pass_on() {
  char buffer[1 << 14];
  for (;;) {
    pollfd look{ends_[0], POLLIN, 0};
    const bool last = over_;
    const int ready = ::poll(&look, 1, last ? 0 : kLookMilliseconds);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      if (last) return;
      continue;
    }
    const ssize_t size = ::read(ends_[0], buffer, sizeof(buffer));
    if (size <= 0) return;
    const std::string_view text(buffer, static_cast<size_t>(size));
    keep(text);
    // A reader of ours that has gone does not end the gate.
    static_cast<void>(write_all(standard_error_, as_bytes(text), "standard error"));
  }
}

void ProgramOutput::keep(std::string_view text) {
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      if (!lines_.back().empty()) lines_.emplace_back();
    } else if (lines_.back().size() < kLongestLine) {
      lines_.back() += c;
    }
  }
  while (lines_.size() > kKeptLines) lines_.pop_front();
}

}  // namespace assay::cli

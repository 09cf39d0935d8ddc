// SPDX-License-Identifier: Apache-2.0
// A helper process in Python that speaks in lines over a socket: the algorithms of a user, and
// transfers of files that lie elsewhere.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file_descriptor.hpp"
#include "base/result.hpp"

namespace assay {

/// Which interpreter: base/python_program.hpp. The process ends when this object does, and has to
/// end by itself when its side of the socket does. For one thread
/// at a time.
class PythonProcess {
 public:
  PythonProcess() = default;
  ~PythonProcess() { stop(); }
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  /// Runs the text of a program, whose arguments are the numbers of its file descriptors: of the
  /// socket, then of `files`.
  /// errors   NotFound (no interpreter) | Io
  [[nodiscard]] Status start(std::string script, std::span<const int> files = {});
  [[nodiscard]] bool is_running() const { return process_ > 0; }

  /// `line` with its line feed.
  [[nodiscard]] Status send(std::string_view line);
  /// The next line, without its line feed; nothing when none came within `patience`.
  /// errors   Io (the process ended) | TooLarge (more than `max_bytes`; the process was ended)
  [[nodiscard]] Result<std::optional<std::string>> receive(std::chrono::milliseconds patience,
                                                           size_t max_bytes);
  /// Of the socket, for those who wait for several things; -1 when there is none.
  [[nodiscard]] int descriptor() const { return socket_ ? socket_->get() : -1; }
  /// Ends it at once.
  void kill();

 private:
  [[nodiscard]] std::string ended_sentence();
  void stop();
  int wait_blocking();
  int wait_or_kill();

  std::optional<FileDescriptor> socket_;
  std::string buffer_;   // received, not yet a line
  size_t searched_ = 0;  // of it, without a line feed
  pid_t process_ = -1;
};

}  // namespace assay

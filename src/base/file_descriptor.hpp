// SPDX-License-Identifier: Apache-2.0
// A file descriptor that closes itself.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace assay {

/// Owns `fd`; a negative one owns nothing.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  [[nodiscard]] int get() const { return fd_; }
  /// Closes now; returns what close(2) returned, which can tell of a full disk.
  [[nodiscard]] int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

/// `fd`, or a copy of it in its place that is above 2: a host that has closed its standard streams
/// still prints to 0, 1 and 2, and a file of ours must not be there. -1 with errno when there is
/// none.
[[nodiscard]] inline int above_standard_streams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return moved;
}

}  // namespace assay

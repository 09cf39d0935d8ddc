// SPDX-License-Identifier: Apache-2.0
// A file descriptor that stays open for a while in a host's process.
#pragma once
#include <sys/stat.h>

#include <string>
#include <utility>

#include "base/file_descriptor.hpp"
#include "base/result.hpp"

namespace assay {

/// Owns `fd`; a negative one owns nothing. A host may close any number of its process
/// (os.closerange before it becomes a daemon) and open a file of its own under it: before each use
/// it is asked whether the number still leads to the file that we opened. What the host has closed
/// is not closed again.
class HostedDescriptor {
 public:
  HostedDescriptor() = default;
  /// Moves the descriptor above the standard streams; errno stays what the failed open left.
  explicit HostedDescriptor(int fd) : fd_(above_standard_streams(fd)) {
    struct stat info{};
    if (fd_ < 0 || ::fstat(fd_, &info) != 0) return;
    device_ = info.st_dev;
    inode_ = info.st_ino;
  }
  ~HostedDescriptor() { (void)close(); }
  HostedDescriptor(HostedDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), device_(other.device_), inode_(other.inode_) {}
  HostedDescriptor& operator=(HostedDescriptor&& other) noexcept {
    (void)close();
    fd_ = std::exchange(other.fd_, -1);
    device_ = other.device_;
    inode_ = other.inode_;
    return *this;
  }

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] int get() const { return fd_; }

  /// Whether the number leads to our file and the file still has a name.
  [[nodiscard]] Status check(const std::string& path) const {
    struct stat info{};
    if (::fstat(fd_, &info) != 0 || !is_ours(info))
      return fail(Error{Errc::Io, path, std::nullopt, "the host has closed its descriptor"});
    if (info.st_nlink == 0)
      return fail(Error{Errc::NotFound, path, std::nullopt, "was removed during the capture"});
    return {};
  }
  /// The same, and `path` leads there, too.
  [[nodiscard]] Status check_place(const std::string& path) const {
    ASSAY_TRY_STATUS(check(path));
    struct stat info{};
    if (::stat(path.c_str(), &info) == 0 && is_ours(info)) return {};
    return fail(
        Error{Errc::NotFound, path, std::nullopt, "was moved or replaced during the capture"});
  }
  /// Returns what close(2) returned, 0 when the number is not ours any more.
  int close() {
    const int fd = std::exchange(fd_, -1);
    struct stat info{};
    if (fd < 0 || ::fstat(fd, &info) != 0 || !is_ours(info)) return 0;
    return ::close(fd);
  }

 private:
  [[nodiscard]] bool is_ours(const struct stat& info) const {
    return info.st_dev == device_ && info.st_ino == inode_;
  }

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace assay

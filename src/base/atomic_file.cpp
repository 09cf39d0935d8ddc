// SPDX-License-Identifier: Apache-2.0
// Everything goes to <path>.tmp<pid>, which is renamed when it is whole. Where the name must be
// free renameat2() refuses a taken one, or link() on file systems without it.
#include "base/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/file_descriptor.hpp"
#include "base/temporary_files.hpp"

namespace assay {

Status make_directories(const std::string& path, unsigned mode) {
  if (path.empty()) return {};
  if (::mkdir(path.c_str(), mode) == 0) return {};
  const int reason = errno;
  if (reason == ENOENT) {
    const size_t slash = path.find_last_of('/', path.find_last_not_of('/'));
    if (slash != std::string::npos && slash > 0) {
      ASSAY_TRY_STATUS(make_directories(path.substr(0, slash), mode));
      if (::mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
      return fail(errno_error(errno, "create folder", path));
    }
  }
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return {};
    return fail(Error{Errc::Usage, path, std::nullopt, "exists and is not a folder"});
  }
  return fail(errno_error(reason, "create folder", path));
}

Result<std::string> make_new_directory(const std::string& path, unsigned mode) {
  std::string candidate = path;
  for (int number = 1; ::mkdir(candidate.c_str(), mode) != 0; ++number) {
    if (errno != EEXIST) return fail(errno_error(errno, "create folder", candidate));
    candidate = path + "_" + std::to_string(number);
  }
  return candidate;
}

Status write_all(int fd, ByteSpan content, const std::string& path_for_errors) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return fail(errno_error(errno, "write", path_for_errors));
    }
    content = content.subspan(static_cast<size_t>(written));
  }
  return {};
}

namespace {

Result<TemporaryFile> write_temporary(const std::string& path, const PieceWriter& write,
                                      unsigned mode) {
  TemporaryFile temporary(path + ".tmp" + std::to_string(::getpid()));
  const int fd = above_standard_streams(
      ::open(temporary.path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (fd < 0) return fail(errno_error(errno, "create", path));
  Status status = write([&](ByteSpan bytes) { return write_all(fd, bytes, path); });
  if (::close(fd) != 0 && status) status = fail(errno_error(errno, "close", path));
  ASSAY_TRY_STATUS(std::move(status));
  return temporary;
}

PieceWriter whole(ByteSpan content) {
  return [content](const ByteSink& sink) { return sink(content); };
}

// 0 or an error number; EEXIST when the name is taken.
int rename_to_free_name(const std::string& temporary, const std::string& path) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0)
    return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system that cannot: a link is refused where the name is taken, too.
  if (::link(temporary.c_str(), path.c_str()) != 0) return errno;
  ::unlink(temporary.c_str());
  return 0;
}

}  // namespace

Result<bool> create_file_atomically(const std::string& path, ByteSpan content, unsigned mode) {
  ASSAY_TRY(TemporaryFile temporary, write_temporary(path, whole(content), mode));
  const int reason = rename_to_free_name(temporary.path(), path);
  if (reason == EEXIST) return false;
  if (reason != 0) return fail(errno_error(reason, "rename into place", path));
  temporary.keep();
  return true;
}

Status write_pieces_atomically(const std::string& path, const PieceWriter& write, unsigned mode) {
  ASSAY_TRY(TemporaryFile temporary, write_temporary(path, write, mode));
  if (::rename(temporary.path().c_str(), path.c_str()) != 0)
    return fail(errno_error(errno, "rename into place", path));
  temporary.keep();
  return {};
}

Status write_file_atomically(const std::string& path, ByteSpan content, unsigned mode) {
  return write_pieces_atomically(path, whole(content), mode);
}

}  // namespace assay

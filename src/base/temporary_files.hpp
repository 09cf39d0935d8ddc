// SPDX-License-Identifier: Apache-2.0
// Files under a temporary name, which go when they are not finished: after an error, and when a
// signal ends the command.
#pragma once
#include <string>

#include "base/result.hpp"

namespace assay {

/// Removes the file at `path` when it goes, unless keep() was called before.
class TemporaryFile {
 public:
  TemporaryFile() = default;
  explicit TemporaryFile(std::string path);
  TemporaryFile(TemporaryFile&& other) noexcept;
  TemporaryFile& operator=(TemporaryFile&& other) noexcept;
  ~TemporaryFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  /// The file is under its name, or somebody else's.
  void keep();

 private:
  std::string path_;  // empty for none
  int slot_ = -1;
};

/// An open file of $TMPDIR or /tmp that no folder lists: it is gone with its last descriptor.
/// errors  NoSpace | Permission | Io
[[nodiscard]] Result<int> open_unlinked_file();

/// Removes what this process has not finished. Safe in a signal handler; nothing may be written
/// afterwards.
void remove_temporary_files();

/// SIGTERM, SIGHUP and SIGINT remove them before they end the process. For commands only, never for
/// a host.
void remove_temporary_files_on_signals();
/// What SIGINT does then, for those who wait for a first one themselves.
void end_by_signal(int signal);

}  // namespace assay

// SPDX-License-Identifier: Apache-2.0
// Whole-file writes: a reader sees the old file, the new file, or none; never half of one.
#pragma once
#include <string>

#include "base/bytes.hpp"

namespace assay {

/// Creates `path` and all its parents. Existing folders are fine.
/// mode    permission bits of the folders it creates, subject to the umask
[[nodiscard]] Status make_directories(const std::string& path, unsigned mode = 0777);

/// Creates a folder that nobody has: `path`, or it with _1, _2 ... behind it. Returns its path.
[[nodiscard]] Result<std::string> make_new_directory(const std::string& path, unsigned mode);

/// Writes to `<path>.tmp<pid>` in the same folder and renames it over `path`. The temporary file is
/// removed when anything fails. The parent folder must exist.
/// errors  NoSpace | Permission | NotFound | Io
[[nodiscard]] Status write_file_atomically(const std::string& path, ByteSpan content,
                                           unsigned mode = 0666);

/// The same for a content that is made piece by piece.
/// errors  of `write` | as above
[[nodiscard]] Status write_pieces_atomically(const std::string& path, const PieceWriter& write,
                                             unsigned mode = 0666);

/// The same under a name that nobody has: false when it is taken, also by a process that was
/// faster.
[[nodiscard]] Result<bool> create_file_atomically(const std::string& path, ByteSpan content,
                                                  unsigned mode = 0666);

/// write(2) until everything is written, continuing after signals and short writes.
[[nodiscard]] Status write_all(int fd, ByteSpan content, const std::string& path_for_errors);

}  // namespace assay

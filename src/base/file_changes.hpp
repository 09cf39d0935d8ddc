// SPDX-License-Identifier: Apache-2.0
// Mapped files that another process changes while they are read.
//
// Where a mapped file was made shorter, reading raises SIGBUS. While any file is mapped, a handler
// stands there: in the command it says which file it was and ends the process; elsewhere it puts
// pages of zeros under the reader, marks the mapping and lets the reader go on, who asks
// afterwards. Signals that concern no mapping of ours go to whoever had the handler before us, and
// with the last mapping that handler is put back.
#pragma once
#include <sys/stat.h>

#include <string>

#include "base/bytes.hpp"

namespace assay {

/// Watches one mapping for as long as it lives. Costs less than the mapping itself.
class WatchedMapping {
 public:
  /// info   of the open file when its size was taken
  WatchedMapping(std::string path, const void* address, size_t size, const struct stat& info);
  ~WatchedMapping();
  WatchedMapping(const WatchedMapping&) = delete;
  WatchedMapping& operator=(const WatchedMapping&) = delete;

 private:
  struct Slot* slot_;
};

/// Ends with an error when a file that was mapped since the object was made changed meanwhile, or
/// when any mapping was read where its file has no bytes any more, or when a part of a file could
/// not be brought to this machine. Readers in other threads count, too: which one read zeros is not
/// known.
class ReadingScope {
 public:
  ReadingScope();
  /// errors   Io "the file was changed while it was read" | of take_failure()
  [[nodiscard]] Status finish() const;
  /// The first failure that was noted since; it and later ones are told only once.
  [[nodiscard]] Status take_failure() const;

 private:
  size_t first_failure_;
  size_t first_change_;
  uint64_t first_serial_;
  uint64_t first_damage_;
};

/// A file that is there could not be read, for a reason that says nothing about the file: readers
/// may take the run that it belongs to for damaged.
void note_failed_reading(const Error& error);

/// The same question about the mapping that holds these bytes; bytes from elsewhere are never
/// changed. One relaxed load as long as nothing was.
[[nodiscard]] Status check_unchanged(ByteSpan bytes);

/// From now on the process ends with this status and a sentence on stderr instead of reading zeros.
void end_process_on_changed_file(int exit_status);

}  // namespace assay

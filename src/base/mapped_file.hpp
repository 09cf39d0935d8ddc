// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only. Nothing is read until it is touched, so a 100 GB file costs nothing to
// open; a small file is read instead, which is faster than a mapping and does not stop other
// threads.
#pragma once
#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "base/bytes.hpp"

namespace assay {

/// What tells one content of a path of the local file system from the next.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;  // since 1970
  bool operator==(const FileStamp&) const = default;
};
/// errors  NotFound | Permission | Io
[[nodiscard]] Result<FileStamp> file_stamp(const std::string& path);

/// Invariant: `bytes()` stays valid and constant in address until the last copy of the object is
/// gone. Readers of files that may still grow use `stat` sizes from open() only and never look past
/// them. What happens when a file is made shorter meanwhile: base/file_changes.hpp.
class MappedFile {
 public:
  MappedFile() = default;
  /// errors  NotFound | Permission | Io | Unsupported (not a regular file)
  [[nodiscard]] static Result<MappedFile> open(const std::string& path);
  /// A part of a file, which alone is what `bytes()` gives; cut at the end of the file. Of a file
  /// that lies elsewhere (base/file_source.hpp) only this part is brought here.
  [[nodiscard]] static Result<MappedFile> open_range(const std::string& path, uint64_t offset,
                                                     uint64_t size_bytes);
  /// Of a file that lies elsewhere nothing is brought here before fetch(): until then its bytes are
  /// zeros. Any other file is simply open.
  [[nodiscard]] static Result<MappedFile> open_unfetched(const std::string& path);
  /// Brings a part of it here, which stays until the last copy of the object is gone.
  [[nodiscard]] Status fetch(uint64_t offset, uint64_t size_bytes) const;

  [[nodiscard]] ByteSpan bytes() const;
  [[nodiscard]] const std::string& path() const;
  /// Of the file that was opened; all 0 of one that lies elsewhere.
  [[nodiscard]] FileStamp stamp() const;
  /// Tells the kernel that a range will not be needed again soon, so that streaming through a file
  /// larger than memory keeps the resident set small. Only advice: correctness never depends on it.
  void release_pages(uint64_t offset, uint64_t length) const;
  /// Calls body(part) for all of the file, in order; no more than 8 MiB of it are resident because
  /// of it.
  template <typename Body>
  void for_each_part(const Body& body) const {
    constexpr size_t kPartBytes = size_t{8} << 20;
    const ByteSpan all = bytes();
    for (size_t begin = 0; begin < all.size(); begin += kPartBytes) {
      const size_t count = std::min(kPartBytes, all.size() - begin);
      body(all.subspan(begin, count));
      release_pages(begin, count);
    }
  }
  /// Asks for read-ahead of a range.
  void prefetch_pages(uint64_t offset, uint64_t length) const;

 private:
  struct Mapping;
  static constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  struct Range {
    uint64_t offset = 0;
    uint64_t size_bytes = kAll;
    bool is_fetched = true;
  };
  static Result<MappedFile> open_remote(class FileSource* source, const std::string& path,
                                        Range wanted);
  std::shared_ptr<Mapping> mapping_;
  Range range_;  // within the mapping
};

}  // namespace assay

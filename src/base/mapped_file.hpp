// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only. Nothing is read until it is touched, so a 100 GB file costs nothing to
// open; a small file is read instead, which is faster than a mapping and does not stop other
// threads.
#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "base/bytes.hpp"

namespace assay {

/// Invariant: `bytes()` stays valid and constant in address until the last copy of the object is
/// gone. Readers of files that may still grow use `stat` sizes from open() only and never look past
/// them. What happens when a file is made shorter meanwhile: base/file_changes.hpp.
class MappedFile {
 public:
  MappedFile() = default;
  /// errors  NotFound | Permission | Io | Unsupported (not a regular file)
  [[nodiscard]] static Result<MappedFile> open(const std::string& path);

  [[nodiscard]] ByteSpan bytes() const;
  [[nodiscard]] const std::string& path() const;
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
  std::shared_ptr<const Mapping> mapping_;
};

}  // namespace assay

// SPDX-License-Identifier: Apache-2.0
// One safetensors file of the native layout while it is being written.
//   Bytes: docs/formats/native.md
//
//   0        8                header_bytes                                      size
//   | length | header, spaces | payloads at multiples of 64, gaps between them  |
//            `-- zeros until finish()        `-- full blocks with O_DIRECT, the tail buffered
#pragma once
#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/hosted_descriptor.hpp"
#include "stats/digest.hpp"
#include "writer/io_functions.hpp"

namespace assay::writer {

/// The unit of direct writes: memory address, file offset and size are multiples of it.
inline constexpr uint64_t kDirectAlignment = 4096;

/// Used on the writer thread only. Nothing is opened before the first call that writes.
class StepFile {
 public:
  /// header_bytes   size of the reserved region, a multiple of kDirectAlignment
  StepFile(std::string path, uint64_t header_bytes, IoFunctions io);
  StepFile(const StepFile&) = delete;
  StepFile& operator=(const StepFile&) = delete;

  /// Writes a block with O_DIRECT, past the page cache: dirty pages would be throttled, and every
  /// millisecond of a buffered write is taken from the host. Falls back to buffered writes where
  /// the file system refuses. offset, size and the address of `block` are multiples of
  /// kDirectAlignment.
  [[nodiscard]] Status write_block(uint64_t offset, ByteSpan block);
  /// Writes the tail, of any size: the whole pages of a large one as write_block() does, the rest
  /// through the page cache. Must not share a 4 KiB page with a later write_block(). `offset` and
  /// the address of `bytes` are multiples of kDirectAlignment.
  [[nodiscard]] Status write_tail(uint64_t offset, ByteSpan bytes);
  /// Writes bytes through the page cache that a later write_block() or write_tail() writes again.
  [[nodiscard]] Status write_early(uint64_t offset, ByteSpan bytes);
  /// Writes the header region around `header_json` (at most header_bytes - 8), cuts the file to
  /// `size_bytes` and closes it.
  [[nodiscard]] Status finish(std::string header_json, uint64_t size_bytes);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t header_bytes() const { return header_bytes_; }
  /// Of everything behind the header that was written so far; the calls that write come in the
  /// order of the file.
  [[nodiscard]] stats::Digest payload_digest() const { return payload_.finish(); }

 private:
  [[nodiscard]] Status open_buffered();
  void reserve(uint64_t end);
  [[nodiscard]] Status write_aligned(uint64_t offset, ByteSpan block);
  [[nodiscard]] Status write_fully(const HostedDescriptor& file, uint64_t offset, ByteSpan bytes);

  std::string path_;
  uint64_t header_bytes_;
  IoFunctions io_;
  HostedDescriptor buffered_;
  HostedDescriptor direct_;
  bool direct_refused_ = false;
  uint64_t reserved_bytes_ = 0;
  stats::DigestStream payload_;
};

}  // namespace assay::writer

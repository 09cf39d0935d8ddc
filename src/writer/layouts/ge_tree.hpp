// SPDX-License-Identifier: Apache-2.0
// The files of a graph-mode dump: one for each operator, named by it.
//   Layout: docs/formats/ge-tree.md
//
//   {folder}/{op_type}.{op_name}.{task}.{stream}.{time}        dump file, docs/formats/cann-dump.md
//   {folder}/{op_type}.{op_name}.{task}.{stream}.{time}.csv    its statistics instead
//   {folder}/mapping.csv                                       names that no file system takes
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/hosted_descriptor.hpp"
#include "base/result.hpp"
#include "formats/ge_file_name.hpp"
#include "tensor/tensor_view.hpp"
#include "writer/disk_budget.hpp"
#include "writer/io_functions.hpp"

namespace assay::writer {

using formats::ge_file_name;
using formats::ge_name_part;
using formats::ge_stored_name;
using formats::kMaxFileNameBytes;

/// Microseconds since 1970, never the same value twice in a process: two files of one operator
/// cannot collide.
[[nodiscard]] uint64_t unique_time_us() noexcept;

/// A part of a file: bytes as they are, or the elements of a view in C order with lazy bits
/// applied.
struct FilePiece {
  ByteSpan bytes;
  const TensorView* view = nullptr;  // whole-byte types only
};

struct GeTreeOptions {
  DiskBudgetOptions disk = {};  // of the file system of the first folder
  IoFunctions io = {};
};

/// Writes the files, one thread at a time.
/// Invariant: a file appears whole under its name or not at all; until then it is called
/// `.{time}.{pid}.tmp`. Folders are made when the first file goes into them.
class GeTree {
 public:
  explicit GeTree(GeTreeOptions options = {});
  GeTree(const GeTree&) = delete;
  GeTree& operator=(const GeTree&) = delete;

  /// Writes `{folder}/{ge_stored_name(name)}` from its pieces, over a file that is there. A name
  /// that is too long gets its row in mapping.csv first, so that no file is ever without its name.
  ///
  /// folder    absolute path
  /// errors    NoSpace | Permission | NotFound | Io. Nothing is left behind.
  [[nodiscard]] Status write(const std::string& folder, const std::string& name,
                             std::span<const FilePiece> pieces);

  /// True once the disk is full: further files would fail too.
  [[nodiscard]] bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t files() const { return files_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Folder {
    std::string path;
    HostedDescriptor descriptor;
    uint64_t used = 0;
  };
  [[nodiscard]] Result<int> enter(const std::string& folder);
  void leave(const std::string& folder);
  [[nodiscard]] Status admit(const std::string& folder, uint64_t size_bytes);
  [[nodiscard]] Status write_at(int folder_fd, const std::string& name, const std::string& path,
                                std::span<const FilePiece> pieces);
  [[nodiscard]] Status write_pieces(int fd, std::span<const FilePiece> pieces,
                                    const std::string& path) const;
  [[nodiscard]] Status write_bytes(int fd, ByteSpan bytes, const std::string& path) const;
  [[nodiscard]] Status append_mapping(int folder_fd, const std::string& stored,
                                      const std::string& name, const std::string& path) const;

  GeTreeOptions options_;
  std::optional<DiskBudget> budget_;
  std::array<Folder, 4> folders_;  // open descriptors, the least recently used one is replaced
  uint64_t uses_ = 0;
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> files_{0};
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace assay::writer

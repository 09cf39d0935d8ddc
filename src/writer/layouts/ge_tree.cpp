// SPDX-License-Identifier: Apache-2.0
// The disk budget is asked first; a name that is too long gets its row in mapping.csv; then the
// pieces go into a temporary file of the folder, which is renamed. The last four folders stay open.
//   docs/formats/ge-tree.md
#include "writer/layouts/ge_tree.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "base/atomic_file.hpp"
#include "base/file_descriptor.hpp"
#include "tensor/convert.hpp"

namespace assay::writer {
namespace {

// One write(2) for all that is smaller: a small operator's header and payload.
constexpr size_t kJoinBytes = 64u << 10;
constexpr int64_t kGatherBytes = 8 << 20;
constexpr uint64_t kFileOverheadBytes = 512;      // what the disk budget counts for inode and entry
constexpr uint64_t kKernelWriteLimit = 1u << 30;  // write(2) takes a little less than 2 GiB at once

uint64_t size_of(const FilePiece& piece) {
  if (piece.view == nullptr) return piece.bytes.size();
  return storage_bytes(piece.view->dtype, static_cast<uint64_t>(piece.view->element_count()))
      .value_or(0);
}

}  // namespace

uint64_t unique_time_us() noexcept {
  static std::atomic<uint64_t> last{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto time =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  uint64_t before = last.load(std::memory_order_relaxed);
  uint64_t mine = 0;
  do {
    mine = std::max(time, before + 1);
  } while (!last.compare_exchange_weak(before, mine, std::memory_order_relaxed));
  return mine;
}

GeTree::GeTree(GeTreeOptions options) : options_(options) {}

Status GeTree::write(const std::string& folder, const std::string& name,
                     std::span<const FilePiece> pieces) {
  uint64_t size_bytes = 0;
  for (const FilePiece& piece : pieces) size_bytes += size_of(piece);
  const std::string stored = ge_stored_name(name);
  const std::string path = folder + "/" + stored;
  Status status;
  for (int attempt = 0; attempt < 2; ++attempt) {
    ASSAY_TRY(const int fd, enter(folder));
    ASSAY_TRY_STATUS(admit(folder, size_bytes + kFileOverheadBytes));
    status = stored == name ? Status{} : append_mapping(fd, stored, name, path);
    if (status) status = write_at(fd, stored, path, pieces);
    if (status || status.error().code != Errc::NotFound) break;
    leave(folder);  // a script has deleted the folder since it was opened
  }
  if (status) {
    files_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(size_bytes, std::memory_order_relaxed);
  } else if (status.error().code == Errc::NoSpace) {
    stopped_.store(true, std::memory_order_relaxed);
  }
  return status;
}

Status GeTree::admit(const std::string& folder, uint64_t size_bytes) {
  if (!budget_) budget_.emplace(folder, options_.disk);
  if (budget_->admit(size_bytes)) return {};
  stopped_.store(true, std::memory_order_relaxed);
  return fail(Error{Errc::NoSpace, folder, std::nullopt, budget_->stop_reason()});
}

Result<int> GeTree::enter(const std::string& folder) {
  Folder* oldest = folders_.data();
  for (Folder& known : folders_) {
    if (known.descriptor.is_open() && known.path == folder && known.descriptor.check(folder)) {
      known.used = ++uses_;
      return known.descriptor.get();
    }
    if (known.used < oldest->used) oldest = &known;
  }
  ASSAY_TRY_STATUS(make_directories(folder));
  HostedDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.is_open()) return fail(errno_error(errno, "open folder", folder));
  *oldest = {folder, std::move(descriptor), ++uses_};
  return oldest->descriptor.get();
}

void GeTree::leave(const std::string& folder) {
  for (Folder& known : folders_) {
    if (known.path == folder) known = {};
  }
}

Status GeTree::write_at(int folder_fd, const std::string& name, const std::string& path,
                        std::span<const FilePiece> pieces) {
  const std::string temporary =
      "." + std::to_string(unique_time_us()) + "." + std::to_string(::getpid()) + ".tmp";
  FileDescriptor file(above_standard_streams(
      ::openat(folder_fd, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)));
  if (file.get() < 0) return fail(errno_error(errno, "create", path));
  Status status = write_pieces(file.get(), pieces, path);
  if (file.close() != 0 && status) status = fail(errno_error(errno, "close", path));
  if (status && ::renameat(folder_fd, temporary.c_str(), folder_fd, name.c_str()) != 0) {
    status = fail(errno_error(errno, "rename into place", path));
  }
  if (!status) ::unlinkat(folder_fd, temporary.c_str(), 0);
  return status;
}

Status GeTree::write_pieces(int fd, std::span<const FilePiece> pieces,
                            const std::string& path) const {
  std::vector<std::byte> joined;  // small pieces that are not written yet
  const auto write_joined = [&] {
    Status status = write_bytes(fd, joined, path);
    joined.clear();
    return status;
  };
  for (const FilePiece& piece : pieces) {
    if (piece.view == nullptr) {
      if (joined.size() + piece.bytes.size() <= kJoinBytes) {
        joined.insert(joined.end(), piece.bytes.begin(), piece.bytes.end());
        continue;
      }
      ASSAY_TRY_STATUS(write_joined());
      ASSAY_TRY_STATUS(write_bytes(fd, piece.bytes, path));
      continue;
    }
    ASSAY_TRY_STATUS(write_joined());
    const int64_t element_bytes = info(piece.view->dtype).element_bits / 8;
    const int64_t count = piece.view->element_count();
    const int64_t step = kGatherBytes / element_bytes;
    std::vector<std::byte> block(static_cast<size_t>(std::min(step, count) * element_bytes));
    for (int64_t first = 0; first < count; first += step) {
      const int64_t length = std::min(step, count - first);
      const std::span part(block.data(), static_cast<size_t>(length * element_bytes));
      gather_bytes(*piece.view, first, length, part);
      apply_lazy_bits(*piece.view, part);
      ASSAY_TRY_STATUS(write_bytes(fd, part, path));
    }
  }
  return write_joined();
}

Status GeTree::write_bytes(int fd, ByteSpan bytes, const std::string& path) const {
  while (!bytes.empty()) {
    const ssize_t written = options_.io.write(
        fd, bytes.data(), static_cast<size_t>(std::min<uint64_t>(bytes.size(), kKernelWriteLimit)));
    if (written < 0) {
      if (errno == EINTR) continue;
      return fail(errno_error(errno, "write", path));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status GeTree::append_mapping(int folder_fd, const std::string& stored, const std::string& name,
                              const std::string& path) const {
  FileDescriptor file(above_standard_streams(
      ::openat(folder_fd, "mapping.csv", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)));
  if (file.get() < 0) return fail(errno_error(errno, "open the table of names for", path));
  // Another process may append too: the lock keeps the header single, one write keeps rows whole.
  if (::flock(file.get(), LOCK_EX) != 0) return fail(errno_error(errno, "lock the table of", path));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0)
    return fail(errno_error(errno, "look at the table of", path));
  std::string rows;
  formats::append_ge_mapping(stored, name, info.st_size == 0, &rows);
  return write_bytes(file.get(), as_bytes(rows), path);
}

}  // namespace assay::writer

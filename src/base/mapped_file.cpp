// SPDX-License-Identifier: Apache-2.0
// Small files are read into memory, others mapped and watched (base/file_changes.hpp). Of a file
// that lies elsewhere the local copy of its source is mapped, into which ranges are fetched.
#include "base/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>
#include <vector>

#include "base/file_changes.hpp"
#include "base/file_source.hpp"

namespace assay {

struct MappedFile::Mapping {
  std::string path;
  void* address = nullptr;  // null for an empty file, which cannot be mapped, and for a small one
  std::unique_ptr<std::byte[]> copy;  // of a small file
  size_t size = 0;                    // of what is mapped
  size_t skipped = 0;  // mapped in front of the range that was asked for: mappings begin at pages
  FileStamp stamp;
  std::optional<WatchedMapping> watched;
  // Of a file that lies elsewhere:
  std::shared_ptr<PartialFile> remote;
  std::mutex mutex;
  std::vector<std::shared_ptr<const void>> fetched;
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    watched.reset();
    if (address != nullptr) ::munmap(address, size);
  }
};

namespace {

// A mapping costs a page fault and a lock on the whole address space, twice; a read of this size
// less.
constexpr size_t kCopiedBytes = 32768;

/// That many bytes from `offset` on, or nothing when the file ends before (by now).
std::unique_ptr<std::byte[]> read_all(int fd, size_t size, uint64_t offset = 0) {
  std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  size_t done = 0;
  while (done < size) {
    const ssize_t count =
        ::pread(fd, bytes.get() + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return nullptr;
    done += static_cast<size_t>(count);
  }
  return bytes;
}

FileStamp stamp_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
          int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace

Result<FileStamp> file_stamp(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return fail(errno_error(errno, "open", path));
  return stamp_of(info);
}

Result<MappedFile> MappedFile::open_remote(FileSource* source, const std::string& path,
                                           Range wanted) {
  ASSAY_TRY(std::shared_ptr<PartialFile> remote, source->open(path));
  auto mapping = std::make_shared<Mapping>();
  mapping->path = path;
  const uint64_t size = remote->size_bytes();
  const uint64_t offset = std::min(wanted.offset, size);
  const uint64_t length = std::min(wanted.size_bytes, size - offset);
  if (wanted.is_fetched) {
    ASSAY_TRY(std::shared_ptr<const void> fetched, remote->fetch(offset, length));
    if (length <= kCopiedBytes) mapping->copy = read_all(remote->descriptor(), length, offset);
    if (mapping->copy == nullptr) mapping->fetched.push_back(std::move(fetched));
  }
  mapping->size = length;
  if (length > 0 && mapping->copy == nullptr) {
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    mapping->skipped = offset % page;
    mapping->size += mapping->skipped;
    void* address = ::mmap(nullptr, mapping->size, PROT_READ, MAP_SHARED, remote->descriptor(),
                           static_cast<off_t>(offset - mapping->skipped));
    if (address == MAP_FAILED) return fail(errno_error(errno, "map", path));
    mapping->address = address;
  }
  mapping->remote = std::move(remote);
  MappedFile file;
  file.mapping_ = std::move(mapping);
  return file;
}

Result<MappedFile> MappedFile::open_range(const std::string& path, uint64_t offset,
                                          uint64_t size_bytes) {
  if (const auto source = file_source(path))
    return open_remote(source.get(), path, {offset, size_bytes, true});
  ASSAY_TRY(MappedFile file, open(path));
  file.range_ = {std::min<uint64_t>(offset, file.bytes().size()), size_bytes, true};
  return file;
}

Result<MappedFile> MappedFile::open_unfetched(const std::string& path) {
  if (const auto source = file_source(path))
    return open_remote(source.get(), path, {0, kAll, false});
  return open(path);
}

Status MappedFile::fetch(uint64_t offset, uint64_t size_bytes) const {
  if (!mapping_ || mapping_->remote == nullptr || mapping_->copy != nullptr) return {};
  ASSAY_TRY(std::shared_ptr<const void> fetched, mapping_->remote->fetch(offset, size_bytes));
  const std::lock_guard lock(mapping_->mutex);
  mapping_->fetched.push_back(std::move(fetched));
  return {};
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  if (const auto source = file_source(path))
    return open_remote(source.get(), path, {0, kAll, true});
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return fail(errno_error(errno, "open", path));
  struct stat info{};
  if (::fstat(fd, &info) != 0) {
    const int reason = errno;
    ::close(fd);
    return fail(errno_error(reason, "stat", path));
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return fail(Error{
        Errc::Unsupported, path, std::nullopt,
        S_ISDIR(info.st_mode) ? "is a directory, a file is needed" : "is not a regular file"});
  }
  auto mapping = std::make_shared<Mapping>();
  mapping->path = path;
  mapping->size = static_cast<size_t>(info.st_size);
  mapping->stamp = stamp_of(info);
  if (mapping->size > 0 && mapping->size <= kCopiedBytes)
    mapping->copy = read_all(fd, mapping->size);
  if (mapping->size > 0 && mapping->copy == nullptr) {
    void* address = ::mmap(nullptr, mapping->size, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
      const int reason = errno;
      mapping->size = 0;
      ::close(fd);
      return fail(errno_error(reason, "map", path));
    }
    mapping->address = address;
    mapping->watched.emplace(path, address, mapping->size, info);
  }
  ::close(fd);
  MappedFile file;
  file.mapping_ = std::move(mapping);
  return file;
}

ByteSpan MappedFile::bytes() const {
  if (!mapping_) return {};
  ByteSpan whole;
  if (mapping_->copy != nullptr) {
    whole = {mapping_->copy.get(), mapping_->size};
  } else if (mapping_->address != nullptr) {
    whole = {static_cast<const std::byte*>(mapping_->address), mapping_->size};
    whole = whole.subspan(mapping_->skipped);
  }
  return whole.subspan(range_.offset,
                       std::min<uint64_t>(range_.size_bytes, whole.size() - range_.offset));
}

FileStamp MappedFile::stamp() const { return mapping_ ? mapping_->stamp : FileStamp(); }

const std::string& MappedFile::path() const {
  static const std::string kNone;
  return mapping_ ? mapping_->path : kNone;
}

namespace {
// madvise wants page-aligned starts; 64 KiB is a multiple of every page size in use.
constexpr uint64_t kAdviceGrain = 65536;

void advise(ByteSpan bytes, uint64_t offset, uint64_t length, int advice) {
  if (bytes.empty() || offset >= bytes.size()) return;
  const uint64_t first = align_up(offset, kAdviceGrain);
  const uint64_t end =
      std::min<uint64_t>(bytes.size(), offset + std::min(length, bytes.size() - offset));
  if (first >= end) return;
  ::madvise(const_cast<std::byte*>(bytes.data() + first), end - first, advice);
}
}  // namespace

void MappedFile::release_pages(uint64_t offset, uint64_t length) const {
  if (mapping_ && mapping_->address != nullptr) advise(bytes(), offset, length, MADV_DONTNEED);
}
void MappedFile::prefetch_pages(uint64_t offset, uint64_t length) const {
  if (mapping_ && mapping_->address != nullptr) advise(bytes(), offset, length, MADV_WILLNEED);
}

}  // namespace assay

// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/file_changes.hpp"

namespace assay {

struct MappedFile::Mapping {
  std::string path;
  void* address = nullptr;  // null for an empty file, which cannot be mapped, and for a small one
  std::unique_ptr<std::byte[]> copy;  // of a small file
  size_t size = 0;
  std::optional<WatchedMapping> watched;
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

/// The whole file, or nothing when it is not of that size (any more).
std::unique_ptr<std::byte[]> read_all(int fd, size_t size) {
  std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::pread(fd, bytes.get() + done, size - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return nullptr;
    done += static_cast<size_t>(count);
  }
  return bytes;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
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
  if (mapping_->copy != nullptr) return {mapping_->copy.get(), mapping_->size};
  if (mapping_->address == nullptr) return {};
  return {static_cast<const std::byte*>(mapping_->address), mapping_->size};
}

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

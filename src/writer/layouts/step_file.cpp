// SPDX-License-Identifier: Apache-2.0
// One file through two descriptors: O_DIRECT for whole blocks, the page cache for tails and for the
// header, whose length is written last and makes the file readable.
//   docs/formats/native.md, "Step files"
#include "writer/layouts/step_file.hpp"

#include <algorithm>
#include <cerrno>

namespace assay::writer {
namespace {

// Extents reserved ahead make a write about a third cheaper; what is left of them is cut off at the
// end. On a memory file system they are pages, so no more are reserved than the file has already.
constexpr uint64_t kMostReservedAhead = 64ull << 20;
// Below it one buffered write is cheaper than a direct one and the wait for the disk.
constexpr uint64_t kSmallestDirectTail = 64u << 10;

}  // namespace

StepFile::StepFile(std::string path, uint64_t header_bytes, IoFunctions io)
    : path_(std::move(path)), header_bytes_(header_bytes), io_(io) {}

Status StepFile::open_buffered() {
  if (buffered_.is_open()) return buffered_.check(path_);
  buffered_ =
      HostedDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!buffered_.is_open()) return fail(errno_error(errno, "create", path_));
  return {};
}

void StepFile::reserve(uint64_t end) {
  if (end <= reserved_bytes_) return;
  const uint64_t target = end + std::min(end, kMostReservedAhead);
  // Only an optimisation: where the file system cannot do it, nothing is lost, and where it has no
  // room the write itself says so.
  if (::fallocate(buffered_.get(), 0, static_cast<off_t>(reserved_bytes_),
                  static_cast<off_t>(target - reserved_bytes_)) == 0) {
    reserved_bytes_ = target;
  } else {
    reserved_bytes_ = UINT64_MAX;
  }
}

Status StepFile::write_fully(const HostedDescriptor& file, uint64_t offset, ByteSpan bytes) {
  ASSAY_TRY_STATUS(file.check(path_));
  while (!bytes.empty()) {
    const ssize_t written =
        io_.pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail(errno_error(errno, "write", path_));
    if (written == 0) return fail(Error{Errc::Io, path_, offset, "the write made no progress"});
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Status StepFile::write_block(uint64_t offset, ByteSpan block) {
  ASSAY_TRY_STATUS(open_buffered());
  payload_.update(block);
  reserve(offset + block.size());
  return write_aligned(offset, block);
}

Status StepFile::write_aligned(uint64_t offset, ByteSpan block) {
  if (!direct_.is_open() && !direct_refused_) {
    direct_ = HostedDescriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT));
    direct_refused_ = !direct_.is_open();
  }
  if (!direct_refused_) {
    ASSAY_TRY_STATUS(direct_.check(path_));
    const ssize_t written =
        io_.pwrite(direct_.get(), block.data(), block.size(), static_cast<off_t>(offset));
    if (written == static_cast<ssize_t>(block.size())) return {};
    if (written >= 0) {
      // A short direct write may end off the alignment; the rest goes through the page cache.
      const auto done = static_cast<size_t>(written);
      return write_fully(buffered_, offset + done, block.subspan(done));
    }
    if (errno != EINVAL && errno != EINTR) return fail(errno_error(errno, "write", path_));
    direct_refused_ = errno == EINVAL;
  }
  ASSAY_TRY_STATUS(write_fully(buffered_, offset, block));
  // Starts the write-back at once, so that dirty pages never pile up to where the kernel throttles
  // the host.
  ::sync_file_range(buffered_.get(), static_cast<off_t>(offset), static_cast<off_t>(block.size()),
                    SYNC_FILE_RANGE_WRITE);
  return {};
}

Status StepFile::write_tail(uint64_t offset, ByteSpan bytes) {
  ASSAY_TRY_STATUS(open_buffered());
  payload_.update(bytes);
  if (bytes.size() >= kSmallestDirectTail) {
    const uint64_t whole_pages = bytes.size() / kDirectAlignment * kDirectAlignment;
    ASSAY_TRY_STATUS(write_aligned(offset, bytes.first(whole_pages)));
    offset += whole_pages;
    bytes = bytes.subspan(whole_pages);
  }
  return write_fully(buffered_, offset, bytes);
}

Status StepFile::write_early(uint64_t offset, ByteSpan bytes) {
  ASSAY_TRY_STATUS(open_buffered());
  return write_fully(buffered_, offset, bytes);
}

Status StepFile::finish(std::string header_json, uint64_t size_bytes) {
  ASSAY_TRY_STATUS(open_buffered());
  if (header_json.size() > header_bytes_ - 8) {
    return fail(Error{Errc::Internal, path_, {}, "the header outgrew its reserved region"});
  }
  header_json.resize(header_bytes_ - 8, ' ');
  ASSAY_TRY_STATUS(write_fully(buffered_, 8, as_bytes(header_json)));
  if (::ftruncate(buffered_.get(), static_cast<off_t>(size_bytes)) != 0) {
    return fail(errno_error(errno, "truncate", path_));
  }
  // The length comes last: a host killed in between leaves a zero, never the length of half a
  // header.
  std::string length;
  append(length, header_bytes_ - 8);
  ASSAY_TRY_STATUS(write_fully(buffered_, 0, as_bytes(length)));
  (void)direct_.close();
  // Network file systems report a full disk here.
  if (buffered_.close() != 0) return fail(errno_error(errno, "close", path_));
  return {};
}

}  // namespace assay::writer

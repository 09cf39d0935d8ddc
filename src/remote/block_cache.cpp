// SPDX-License-Identifier: Apache-2.0
// Blocks in use are locked in their file, so that no process gives them up; one that a thread
// fetches is waited for by the others. When the folder is full, what was used longest ago goes
// first.
#include "remote/block_cache.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>

#include "base/file_descriptor.hpp"
#include "base/interruption.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "stats/digest.hpp"

namespace assay::remote {
namespace {

using namespace std::chrono_literals;

constexpr char kBlocksMagic[8] = {'A', 'S', 'S', 'A', 'Y', 'B', 'L', '1'};
constexpr size_t kBlocksHeaderBytes = 16;
constexpr uint64_t kDefaultLimitBytes = uint64_t{8} << 30;
constexpr uint64_t kDefaultShareOfDisk = 10;  // one part of so many of what is free
constexpr uint64_t kSpareShare = 10;          // room is made for a tenth of the limit at once
constexpr uint64_t kLookAgainNs = 1'000'000'000;

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

uint64_t block_count(uint64_t size_bytes) {
  return size_bytes / kBlockBytes + (size_bytes % kBlockBytes != 0 ? 1 : 0);
}

std::string digest_of_text(const std::string& text) {
  return stats::digest_text(
      stats::digest_bytes(std::as_bytes(std::span<const char>(text.data(), text.size()))));
}

/// Locks bytes of a file for whoever has `fd` open; F_UNLCK lets go. Others wait or are refused
/// even within one process.
bool lock_bytes(int fd, short type, uint64_t offset, uint64_t size_bytes, bool waits) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset);
  lock.l_len = static_cast<off_t>(size_bytes);
  while (::fcntl(fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, &lock) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

/// Another open file of the same inode, which may have lost its name meanwhile.
int open_again(int fd, int flags) {
  return ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), flags | O_CLOEXEC);
}

Error cache_error(int reason, const char* action, const std::string& path) {
  Error error = errno_error(reason, action, path);
  error.message += "; the cache of remote files can be elsewhere, with ASSAY_CACHE";
  return error;
}

Status make_folders(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
      return fail(cache_error(errno, "create the folder", folder));
    if (end == std::string::npos) return {};
  }
}

std::string default_folder() {
  const auto named = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string folder = named("ASSAY_CACHE"); !folder.empty())
    return std::filesystem::absolute(folder).lexically_normal().string();
  if (const std::string folder = named("XDG_CACHE_HOME"); folder.starts_with('/'))
    return folder + "/assay/remote";
  if (const std::string home = named("HOME"); home.starts_with('/'))
    return home + "/.cache/assay/remote";
  return "/tmp/assay-remote-" + std::to_string(::getuid());
}

/// The `.blocks` file of a cached file, mapped.
class BlockTimes {
 public:
  BlockTimes() = default;
  ~BlockTimes() {
    if (address_ != nullptr) ::munmap(address_, bytes_);
  }
  BlockTimes(const BlockTimes&) = delete;
  BlockTimes& operator=(const BlockTimes&) = delete;

  /// Of a file that has the size of its table.
  bool map(int fd, uint64_t blocks) {
    bytes_ = kBlocksHeaderBytes + blocks * sizeof(uint64_t);
    void* address = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) return false;
    address_ = address;
    blocks_ = blocks;
    return true;
  }
  [[nodiscard]] uint64_t count() const { return blocks_; }
  [[nodiscard]] std::atomic_ref<uint64_t> operator[](uint64_t block) const {
    return std::atomic_ref<uint64_t>(
        reinterpret_cast<uint64_t*>(static_cast<char*>(address_) + kBlocksHeaderBytes)[block]);
  }

 private:
  void* address_ = nullptr;
  size_t bytes_ = 0;
  uint64_t blocks_ = 0;
};

/// The cached files by their path without suffix.
std::vector<std::string> list_cached(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code failed;
  for (const auto& below : std::filesystem::directory_iterator(folder, failed)) {
    if (!below.is_directory(failed)) continue;
    for (const auto& file : std::filesystem::directory_iterator(below.path(), failed)) {
      if (file.path().extension() == ".data")
        paths.push_back((below.path() / file.path().stem()).string());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

uint64_t bytes_on_disk(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * 512 : 0;
}

/// A cached file whose blocks may be given up.
struct Evictable {
  explicit Evictable(const std::string& path)
      : data(::open((path + ".data").c_str(), O_RDWR | O_CLOEXEC)) {
    const FileDescriptor table(::open((path + ".blocks").c_str(), O_RDWR | O_CLOEXEC));
    struct stat info{};
    struct stat table_info{};
    if (data.get() < 0 || ::fstat(data.get(), &info) != 0 || ::fstat(table.get(), &table_info) != 0)
      return;
    const uint64_t blocks = block_count(static_cast<uint64_t>(info.st_size));
    // One that is just being made.
    if (static_cast<uint64_t>(table_info.st_size) != kBlocksHeaderBytes + blocks * sizeof(uint64_t))
      return;
    if (blocks > 0) (void)times.map(table.get(), blocks);
  }
  FileDescriptor data;
  BlockTimes times;
};

}  // namespace

// ---- one file ----

struct CachedFile::Blocks {
  BlockTimes times;
  std::mutex mutex;
  std::condition_variable arrived;
  std::set<uint64_t> coming;  // blocks that a thread of this process fetches
};

CachedFile::CachedFile(std::shared_ptr<BlockCache> cache, std::string path, uint64_t size_bytes)
    : cache_(std::move(cache)),
      path_(std::move(path)),
      size_bytes_(size_bytes),
      blocks_(std::make_unique<Blocks>()) {}

CachedFile::~CachedFile() {
  if (data_ >= 0) ::close(data_);
}

Status CachedFile::open() {
  const std::string table_path = path_ + ".blocks";
  const uint64_t blocks = block_count(size_bytes_);
  const uint64_t table_bytes = kBlocksHeaderBytes + blocks * sizeof(uint64_t);
  while (true) {
    const FileDescriptor table(::open(table_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (table.get() < 0) return fail(cache_error(errno, "write", table_path));
    if (::flock(table.get(), LOCK_EX) != 0) return fail(cache_error(errno, "lock", table_path));
    struct stat info{};
    if (::fstat(table.get(), &info) != 0) return fail(cache_error(errno, "stat", table_path));
    if (info.st_nlink == 0) continue;  // removed while we waited
    const std::string data_path = path_ + ".data";
    data_ = ::open(data_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (data_ < 0) return fail(cache_error(errno, "write", data_path));
    char header[kBlocksHeaderBytes];
    std::memcpy(header, kBlocksMagic, sizeof(kBlocksMagic));
    std::memcpy(header + sizeof(kBlocksMagic), &size_bytes_, sizeof(size_bytes_));
    char found[kBlocksHeaderBytes] = {};
    struct stat data_info{};
    const bool is_whole =
        ::fstat(data_, &data_info) == 0 &&
        static_cast<uint64_t>(data_info.st_size) == size_bytes_ &&
        static_cast<uint64_t>(info.st_size) == table_bytes &&
        ::pread(table.get(), found, sizeof(found), 0) == static_cast<ssize_t>(sizeof(found)) &&
        std::memcmp(found, header, sizeof(header)) == 0;
    if (!is_whole) {
      // New, or its maker was stopped half way: everything is absent.
      if (::ftruncate(table.get(), 0) != 0 || ::ftruncate(data_, 0) != 0 ||
          ::ftruncate(data_, static_cast<off_t>(size_bytes_)) != 0)
        return fail(cache_error(errno, "write", data_path));
      if (::ftruncate(table.get(), static_cast<off_t>(table_bytes)) != 0 ||
          ::pwrite(table.get(), header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header)))
        return fail(cache_error(errno, "write", table_path));
    }
    if (!blocks_->times.map(table.get(), blocks))
      return fail(cache_error(errno, "map", table_path));
    // The mapping keeps the open file, and with it the lock.
    ::flock(table.get(), LOCK_UN);
    return {};
  }
}

std::vector<ByteRange> CachedFile::missing(uint64_t offset, uint64_t size_bytes) const {
  std::vector<ByteRange> ranges;
  if (size_bytes == 0 || offset >= size_bytes_) return ranges;
  const uint64_t end = block_count(offset + std::min(size_bytes, size_bytes_ - offset));
  for (uint64_t block = offset / kBlockBytes; block < end; ++block) {
    if (blocks_->times[block].load(std::memory_order_acquire) != 0) continue;
    const uint64_t start = block * kBlockBytes;
    const uint64_t length = std::min(kBlockBytes, size_bytes_ - start);
    if (!ranges.empty() && ranges.back().offset + ranges.back().size_bytes == start) {
      ranges.back().size_bytes += length;
    } else {
      ranges.push_back({start, length});
    }
  }
  return ranges;
}

Result<std::shared_ptr<const void>> CachedFile::hold(uint64_t offset, uint64_t size_bytes,
                                                     const Fetch& fetch) {
  if (size_bytes == 0 || offset >= size_bytes_) return std::make_shared<const FileDescriptor>(-1);
  const uint64_t first = offset / kBlockBytes;
  const uint64_t end = block_count(offset + std::min(size_bytes, size_bytes_ - offset));
  // Locks are those of an open file, so every holder has one.
  auto holder = std::make_shared<FileDescriptor>(open_again(data_, O_RDONLY));
  if (holder->get() < 0 ||
      !lock_bytes(holder->get(), F_RDLCK, first * kBlockBytes, (end - first) * kBlockBytes, true))
    return fail(cache_error(errno, "lock", path_ + ".data"));
  std::unique_lock lock(blocks_->mutex);
  ASSAY_TRY_STATUS(fetch_blocks(&lock, first, end, fetch));
  const uint64_t now = now_ns();
  for (uint64_t block = first; block < end; ++block)
    blocks_->times[block].store(now, std::memory_order_relaxed);
  return holder;
}

/// Until all are there: those that other threads fetch are waited for.
Status CachedFile::fetch_blocks(std::unique_lock<std::mutex>* lock, uint64_t first, uint64_t end,
                                const Fetch& fetch) {
  while (true) {
    std::vector<ByteRange> wanted;
    bool is_coming = false;
    uint64_t bytes = 0;
    for (const ByteRange& range : missing(first * kBlockBytes, (end - first) * kBlockBytes)) {
      for (uint64_t start = range.offset; start < range.offset + range.size_bytes;
           start += kBlockBytes) {
        const uint64_t length = std::min(kBlockBytes, range.offset + range.size_bytes - start);
        if (!blocks_->coming.insert(start / kBlockBytes).second) {
          is_coming = true;
          continue;
        }
        bytes += length;
        if (!wanted.empty() && wanted.back().offset + wanted.back().size_bytes == start) {
          wanted.back().size_bytes += length;
        } else {
          wanted.push_back({start, length});
        }
      }
    }
    if (wanted.empty()) {
      if (!is_coming) return {};
      if (is_interrupted()) return fail(Errc::Interrupted, "interrupted");
      blocks_->arrived.wait_for(*lock, 100ms);
      continue;
    }
    lock->unlock();
    Status fetched = cache_->make_room(bytes);
    if (fetched) {
      // By its number: the name may be another process's by now, or nobody's.
      fetched =
          fetch("/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(data_), wanted);
      // A block must not be told to be there before it is on the disk.
      if (fetched && ::fdatasync(data_) != 0)
        fetched = fail(cache_error(errno, "write", path_ + ".data"));
      cache_->give_back(bytes);
    }
    lock->lock();
    const uint64_t now = now_ns();
    for (const ByteRange& range : wanted) {
      for (uint64_t block = range.offset / kBlockBytes;
           block < block_count(range.offset + range.size_bytes); ++block) {
        blocks_->coming.erase(block);
        if (fetched) blocks_->times[block].store(now, std::memory_order_release);
      }
    }
    blocks_->arrived.notify_all();
    ASSAY_TRY_STATUS(fetched);
  }
}

// ---- all files ----

Result<std::shared_ptr<BlockCache>> BlockCache::open_default() {
  const std::string folder = default_folder();
  ASSAY_TRY_STATUS(make_folders(folder));
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return fail(cache_error(errno, "write", folder));
  uint64_t limit = kDefaultLimitBytes;
  if (const char* named = std::getenv("ASSAY_CACHE_LIMIT"); named != nullptr && *named != '\0') {
    const std::optional<uint64_t> bytes = parse_size_bytes(named);
    if (!bytes)
      return fail(Errc::Usage, "ASSAY_CACHE_LIMIT: " + quoted(named) +
                                   " is no size; expected for example 20GiB");
    limit = *bytes;
  } else {
    struct statvfs disk{};
    // What the cache has taken already would be free without it.
    if (::statvfs(folder.c_str(), &disk) == 0) {
      const uint64_t free =
          uint64_t{disk.f_bavail} * disk.f_frsize + BlockCache(folder, 0).used_bytes();
      limit = std::min(limit, free / kDefaultShareOfDisk);
    }
  }
  return std::make_shared<BlockCache>(folder, limit);
}

Result<std::shared_ptr<CachedFile>> BlockCache::file(const std::string& url, uint64_t size_bytes,
                                                     const std::string& version) {
  const std::string url_key = digest_of_text(url);
  const std::string key =
      url_key + "-" + digest_of_text(version + " " + std::to_string(size_bytes));
  const std::lock_guard lock(mutex_);
  if (std::shared_ptr<CachedFile> known = files_[key].lock()) return known;
  std::erase_if(files_, [&](const auto& one) { return one.first != key && one.second.expired(); });
  const std::string folder = folder_ + "/" + url_key.substr(0, 2);
  ASSAY_TRY_STATUS(make_folders(folder));
  std::error_code failed;
  for (const auto& one : std::filesystem::directory_iterator(folder, failed)) {
    // Of another version. Whoever has it open goes on with it.
    const std::string name = one.path().filename().string();
    if (name.starts_with(url_key + "-") && !name.starts_with(key + "."))
      ::unlink(one.path().c_str());
  }
  const std::shared_ptr<CachedFile> file(
      new CachedFile(shared_from_this(), folder + "/" + key, size_bytes));
  ASSAY_TRY_STATUS(file->open());
  files_[key] = file;
  return file;
}

uint64_t BlockCache::used_bytes() const {
  uint64_t used = 0;
  for (const std::string& path : list_cached(folder_)) used += bytes_on_disk(path + ".data");
  return used;
}

Status BlockCache::make_room(uint64_t bytes) {
  const std::lock_guard lock(room_mutex_);
  if (bytes > limit_bytes_)
    return fail(Error{Errc::NoSpace, folder_, std::nullopt,
                      human_bytes(bytes) + " are needed at once, the cache may hold " +
                          human_bytes(limit_bytes_) + " (ASSAY_CACHE_LIMIT)"});
  // What other processes put in is seen a moment later: looking costs as much as a small fetch.
  const uint64_t now = now_ns();
  if (used_bytes_ && now - looked_ns_ < kLookAgainNs &&
      *used_bytes_ + promised_bytes_ + bytes <= limit_bytes_) {
    promised_bytes_ += bytes;
    return {};
  }
  const std::string lock_path = folder_ + "/lock";
  const FileDescriptor exclusive(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (exclusive.get() < 0 || ::flock(exclusive.get(), LOCK_EX) != 0)
    return fail(cache_error(errno, "lock", lock_path));
  used_bytes_ = used_bytes();
  looked_ns_ = now;
  const uint64_t used = *used_bytes_ + promised_bytes_ + bytes;
  if (used > limit_bytes_) {
    const uint64_t needed = used - limit_bytes_;
    const uint64_t given = evict(needed + limit_bytes_ / kSpareShare);
    used_bytes_ = used_bytes();
    if (given < needed)
      return fail(Error{Errc::NoSpace, folder_, std::nullopt,
                        "the cache may hold " + human_bytes(limit_bytes_) +
                            " (ASSAY_CACHE_LIMIT), and what it holds is in use"});
  }
  promised_bytes_ += bytes;
  return {};
}

void BlockCache::give_back(uint64_t bytes) {
  const std::lock_guard lock(room_mutex_);
  promised_bytes_ -= bytes;
  used_bytes_ = used_bytes_.value_or(0) + bytes;
}

/// Gives up the blocks that were used longest ago, and are not in use. Returns how much that gave.
uint64_t BlockCache::evict(uint64_t wanted_bytes) const {
  struct Block {
    uint64_t last_use;
    size_t file;
    uint64_t number;
  };
  const std::vector<std::string> paths = list_cached(folder_);
  std::vector<Block> blocks;
  for (size_t i = 0; i < paths.size(); ++i) {
    const Evictable file(paths[i]);
    for (uint64_t number = 0; number < file.times.count(); ++number) {
      if (const uint64_t last_use = file.times[number].load(); last_use != 0)
        blocks.push_back({last_use, i, number});
    }
  }
  std::ranges::sort(blocks, {}, &Block::last_use);
  uint64_t given = 0;
  std::map<size_t, Evictable> open;
  for (const Block& block : blocks) {
    if (given >= wanted_bytes) break;
    if (open.size() > 64 && !open.contains(block.file)) open.clear();
    const auto& file = open.try_emplace(block.file, paths[block.file]).first->second;
    const uint64_t offset = block.number * kBlockBytes;
    if (block.number >= file.times.count() ||
        !lock_bytes(file.data.get(), F_WRLCK, offset, kBlockBytes, false))
      continue;
    file.times[block.number].store(0, std::memory_order_release);
    if (::fallocate(file.data.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(offset), kBlockBytes) == 0)
      given += kBlockBytes;
    lock_bytes(file.data.get(), F_UNLCK, offset, kBlockBytes, false);
  }
  open.clear();
  // Files of which nothing is left.
  for (const std::string& path : paths) {
    const Evictable file(path);
    bool is_empty = file.data.get() >= 0;
    for (uint64_t i = 0; i < file.times.count() && is_empty; ++i)
      is_empty = file.times[i].load() == 0;
    if (!is_empty || file.times.count() == 0 || !lock_bytes(file.data.get(), F_WRLCK, 0, 0, false))
      continue;
    ::unlink((path + ".blocks").c_str());
    ::unlink((path + ".data").c_str());
  }
  return given;
}

}  // namespace assay::remote

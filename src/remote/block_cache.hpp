// SPDX-License-Identifier: Apache-2.0
// Parts of files that lie elsewhere, kept in a folder of bounded size that several processes share.
//
//   <folder>/lock                     held by whoever makes room
//   <folder>/ab/<key>.data            the file: its true size, holes where nothing was fetched
//   <folder>/ab/<key>.blocks          "ASSAYBL1", u64 size, then for each MiB of the file a u64:
//                                     0 not there, else when it was last used (ns since 1970)
//
// <key> is the digest of the URL and that of its version, so a file that was replaced has other
// names. Whoever uses blocks holds a lock for reading on their bytes of <key>.data; only blocks that
// can be locked for writing are given up. A block is on the disk before its time is written.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "remote/transfer.hpp"

namespace assay::remote {

inline constexpr uint64_t kBlockBytes = uint64_t{1} << 20;

class CachedFile;

/// Thread-safe.
class BlockCache : public std::enable_shared_from_this<BlockCache> {
 public:
  /// limit_bytes   of what the blocks of all files take together
  BlockCache(std::string folder, uint64_t limit_bytes)
      : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}

  /// In $ASSAY_CACHE, else $XDG_CACHE_HOME/assay/remote, else ~/.cache/assay/remote. Of
  /// $ASSAY_CACHE_LIMIT bytes ("20GiB"), else 8 GiB or a tenth of the free disk, what is less.
  /// errors   Usage (a limit that is no size) | Permission | Io
  [[nodiscard]] static Result<std::shared_ptr<BlockCache>> open_default();

  /// The same object as long as somebody has it. Older versions of the URL are removed.
  [[nodiscard]] Result<std::shared_ptr<CachedFile>> file(const std::string& url,
                                                         uint64_t size_bytes,
                                                         const std::string& version);

  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// What the blocks of all files take on the disk.
  [[nodiscard]] uint64_t used_bytes() const;

 private:
  friend class CachedFile;
  /// Gives up blocks until `bytes` more fit. They are taken as used until give_back().
  [[nodiscard]] Status make_room(uint64_t bytes);
  void give_back(uint64_t bytes);
  [[nodiscard]] uint64_t evict(uint64_t wanted_bytes) const;

  const std::string folder_;
  const uint64_t limit_bytes_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<CachedFile>> files_;  // by key
  std::mutex room_mutex_;
  uint64_t promised_bytes_ = 0;         // to fetches that are under way
  std::optional<uint64_t> used_bytes_;  // when somebody looked, and what was fetched since
  uint64_t looked_ns_ = 0;
};

/// One version of one file. Thread-safe.
class CachedFile {
 public:
  /// Writes ranges, which are whole blocks or end with the file, into the local file.
  using Fetch =
      std::function<Status(const std::string& local_file, const std::vector<ByteRange>& ranges)>;
  ~CachedFile();
  CachedFile(const CachedFile&) = delete;
  CachedFile& operator=(const CachedFile&) = delete;

  /// For reading; zeros where nothing is.
  [[nodiscard]] int descriptor() const { return data_; }
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
  /// Has the blocks of a range fetched that are not there. They stay while the result lives.
  [[nodiscard]] Result<std::shared_ptr<const void>> hold(uint64_t offset, uint64_t size_bytes,
                                                         const Fetch& fetch);
  /// The blocks of a range that are not there, neighbours as one.
  [[nodiscard]] std::vector<ByteRange> missing(uint64_t offset, uint64_t size_bytes) const;

 private:
  friend class BlockCache;
  struct Blocks;
  CachedFile(std::shared_ptr<BlockCache> cache, std::string path, uint64_t size_bytes);
  [[nodiscard]] Status open();
  [[nodiscard]] Status fetch_blocks(std::unique_lock<std::mutex>* lock, uint64_t first,
                                    uint64_t end, const Fetch& fetch);

  std::shared_ptr<BlockCache> cache_;
  std::string path_;  // without suffix
  uint64_t size_bytes_;
  int data_ = -1;
  std::unique_ptr<Blocks> blocks_;
};

}  // namespace assay::remote

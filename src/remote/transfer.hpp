// SPDX-License-Identifier: Apache-2.0
// Lists and ranges of files that lie elsewhere, fetched by Python's fsspec.
// The other side, with the protocol: python/assay/_remote.py
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_source.hpp"
#include "base/result.hpp"

namespace assay::remote {

/// The text of python/assay/_remote.py.
extern const char* const kTransferHost;

/// Something below the URL that was asked for, or itself (name "").
struct Entry {
  std::string name;  // "rank0/records.jsonl", as the store has it
  FileFacts facts;
};

struct ByteRange {
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

struct WantedRanges {
  std::string url;
  uint64_t size_bytes = 0;  // of the whole file, as it was listed
  std::string version;
  std::string local_file;  // gets the ranges at their own offsets
  std::vector<ByteRange> ranges;
};

/// Carries requests to the code of _remote.py and its answers back, line by line. Thread-safe.
class Carrier {
 public:
  virtual ~Carrier() = default;
  /// `on_line` gets every answer to this request and returns false after the last.
  /// number   of the request, which no other has
  /// errors   Io | Interrupted | of on_line
  using OnLine = std::function<Result<bool>(const std::string& line)>;
  [[nodiscard]] virtual Status carry(uint64_t number, const std::string& request,
                                     const OnLine& on_line) = 0;
};

/// A helper process, started at the first request. One that says nothing of a request for
/// $ASSAY_REMOTE_TIMEOUT seconds (300) is ended, and the next request starts a new one.
[[nodiscard]] std::shared_ptr<Carrier> make_process_carrier();

/// Thread-safe. Errors have the URL as their path.
class Transfer {
 public:
  explicit Transfer(std::shared_ptr<Carrier> carrier) : carrier_(std::move(carrier)) {}
  /// All files below a URL; of a file itself.
  [[nodiscard]] Result<std::vector<Entry>> tree(const std::string& url);
  /// One level of a folder.
  [[nodiscard]] Result<std::vector<Entry>> list(const std::string& url);
  [[nodiscard]] Result<FileFacts> facts(const std::string& url);
  /// errors   Io "the file was changed while it was read" | NotFound | Permission | NoSpace
  [[nodiscard]] Status fetch(const std::vector<WantedRanges>& wanted);

 private:
  Result<std::vector<Entry>> entries(const char* what, const std::string& url);
  std::shared_ptr<Carrier> carrier_;
};

}  // namespace assay::remote

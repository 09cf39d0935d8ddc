// SPDX-License-Identifier: Apache-2.0
// Files that are not in the file system of this machine. Their paths begin with a scheme, as in
// "s3://bucket/run"; whoever can reach them registers a FileSource for the beginning of such paths.
// Paths that look local may be elsewhere, too: of folders that are registered one by one.
// MappedFile, exists(), file_facts() and the questions about folders in run/folder.hpp ask it, so
// readers of runs need not know where a path leads.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace assay {

/// What lies at a path.
struct FileFacts {
  enum class Kind : uint8_t { File, Folder, Unusable };
  Kind kind = Kind::File;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;  // since 1970; 0 where the source does not tell
  std::string version;      // of a source's file: another one when the content is another
  std::string problem;      // of what is Unusable: one clause
};

struct ListedFile {
  std::string name;  // last component
  FileFacts facts;
};

/// A file of a source, any part of which can be brought to this machine. Thread-safe.
class PartialFile {
 public:
  virtual ~PartialFile() = default;
  /// Of a local file that has the size of the source's, with zeros where nothing was fetched yet.
  [[nodiscard]] virtual int descriptor() const = 0;
  [[nodiscard]] virtual uint64_t size_bytes() const = 0;
  /// Brings a range here; it stays at least as long as the result. What ends behind the file is
  /// cut.
  [[nodiscard]] virtual Result<std::shared_ptr<const void>> fetch(uint64_t offset,
                                                                  uint64_t size_bytes) = 0;
};

/// Thread-safe. Errors name the path that was asked for.
class FileSource {
 public:
  virtual ~FileSource() = default;
  /// Somebody is going to read all lists below `path`: what was known of it is asked anew, in as
  /// few requests as possible.
  [[nodiscard]] virtual Status prepare(const std::string& path) = 0;
  [[nodiscard]] virtual Result<FileFacts> facts(const std::string& path) = 0;
  /// In any order, without "." and "..".
  [[nodiscard]] virtual Result<std::vector<ListedFile>> list(const std::string& folder) = 0;
  [[nodiscard]] virtual Result<std::shared_ptr<PartialFile>> open(const std::string& path) = 0;
  /// The first bytes of a file; fewer where it is shorter.
  [[nodiscard]] virtual Result<std::string> head(const std::string& path, uint64_t size_bytes);
};

/// Whether the path begins with a scheme. Absolute local paths are told by their first byte.
[[nodiscard]] inline bool is_url(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.front() == '.') return false;
  const size_t colon = path.find("://");
  return colon != std::string_view::npos && colon > 0 && path.find('/') > colon;
}

/// From now on URLs that begin with `prefix` are the source's; the longest prefix counts, and ""
/// stands for all of them. A source of the same prefix is replaced.
void register_file_source(std::string prefix, std::shared_ptr<FileSource> source);

/// From now on these paths and what is below them are the source's, although they look local.
/// Each counts as it is written and without "." and "..". Replaces those that were registered.
void register_elsewhere(const std::vector<std::string>& paths, std::shared_ptr<FileSource> source);

/// Whether the path is no file of this machine: a URL, or of register_elsewhere(). Costs nothing
/// more than is_url() while nothing is registered.
[[nodiscard]] bool is_elsewhere(std::string_view path);

/// nullptr for a path of the local file system, and for a URL that nobody knows.
[[nodiscard]] std::shared_ptr<FileSource> file_source(std::string_view path);

/// Of any path; a link counts as what it leads to.
/// errors  NotFound | Permission | Io | of the source
[[nodiscard]] Result<FileFacts> file_facts(const std::string& path);

/// "s3://b/a/./c/../d/" -> "s3://b/a/d"; never above the first component behind the scheme.
[[nodiscard]] std::string normal_url(std::string_view url);

/// Without "." and "..": of a URL normal_url(), of any other path by its text alone, "a/" as "a".
[[nodiscard]] std::string normal_path(std::string_view path);

}  // namespace assay

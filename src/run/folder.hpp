// SPDX-License-Identifier: Apache-2.0
// Listing folders that somebody else wrote: in a fixed order, and without leaving the run through a
// link.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace assay::run {

struct FolderEntry {
  enum class Kind : uint8_t { File, Folder, Unusable };
  std::string name;  // last component
  std::string path;  // as it can be opened
  Kind kind = Kind::File;
  bool is_link = false;
  std::string problem;  // of an Unusable entry: broken link, link that leaves the run, pipe, device
};

/// Entries of a folder. Copies share them: ten readers of layouts look at each folder.
class FolderEntries {
 public:
  FolderEntries() = default;
  explicit FolderEntries(std::vector<FolderEntry> entries)
      : entries_(std::make_shared<const std::vector<FolderEntry>>(std::move(entries))) {}

  [[nodiscard]] const FolderEntry* begin() const { return entries_ ? entries_->data() : nullptr; }
  [[nodiscard]] const FolderEntry* end() const { return begin() + size(); }
  [[nodiscard]] size_t size() const { return entries_ ? entries_->size() : 0; }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] std::vector<FolderEntry> folders() const;

 private:
  std::shared_ptr<const std::vector<FolderEntry>> entries_;
};

/// The entries of a folder in natural order, without "." and "..".
///
/// boundary   real path of the folder that links may not leave (real_path()); empty: every link is
///            refused
/// errors     NotFound | Permission | Io
[[nodiscard]] Result<FolderEntries> list_folder(const std::string& path,
                                                const std::string& boundary);

/// While it lives, list_folder() reads each folder once for this thread: readers of layouts look at
/// the same folders one after the other.
class ListingScope {
 public:
  ListingScope();
  ~ListingScope();
  ListingScope(const ListingScope&) = delete;
  ListingScope& operator=(const ListingScope&) = delete;

 private:
  bool is_outer_;  // an inner one uses what the outer one knows
};

/// realpath(3), of a URL (base/file_source.hpp) the same without "." and "..", or an empty string when the path cannot be resolved.
[[nodiscard]] std::string real_path(const std::string& path);
/// True when `path`, both resolved, is `folder` or below it.
[[nodiscard]] bool is_inside(std::string_view path, std::string_view folder);

[[nodiscard]] bool is_folder(const std::string& path);
[[nodiscard]] bool is_file(const std::string& path);
/// "a/b/c" -> "c"; trailing slashes do not count.
[[nodiscard]] std::string base_name(std::string_view path);
/// "a/b/c" -> "a/b", "/a" -> "/", "a" -> "."
[[nodiscard]] std::string parent_folder(const std::string& path);
[[nodiscard]] std::string join_path(std::string_view folder, std::string_view name);

}  // namespace assay::run

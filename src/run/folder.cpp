// SPDX-License-Identifier: Apache-2.0
// Folders of this machine are read with readdir(), those that lie elsewhere by their FileSource. A
// link is followed only to learn what it leads to, and refused when that is outside the boundary.
#include "run/folder.hpp"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>

#include "base/file_source.hpp"
#include "run/natural_sort.hpp"

namespace assay::run {
namespace {

FolderEntry::Kind kind_of_mode(mode_t mode, std::string* problem) {
  if (S_ISREG(mode)) return FolderEntry::Kind::File;
  if (S_ISDIR(mode)) return FolderEntry::Kind::Folder;
  *problem = "is not a regular file";
  return FolderEntry::Kind::Unusable;
}

/// Follows a link and says whether its target may be used.
void resolve_link(const std::string& boundary, FolderEntry* entry) {
  entry->is_link = true;
  entry->kind = FolderEntry::Kind::Unusable;
  struct stat info{};
  const std::string target = real_path(entry->path);
  if (target.empty() || ::stat(target.c_str(), &info) != 0) {
    entry->problem = "is a link that leads nowhere";
  } else if (boundary.empty() || !is_inside(target, boundary)) {
    entry->problem = "is a link that leaves the run: " + target;
  } else {
    entry->kind = kind_of_mode(info.st_mode, &entry->problem);
  }
}

void classify(unsigned char type, const std::string& boundary, FolderEntry* entry) {
  switch (type) {
    case DT_REG:
      entry->kind = FolderEntry::Kind::File;
      return;
    case DT_DIR:
      entry->kind = FolderEntry::Kind::Folder;
      return;
    case DT_LNK:
      resolve_link(boundary, entry);
      return;
    default:
      break;
  }
  struct stat info{};
  if (::lstat(entry->path.c_str(), &info) != 0) {
    entry->kind = FolderEntry::Kind::Unusable;
    entry->problem = std::string("cannot be looked at: ") + std::strerror(errno);
  } else if (S_ISLNK(info.st_mode)) {
    resolve_link(boundary, entry);
  } else {
    entry->kind = kind_of_mode(info.st_mode, &entry->problem);
  }
}

}  // namespace

namespace {

void sort_naturally(std::vector<FolderEntry>* entries) {
  std::sort(entries->begin(), entries->end(), [](const FolderEntry& a, const FolderEntry& b) {
    return natural_less(a.name, b.name);
  });
}

FolderEntry::Kind kind_of(FileFacts::Kind kind) {
  switch (kind) {
    case FileFacts::Kind::File:
      return FolderEntry::Kind::File;
    case FileFacts::Kind::Folder:
      return FolderEntry::Kind::Folder;
    case FileFacts::Kind::Unusable:
      break;
  }
  return FolderEntry::Kind::Unusable;
}

Result<FolderEntries> list_elsewhere(FileSource* source, const std::string& path) {
  ASSAY_TRY(std::vector<ListedFile> listed, source->list(path));
  std::vector<FolderEntry> entries;
  entries.reserve(listed.size());
  for (ListedFile& one : listed) {
    FolderEntry entry;
    entry.path = join_path(path, one.name);
    entry.name = std::move(one.name);
    entry.kind = kind_of(one.facts.kind);
    entry.problem = std::move(one.facts.problem);
    entries.push_back(std::move(entry));
  }
  sort_naturally(&entries);
  return FolderEntries(std::move(entries));
}

bool is_kind(const std::string& path, FileFacts::Kind kind) {
  const Result<FileFacts> facts = file_facts(path);
  return facts && facts->kind == kind;
}

}  // namespace

namespace {

Result<FolderEntries> list_here(const std::string& path, const std::string& boundary) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
  if (!folder) return fail(errno_error(errno, "list folder", path));
  std::vector<FolderEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* found = ::readdir(folder.get());
    if (found == nullptr) break;
    const std::string_view name = found->d_name;
    if (name == "." || name == "..") continue;
    FolderEntry entry;
    entry.name = name;
    entry.path = join_path(path, name);
    classify(found->d_type, boundary, &entry);
    entries.push_back(std::move(entry));
  }
  if (errno != 0) return fail(errno_error(errno, "list folder", path));
  sort_naturally(&entries);
  return FolderEntries(std::move(entries));
}

/// Folders that were listed in a scope.
struct KnownFolders {
  std::map<std::pair<std::string, std::string>, FolderEntries> entries;  // path, boundary
  size_t count = 0;                                                      // of all entries
};
constexpr size_t kMostKnownEntries = size_t{1} << 18;

thread_local std::unique_ptr<KnownFolders> known_folders;

}  // namespace

std::vector<FolderEntry> FolderEntries::folders() const {
  std::vector<FolderEntry> found;
  std::copy_if(begin(), end(), std::back_inserter(found),
               [](const FolderEntry& entry) { return entry.kind == FolderEntry::Kind::Folder; });
  return found;
}

ListingScope::ListingScope() : is_outer_(known_folders == nullptr) {
  if (is_outer_) known_folders = std::make_unique<KnownFolders>();
}
ListingScope::~ListingScope() {
  if (is_outer_) known_folders.reset();
}

Result<FolderEntries> list_folder(const std::string& path, const std::string& boundary) {
  if (const auto source = file_source(path)) return list_elsewhere(source.get(), path);
  KnownFolders* known = known_folders.get();
  if (known == nullptr) return list_here(path, boundary);
  if (const auto found = known->entries.find({path, boundary}); found != known->entries.end())
    return found->second;
  ASSAY_TRY(FolderEntries entries, list_here(path, boundary));
  known->count += entries.size();
  if (known->count <= kMostKnownEntries) known->entries[{path, boundary}] = entries;
  return entries;
}

std::string real_path(const std::string& path) {
  if (const auto source = file_source(path)) {
    std::string normal = normal_path(path);
    return source->facts(normal) ? normal : std::string();
  }
  const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(path.c_str(), nullptr), &::free);
  return resolved ? std::string(resolved.get()) : std::string();
}

bool is_inside(std::string_view path, std::string_view folder) {
  if (!path.starts_with(folder)) return false;
  return path.size() == folder.size() || folder.ends_with('/') || path[folder.size()] == '/';
}

bool is_folder(const std::string& path) { return is_kind(path, FileFacts::Kind::Folder); }

bool is_file(const std::string& path) { return is_kind(path, FileFacts::Kind::File); }

std::string base_name(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string parent_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string join_path(std::string_view folder, std::string_view name) {
  std::string joined(folder);
  if (!joined.ends_with('/')) joined += '/';
  joined += name;
  return joined;
}

}  // namespace assay::run

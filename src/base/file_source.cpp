// SPDX-License-Identifier: Apache-2.0
// The source of a URL is the one with the longest registered beginning. That of a path that looks
// local is found by the folders above it, which are looked up only once some are registered.
#include "base/file_source.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>

#include "base/text.hpp"

namespace assay {
namespace {

struct SourceRegistry {
  struct Entry {
    std::string prefix;
    std::shared_ptr<FileSource> source;
  };
  std::mutex mutex;
  std::vector<Entry> entries;                    // longest prefix first
  std::set<std::string, std::less<>> elsewhere;  // paths that look local
  std::shared_ptr<FileSource> elsewhere_source;
};

/// Never destroyed: mappings in static objects outlive every other static object.
SourceRegistry& source_registry() {
  static SourceRegistry* const instance = new SourceRegistry;
  return *instance;
}

/// Whether something was registered that looks local.
std::atomic<bool> has_elsewhere = false;

/// The source of a path that looks local; null: this machine.
std::shared_ptr<FileSource> source_elsewhere(std::string_view path) {
  SourceRegistry& all = source_registry();
  const std::lock_guard lock(all.mutex);
  // The path, then each folder above it.
  for (std::string_view above = path; !above.empty();) {
    if (all.elsewhere.contains(above)) return all.elsewhere_source;
    const size_t slash = above.rfind('/');
    if (slash == std::string_view::npos) break;
    above = above.substr(0, slash);
  }
  return nullptr;
}

FileFacts facts_of(const struct stat& info) {
  FileFacts facts;
  facts.size_bytes = static_cast<uint64_t>(info.st_size);
  facts.modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  if (S_ISREG(info.st_mode)) return facts;
  facts.kind = S_ISDIR(info.st_mode) ? FileFacts::Kind::Folder : FileFacts::Kind::Unusable;
  if (!S_ISDIR(info.st_mode)) facts.problem = "is not a regular file";
  return facts;
}

}  // namespace

Result<std::string> FileSource::head(const std::string& path, uint64_t size_bytes) {
  ASSAY_TRY(const std::shared_ptr<PartialFile> file, open(path));
  std::string bytes(std::min(size_bytes, file->size_bytes()), '\0');
  ASSAY_TRY(const std::shared_ptr<const void> held, file->fetch(0, bytes.size()));
  const ssize_t count = ::pread(file->descriptor(), bytes.data(), bytes.size(), 0);
  if (count < 0) return fail(errno_error(errno, "read", path));
  bytes.resize(static_cast<size_t>(count));
  return bytes;
}

void register_file_source(std::string prefix, std::shared_ptr<FileSource> source) {
  SourceRegistry& all = source_registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.entries, [&](const auto& entry) { return entry.prefix == prefix; });
  all.entries.push_back({std::move(prefix), std::move(source)});
  std::ranges::stable_sort(all.entries, std::greater<>(),
                           [](const auto& entry) { return entry.prefix.size(); });
}

void register_elsewhere(const std::vector<std::string>& paths, std::shared_ptr<FileSource> source) {
  SourceRegistry& all = source_registry();
  const std::lock_guard lock(all.mutex);
  all.elsewhere.clear();
  for (std::string_view path : paths) {
    while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    all.elsewhere.emplace(path);
    all.elsewhere.insert(normal_path(path));
  }
  all.elsewhere_source = std::move(source);
  has_elsewhere = !paths.empty();
}

bool is_elsewhere(std::string_view path) {
  return is_url(path) || (has_elsewhere && source_elsewhere(path) != nullptr);
}

std::shared_ptr<FileSource> file_source(std::string_view path) {
  if (!is_url(path)) return has_elsewhere ? source_elsewhere(path) : nullptr;
  SourceRegistry& all = source_registry();
  const std::lock_guard lock(all.mutex);
  for (const SourceRegistry::Entry& entry : all.entries) {
    if (path.starts_with(entry.prefix)) return entry.source;
  }
  return nullptr;
}

Result<FileFacts> file_facts(const std::string& path) {
  if (const auto source = file_source(path)) return source->facts(path);
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return fail(errno_error(errno, "open", path));
  return facts_of(info);
}

std::string normal_url(std::string_view url) {
  const size_t start = url.find("://") + 3;
  std::vector<std::string_view> parts = {url.substr(start, url.find('/', start) - start)};
  if (const size_t slash = url.find('/', start); slash != std::string_view::npos) {
    for (const std::string_view part : split(url.substr(slash + 1), '/')) {
      if (part.empty() || part == ".") continue;
      if (part != "..") {
        parts.push_back(part);
      } else if (parts.size() > 1) {
        parts.pop_back();
      }
    }
  }
  std::string normal(url.substr(0, start));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) normal += '/';
    normal += parts[i];
  }
  return normal;
}

std::string normal_path(std::string_view path) {
  if (is_url(path)) return normal_url(path);
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal;
}

}  // namespace assay

// SPDX-License-Identifier: Apache-2.0
// The tree of files as the store told it, and the files in it. Keys of an object store are any
// bytes; one that is no path of a file stands in the tree as something unusable, and no key is ever
// a name in the local file system.
#include "remote/remote_files.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>

#include "base/file_changes.hpp"
#include "base/file_descriptor.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "remote/block_cache.hpp"

namespace assay::remote {
namespace {

using Kind = FileFacts::Kind;

// Lists are read whole, most of them at once; larger ones come with what else is fetched.
constexpr uint64_t kMaxPreparedFile = uint64_t{16} << 20;
constexpr uint64_t kMaxPrepared = uint64_t{256} << 20;
constexpr auto kFailureLasts = std::chrono::seconds(10);
constexpr unsigned kListsAtOnce = 16;  // most of the time is waiting

bool is_list(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {".json", ".jsonl", ".csv", ".txt", ".md", ".yaml"};
  return std::ranges::any_of(kSuffixes, [&](auto suffix) { return name.ends_with(suffix); });
}

bool is_name(std::string_view component) {
  return !component.empty() && component != "." && component != ".." &&
         component.find('\0') == std::string_view::npos;
}

FileFacts folder_facts() {
  FileFacts facts;
  facts.kind = Kind::Folder;
  return facts;
}

/// Something at a URL. Folders of which nobody asked for a list have no children yet.
struct TreeNode {
  FileFacts facts = folder_facts();
  bool is_listed = false;  // all its children are known
  std::map<std::string, TreeNode, std::less<>> children;
};

void set_unusable(TreeNode* folder, std::string name, std::string problem) {
  TreeNode& node = folder->children[std::move(name)];
  node.facts = FileFacts();
  node.facts.kind = Kind::Unusable;
  node.facts.problem = std::move(problem);
  node.children.clear();
}

/// Puts an entry of a list where its name leads.
void insert(TreeNode* top, const Entry& entry, bool is_listed) {
  std::string_view name = entry.name;
  // "folder/" is how some tools mark that there is a folder.
  const bool is_marker = name.ends_with('/');
  if (is_marker) name.remove_suffix(1);
  TreeNode* node = top;
  const std::vector<std::string_view> parts = split(name, '/');
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!is_name(parts[i])) {
      set_unusable(node, parts[i].empty() ? "(no name)" : printable(parts[i]),
                   "is no name of a file or folder: " + assay::quoted(printable(entry.name)));
      return;
    }
    const bool is_last = i + 1 == parts.size();
    const auto [found, is_new] = node->children.try_emplace(std::string(parts[i]));
    TreeNode& child = found->second;
    if (is_last && !is_marker && entry.facts.kind != Kind::Folder) {
      if (is_new) {
        child.facts = entry.facts;
      } else if (entry.facts.size_bytes > 0) {
        set_unusable(node, std::string(parts[i]), "is both a file and a folder");
      }
      return;
    }
    if (!is_new && child.facts.kind == Kind::File) {
      if (child.facts.size_bytes > 0) {
        set_unusable(node, std::string(parts[i]), "is both a file and a folder");
        return;
      }
      child.facts = folder_facts();  // an empty object that only marks it
    }
    if (child.facts.kind == Kind::Unusable) return;
    child.is_listed = is_listed;
    node = &child;
  }
}

/// Files that could not be fetched, however often it was tried: for a while nobody tries again.
class FailedFiles {
 public:
  void add(const std::string& url, const Error& error) {
    const std::lock_guard lock(mutex_);
    failed_.insert_or_assign(url, Failed{error, Clock::now()});
  }
  [[nodiscard]] std::optional<Error> recent(const std::string& url) const {
    const std::lock_guard lock(mutex_);
    const auto found = failed_.find(url);
    if (found == failed_.end() || Clock::now() - found->second.when > kFailureLasts)
      return std::nullopt;
    return found->second.error;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    failed_.clear();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Failed {
    Error error;
    Clock::time_point when;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Failed> failed_;
};

/// A file of the store, and its part that is here.
class RemoteFile : public PartialFile {
 public:
  RemoteFile(std::shared_ptr<Transfer> transfer, std::shared_ptr<FailedFiles> failed,
             std::shared_ptr<CachedFile> cached, std::string url, std::string version,
             std::string home)
      : transfer_(std::move(transfer)),
        failed_(std::move(failed)),
        cached_(std::move(cached)),
        url_(std::move(url)),
        version_(std::move(version)),
        home_(std::move(home)) {}
  int descriptor() const override { return cached_->descriptor(); }
  uint64_t size_bytes() const override { return cached_->size_bytes(); }
  Result<std::shared_ptr<const void>> fetch(uint64_t offset, uint64_t size_bytes) override {
    Result<std::shared_ptr<const void>> held = cached_->hold(
        offset, size_bytes,
        [this](const std::string& local_file, const std::vector<ByteRange>& ranges) -> Status {
          if (std::optional<Error> error = failed_->recent(url_)) return fail(*std::move(error));
          Status fetched =
              transfer_->fetch({{url_, cached_->size_bytes(), version_, local_file, ranges}});
          if (!fetched && fetched.error().code == Errc::Io) failed_->add(url_, fetched.error());
          return fetched;
        });
    if (!held && held.error().code != Errc::Interrupted)
      note_failed_reading(without_home(held.error(), home_));
    return held;
  }

 private:
  std::shared_ptr<Transfer> transfer_;
  std::shared_ptr<FailedFiles> failed_;
  std::shared_ptr<CachedFile> cached_;
  std::string url_;
  std::string version_;
  std::string home_;
};

class RemoteFiles : public FileSource {
 public:
  RemoteFiles(std::shared_ptr<Carrier> carrier, std::string home)
      : transfer_(std::make_shared<Transfer>(std::move(carrier))), home_(std::move(home)) {}

  Status prepare(const std::string& path) override {
    const std::string url = normal_url(path);
    if (url.ends_with("://"))
      return fail(Error{Errc::NotFound, path, std::nullopt, "names no file or folder"});
    failed_->forget();
    Result<std::vector<Entry>> entries = transfer_->tree(url);
    if (!entries) {
      const std::lock_guard lock(mutex_);
      *place(url) = TreeNode();
      return fail(with_path(entries.error(), path));
    }
    TreeNode top;
    top.is_listed = true;
    for (const Entry& entry : *entries) {
      if (entry.name.empty()) {
        top.facts = entry.facts;
      } else {
        insert(&top, entry, true);
      }
    }
    // A store that lists a file below itself means the file.
    if (entries->size() > 1 || top.facts.kind == Kind::Folder) top.facts = folder_facts();
    std::vector<std::string> lists;
    uint64_t bytes = 0;
    collect_lists(top, url, &lists, &bytes);
    {
      const std::lock_guard lock(mutex_);
      *place(url) = std::move(top);
    }
    fetch_lists(lists);
    return {};
  }

  Result<FileFacts> facts(const std::string& path) override {
    const std::string url = normal_url(path);
    {
      const std::lock_guard lock(mutex_);
      bool is_known = false;
      if (const TreeNode* node = find(url, &is_known); node != nullptr) return node->facts;
      if (is_known) return fail(errno_error(ENOENT, "open", path));
    }
    Result<FileFacts> found = transfer_->facts(url);
    if (!found) return fail(with_path(found.error(), path));
    const std::lock_guard lock(mutex_);
    place(url)->facts = *found;
    return found;
  }

  Result<std::vector<ListedFile>> list(const std::string& folder) override {
    const std::string url = normal_url(folder);
    {
      const std::lock_guard lock(mutex_);
      bool is_known = false;
      const TreeNode* node = find(url, &is_known);
      if (node == nullptr && is_known) return fail(errno_error(ENOENT, "list folder", folder));
      if (node != nullptr && node->facts.kind != Kind::Folder)
        return fail(errno_error(ENOTDIR, "list folder", folder));
      if (node != nullptr && node->is_listed) return children_of(*node);
    }
    const Result<std::vector<Entry>> entries = transfer_->list(url);
    if (!entries) return fail(with_path(entries.error(), folder));
    const std::lock_guard lock(mutex_);
    TreeNode* node = place(url);
    for (const Entry& entry : *entries) {
      const auto known = node->children.find(entry.name);
      if (known != node->children.end()) {
        // What is known of a folder stays known.
        if (known->second.facts.kind == Kind::Folder) continue;
        node->children.erase(known);
      }
      insert(node, entry, false);
    }
    node->is_listed = true;
    return children_of(*node);
  }

  Result<std::shared_ptr<PartialFile>> open(const std::string& path) override {
    Result<std::shared_ptr<PartialFile>> file = open_in_cache(path);
    if (!file && file.error().path != path) note_failed_reading(without_home(file.error(), home_));
    return file;
  }

  /// Heads of many files are read where nothing else of them is, so a block of each is too much.
  Result<std::string> head(const std::string& path, uint64_t size_bytes) override {
    if (home_.empty()) return FileSource::head(path, size_bytes);
    ASSAY_TRY(const FileFacts found, facts(path));
    if (found.kind != Kind::File) return FileSource::head(path, size_bytes);
    std::string bytes(std::min(size_bytes, found.size_bytes), '\0');
    const FileDescriptor memory(::memfd_create("assay-head", MFD_CLOEXEC));
    if (memory.get() < 0) return fail(errno_error(errno, "keep the head of", path));
    const std::string local =
        "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory.get());
    if (Status fetched = transfer_->fetch(
            {{normal_url(path), found.size_bytes, found.version, local, {{0, bytes.size()}}}});
        !fetched) {
      if (fetched.error().code != Errc::Interrupted)
        note_failed_reading(without_home(fetched.error(), home_));
      return fail(fetched.error());
    }
    const ssize_t count = ::pread(memory.get(), bytes.data(), bytes.size(), 0);
    if (count < 0) return fail(errno_error(errno, "read", path));
    bytes.resize(static_cast<size_t>(count));
    return bytes;
  }

 private:
  /// errors   with another path than the file's when the cache does not work
  Result<std::shared_ptr<PartialFile>> open_in_cache(const std::string& path) {
    ASSAY_TRY(const FileFacts found, facts(path));
    if (found.kind != Kind::File)
      return fail(
          Error{Errc::Unsupported, path, std::nullopt,
                found.kind == Kind::Folder ? "is a directory, a file is needed" : found.problem});
    const std::string url = normal_url(path);
    ASSAY_TRY(const std::shared_ptr<BlockCache> cache, cache_of_all());
    ASSAY_TRY(std::shared_ptr<CachedFile> cached,
              cache->file(url, found.size_bytes, found.version));
    return std::make_shared<RemoteFile>(transfer_, failed_, std::move(cached), url, found.version,
                                        home_);
  }

  /// A URL in components: the scheme with what follows it, then names.
  static std::vector<std::string_view> components(const std::string& url) {
    const size_t start = url.find("://") + 3;
    const size_t slash = url.find('/', start);
    std::vector<std::string_view> parts = {std::string_view(url).substr(0, slash)};
    if (slash == std::string::npos) return parts;
    for (const std::string_view part : split(std::string_view(url).substr(slash + 1), '/'))
      if (!part.empty()) parts.push_back(part);
    return parts;
  }

  static Error with_path(Error error, const std::string& path) {
    if (error.path.empty() || normal_url(error.path) == normal_url(path)) error.path = path;
    return error;
  }

  static std::vector<ListedFile> children_of(const TreeNode& node) {
    std::vector<ListedFile> children;
    children.reserve(node.children.size());
    for (const auto& [name, child] : node.children) children.push_back({name, child.facts});
    return children;
  }

  /// nullptr when nothing is known of it; then `is_known` says that there is nothing.
  const TreeNode* find(const std::string& url, bool* is_known) const {
    const std::vector<std::string_view> parts = components(url);
    auto found = roots_.find(parts[0]);
    if (found == roots_.end()) return nullptr;
    const TreeNode* node = &found->second;
    for (size_t i = 1; i < parts.size(); ++i) {
      const auto child = node->children.find(parts[i]);
      if (child == node->children.end()) {
        *is_known = node->is_listed || node->facts.kind == Kind::File;
        return nullptr;
      }
      node = &child->second;
    }
    return node;
  }

  /// The node of a URL; new ones, and those above it, are folders.
  TreeNode* place(const std::string& url) {
    const std::vector<std::string_view> parts = components(url);
    TreeNode* node = &roots_[std::string(parts[0])];
    for (size_t i = 1; i < parts.size(); ++i) node = &node->children[std::string(parts[i])];
    return node;
  }

  static void collect_lists(const TreeNode& node, const std::string& url,
                            std::vector<std::string>* lists, uint64_t* bytes) {
    for (const auto& [name, child] : node.children) {
      if (child.facts.kind == Kind::Folder) collect_lists(child, url + "/" + name, lists, bytes);
      if (child.facts.kind != Kind::File || !is_list(name) || child.facts.size_bytes == 0 ||
          child.facts.size_bytes > kMaxPreparedFile ||
          *bytes + child.facts.size_bytes > kMaxPrepared)
        continue;
      *bytes += child.facts.size_bytes;
      lists->push_back(url + "/" + name);
    }
  }

  /// Several at a time. Whoever reads one that could not be fetched meets its error again.
  void fetch_lists(const std::vector<std::string>& lists) {
    parallel_for(lists.size(), kListsAtOnce, [&](size_t i) {
      const Result<std::shared_ptr<PartialFile>> file = open(lists[i]);
      if (file) (void)(*file)->fetch(0, (*file)->size_bytes());
    });
  }

  Result<std::shared_ptr<BlockCache>> cache_of_all() {
    const std::lock_guard lock(cache_mutex_);
    if (cache_ == nullptr) {
      ASSAY_TRY(cache_, BlockCache::open_default());
    }
    return cache_;
  }

  std::shared_ptr<Transfer> transfer_;
  std::string home_;
  std::shared_ptr<FailedFiles> failed_ = std::make_shared<FailedFiles>();
  std::mutex mutex_;
  std::map<std::string, TreeNode, std::less<>> roots_;
  std::mutex cache_mutex_;
  std::shared_ptr<BlockCache> cache_;
};

}  // namespace

Error without_home(Error error, std::string_view home, const std::string& path) {
  if (home.empty() || !error.path.starts_with(home)) return error;
  error.path = path.empty() ? error.path.substr(home.size()) : path;
  return error;
}

std::shared_ptr<FileSource> make_remote_files(std::shared_ptr<Carrier> carrier, std::string home) {
  return std::make_shared<RemoteFiles>(std::move(carrier), std::move(home));
}

void register_remote_files() {
  register_file_source("", make_remote_files(make_process_carrier()));
}

}  // namespace assay::remote

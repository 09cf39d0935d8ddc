// SPDX-License-Identifier: Apache-2.0
// The native layout: docs/formats/native.md
#include <map>
#include <set>
#include <utility>

#include "base/mapped_file.hpp"
#include "base/text.hpp"
#include "run/atb_names.hpp"
#include "run/folder.hpp"
#include "run/manifest.hpp"
#include "run/native_damage.hpp"
#include "run/native_records.hpp"
#include "run/natural_sort.hpp"
#include "run/requested_steps.hpp"
#include "run/sources/native_graph.hpp"
#include "run/sources/sources.hpp"
#include "stats/digest.hpp"

#include <algorithm>

namespace assay::run::sources {
namespace {

struct RankFolder {
  std::string path;
  int rank = 0;
};

/// The rank folders below a run folder. The second process of one rank number gets the next free
/// number, so that (rank, step, node, slot) stays unique.
std::vector<RankFolder> find_rank_folders(const FolderEntries& entries, Run* run) {
  std::vector<RankFolder> folders;
  std::set<int> taken;
  for (const FolderEntry& entry : entries) {
    const std::optional<int> rank = native::rank_of_folder(entry.name);
    if (!rank) continue;
    if (entry.kind != FolderEntry::Kind::Folder) {
      run->warnings.push_back(entry.path + ": " +
                              (entry.problem.empty() ? "is no folder" : entry.problem));
      continue;
    }
    folders.push_back({entry.path, *rank});
    taken.insert(*rank);
  }
  std::set<int> used;
  for (RankFolder& folder : folders) {
    if (used.insert(folder.rank).second) continue;
    folder.rank = *taken.rbegin() + 1;
    taken.insert(folder.rank);
    used.insert(folder.rank);
    run->warnings.push_back(folder.path + ": a second process of the same rank, listed as rank " +
                            std::to_string(folder.rank));
  }
  return folders;
}

bool have_same_modules(const TopologyNode& a, const TopologyNode& b) {
  return a.name == b.name && a.type == b.type &&
         std::ranges::equal(a.children, b.children, have_same_modules);
}

/// Reads the trees of ranks; most have the same one.
class TreeReader {
 public:
  explicit TreeReader(Run* run) : run_(*run) {}

  void read(const RankFolder& folder) {
    const std::string path = join_path(folder.path, native::kTopologyFile);
    const Result<MappedFile> file = MappedFile::open(path);
    if (!file) {
      if (file.error().code != Errc::NotFound) run_.warnings.push_back(file.error().describe());
      return;
    }
    const auto [known, is_new] =
        trees_.try_emplace(stats::digest_text(stats::digest_bytes(file->bytes())), kDamaged);
    if (is_new) {
      Result<TopologyNode> tree = in_file(path, topology::read_model_tree(as_text(file->bytes())));
      if (tree) {
        // Files of one tree may differ in the order of execution.
        const auto alike = std::ranges::find_if(run_.rank_trees, [&](const Run::RankTree& one) {
          return have_same_modules(one.tree, *tree);
        });
        known->second = static_cast<size_t>(alike - run_.rank_trees.begin());
        if (alike == run_.rank_trees.end()) run_.rank_trees.push_back({{}, *std::move(tree)});
      } else {
        run_.warnings.push_back(tree.error().describe());
      }
    }
    if (known->second != kDamaged) run_.rank_trees[known->second].ranks.push_back(folder.rank);
  }

  void finish() {
    if (run_.rank_trees.empty()) return;
    run_.topology = run_.rank_trees.front().tree;
    if (run_.rank_trees.size() == 1 && run_.rank_trees.front().ranks.size() == 1)
      run_.rank_trees.clear();
  }

 private:
  static constexpr size_t kDamaged = SIZE_MAX;

  Run& run_;
  std::map<std::string, size_t> trees_;  // place in rank_trees, by digest
};

/// True when the text says that it is a manifest of ours, even when it was cut off behind that.
bool is_native_manifest(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return false;
  const std::string_view start = as_text(file->bytes()).substr(0, 256);
  return start.find(native::kManifestFormat) != std::string_view::npos;
}

/// The manifest of each folder. With several processes each one keeps its own; what one of them has
/// none of, the first has at the top.
std::vector<Manifest> read_manifests(const std::string& path,
                                     const std::vector<RankFolder>& folders, Run* run) {
  std::vector<Manifest> manifests;
  std::vector<size_t> without;
  for (const RankFolder& folder : folders) {
    manifests.push_back(
        folder.path == path
            ? Manifest()
            : add_manifest_file(join_path(folder.path, native::kManifestFile), run));
    if (!manifests.back().found) without.push_back(manifests.size() - 1);
  }
  if (without.empty() && !folders.empty()) return manifests;
  Manifest top = add_manifest_file(join_path(path, native::kManifestFile), run);
  if (folders.empty()) {
    if (!top.files.empty()) run->add_damage(path, "the folders of its ranks are missing");
    if (top.is_unfinished()) run->coverage.complete = false;
    return manifests;
  }
  // The folder of one rank of several has its manifest one level up.
  if (!top.found && folders.size() == 1 && folders[0].path == path)
    top = add_manifest_file(join_path(path, "../manifest.json"), run);
  if (!top.found && without.size() == manifests.size()) run->coverage.complete = false;
  manifests[without.front()] = std::move(top);
  return manifests;
}

/// One capture of several processes is one run: the ids that its ranks have agree, in their
/// manifests as in the first lines of their records.
class RankIds {
 public:
  explicit RankIds(Run* run) : run_(run) {}
  void add(const std::string& folder, const Manifest& manifest) {
    if (manifest.found) compare(folder, manifest.id);
  }
  /// Of a rank that has no manifest; after all manifests.
  void add(const std::string& folder, const RecordsFacts& records) {
    if (!records.run_id.empty()) compare(folder, records.run_id);
  }

 private:
  void compare(const std::string& folder, const std::string& id) {
    if (!first_folder_) {
      first_folder_ = folder;
      id_ = id;
    } else if (id != id_) {
      run_->add_damage(folder, "is of another run than " + *first_folder_);
    }
  }

  Run* run_;
  std::optional<std::string> first_folder_;
  std::string id_;
};

Attempt read_newest_graph_run(const std::string& path) {
  std::vector<std::string> warnings;
  const std::optional<std::string> newest = newest_graph_run(path, &warnings);
  if (!newest || !is_native_manifest(join_path(*newest, native::kManifestFile)))
    return std::nullopt;
  Attempt run = read_native(*newest);
  if (run && *run) {
    std::vector<std::string>& all = (*run)->warnings;
    all.insert(all.begin(), warnings.begin(), warnings.end());
  }
  return run;
}

}  // namespace

Attempt read_native(const std::string& path) {
  std::string boundary = real_path(path);
  Result<FolderEntries> entries = list_folder(path, boundary);
  if (!entries) return Result<Run>(fail(entries.error()));
  Run run;
  run.layout = Layout::Native;
  std::vector<RankFolder> folders;
  // Of ATB: {device}_{pid}.
  if (parse_atb_process_folder(base_name(boundary))) return std::nullopt;
  if (is_file(join_path(path, native::kRecordsFile))) {
    const std::optional<int> rank = native::rank_of_folder(base_name(boundary));
    folders.push_back({path, rank.value_or(0)});
  } else {
    folders = find_rank_folders(*entries, &run);
    std::erase_if(folders, [](const RankFolder& folder) {
      return !is_file(join_path(folder.path, native::kRecordsFile)) &&
             !is_file(join_path(folder.path, native::kTopologyFile));
    });
    if (folders.empty() && !is_native_manifest(join_path(path, native::kManifestFile)))
      return read_newest_graph_run(path);
  }

  const std::vector<Manifest> manifests = read_manifests(path, folders, &run);
  RankIds ids(&run);
  for (size_t i = 0; i < folders.size(); ++i) ids.add(folders[i].path, manifests[i]);
  TreeReader trees(&run);
  std::vector<bool> unfinished(folders.size());
  for (size_t i = 0; i < folders.size(); ++i) {
    if (!manifests[i].parallel.empty()) run.parallel[folders[i].rank] = manifests[i].parallel;
    trees.read(folders[i]);
    const bool others = std::exchange(run.coverage.complete, true);
    const RecordsFacts records = read_records(folders[i].path, folders[i].rank, boundary, &run);
    // Of whole lines the manifest's end is asked below.
    unfinished[i] = run.coverage.complete && manifests[i].is_unfinished();
    run.coverage.complete = run.coverage.complete && others;
    find_native_damage(folders[i].path, boundary, manifests[i], records, &run);
    if (!manifests[i].found) ids.add(folders[i].path, records);
    if (!manifests[i].found && !records.run_id.empty()) run.coverage.complete = false;
  }
  trees.finish();
  for (size_t i = 0; i < folders.size(); ++i) {
    if (unfinished[i] &&
        !has_all_requested_steps(folders[i].path, boundary, folders[i].rank, manifests[i], run))
      run.coverage.complete = false;
  }
  if (is_of_graphs(run)) {
    std::vector<std::pair<int, std::string>> ranks;
    for (const RankFolder& folder : folders) ranks.emplace_back(folder.rank, folder.path);
    become_graph_run(ranks, &run);
  }
  if (!run.coverage.complete) {
    run.warnings.push_back("the capture did not finish: it was killed, or it is still running; " +
                           std::to_string(run.records.size()) + " records are complete");
  }
  if (run.coverage.captured == 0) {
    std::set<std::string_view> nodes;
    for (const TensorRecord& record : run.records) {
      // Modules were planned; operators and weights come with them.
      const bool counts = run.coverage.planned == 0 ||
                          (module_of_node(record.node) == record.node.str() &&
                           (record.role == Role::Input || record.role == Role::Output));
      if (counts) nodes.insert(record.node);
    }
    run.coverage.captured = nodes.size();
  }
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources

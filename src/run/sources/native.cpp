// SPDX-License-Identifier: Apache-2.0
// The native layout: docs/formats/native.md
#include <charconv>
#include <map>
#include <set>

#include "base/mapped_file.hpp"
#include "base/text.hpp"
#include "run/folder.hpp"
#include "run/manifest.hpp"
#include "run/natural_sort.hpp"
#include "run/records_line.hpp"
#include "run/sources/sources.hpp"

#include <sys/stat.h>

#include <algorithm>

namespace assay::run::sources {
namespace {

constexpr size_t kMaxLineWarnings = 10;  // per file; the rest is counted

struct RankFolder {
  std::string path;
  int rank = 0;
};

/// "rank3" and "rank3-4711" -> 3
std::optional<int> parse_rank_folder(std::string_view name) {
  if (!name.starts_with("rank")) return std::nullopt;
  name.remove_prefix(4);
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || rank < 0) return std::nullopt;
  if (end != name.data() + name.size() && *end != '-') return std::nullopt;
  return rank;
}

/// The rank folders below a run folder. The second process of one rank number gets the next free
/// number, so that (rank, step, node, slot) stays unique.
std::vector<RankFolder> find_rank_folders(const std::vector<FolderEntry>& entries, Run* run) {
  std::vector<RankFolder> folders;
  std::set<int> taken;
  for (const FolderEntry& entry : entries) {
    const std::optional<int> rank = parse_rank_folder(entry.name);
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

/// The files that the records of one rank point into.
class StepFiles {
 public:
  StepFiles(const std::string& folder, const std::string& boundary, Run* run) : folder_(folder) {
    Result<std::vector<FolderEntry>> entries = list_folder(folder, boundary);
    if (!entries) {
      run->warnings.push_back(entries.error().describe());
      return;
    }
    for (FolderEntry& entry : *entries) {
      if (entry.name.find(".tmp") != std::string::npos) run->coverage.complete = false;
      State state;
      if (entry.kind == FolderEntry::Kind::File) {
        struct stat info{};
        if (::stat(entry.path.c_str(), &info) == 0)
          state.size_bytes = static_cast<uint64_t>(info.st_size);
      } else {
        state.problem = entry.kind == FolderEntry::Kind::Folder ? "is a folder" : entry.problem;
      }
      files_.emplace(std::move(entry.name), std::move(state));
    }
  }

  /// Turns the bare file name into a path and holds the place against the file.
  void complete(TensorRecord* record) const {
    if (!record->bytes) return;
    ByteLocation& location = *record->bytes;
    const auto found = files_.find(location.file);
    const std::string name = location.file;
    location.file = join_path(folder_, name);
    if (found == files_.end()) {
      record->problem = location.file + ": the file is missing";
    } else if (!found->second.problem.empty()) {
      record->problem = location.file + ": " + found->second.problem;
      record->bytes.reset();
    } else if (location.offset > found->second.size_bytes ||
               location.size_bytes > found->second.size_bytes - location.offset) {
      record->problem = location.file + ": at byte " + std::to_string(location.offset) +
                        ": the record says " + std::to_string(location.size_bytes) +
                        " bytes, the file ends at " + std::to_string(found->second.size_bytes);
    }
  }

 private:
  struct State {
    uint64_t size_bytes = 0;
    std::string problem;
  };
  std::string folder_;
  std::map<std::string, State, std::less<>> files_;
};

class LineWarnings {
 public:
  LineWarnings(std::string path, Run* run) : path_(std::move(path)), run_(run) {}
  ~LineWarnings() {
    if (count_ > kMaxLineWarnings) {
      run_->warnings.push_back(path_ + ": " + std::to_string(count_ - kMaxLineWarnings) +
                               " more lines with problems");
    }
  }
  LineWarnings(const LineWarnings&) = delete;
  LineWarnings& operator=(const LineWarnings&) = delete;
  void add(size_t line, const std::string& message) {
    if (++count_ > kMaxLineWarnings) return;
    run_->warnings.push_back(path_ + ": line " + std::to_string(line) + ": " + message);
  }

 private:
  std::string path_;
  Run* run_;
  size_t count_ = 0;
};

void read_records(const RankFolder& folder, const std::string& boundary, Run* run) {
  const std::string path = join_path(folder.path, "records.jsonl");
  if (const std::string target = real_path(path); !target.empty() && !is_inside(target, boundary)) {
    run->warnings.push_back(path + ": is a link that leaves the run: " + target);
    return;
  }
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) {
    run->coverage.complete = false;
    run->warnings.push_back(file.error().describe());
    return;
  }
  const StepFiles step_files(folder.path, boundary, run);
  LineWarnings warnings(path, run);
  std::map<int64_t, size_t> by_number;  // index into run->records
  std::string_view rest = as_text(file->bytes());
  for (size_t line_number = 1; !rest.empty(); ++line_number) {
    const size_t end = rest.substr(0, kMaxRecordLineBytes + 1).find('\n');
    if (end == std::string_view::npos && rest.size() > kMaxRecordLineBytes) {
      run->coverage.complete = false;
      run->warnings.push_back(path + ": line " + std::to_string(line_number) + ": is longer than " +
                              human_bytes(kMaxRecordLineBytes) +
                              "; it and what follows were left out");
      return;
    }
    if (end == std::string_view::npos) {
      run->coverage.complete = false;
      run->warnings.push_back(path + ": line " + std::to_string(line_number) +
                              ": the last line is incomplete and was left out");
      return;
    }
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<RecordsLine> parsed = parse_records_line(line);
    if (!parsed) {
      warnings.add(line_number, parsed.error().message);
      continue;
    }
    if (parsed->operation) {
      OperationRecord& operation = *parsed->operation;
      operation.rank = folder.rank;
      operation.order = static_cast<uint64_t>(parsed->number);
      run->operations.push_back(std::move(operation));
      continue;
    }
    TensorRecord& record = parsed->record;
    record.rank = folder.rank;
    // Order of production: a module's outputs stand behind those of the modules inside it.
    record.order = static_cast<uint64_t>(parsed->number);
    if (!record.bytes && record.stats) record.stats_file = path;
    step_files.complete(&record);
    if (!record.bytes && record.problem.empty() && parsed->same_as) {
      const auto original = by_number.find(*parsed->same_as);
      if (original == by_number.end()) {
        record.problem = "the record has the same bytes as record " +
                         std::to_string(*parsed->same_as) + ", which does not stand before it";
      } else {
        record.bytes = run->records[original->second].bytes;
        if (!record.digest) record.digest = run->records[original->second].digest;
      }
    }
    if (record.producer >= 0) {
      const auto producer = by_number.find(record.producer);
      if (producer == by_number.end() || run->records[producer->second].role != Role::Output) {
        warnings.add(line_number, "the value is said to be from record " +
                                      std::to_string(record.producer) +
                                      ", which is no output before it");
        record.producer = -1;
      }
    }
    if (!by_number.emplace(parsed->number, run->records.size()).second) {
      warnings.add(line_number,
                   "record number " + std::to_string(parsed->number) + " occurs a second time");
    }
    run->records.push_back(std::move(record));
  }
}

void read_topology(const RankFolder& folder, Run* run) {
  if (run->topology) return;
  const std::string path = join_path(folder.path, "topology.json");
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) {
    if (file.error().code != Errc::NotFound) run->warnings.push_back(file.error().describe());
    return;
  }
  Result<TopologyNode> tree = in_file(path, topology::read_model_tree(as_text(file->bytes())));
  if (tree) {
    run->topology = *std::move(tree);
  } else {
    run->warnings.push_back(tree.error().describe());
  }
}

/// True when the text says that it is a manifest of ours, even when it was cut off behind that.
bool is_native_manifest(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return false;
  const std::string_view start = as_text(file->bytes()).substr(0, 256);
  return start.find("\"assay-run\"") != std::string_view::npos;
}

}  // namespace

Attempt read_native(const std::string& path) {
  std::string boundary = real_path(path);
  Result<std::vector<FolderEntry>> entries = list_folder(path, boundary);
  if (!entries) return Result<Run>(fail(entries.error()));
  Run run;
  run.layout = "native";
  std::vector<RankFolder> folders;
  if (is_file(join_path(path, "records.jsonl"))) {
    const std::optional<int> rank = parse_rank_folder(base_name(boundary));
    folders.push_back({path, rank.value_or(0)});
  } else {
    folders = find_rank_folders(*entries, &run);
    std::erase_if(folders, [](const RankFolder& folder) {
      return !is_file(join_path(folder.path, "records.jsonl")) &&
             !is_file(join_path(folder.path, "topology.json"));
    });
    if (folders.empty() && !is_native_manifest(join_path(path, "manifest.json")))
      return std::nullopt;
  }

  // With several ranks each one keeps its own manifest, and the top-level one repeats that of the
  // first process.
  size_t manifests = 0;
  for (const RankFolder& folder : folders) {
    bool found = false;
    if (folder.path != path)
      add_manifest_file(join_path(folder.path, "manifest.json"), &run, &found);
    manifests += found;
  }
  if (manifests == 0) {
    bool found = false;
    add_manifest_file(join_path(path, "manifest.json"), &run, &found);
    // The folder of one rank of several has its manifest one level up.
    if (!found && folders.size() == 1 && folders[0].path == path) {
      add_manifest_file(join_path(path, "../manifest.json"), &run, &found);
    }
    if (!found) run.coverage.complete = false;
  }
  for (const RankFolder& folder : folders) {
    read_topology(folder, &run);
    read_records(folder, boundary, &run);
  }
  if (!run.coverage.complete) {
    run.warnings.push_back("the capture did not finish: it was killed, or it is still running; " +
                           std::to_string(run.records.size()) + " records are complete");
  }
  if (run.coverage.captured == 0) {
    std::set<std::string_view> nodes;
    for (const TensorRecord& record : run.records) nodes.insert(record.node);
    run.coverage.captured = nodes.size();
  }
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources

// SPDX-License-Identifier: Apache-2.0
// The native layout: docs/formats/native.md
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/mapped_file.hpp"
#include "base/text.hpp"
#include "run/folder.hpp"
#include "run/manifest.hpp"
#include "run/native_damage.hpp"
#include "run/natural_sort.hpp"
#include "run/payload_check.hpp"
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

/// The rank folders below a run folder. The second process of one rank number gets the next free
/// number, so that (rank, step, node, slot) stays unique.
std::vector<RankFolder> find_rank_folders(const std::vector<FolderEntry>& entries, Run* run) {
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
  void complete(TensorRecord* record, Run* run) const {
    if (!record->bytes) return;
    ByteLocation& location = *record->bytes;
    const auto found = files_.find(location.file);
    const std::string name = location.file;
    location.file = join_path(folder_, name);
    if (found == files_.end()) {
      record->problem = location.file + ": the file is missing";
      run->add_damage(location.file, "the file is missing");
    } else if (!found->second.problem.empty()) {
      record->problem = location.file + ": " + found->second.problem;
      record->bytes.reset();
    } else if (location.offset > found->second.size_bytes ||
               location.size_bytes > found->second.size_bytes - location.offset) {
      record->problem = location.file + ": at byte " + std::to_string(location.offset) +
                        ": the record says " + std::to_string(location.size_bytes) +
                        " bytes, the file ends at " + std::to_string(found->second.size_bytes);
      run->add_damage(location.file, "ends before the tensors that the records say are in it");
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

/// The checks of stored payloads, one for all records that share one.
class PayloadChecks {
 public:
  PayloadChecks(std::string path, Run* run) : path_(std::move(path)), run_(run) {}

  /// `record` will be the next of the run.
  void give(const std::string& device, TensorRecord* record) {
    if (!record->bytes || !record->dtype || !record->memory_format.empty() ||
        !(record->stats || record->digest))
      return;
    const bool is_rough = device != "cpu";
    Places& places = places_of(record->bytes->file);
    const auto [place, is_new] = places.try_emplace(record->bytes->offset, run_->records.size());
    if (!is_new) {
      const TensorRecord& first = run_->records[place->second];
      if (first.bytes->size_bytes == record->bytes->size_bytes && first.dtype == record->dtype) {
        record->check = first.check;
        compare(first, *record, is_rough);
        return;
      }
    }
    record->check = std::make_shared<PayloadCheck>(is_rough, run_->found_damage);
  }

 private:
  using Places = std::unordered_map<uint64_t, size_t>;  // offset -> first record there

  Places& places_of(const std::string& file) {
    if (last_ == nullptr || file != last_->first) last_ = &*files_.try_emplace(file).first;
    return last_->second;
  }

  void compare(const TensorRecord& first, const TensorRecord& record, bool is_rough) {
    if (!first.stats || !record.stats) return;
    const std::string other = difference(*first.stats, *record.stats, is_rough);
    if (!other.empty())
      run_->add_damage(path_, "tells two things of the bytes at " +
                                  std::to_string(record.bytes->offset) + " of " +
                                  record.bytes->file + ": " + other);
  }

  std::string path_;  // of the records
  Run* run_;
  std::unordered_map<std::string, Places> files_;
  /// Most records are of the file of the one before.
  std::pair<const std::string, Places>* last_ = nullptr;
};

void count(const RecordsLine& line, RecordsFacts* facts) {
  const int64_t number = line.operation ? line.operation->step : line.record.step;
  if (number < 0) return;
  native::ManifestStep& step = facts->steps[number];
  step.step = number;
  ++step.records;
  step.tensors += line.is_tensor;
  if (line.is_tensor && !line.same_as && line.record.bytes)
    step.bytes += line.record.bytes->size_bytes;
}

RecordsFacts read_records(const RankFolder& folder, const std::string& boundary, Run* run) {
  const std::string path = join_path(folder.path, native::kRecordsFile);
  RecordsFacts facts;
  facts.path = path;
  facts.has_views = run->has_own_engine();
  if (const std::string target = real_path(path); !target.empty() && !is_inside(target, boundary)) {
    run->warnings.push_back(path + ": is a link that leaves the run: " + target);
    return facts;
  }
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) {
    run->coverage.complete = false;
    run->warnings.push_back(file.error().describe());
    return facts;
  }
  facts.file = *file;
  PayloadChecks checks(path, run);
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
      return facts;
    }
    if (end == std::string_view::npos) {
      run->coverage.complete = false;
      run->warnings.push_back(path + ": line " + std::to_string(line_number) +
                              ": the last line is incomplete and was left out");
      return facts;
    }
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<RecordsLine> parsed = parse_records_line(line);
    if (!parsed) {
      warnings.add(line_number, parsed.error().message);
      continue;
    }
    if (facts.lines++ == 0) facts.run_id = parsed->run_id;
    count(*parsed, &facts);
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
    step_files.complete(&record, run);
    checks.give(parsed->device, &record);
    if (!record.bytes && record.problem.empty() && parsed->same_as) {
      const auto original = by_number.find(*parsed->same_as);
      if (original == by_number.end()) {
        record.problem = "the record has the same bytes as record " +
                         std::to_string(*parsed->same_as) + ", which does not stand before it";
      } else {
        record.bytes = run->records[original->second].bytes;
        record.check = run->records[original->second].check;
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
  return facts;
}

void read_topology(const RankFolder& folder, Run* run) {
  if (run->topology) return;
  const std::string path = join_path(folder.path, native::kTopologyFile);
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
    return manifests;
  }
  // The folder of one rank of several has its manifest one level up.
  if (!top.found && folders.size() == 1 && folders[0].path == path)
    top = add_manifest_file(join_path(path, "../manifest.json"), run);
  if (!top.found && without.size() == manifests.size()) run->coverage.complete = false;
  manifests[without.front()] = std::move(top);
  return manifests;
}

/// One capture of several processes is one run.
void compare_ids(const std::vector<RankFolder>& folders, const std::vector<Manifest>& manifests,
                 Run* run) {
  for (size_t i = 1; i < manifests.size(); ++i) {
    if (manifests[i].found && manifests[0].found && manifests[i].id != manifests[0].id)
      run->add_damage(folders[i].path, "is of another run than " + folders[0].path);
  }
}

}  // namespace

Attempt read_native(const std::string& path) {
  std::string boundary = real_path(path);
  Result<std::vector<FolderEntry>> entries = list_folder(path, boundary);
  if (!entries) return Result<Run>(fail(entries.error()));
  Run run;
  run.layout = Layout::Native;
  std::vector<RankFolder> folders;
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
      return std::nullopt;
  }

  const std::vector<Manifest> manifests = read_manifests(path, folders, &run);
  compare_ids(folders, manifests, &run);
  for (size_t i = 0; i < folders.size(); ++i) {
    if (!manifests[i].parallel.empty()) run.parallel[folders[i].rank] = manifests[i].parallel;
    read_topology(folders[i], &run);
    const RecordsFacts records = read_records(folders[i], boundary, &run);
    find_native_damage(folders[i].path, boundary, manifests[i], records, &run);
    if (!manifests[i].found && !records.run_id.empty()) run.coverage.complete = false;
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

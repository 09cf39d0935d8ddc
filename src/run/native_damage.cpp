// SPDX-License-Identifier: Apache-2.0
// First the run's id in manifest, records and step files; then, of a capture that ended, sizes,
// digests and the counts of each step. Of a step file only its first bytes are read.
//   docs/formats/native.md, "What holds a run together"
#include "run/native_damage.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "base/bytes.hpp"
#include "base/file_descriptor.hpp"
#include "base/file_source.hpp"
#include "run/folder.hpp"

namespace assay::run {
namespace {

constexpr size_t kHeadBytes = 1024;  // our writer's metadata, which stands first, takes about 150

class RankFiles {
 public:
  RankFiles(const std::string& folder, const std::string& boundary, const Manifest& manifest,
            const RecordsFacts& records, Run* run)
      : folder_(folder), manifest_(manifest), records_(records), run_(run) {
    if (Result<FolderEntries> entries = list_folder(folder, boundary))
      entries_ = *std::move(entries);
  }

  void find_damage() {
    check_records_id();
    for (const FolderEntry& entry : entries_) {
      if (entry.kind == FolderEntry::Kind::File && entry.name.ends_with(native::kStepFileSuffix))
        check_step_file(entry);
    }
    if (!manifest_.complete) return;
    if (!manifest_.id.empty()) check_list();
    check_steps();
  }

 private:
  void add(const std::string& file, std::string what) { run_->add_damage(file, std::move(what)); }

  [[nodiscard]] bool is_listed(std::string_view name) const {
    return std::ranges::any_of(manifest_.files,
                               [&](const auto& file) { return file.name == name; });
  }

  void check_records_id() {
    if (records_.lines == 0 || !manifest_.found || records_.run_id == manifest_.id) return;
    add(records_.path,
        records_.run_id.empty()
            ? "its first line does not name the run, as that of " + manifest_.path + " does"
            : "is of another run than " + manifest_.path);
  }

  void check_step_file(const FolderEntry& entry) {
    const Result<StepFileHead> head = read_step_file_head(entry.path);
    if (!head) return add(entry.path, head.error().describe());
    const std::string& id = manifest_.found ? manifest_.id : records_.run_id;
    if (head->run.empty()) {
      // The header comes last: of a capture that did not end it may never have been written.
      if (!id.empty() && manifest_.complete) add(entry.path, "its header does not name the run");
      return;
    }
    if (head->run != id) return add(entry.path, "is of another run");
    if (head->file != entry.name) return add(entry.path, "was written as " + head->file);
    if (manifest_.complete && !is_listed(entry.name))
      add(entry.path, "is not in the list of " + manifest_.path);
  }

  void check_list() {
    if (!is_listed(native::kRecordsFile)) add(manifest_.path, "does not list records.jsonl");
    for (const native::ManifestFile& file : manifest_.files) {
      if (file.name == native::kRecordsFile) {
        check_records(file);
      } else {
        check_listed(file);
      }
    }
  }

  void check_records(const native::ManifestFile& file) {
    const ByteSpan lines = records_.file ? records_.file->bytes() : ByteSpan();
    if (lines.size() != file.bytes)  // and then its digest is not asked for: it may be of any size
      return add(records_.path, "has " + std::to_string(lines.size()) +
                                    " bytes, the capture wrote " + std::to_string(file.bytes));
    if ((records_.digest ? *records_.digest : stats::digest_bytes(lines)) != file.digest)
      add(records_.path, "holds other lines than the capture wrote");
  }

  void check_listed(const native::ManifestFile& file) {
    const auto entry = std::ranges::find(entries_, file.name, &FolderEntry::name);
    const std::string path = join_path(folder_, file.name);
    if (entry == entries_.end()) return add(path, "the file is missing");
    if (entry->kind == FolderEntry::Kind::Folder) return add(path, "is a folder");
    if (entry->kind == FolderEntry::Kind::Unusable) return add(path, entry->problem);
    const Result<StepFileHead> head = read_step_file_head(entry->path);
    if (!head) return;  // said already
    if (head->file_bytes != file.bytes)
      return add(path, "has " + std::to_string(head->file_bytes) + " bytes, the capture wrote " +
                           std::to_string(file.bytes));
    if (head->digest != stats::digest_text(file.digest))
      add(path, "is not the file that the capture wrote");
  }

  void check_steps() {
    if (manifest_.steps.empty() && manifest_.id.empty())
      return;  // of an earlier version, or by hand
    std::map<int64_t, native::ManifestStep> said;
    for (const native::ManifestStep& step : manifest_.steps) {
      if (!said.emplace(step.step, step).second)
        add(manifest_.path, "lists step " + std::to_string(step.step) + " twice");
    }
    for (const auto& [number, step] : records_.steps) {
      if (!said.contains(number))
        add(records_.path, "holds step " + std::to_string(number) + ", which " + manifest_.path +
                               " does not list");
    }
    for (const auto& [number, step] : said) {
      const auto met = records_.steps.find(number);
      check_step(step,
                 met == records_.steps.end() ? native::ManifestStep{.step = number} : met->second);
    }
  }

  void check_step(const native::ManifestStep& said, const native::ManifestStep& met) {
    const std::string where = " of step " + std::to_string(said.step) + ", the capture wrote ";
    const auto differs = [&](const char* what, uint64_t has, uint64_t had) {
      if (has != had)
        add(records_.path, "has " + std::to_string(has) + " " + what + where + std::to_string(had));
      return has != had;
    };
    if (differs("records", met.records, said.records)) return;
    if (differs("tensors", met.tensors, said.tensors)) return;
    if (!records_.has_views) (void)differs("bytes", met.bytes, said.bytes);
  }

  std::string folder_;
  const Manifest& manifest_;
  const RecordsFacts& records_;
  Run* run_;
  FolderEntries entries_;
};

StepFileHead head_of(std::string_view bytes, uint64_t file_bytes) {
  StepFileHead head;
  head.file_bytes = file_bytes;
  if (bytes.size() <= 8) return head;
  const auto length = load<uint64_t>(bytes.data());
  if (length == 0) return head;  // it is written last: of a host that was killed before
  head.header_bytes = 8 + length;
  static_cast<native::StepMetadata&>(head) = native::read_step_metadata(bytes.substr(8));
  return head;
}

}  // namespace

Result<StepFileHead> read_step_file_head(const std::string& path) {
  if (const auto source = file_source(path)) {
    ASSAY_TRY(const FileFacts facts, source->facts(path));
    ASSAY_TRY(const std::string head, source->head(path, kHeadBytes));
    return head_of(head, facts.size_bytes);
  }
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0)
    return fail(errno_error(errno, "open", path));
  std::array<char, kHeadBytes> bytes{};
  const ssize_t count = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  if (count < 0) return fail(errno_error(errno, "read", path));
  return head_of(std::string_view(bytes.data(), static_cast<size_t>(count)),
                 static_cast<uint64_t>(info.st_size));
}

void find_native_damage(const std::string& folder, const std::string& boundary,
                        const Manifest& manifest, const RecordsFacts& records, Run* run) {
  RankFiles(folder, boundary, manifest, records, run).find_damage();
}

}  // namespace assay::run

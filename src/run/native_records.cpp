// SPDX-License-Identifier: Apache-2.0
// Threads parse pieces of whole lines while the pieces before them are taken in order, since a line
// may refer to an earlier one. Taking a line completes it, holds its bytes against the step files,
// and lets records of one payload share its check.
#include "run/native_records.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/file_descriptor.hpp"
#include "base/file_source.hpp"
#include "base/mapped_file.hpp"
#include "base/temporary_files.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "run/folder.hpp"
#include "run/payload_check.hpp"
#include "run/records_index.hpp"
#include "run/records_line.hpp"
#include "run/strided_payload.hpp"

namespace assay::run {
namespace {

constexpr size_t kMaxLineWarnings = 10;          // per file; the rest is counted
constexpr size_t kPieceBytes = size_t{1} << 17;  // of lines that one thread parses
constexpr size_t kPiecesAtOnce = 4;              // a thread

/// The files that the records of one rank point into.
class StepFiles {
 public:
  StepFiles(const std::string& folder, const std::string& boundary, Run* run) : folder_(folder) {
    Result<FolderEntries> entries = list_folder(folder, boundary);
    if (!entries) {
      run->warnings.push_back(entries.error().describe());
      return;
    }
    for (const FolderEntry& entry : *entries) {
      const bool is_unfinished =
          entry.name.find(".tmp") != std::string::npos && !entry.name.starts_with(kIndexFile);
      if (is_unfinished) run->coverage.complete = false;
      State state;
      if (entry.kind == FolderEntry::Kind::File) {
        if (const Result<FileFacts> facts = file_facts(entry.path))
          state.size_bytes = facts->size_bytes;
      } else {
        state.problem = entry.kind == FolderEntry::Kind::Folder ? "is a folder" : entry.problem;
      }
      files_.emplace(entry.name, std::move(state));
    }
  }

  /// Turns the bare file name into a path and holds the place against the file.
  void complete(TensorRecord* record, Run* run) {
    if (!record->bytes) return;
    ByteLocation& location = *record->bytes;
    const File& file = file_of(location.file);
    location.file = file.path;
    if (file.state == nullptr) {
      record->problem = location.file + ": the file is missing";
      run->add_damage(location.file, "the file is missing");
    } else if (!file.state->problem.empty()) {
      record->problem = location.file + ": " + file.state->problem;
      record->bytes.reset();
    } else if (location.offset > file.state->size_bytes ||
               location.size_bytes > file.state->size_bytes - location.offset) {
      record->problem = location.file + ": at byte " + std::to_string(location.offset) +
                        ": the record says " + std::to_string(location.size_bytes) +
                        " bytes, the file ends at " + std::to_string(file.state->size_bytes);
      run->add_damage(location.file, "ends before the tensors that the records say are in it");
    }
  }

  /// The path of a file that is there and holds what records say is in it.
  std::optional<InternedText> path_of(const std::string& name, uint64_t end) {
    const File& file = file_of(name);
    const bool is_whole =
        file.state != nullptr && file.state->problem.empty() && end <= file.state->size_bytes;
    return is_whole ? std::optional(file.path) : std::nullopt;
  }

 private:
  struct State {
    uint64_t size_bytes = 0;
    std::string problem;
  };
  struct File {
    InternedText path;
    const State* state = nullptr;  // null: there is no such file
  };

  const File& file_of(InternedText name) {
    if (last_ != nullptr && name == last_name_) return *last_;
    last_name_ = name;
    const auto [known, is_new] = known_.try_emplace(name.handle());
    if (is_new) {
      const auto found = files_.find(name.str());
      known->second = {join_path(folder_, name), found == files_.end() ? nullptr : &found->second};
    }
    last_ = &known->second;
    return *last_;
  }

  std::string folder_;
  std::map<std::string, State, std::less<>> files_;
  std::unordered_map<uint32_t, File> known_;
  InternedText last_name_;
  const File* last_ = nullptr;
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
class StoredPayloads {
 public:
  StoredPayloads(std::string path, Run* run)
      : path_(std::move(path)),
        run_(run),
        checks_(std::make_shared<PayloadChecks>(run->found_damage)) {}

  /// `record` will be the next of the run.
  void give(const std::string& device, TensorRecord* record) {
    if (!record->bytes || !record->dtype || !has_plain_values(*record) ||
        !(record->stats || record->digest))
      return;
    const bool is_rough = device != "cpu";
    const auto next = static_cast<uint32_t>(run_->records.size());
    const uint32_t place = first_of(*record, next);
    if (place != next) {
      const TensorRecord& first = run_->records[place];
      if (first.bytes->size_bytes == record->bytes->size_bytes && first.dtype == record->dtype) {
        record->check = first.check;
        compare(first, *record, is_rough);
        return;
      }
    }
    record->check = checks_->add(is_rough);
  }

 private:
  /// The first record at each offset of one file.
  class Places {
   public:
    /// The first record at the place of `record`; `next` when it is the first.
    uint32_t add(const std::vector<TensorRecord>& records, const TensorRecord& record,
                 uint32_t next) {
      const auto offset_of = [&](uint32_t i) { return records[i].bytes->offset; };
      const uint64_t offset = record.bytes->offset;
      // Payloads are written one behind the other, so their places come in order.
      if (in_order_.empty() || offset_of(in_order_.back()) < offset) {
        in_order_.push_back(next);
        return next;
      }
      const auto found = std::ranges::lower_bound(in_order_, offset, {}, offset_of);
      if (offset_of(*found) == offset) return *found;
      return others_.try_emplace(offset, next).first->second;
    }

   private:
    std::vector<uint32_t> in_order_;
    std::unordered_map<uint64_t, uint32_t> others_;
  };

  /// The first record of the same payload; `next` when this is it.
  uint32_t first_of(const TensorRecord& record, uint32_t next) {
    if (!is_strided(record)) return places_of(record.bytes->file).add(run_->records, record, next);
    const View view{record.bytes->file.handle(), record.bytes->offset, record.shape.handle(),
                    record.strides.handle()};
    return views_.try_emplace(view, next).first->second;
  }

  Places& places_of(InternedText file) {
    // Most records are of the file of the one before.
    if (last_ == nullptr || file != last_file_) {
      last_file_ = file;
      last_ = &files_[file.handle()];
    }
    return *last_;
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
  std::shared_ptr<PayloadChecks> checks_;
  std::unordered_map<uint32_t, Places> files_;
  /// File, offset, shape and strides.
  using View = std::tuple<uint32_t, uint64_t, uint32_t, uint32_t>;
  std::map<View, uint32_t> views_;
  InternedText last_file_;
  Places* last_ = nullptr;
};

/// Where the record of a number stands in the run. Numbers mostly count up with the places.
class PlacesByNumber {
 public:
  /// False when the number is known already; its first place is the one that counts.
  bool add(int64_t number, size_t place) {
    if (stretches_.empty() || number >= end_of(stretches_.back())) {
      if (!stretches_.empty() && number == end_of(stretches_.back()) &&
          place == stretches_.back().place + stretches_.back().count) {
        ++stretches_.back().count;
      } else {
        stretches_.push_back({number, place, 1});
      }
      return true;
    }
    return !find(number) && others_.emplace(number, place).second;
  }
  [[nodiscard]] std::optional<size_t> find(int64_t number) const {
    const auto next = std::ranges::upper_bound(stretches_, number, {}, &Stretch::number);
    if (next != stretches_.begin()) {
      const Stretch& one = *(next - 1);
      if (number < end_of(one)) return one.place + static_cast<size_t>(number - one.number);
    }
    const auto other = others_.find(number);
    return other == others_.end() ? std::nullopt : std::optional(other->second);
  }

 private:
  struct Stretch {
    int64_t number = 0;
    size_t place = 0;
    size_t count = 0;
  };
  static int64_t end_of(const Stretch& one) { return one.number + static_cast<int64_t>(one.count); }

  std::vector<Stretch> stretches_;
  std::map<int64_t, size_t> others_;
};

/// Sketches of records, in a file without a name: of a million records they would take 80 MB of
/// memory, and hardly anybody looks at them.
class SketchFile {
 public:
  /// Where no such file can be made the sketches stay in the records.
  explicit SketchFile(uint64_t most) {
    Result<int> file = open_unlinked_file();
    if (!file) return;
    file_ = std::make_unique<FileDescriptor>(*file);
    most_ = most;
    if (::ftruncate(file_->get(), static_cast<off_t>(bytes())) != 0) return;
    void* const address = ::mmap(nullptr, bytes(), PROT_READ, MAP_SHARED, file_->get(), 0);
    if (address == MAP_FAILED) return;
    held_ = std::shared_ptr<const void>(address, [bytes = bytes()](const void* begin) {
      ::munmap(const_cast<void*>(begin), bytes);
    });
  }

  /// Moves the sketches of the records from `first` on into the file.
  void take(std::vector<TensorRecord>& records, size_t first) {
    std::vector<stats::Sketch> taken;
    std::vector<size_t> owners;
    for (size_t i = first; i < records.size() && held_ != nullptr && !is_full_; ++i) {
      const stats::Sketch* const sketch = records[i].stats.sketch();
      if (sketch == nullptr || count_ + taken.size() == most_) continue;
      taken.push_back(*sketch);
      owners.push_back(i);
    }
    const ByteSpan bytes = std::as_bytes(std::span(taken));
    const ssize_t written = taken.empty() ? 0
                                          : ::pwrite(file_->get(), bytes.data(), bytes.size(),
                                                     static_cast<off_t>(count_ * sizeof(taken[0])));
    if (written < 0 || static_cast<size_t>(written) != bytes.size()) {
      is_full_ = true;  // no space
      return;
    }
    const auto* const stored = static_cast<const stats::Sketch*>(held_.get()) + count_;
    for (size_t i = 0; i < owners.size(); ++i) {
      RecordStats& stats = records[owners[i]].stats;
      stats = RecordStats::with_sketch_at(stored + i, *stats.without_sketch());
    }
    count_ += taken.size();
  }
  /// Lets the kernel drop the pages that were read.
  void release() const {
    if (held_ != nullptr) ::madvise(const_cast<void*>(held_.get()), bytes(), MADV_DONTNEED);
  }
  [[nodiscard]] const std::shared_ptr<const void>& held() const { return held_; }

 private:
  [[nodiscard]] uint64_t bytes() const { return most_ * sizeof(stats::Sketch); }

  std::unique_ptr<FileDescriptor> file_;
  std::shared_ptr<const void> held_;  // the mapping
  uint64_t most_ = 0;
  uint64_t count_ = 0;
  bool is_full_ = false;
};

/// A file with holes may be of any size, so it is not read as a whole before its lines are.
bool has_holes(const std::string& path) {
  struct stat info{};
  constexpr uint64_t kBlockBytes = 512;
  return !is_elsewhere(path) && ::stat(path.c_str(), &info) == 0 &&
         static_cast<uint64_t>(info.st_blocks) * kBlockBytes < static_cast<uint64_t>(info.st_size);
}

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

class RecordsReader {
 public:
  RecordsReader(const std::string& folder, int rank, const std::string& boundary, Run* run)
      : folder_(folder),
        rank_(rank),
        boundary_(boundary),
        run_(run),
        path_(join_path(folder, native::kRecordsFile)) {}

  RecordsFacts read() {
    facts_.path = path_;
    facts_.has_views = run_->has_own_engine();
    if (const std::string target = real_path(path_);
        !target.empty() && !is_inside(target, boundary_)) {
      run_->warnings.push_back(path_ + ": is a link that leaves the run: " + target);
      return std::move(facts_);
    }
    const Result<MappedFile> file = MappedFile::open(path_);
    if (!file) {
      run_->coverage.complete = false;
      run_->warnings.push_back(file.error().describe());
      return std::move(facts_);
    }
    facts_.file = *file;
    const bool is_long = file->bytes().size() >= kLeastIndexedBytes && !has_holes(path_);
    if (is_long) {
      facts_.digest = digest_of(*file);
      if (read_index()) return std::move(facts_);
    }
    const Said before = said();
    const size_t first_record = run_->records.size();
    const size_t first_operation = run_->operations.size();
    read_lines(is_long);
    // An index has no place for warnings and damage: lines that cause some are read again each
    // time.
    if (is_long && said() == before) write_index(first_record, first_operation);
    // Reading has freed some 200 bytes a record, which glibc would keep for later.
    if (is_long) ::malloc_trim(0);
    return std::move(facts_);
  }

 private:
  /// A line, or what is wrong with it.
  struct Parsed {
    Result<RecordsLine> line;
    size_t number = 0;  // of the line, from 1
  };
  struct Piece {
    std::string_view text;  // whole lines
    std::vector<Parsed> lines;
    size_t line_count = 0;  // with the empty ones
  };
  using Said = std::tuple<size_t, size_t, bool>;

  [[nodiscard]] Said said() const {
    return {run_->warnings.size(), run_->damage.size(), run_->coverage.complete};
  }

  static stats::Digest digest_of(const MappedFile& file) {
    stats::DigestStream digest;
    file.for_each_part([&](ByteSpan part) { digest.update(part); });
    return digest.finish();
  }

  bool read_index() {
    StepFiles files(folder_, boundary_, run_);
    std::optional<IndexedRecords> indexed = read_records_index(
        folder_, *facts_.digest, facts_.file->bytes().size(), rank_,
        [&](const std::string& name, uint64_t end) { return files.path_of(name, end); }, run_);
    if (!indexed) return false;
    std::ranges::move(indexed->operations, std::back_inserter(run_->operations));
    facts_.lines = indexed->facts.lines;
    facts_.run_id = std::move(indexed->facts.run_id);
    facts_.steps = std::move(indexed->facts.steps);
    return true;
  }

  void write_index(size_t first_record, size_t first_operation) {
    const std::span records = std::span(run_->records).subspan(first_record);
    write_records_index(folder_, facts_, facts_.file->bytes().size(), records,
                        std::span(run_->operations).subspan(first_operation), [this] {
                          if (sketches_) sketches_->release();
                        });
  }

  void read_lines(bool is_long) {
    const std::string_view text = as_text(facts_.file->bytes());
    StepFiles step_files(folder_, boundary_, run_);
    StoredPayloads payloads(path_, run_);
    LineWarnings warnings(path_, run_);
    if (is_long) {
      sketches_.emplace(text.size() / sizeof(stats::Sketch) / 2);  // each has 128 digits
      run_->held.push_back(sketches_->held());
      size_t lines = 0;
      facts_.file->for_each_part([&](ByteSpan part) {
        lines += static_cast<size_t>(std::ranges::count(as_text(part), '\n'));
      });
      run_->records.reserve(run_->records.size() + lines);
    }
    const unsigned jobs = is_long ? resolve_job_count(0) : 1;
    std::string_view rest = text;
    size_t next_line = 1;
    size_t taken = 0;     // bytes
    std::string problem;  // of what cannot be read
    const auto take_pieces = [&](std::vector<Piece>& pieces) {
      const size_t first = run_->records.size();
      size_t bytes = 0;
      for (Piece& piece : pieces) {
        for (Parsed& parsed : piece.lines) {
          parsed.number += next_line - 1;
          take(&parsed, &step_files, &payloads, &warnings);
        }
        next_line += piece.line_count;
        bytes += piece.text.size();
      }
      if (sketches_) sketches_->take(run_->records, first);
      facts_.file->release_pages(taken, bytes);
      taken += bytes;
    };
    // While some lines are taken in their order, the next are parsed.
    std::vector<Piece> parsed(jobs * kPiecesAtOnce);
    std::vector<Piece> next = parsed;
    do {
      for (Piece& piece : next) piece.text = take_lines(&rest, &problem);
      parallel_for(next.size() + 1, jobs, [&](size_t i) {
        if (i == 0) {
          take_pieces(parsed);
        } else {
          parse(&next[i - 1]);
        }
      });
      std::swap(parsed, next);
    } while (!parsed.front().text.empty());
    if (problem.empty()) return;
    run_->coverage.complete = false;
    run_->warnings.push_back(path_ + ": line " + std::to_string(next_line) + ": " + problem);
  }

  /// The next whole lines, none once there is a problem; `problem` becomes why there are no more.
  static std::string_view take_lines(std::string_view* rest, std::string* problem) {
    size_t end = 0;
    while (problem->empty() && end < std::min(kPieceBytes, rest->size())) {
      const size_t newline = rest->substr(0, end + kMaxRecordLineBytes + 1).find('\n', end);
      if (newline == std::string_view::npos) {
        *problem = rest->size() - end > kMaxRecordLineBytes
                       ? "is longer than " + human_bytes(kMaxRecordLineBytes) +
                             "; it and what follows were left out"
                       : std::string("the last line is incomplete and was left out");
        break;
      }
      end = newline + 1;
    }
    const std::string_view lines = rest->substr(0, end);
    rest->remove_prefix(end);
    return lines;
  }

  static void parse(Piece* piece) {
    piece->lines.clear();
    piece->line_count = 0;
    std::string_view rest = piece->text;
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end + 1);
      ++piece->line_count;
      if (line.find_first_not_of(" \t\r") != std::string_view::npos)
        piece->lines.push_back({parse_records_line(line), piece->line_count});
    }
  }

  void take(Parsed* parsed, StepFiles* step_files, StoredPayloads* payloads,
            LineWarnings* warnings) {
    if (!parsed->line) return warnings->add(parsed->number, parsed->line.error().message);
    RecordsLine& line = *parsed->line;
    if (facts_.lines++ == 0) facts_.run_id = line.run_id;
    if (line.like) {
      if (const Status status = complete(&line); !status)
        return warnings->add(parsed->number, status.error().message);
    }
    count(line, &facts_);
    if (line.operation) {
      line.operation->rank = rank_;
      line.operation->order = static_cast<uint64_t>(line.number);
      (void)operation_numbers_.add(line.number, run_->operations.size());
      run_->operations.push_back(std::move(*line.operation));
      return;
    }
    TensorRecord& record = line.record;
    record.rank = rank_;
    // Order of production: a module's outputs stand behind those of the modules inside it.
    record.order = static_cast<uint64_t>(line.number);
    if (!record.bytes && record.stats) record.stats_file = path_;
    step_files->complete(&record, run_);
    payloads->give(line.device, &record);
    if (!record.bytes && record.problem.empty() && line.same_as) {
      const std::optional<size_t> original = numbers_.find(*line.same_as);
      if (!original) {
        record.problem = "the record has the same bytes as record " +
                         std::to_string(*line.same_as) + ", which does not stand before it";
      } else {
        record.bytes = run_->records[*original].bytes;
        record.check = run_->records[*original].check;
        if (!record.digest) record.digest = run_->records[*original].digest;
        if (line.like) repeat(run_->records[*original], &record);
      }
    }
    if (record.producer >= 0) {
      const std::optional<size_t> producer = numbers_.find(record.producer);
      if (!producer || run_->records[*producer].role != Role::Output) {
        warnings->add(parsed->number, "the value is said to be from record " +
                                          std::to_string(record.producer) +
                                          ", which is no output before it");
        record.producer = -1;
      }
    }
    if (!numbers_.add(line.number, run_->records.size())) {
      warnings->add(parsed->number,
                    "record number " + std::to_string(line.number) + " occurs a second time");
    }
    run_->records.push_back(std::move(record));
  }

  /// Completes a line by the earlier one that it is like.
  Status complete(RecordsLine* line) {
    if (const std::optional<size_t> operation = operation_numbers_.find(*line->like)) {
      complete_line(run_->operations[*operation], line);
      return {};
    }
    if (const std::optional<size_t> record = numbers_.find(*line->like))
      return complete_line(run_->records[*record], line);
    return fail(Errc::Invalid, "is like record " + std::to_string(*line->like) +
                                   ", which does not stand before it");
  }

  /// A line that is like another takes from the record whose bytes it has what these are: their
  /// statistics, and the form of a view.
  void repeat(const TensorRecord& original, TensorRecord* record) {
    if (!record->stats) record->stats = original.stats;
    if (!record->bytes && record->stats) record->stats_file = path_;
    if (!is_strided(original)) return;
    if (record->shape == original.shape && record->strides == original.strides) {
      record->memory_format = original.memory_format;
    } else {
      record->problem = "the record has the bytes of a view of another shape";
      record->bytes.reset();
    }
  }

  const std::string& folder_;
  int rank_;
  const std::string& boundary_;
  Run* run_;
  std::string path_;
  RecordsFacts facts_;
  PlacesByNumber numbers_;
  PlacesByNumber operation_numbers_;
  std::optional<SketchFile> sketches_;
};

}  // namespace

RecordsFacts read_records(const std::string& folder, int rank, const std::string& boundary,
                          Run* run) {
  return RecordsReader(folder, rank, boundary, run).read();
}

}  // namespace assay::run

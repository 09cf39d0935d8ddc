// SPDX-License-Identifier: Apache-2.0
// A head with the digests of the lines and of all that follows, packed records in parts, then the
// facts about the lines. The file is written under a temporary name, and used only when both
// digests fit.   docs/formats/native.md, "records.index"
#include "run/records_index.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/atomic_file.hpp"
#include "base/file_descriptor.hpp"
#include "base/temporary_files.hpp"
#include "run/folder.hpp"
#include "run/packed_records.hpp"

namespace assay::run {
namespace {

constexpr std::string_view kMagic = "assay records index 2\n";
constexpr size_t kIndexHeadBytes =
    128;  // the head, filled up with zeros; the packed records follow

/// The index: magic, size and digest of the lines, where the facts are, digest of all that follows;
/// padding to 128; packed records of up to kRecordsTogether each, from multiples of 64 on; facts,
/// among them the sizes of the packed ones.
struct Head {
  uint64_t lines_bytes = 0;
  stats::Digest lines;
  uint64_t facts_at = 0;  // behind the head
  stats::Digest rest;
};

// What is read together is resident together: some 9 MB.
constexpr size_t kRecordsTogether = size_t{1} << 16;
constexpr size_t kPackedAlignment = 64;

bool is_switched_off() {
  const char* const wanted = std::getenv("ASSAY_INDEX");
  return wanted != nullptr && std::string_view(wanted) == "off";
}

void append_text(std::string& out, std::string_view text) {
  append(out, static_cast<uint32_t>(text.size()));
  out += text;
}
Result<std::string> read_text(ByteReader& reader) {
  ASSAY_TRY(const uint32_t size, reader.read<uint32_t>());
  ASSAY_TRY(const ByteSpan text, reader.read_bytes(size));
  return std::string(as_text(text));
}

void append_facts(std::string& out, const RecordsFacts& facts) {
  append(out, facts.lines);
  append(out, static_cast<uint8_t>(facts.has_views));
  append_text(out, facts.run_id);
  append(out, static_cast<uint32_t>(facts.steps.size()));
  for (const auto& [number, step] : facts.steps) {
    append(out, number);
    append(out, step.records);
    append(out, step.tensors);
    append(out, step.bytes);
  }
}
Result<RecordsFacts> read_facts(ByteReader& reader) {
  RecordsFacts facts;
  ASSAY_TRY(facts.lines, reader.read<uint64_t>());
  ASSAY_TRY(const uint8_t has_views, reader.read<uint8_t>());
  facts.has_views = has_views != 0;
  ASSAY_TRY(facts.run_id, read_text(reader));
  ASSAY_TRY(const uint32_t steps, reader.read<uint32_t>());
  for (uint32_t i = 0; i < steps; ++i) {
    native::ManifestStep step;
    ASSAY_TRY(step.step, reader.read<int64_t>());
    ASSAY_TRY(step.records, reader.read<uint64_t>());
    ASSAY_TRY(step.tensors, reader.read<uint64_t>());
    ASSAY_TRY(step.bytes, reader.read<uint64_t>());
    facts.steps[step.step] = step;
  }
  return facts;
}

/// Name and end of each file that payloads are in.
void append_files(std::string& out, std::span<const TensorRecord> records) {
  std::map<std::string, uint64_t> ends;
  InternedText last;
  uint64_t* end = nullptr;
  for (const TensorRecord& record : records) {
    if (!record.bytes) continue;
    if (end == nullptr || record.bytes->file != last) {
      last = record.bytes->file;
      end = &ends[base_name(last)];
    }
    *end = std::max(*end, record.bytes->offset + record.bytes->size_bytes);
  }
  append(out, static_cast<uint32_t>(ends.size()));
  for (const auto& [name, file_end] : ends) {
    append_text(out, name);
    append(out, file_end);
  }
}

void append_operations(std::string& out, std::span<const OperationRecord> operations) {
  append(out, static_cast<uint64_t>(operations.size()));
  for (const OperationRecord& one : operations) {
    for (const InternedText text :
         {one.step_name, one.node, one.op_type, one.parameters, one.module})
      append_text(out, text);
    append(out, one.step);
    append(out, one.module_call);
    append(out, one.order);
    append(out, static_cast<uint32_t>(one.writes.size()));
    for (const std::string& text : one.writes) append_text(out, text);
  }
}
Result<std::vector<OperationRecord>> read_operations(ByteReader& reader, int rank) {
  ASSAY_TRY(const uint64_t count, reader.read<uint64_t>());
  if (count > reader.remaining())
    return fail(Errc::Invalid, "names more operations than it has", reader.offset());
  std::vector<OperationRecord> operations(count);
  for (OperationRecord& one : operations) {
    one.rank = rank;
    for (InternedText* text :
         {&one.step_name, &one.node, &one.op_type, &one.parameters, &one.module}) {
      ASSAY_TRY(*text, read_text(reader));
    }
    ASSAY_TRY(one.step, reader.read<int64_t>());
    ASSAY_TRY(one.module_call, reader.read<uint32_t>());
    ASSAY_TRY(one.order, reader.read<uint64_t>());
    ASSAY_TRY(const uint32_t writes, reader.read<uint32_t>());
    for (uint32_t i = 0; i < writes; ++i) {
      ASSAY_TRY(std::string text, read_text(reader));
      one.writes.push_back(std::move(text));
    }
  }
  return operations;
}

struct File {
  MappedFile content;
  Head head;
};

/// errors  of the file | Invalid: it is of other lines, or not as it was written
Result<File> open_index(const std::string& path, const stats::Digest& lines, uint64_t lines_bytes) {
  File file;
  ASSAY_TRY(file.content, MappedFile::open(path));
  const ByteSpan bytes = file.content.bytes();
  if (!as_text(bytes).starts_with(kMagic) || bytes.size() < kIndexHeadBytes)
    return fail(Errc::Invalid, "is no index of this version");
  file.head = load<Head>(bytes.data() + kMagic.size());
  if (file.head.lines != lines || file.head.lines_bytes != lines_bytes)
    return fail(Errc::Invalid, "is the index of other lines");
  if (file.head.facts_at > bytes.size() - kIndexHeadBytes) return fail(Errc::Invalid, "is damaged");
  stats::DigestStream digest;
  size_t head_left = kIndexHeadBytes;
  file.content.for_each_part([&](ByteSpan part) {
    digest.update(part.subspan(std::min(head_left, part.size())));
    head_left = 0;  // a part is longer than the head, or there is one only
  });
  if (digest.finish() != file.head.rest) return fail(Errc::Invalid, "is damaged");
  return file;
}

Result<IndexedRecords> take(
    const File& file, int rank,
    const std::function<std::optional<InternedText>(const std::string&, uint64_t)>& place,
    Run* run) {
  const ByteSpan rest = file.content.bytes().subspan(kIndexHeadBytes);
  ByteReader reader(rest, file.head.facts_at);
  ASSAY_TRY(const uint32_t parts, reader.read<uint32_t>());
  ASSAY_TRY(const ByteSpan sizes, reader.read_bytes(uint64_t{parts} * sizeof(uint64_t)));
  IndexedRecords out;
  ASSAY_TRY(out.facts, read_facts(reader));
  ASSAY_TRY(const uint32_t count, reader.read<uint32_t>());
  std::map<std::string, InternedText, std::less<>> places;
  for (uint32_t i = 0; i < count; ++i) {
    ASSAY_TRY(const std::string name, read_text(reader));
    ASSAY_TRY(const uint64_t end, reader.read<uint64_t>());
    const std::optional<InternedText> found = place(name, end);
    if (!found) return fail(Errc::NotFound, "a file is not as the records say");
    places[name] = *found;
  }
  ASSAY_TRY(out.operations, read_operations(reader, rank));
  const size_t first = run->records.size();
  run->records.reserve(first + std::min<uint64_t>(out.facts.lines, file.head.lines_bytes));
  UnpackOptions options;
  options.checks = std::make_shared<PayloadChecks>(run->found_damage);
  options.borrow_sketches = true;
  options.file = [&](InternedText name) {
    const auto known = places.find(name.str());
    return known == places.end() ? place(name, 0).value_or(name) : known->second;
  };
  ByteReader packed(rest.first(file.head.facts_at));
  for (uint32_t i = 0; i < parts; ++i) {
    ASSAY_TRY_STATUS(packed.skip(align_up(packed.offset(), kPackedAlignment) - packed.offset()));
    ASSAY_TRY(const ByteSpan part,
              packed.read_bytes(load<uint64_t>(sizes.data() + i * sizeof(uint64_t))));
    ASSAY_TRY_STATUS(unpack_records(part, options, &run->records));
    file.content.release_pages(0, file.content.bytes().size());
  }
  for (size_t i = first; i < run->records.size(); ++i) run->records[i].rank = rank;
  run->held.push_back(std::make_shared<MappedFile>(file.content));
  return out;
}

/// A file that grows, and the digest of what is in it.
class DigestedFile {
 public:
  DigestedFile(int file, const std::string& path) : file_(file), path_(path) {}
  void put(std::string_view bytes) {
    if (!status_) return;
    status_ = write_all(file_, as_bytes(bytes), path_);
    digest_.update(as_bytes(bytes));
    size_ += bytes.size();
  }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] stats::Digest digest() const { return digest_.finish(); }

 private:
  int file_;
  const std::string& path_;
  Status status_;
  stats::DigestStream digest_;
  uint64_t size_ = 0;
};

InternedText name_only(InternedText file) { return base_name(file); }

Status write_index_file(const std::string& path, const RecordsFacts& facts, uint64_t lines_bytes,
                        std::span<const TensorRecord> records,
                        std::span<const OperationRecord> operations,
                        const std::function<void()>& packed) {
  TemporaryFile temporary(path + ".tmp" + std::to_string(::getpid()));
  const FileDescriptor file(
      ::open(temporary.path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) return fail(errno_error(errno, "create", temporary.path()));
  std::string head_bytes(kIndexHeadBytes, '\0');
  ASSAY_TRY_STATUS(write_all(file.get(), as_bytes(head_bytes), temporary.path()));
  DigestedFile out(file.get(), temporary.path());
  const PackedChecks checks(records);
  const PackOptions options{.file = name_only, .checks = &checks};
  std::string rest;
  append(rest, static_cast<uint32_t>((records.size() + kRecordsTogether - 1) / kRecordsTogether));
  for (size_t begin = 0; begin < records.size(); begin += kRecordsTogether) {
    out.put(std::string(align_up(out.size(), kPackedAlignment) - out.size(), '\0'));
    const uint64_t start = out.size();
    const size_t count = std::min(kRecordsTogether, records.size() - begin);
    pack_records(records.subspan(begin, count), options,
                 [&](std::string_view bytes) { out.put(bytes); });
    append(rest, out.size() - start);
    if (packed) packed();
  }
  Head head;
  head.lines_bytes = lines_bytes;
  head.lines = *facts.digest;
  head.facts_at = out.size();
  append_facts(rest, facts);
  append_files(rest, records);
  append_operations(rest, operations);
  out.put(rest);
  ASSAY_TRY_STATUS(out.status());
  head.rest = out.digest();
  static_assert(kMagic.size() + sizeof(Head) <= kIndexHeadBytes);
  std::memcpy(head_bytes.data(), kMagic.data(), kMagic.size());
  std::memcpy(head_bytes.data() + kMagic.size(), &head, sizeof(head));
  if (::pwrite(file.get(), head_bytes.data(), kIndexHeadBytes, 0) !=
          static_cast<ssize_t>(kIndexHeadBytes) ||
      ::rename(temporary.path().c_str(), path.c_str()) != 0)
    return fail(errno_error(errno, "write", path));
  temporary.keep();
  return {};
}

}  // namespace

void write_records_index(const std::string& folder, const RecordsFacts& facts, uint64_t lines_bytes,
                         std::span<const TensorRecord> records,
                         std::span<const OperationRecord> operations,
                         const std::function<void()>& packed) {
  if (is_switched_off() || !facts.digest) return;
  const std::string path = join_path(folder, kIndexFile);
  // Nobody asked for it, so nobody is told that it could not be written.
  (void)write_index_file(path, facts, lines_bytes, records, operations, packed);
}

std::optional<IndexedRecords> read_records_index(
    const std::string& folder, const stats::Digest& digest, uint64_t lines_bytes, int rank,
    const std::function<std::optional<InternedText>(const std::string& name, uint64_t end)>& file,
    Run* run) {
  if (is_switched_off()) return std::nullopt;
  const std::string path = join_path(folder, kIndexFile);
  if (!is_file(path)) return std::nullopt;
  const Result<File> opened = open_index(path, digest, lines_bytes);
  if (!opened) return std::nullopt;
  const size_t first = run->records.size();
  Result<IndexedRecords> taken = take(*opened, rank, file, run);
  if (!taken) {
    run->records.resize(first);
    return std::nullopt;
  }
  return *std::move(taken);
}

}  // namespace assay::run

// SPDX-License-Identifier: Apache-2.0
// | local header, name, extra, data, descriptor | ... | central entry ... | zip64 end, locator | end |
//
//   local     "PK" 03 04 .. 30 bytes     central  "PK" 01 02 .. 46 bytes, with the offset of the local header
//   zip64 end "PK" 06 06 .. 56 bytes     locator  "PK" 06 07 .. 20 bytes     end  "PK" 05 06 .. 22 bytes, comment
//
// It is read from the end: end record, central entries, then the local headers that these name.
#include "formats/zip.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/atomic_file.hpp"
#include "formats/crc32.hpp"

namespace assay::formats {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kDescriptorSignature = 0x08074b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kCentralBytes = 46;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kMaxCommentBytes = 65535;
constexpr uint16_t kZip64ExtraId = 0x0001;
constexpr uint16_t kEncryptedFlag = 0x0001;
constexpr uint32_t kOverflow32 = 0xFFFFFFFF;  // "the value is in the zip64 extra"
constexpr uint16_t kOverflow16 = 0xFFFF;

// ---- reading ------------------------------------------------------------------------------------

struct Directory {
  uint64_t entry_count = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
};

// The end record is the last thing in the file except for a comment whose length it states.
Result<uint64_t> find_end_record(ByteSpan file) {
  if (file.size() < kEndBytes) return fail(Errc::BadMagic, "too short for a zip file");
  const uint64_t last = file.size() - kEndBytes;
  const uint64_t first = last > kMaxCommentBytes ? last - kMaxCommentBytes : 0;
  for (uint64_t at = last + 1; at-- > first;) {
    if (load<uint32_t>(file.data() + at) != kEndSignature) continue;
    if (at + kEndBytes + load<uint16_t>(file.data() + at + 20) == file.size()) return at;
  }
  return fail(Errc::BadMagic, "no zip end record: not a zip file, or its end is missing",
              file.size());
}

Result<Directory> read_end64(ByteSpan file, uint64_t locator) {
  const auto at = load<uint64_t>(file.data() + locator + 8);
  if (file.size() < kEnd64Bytes || at > file.size() - kEnd64Bytes) {
    return fail(Errc::Invalid, "the zip64 end record lies outside the file", locator + 8);
  }
  const std::byte* record = file.data() + at;
  if (load<uint32_t>(record) != kEnd64Signature)
    return fail(Errc::Invalid, "no zip64 end record here", at);
  if (load<uint32_t>(record + 16) != 0 || load<uint32_t>(record + 20) != 0) {
    return fail(Errc::Unsupported, "a zip file in several parts is not supported", at);
  }
  return Directory{load<uint64_t>(record + 32), load<uint64_t>(record + 48),
                   load<uint64_t>(record + 40)};
}

Result<Directory> read_end(ByteSpan file) {
  ASSAY_TRY(const uint64_t end, find_end_record(file));
  if (end >= kLocator64Bytes &&
      load<uint32_t>(file.data() + end - kLocator64Bytes) == kLocator64Signature) {
    return read_end64(file, end - kLocator64Bytes);
  }
  const std::byte* record = file.data() + end;
  if (load<uint16_t>(record + 4) != 0 || load<uint16_t>(record + 6) != 0) {
    return fail(Errc::Unsupported, "a zip file in several parts is not supported", end);
  }
  return Directory{load<uint16_t>(record + 10), load<uint32_t>(record + 16),
                   load<uint32_t>(record + 12)};
}

// Replaces the fields that say "overflow" by the values of the zip64 extra, which has only those,
// in this order.
Status apply_zip64_extra(ByteSpan extra, uint64_t extra_offset, ZipEntry* entry) {
  ByteReader reader(extra);
  while (reader.remaining() >= 4) {
    ASSAY_TRY(const auto id, reader.read<uint16_t>());
    ASSAY_TRY(const auto size, reader.read<uint16_t>());
    if (id != kZip64ExtraId) {
      if (!reader.skip(size)) break;  // a damaged field of somebody else does not concern us
      continue;
    }
    for (uint64_t* field : {&entry->size, &entry->compressed_size, &entry->header_offset}) {
      if (*field != kOverflow32) continue;
      auto value = reader.read<uint64_t>();
      if (!value) return fail(Errc::Truncated, "the zip64 extra field ends early", extra_offset);
      *field = *value;
    }
    return {};
  }
  if (entry->size == kOverflow32 || entry->compressed_size == kOverflow32 ||
      entry->header_offset == kOverflow32) {
    return fail(Errc::Invalid, "sizes announce a zip64 extra field that is missing", extra_offset);
  }
  return {};
}

Result<ZipEntry> read_central_entry(ByteReader* reader) {
  const uint64_t at = reader->offset();
  ASSAY_TRY(const ByteSpan fixed, reader->read_bytes(kCentralBytes));
  const std::byte* record = fixed.data();
  if (load<uint32_t>(record) != kCentralSignature) {
    return fail(Errc::Invalid, "no central directory entry here", at);
  }
  if ((load<uint16_t>(record + 8) & kEncryptedFlag) != 0)
    return fail(Errc::Unsupported, "an encrypted entry is not supported", at);
  ZipEntry entry;
  entry.method = load<uint16_t>(record + 10);
  entry.crc = load<uint32_t>(record + 16);
  entry.compressed_size = load<uint32_t>(record + 20);
  entry.size = load<uint32_t>(record + 24);
  entry.header_offset = load<uint32_t>(record + 42);
  ASSAY_TRY(const ByteSpan name, reader->read_bytes(load<uint16_t>(record + 28)));
  entry.name = as_text(name);
  const uint64_t extra_offset = reader->offset();
  ASSAY_TRY(const ByteSpan extra, reader->read_bytes(load<uint16_t>(record + 30)));
  ASSAY_TRY_STATUS(reader->skip(load<uint16_t>(record + 32)));
  ASSAY_TRY_STATUS(apply_zip64_extra(extra, extra_offset, &entry));
  return entry;
}

// The local header is used for nothing but the length of its name and extra fields: torch leaves
// its sizes 0.
Status locate_data(ByteSpan file, uint64_t directory_offset, ZipEntry* entry) {
  if (entry->header_offset > directory_offset ||
      directory_offset - entry->header_offset < kLocalBytes) {
    return fail(Errc::Invalid, "entry '" + entry->name + "' lies outside the file",
                entry->header_offset);
  }
  const std::byte* header = file.data() + entry->header_offset;
  if (load<uint32_t>(header) != kLocalSignature) {
    return fail(Errc::Invalid, "no local header of entry '" + entry->name + "' here",
                entry->header_offset);
  }
  entry->data_offset = entry->header_offset + kLocalBytes + load<uint16_t>(header + 26) +
                       load<uint16_t>(header + 28);
  if (entry->data_offset > directory_offset ||
      entry->compressed_size > directory_offset - entry->data_offset) {
    return fail(Errc::Invalid,
                "entry '" + entry->name + "' claims " + std::to_string(entry->compressed_size) +
                    " bytes, more than lie before the directory",
                entry->data_offset);
  }
  if (entry->method == static_cast<uint16_t>(ZipMethod::Stored) &&
      entry->size != entry->compressed_size) {
    return fail(Errc::Invalid, "stored entry '" + entry->name + "' has two sizes",
                entry->header_offset);
  }
  if (entry->size / kMaxDeflateRatio > entry->compressed_size) {
    return fail(Errc::Invalid,
                "entry '" + entry->name + "' claims to expand " +
                    std::to_string(entry->compressed_size) + " bytes to " +
                    std::to_string(entry->size) + ", which deflate cannot",
                entry->header_offset);
  }
  return {};
}

// Entries that share bytes are how a small file claims to hold more than it can ("better zip
// bombs").
Status refuse_overlaps(const std::vector<ZipEntry>& entries) {
  std::vector<const ZipEntry*> by_offset;
  by_offset.reserve(entries.size());
  for (const ZipEntry& entry : entries) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(), [](const ZipEntry* a, const ZipEntry* b) {
    return a->header_offset < b->header_offset;
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const ZipEntry& before = *by_offset[i - 1];
    if (before.data_offset + before.compressed_size > by_offset[i]->header_offset) {
      return fail(Errc::Invalid,
                  "entries '" + before.name + "' and '" + by_offset[i]->name + "' overlap",
                  by_offset[i]->header_offset);
    }
  }
  return {};
}

Status refuse_duplicates(const std::vector<ZipEntry>& entries) {
  std::unordered_set<std::string_view> names;
  for (const ZipEntry& entry : entries) {
    if (!names.insert(entry.name).second) {
      return fail(Errc::Invalid, "two entries are named '" + entry.name + "'", entry.header_offset);
    }
  }
  return {};
}

struct InflateStream {
  z_stream stream{};
  bool ready = false;
  InflateStream() { ready = inflateInit2(&stream, -MAX_WBITS) == Z_OK; }
  ~InflateStream() {
    if (ready) inflateEnd(&stream);
  }
  InflateStream(const InflateStream&) = delete;
  InflateStream& operator=(const InflateStream&) = delete;
};

// zlib counts in 32 bits.
uInt next_portion(uint64_t remaining) {
  return static_cast<uInt>(std::min<uint64_t>(remaining, std::numeric_limits<uInt>::max() / 2));
}

Status inflate_into(ByteSpan packed, std::string* out, uint64_t file_offset) {
  InflateStream inflater;
  if (!inflater.ready) return fail(Errc::Internal, "zlib cannot start");
  z_stream& stream = inflater.stream;
  uint64_t consumed = 0;
  uint64_t produced = 0;
  // One spare byte notices data that goes on after the announced size.
  std::byte spare{};
  while (true) {
    const uInt in = next_portion(packed.size() - consumed);
    const bool full = produced == out->size();
    const uInt room = full ? 1 : next_portion(out->size() - produced);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data() + consumed));
    stream.avail_in = in;
    stream.next_out =
        full ? reinterpret_cast<Bytef*>(&spare) : reinterpret_cast<Bytef*>(out->data() + produced);
    stream.avail_out = room;
    const int code = inflate(&stream, Z_NO_FLUSH);
    consumed += in - stream.avail_in;
    const uint64_t written = room - stream.avail_out;
    if (full && written > 0)
      return fail(Errc::Invalid, "deflated data is longer than announced", file_offset);
    produced += written;
    if (code == Z_STREAM_END) break;
    if (code != Z_OK || (written == 0 && in == stream.avail_in)) {
      return fail(Errc::Invalid, "damaged deflate data", file_offset + consumed);
    }
  }
  if (produced != out->size())
    return fail(Errc::Invalid, "deflated data is shorter than announced", file_offset);
  return {};
}

}  // namespace

const ZipEntry* ZipArchive::find(std::string_view name) const {
  for (const ZipEntry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

Result<ZipArchive> read_zip(ByteSpan file) {
  ASSAY_TRY(const Directory directory, read_end(file));
  if (directory.offset > file.size() || directory.size > file.size() - directory.offset) {
    return fail(Errc::Invalid, "the central directory lies outside the file", directory.offset);
  }
  if (directory.entry_count > kMaxZipEntries) {
    return fail(Errc::TooLarge, std::to_string(directory.entry_count) + " zip entries",
                directory.offset);
  }
  if (directory.entry_count > directory.size / kCentralBytes) {
    return fail(Errc::Invalid, "the central directory is too short for its entries",
                directory.offset);
  }
  ZipArchive archive{file, {}};
  archive.entries.reserve(directory.entry_count);
  ByteReader reader(file.first(directory.offset + directory.size), directory.offset);
  for (uint64_t i = 0; i < directory.entry_count; ++i) {
    ASSAY_TRY(ZipEntry entry, read_central_entry(&reader));
    ASSAY_TRY_STATUS(locate_data(file, directory.offset, &entry));
    archive.entries.push_back(std::move(entry));
  }
  ASSAY_TRY_STATUS(refuse_duplicates(archive.entries));
  ASSAY_TRY_STATUS(refuse_overlaps(archive.entries));
  return archive;
}

Result<SharedBytes> read_zip_entry(const ZipArchive& archive, const ZipEntry& entry,
                                   uint64_t max_bytes) {
  const ByteSpan packed = archive.file.subspan(entry.data_offset, entry.compressed_size);
  if (entry.method == static_cast<uint16_t>(ZipMethod::Stored)) return SharedBytes{packed, nullptr};
  if (entry.method != static_cast<uint16_t>(ZipMethod::Deflated)) {
    return fail(Errc::Unsupported,
                "compression method " + std::to_string(entry.method) + " of entry '" + entry.name +
                    "' is not supported",
                entry.header_offset);
  }
  if (entry.size > max_bytes) {
    return fail(Errc::TooLarge,
                "entry '" + entry.name + "' inflates to " + std::to_string(entry.size) +
                    " bytes, the limit is " + std::to_string(max_bytes),
                entry.header_offset);
  }
  auto content = std::make_shared<std::string>(entry.size, '\0');
  ASSAY_TRY_STATUS(inflate_into(packed, content.get(), entry.data_offset));
  if (entry.crc != 0 && crc32(as_bytes(*content)) != entry.crc) {
    return fail(Errc::Invalid, "the CRC of entry '" + entry.name + "' is wrong", entry.data_offset);
  }
  return SharedBytes{as_bytes(*content), content};
}

// ---- writing ordinary entries -------------------------------------------------------------------

namespace {

constexpr uint16_t kUtf8Flag = 0x0800;
constexpr uint16_t kDosDate1980 = 0x0021;  // 1 January 1980, the earliest date a zip can hold
constexpr uint16_t kVersionNeeded = 20;
constexpr uint16_t kVersionNeeded64 = 45;

struct WrittenEntry {
  std::string name;
  ZipMethod method;
  uint32_t crc;
  uint64_t compressed_size;
  uint64_t size;
  uint64_t header_offset;
};

uint32_t clamp32(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, kOverflow32));
}

// id, length, then the values that did not fit into their 32-bit fields; empty when all do.
std::string zip64_extra(std::initializer_list<uint64_t> values) {
  std::string body;
  for (const uint64_t value : values) {
    if (value >= kOverflow32) append(body, value);
  }
  if (body.empty()) return body;
  std::string extra;
  append(extra, kZip64ExtraId);
  append(extra, static_cast<uint16_t>(body.size()));
  return extra + body;
}

void append_local_header(const WrittenEntry& entry, std::string* out) {
  // A local zip64 extra must hold both sizes (APPNOTE 4.5.3), so both fields overflow together.
  const bool large = entry.size >= kOverflow32 || entry.compressed_size >= kOverflow32;
  std::string extra;
  if (large) {
    append(extra, kZip64ExtraId);
    append(extra, uint16_t{16});
    append(extra, entry.size);
    append(extra, entry.compressed_size);
  }
  append(*out, kLocalSignature);
  append(*out, large ? kVersionNeeded64 : kVersionNeeded);
  append(*out, kUtf8Flag);
  append(*out, static_cast<uint16_t>(entry.method));
  append(*out, uint16_t{0});
  append(*out, kDosDate1980);
  append(*out, entry.crc);
  append(*out, large ? kOverflow32 : static_cast<uint32_t>(entry.compressed_size));
  append(*out, large ? kOverflow32 : static_cast<uint32_t>(entry.size));
  append(*out, static_cast<uint16_t>(entry.name.size()));
  append(*out, static_cast<uint16_t>(extra.size()));
  *out += entry.name;
  *out += extra;
}

struct CentralFields {
  uint16_t version_needed;
  uint16_t flags;
  uint16_t method;
  uint16_t date;
};

void append_central_entry(const CentralFields& fields, std::string_view name, uint32_t crc,
                          uint64_t compressed_size, uint64_t size, uint64_t header_offset,
                          std::string* out) {
  const std::string extra = zip64_extra({size, compressed_size, header_offset});
  append(*out, kCentralSignature);
  append(*out, uint16_t{0});  // made by
  append(*out, fields.version_needed);
  append(*out, fields.flags);
  append(*out, fields.method);
  append(*out, uint16_t{0});  // time
  append(*out, fields.date);
  append(*out, crc);
  append(*out, clamp32(compressed_size));
  append(*out, clamp32(size));
  append(*out, static_cast<uint16_t>(name.size()));
  append(*out, static_cast<uint16_t>(extra.size()));
  append(*out, uint16_t{0});  // comment length
  append(*out, uint16_t{0});  // disk
  append(*out, uint16_t{0});  // internal attributes
  append(*out, uint32_t{0});  // external attributes
  append(*out, clamp32(header_offset));
  *out += name;
  *out += extra;
}

void append_end64(uint64_t count, uint64_t directory_offset, uint64_t directory_size,
                  std::string* out) {
  const uint64_t end64_offset = directory_offset + directory_size;
  append(*out, kEnd64Signature);
  append(*out, uint64_t{44});  // what follows of this record
  append(*out, uint16_t{0x031E});
  append(*out, kVersionNeeded64);
  append(*out, uint32_t{0});
  append(*out, uint32_t{0});
  append(*out, count);
  append(*out, count);
  append(*out, directory_size);
  append(*out, directory_offset);
  append(*out, kLocator64Signature);
  append(*out, uint32_t{0});
  append(*out, end64_offset);
  append(*out, uint32_t{1});  // number of disks
}

void append_end(uint64_t count, uint64_t directory_offset, uint64_t directory_size,
                std::string* out) {
  const auto count16 = static_cast<uint16_t>(std::min<uint64_t>(count, kOverflow16));
  append(*out, kEndSignature);
  append(*out, uint16_t{0});
  append(*out, uint16_t{0});
  append(*out, count16);
  append(*out, count16);
  append(*out, clamp32(directory_size));
  append(*out, clamp32(directory_offset));
  append(*out, uint16_t{0});  // comment length
}

/// Raw deflate of a content that comes in pieces.
class Deflater {
 public:
  Deflater() {
    is_good_ = deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                            Z_DEFAULT_STRATEGY) == Z_OK;
  }
  ~Deflater() { deflateEnd(&stream_); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  void add(ByteSpan content) {
    crc_ = crc32(content, crc_);
    size_ += content.size();
    while (!content.empty()) {
      const uInt in = next_portion(content.size());
      run(content.first(in), Z_NO_FLUSH);
      content = content.subspan(in);
    }
  }
  /// False when zlib failed.
  [[nodiscard]] bool finish() {
    run({}, Z_FINISH);
    return is_good_;
  }
  [[nodiscard]] const std::string& packed() const { return packed_; }
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] uint32_t crc() const { return crc_; }

 private:
  static constexpr size_t kRoom = size_t{1} << 16;

  void run(ByteSpan in, int flush) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    int code = Z_OK;
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(room_.data());
      stream_.avail_out = kRoom;
      code = is_good_ ? deflate(&stream_, flush) : Z_STREAM_ERROR;
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
        is_good_ = false;
        return;
      }
      packed_.append(room_.data(), kRoom - stream_.avail_out);
    } while (stream_.avail_out == 0);
  }

  z_stream stream_{};
  bool is_good_ = false;
  std::string room_ = std::string(kRoom, '\0');
  std::string packed_;
  uint64_t size_ = 0;
  uint32_t crc_ = 0;
};

}  // namespace

struct ZipWriter::State {
  ByteSink sink;
  uint64_t offset = 0;
  std::vector<WrittenEntry> entries = {};
  bool finished = false;
  std::optional<Error> failure = {};

  Status write(ByteSpan bytes) {
    ASSAY_TRY_STATUS(sink(bytes));
    offset += bytes.size();
    return {};
  }
  Status remember(Status status) {
    if (!status) failure = status.error();
    return status;
  }
  Status write_entry(std::string_view name, ZipMethod method, uint32_t crc, ByteSpan data,
                     uint64_t size) {
    WrittenEntry entry{std::string(name), method, crc, data.size(), size, offset};
    std::string header;
    append_local_header(entry, &header);
    entries.push_back(std::move(entry));
    ASSAY_TRY_STATUS(remember(write(as_bytes(header))));
    return remember(write(data));
  }
};

ZipWriter::ZipWriter(std::string* out)
    : ZipWriter([out](ByteSpan bytes) -> Status {
        out->append(as_text(bytes));
        return {};
      }) {}
ZipWriter::ZipWriter(ByteSink sink) : state_(std::make_unique<State>(std::move(sink))) {}
ZipWriter::~ZipWriter() = default;

Status ZipWriter::check(std::string_view name) const {
  if (state_->failure) return fail(*state_->failure);
  if (state_->finished) return fail(Errc::Usage, "the archive is finished");
  if (name.size() > kOverflow16)
    return fail(Errc::Usage, "the name of a zip entry is longer than 65535 bytes");
  return {};
}

Status ZipWriter::add(std::string_view name, ByteSpan content, ZipMethod method) {
  ASSAY_TRY_STATUS(check(name));
  if (method == ZipMethod::Deflated) {
    Deflater deflater;
    deflater.add(content);
    if (deflater.finish() && deflater.packed().size() < content.size())
      return state_->write_entry(name, method, deflater.crc(), as_bytes(deflater.packed()),
                                 content.size());
  }
  return state_->write_entry(name, ZipMethod::Stored, crc32(content), content, content.size());
}

Status ZipWriter::add_deflated(std::string_view name, const PieceWriter& write) {
  ASSAY_TRY_STATUS(check(name));
  Deflater deflater;
  ASSAY_TRY_STATUS(state_->remember(write([&](ByteSpan bytes) -> Status {
    deflater.add(bytes);
    return {};
  })));
  if (!deflater.finish())
    return state_->remember(fail(Errc::Internal, "zlib cannot deflate " + std::string(name)));
  return state_->write_entry(name, ZipMethod::Deflated, deflater.crc(), as_bytes(deflater.packed()),
                             deflater.size());
}

Status ZipWriter::finish() {
  if (state_->failure) return fail(*state_->failure);
  if (state_->finished) return fail(Errc::Usage, "the archive is finished");
  state_->finished = true;
  std::string tail;
  bool large = state_->entries.size() >= kOverflow16 || state_->offset >= kOverflow32;
  for (const WrittenEntry& entry : state_->entries) {
    const bool entry_large = entry.size >= kOverflow32 || entry.compressed_size >= kOverflow32 ||
                             entry.header_offset >= kOverflow32;
    large = large || entry_large;
    append_central_entry({entry_large ? kVersionNeeded64 : kVersionNeeded, kUtf8Flag,
                          static_cast<uint16_t>(entry.method), kDosDate1980},
                         entry.name, entry.crc, entry.compressed_size, entry.size,
                         entry.header_offset, &tail);
  }
  const uint64_t directory_size = tail.size();
  large = large || directory_size >= kOverflow32;
  if (large) append_end64(state_->entries.size(), state_->offset, directory_size, &tail);
  append_end(state_->entries.size(), state_->offset, directory_size, &tail);
  return state_->remember(state_->write(as_bytes(tail)));
}

// ---- torch's records ----------------------------------------------------------------------------

namespace {

constexpr uint16_t kTorchFlags = 0x0808;      // UTF-8 names, data descriptor
constexpr uint16_t kPaddingExtraId = 0x4246;  // "FB"
constexpr uint64_t kExtraHeaderBytes = 4;

// What torch's zip library leaves in a local header: the size and, not known yet when it writes, 0
// for the compressed size when the size is large; the position when that is large.
std::string torch_local_extra(const TorchRecord& record) {
  std::string body;
  if (record.size >= kOverflow32) {
    append(body, record.size);
    append(body, uint64_t{0});
  }
  if (record.header_offset >= kOverflow32) append(body, record.header_offset);
  if (body.empty()) return body;
  std::string extra;
  append(extra, kZip64ExtraId);
  append(extra, static_cast<uint16_t>(body.size()));
  return extra + body;
}
bool needs_zip64(const TorchRecord& record) {
  return record.size >= kOverflow32 || record.header_offset >= kOverflow32;
}

}  // namespace

void append_torch_record_header(uint64_t header_offset, uint64_t size, TorchRecord* record,
                                std::string* out) {
  record->header_offset = header_offset;
  record->size = size;
  const std::string zip64 = torch_local_extra(*record);
  const uint64_t unpadded =
      header_offset + kLocalBytes + record->name.size() + zip64.size() + kExtraHeaderBytes;
  record->data_offset = align_up(unpadded, kTorchAlignment);
  const uint64_t padding = record->data_offset - unpadded;
  append(*out, kLocalSignature);
  append(*out, uint16_t{0});  // version needed
  append(*out, kTorchFlags);
  append(*out, uint16_t{0});  // stored
  append(*out, uint32_t{0});  // time and date
  append(*out, uint32_t{0});  // CRC and both sizes follow the data
  append(*out, uint32_t{0});
  append(*out, uint32_t{0});
  append(*out, static_cast<uint16_t>(record->name.size()));
  append(*out, static_cast<uint16_t>(zip64.size() + kExtraHeaderBytes + padding));
  *out += record->name;
  *out += zip64;
  append(*out, kPaddingExtraId);
  append(*out, static_cast<uint16_t>(padding));
  out->append(padding, 'Z');
}

void append_torch_record_trailer(const TorchRecord& record, std::string* out) {
  append(*out, kDescriptorSignature);
  append(*out, record.crc);
  if (needs_zip64(record)) {
    append(*out, record.size);
    append(*out, record.size);
  } else {
    append(*out, static_cast<uint32_t>(record.size));
    append(*out, static_cast<uint32_t>(record.size));
  }
}

void append_torch_directory(const std::vector<TorchRecord>& records, uint64_t directory_offset,
                            std::string* out) {
  const size_t start = out->size();
  for (const TorchRecord& record : records) {
    append_central_entry({0, kTorchFlags, 0, 0}, record.name, record.crc, record.size, record.size,
                         record.header_offset, out);
  }
  const uint64_t directory_size = out->size() - start;
  append_end64(records.size(), directory_offset, directory_size, out);
  append_end(records.size(), directory_offset, directory_size, out);
}

}  // namespace assay::formats

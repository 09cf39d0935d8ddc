// SPDX-License-Identifier: Apache-2.0
// Zip archives: .pth, .npz and .xlsx files are such.   Layout with offsets: docs/formats/pth.md
//
// Reading gives each entry's place in the file, so that a stored entry is used where it is mapped.
// Writing knows two shapes: ordinary entries, and torch's records (64-byte aligned data, sizes
// behind the data).
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace assay::formats {

/// Most bytes that one entry may inflate to unless the caller allows more or less.
inline constexpr uint64_t kMaxInflatedBytes = uint64_t{1} << 32;
/// Deflate cannot expand further than this; an entry that claims more is lying about its size.
inline constexpr uint64_t kMaxDeflateRatio = 1032;
inline constexpr uint64_t kMaxZipEntries = 1 << 22;

enum class ZipMethod : uint16_t { Stored = 0, Deflated = 8 };

struct ZipEntry {
  /// As in the file: may contain '/', "..", anything; never use it as a path unchecked.
  std::string name;
  uint16_t method = 0;
  /// As claimed; torch can be told to write 0, so it is not verified for stored entries.
  uint32_t crc = 0;
  uint64_t compressed_size = 0;
  uint64_t size = 0;
  uint64_t header_offset = 0;  // of the local header
  uint64_t data_offset = 0;    // of the first byte of data
};

struct ZipArchive {
  ByteSpan file;                  // borrowed
  std::vector<ZipEntry> entries;  // in the order of the central directory
  /// nullptr when there is none.
  [[nodiscard]] const ZipEntry* find(std::string_view name) const;
};

/// Parses the central directory (with zip64 and a comment of up to 65535 bytes) and the local
/// headers' lengths.
///
/// file      the whole file; borrowed by the result
/// errors    BadMagic (no end record) | Truncated | Invalid (overlapping entries, offsets outside
///           the file, an impossible ratio, duplicate names) | Unsupported (several disks,
///           encryption) | TooLarge
/// source    PKWARE APPNOTE.TXT 6.3.10 sections 4.3 and 4.5
[[nodiscard]] Result<ZipArchive> read_zip(ByteSpan file);

/// Bytes that are either borrowed from a file (owner empty) or kept alive by `owner`.
struct SharedBytes {
  ByteSpan bytes;
  std::shared_ptr<const void> owner;
};

/// The content of an entry: borrowed when stored, inflated (and its CRC verified) when deflated.
/// errors    TooLarge (more than `max_bytes`) | Invalid (damaged data, wrong size or CRC) |
/// Unsupported (method)
[[nodiscard]] Result<SharedBytes> read_zip_entry(const ZipArchive& archive, const ZipEntry& entry,
                                                 uint64_t max_bytes = kMaxInflatedBytes);

/// Writes ordinary entries one after the other, zip64 where sizes ask for it, timestamps fixed at
/// 1980-01-01 so that the same content gives the same file. What an
/// entry takes in the file is complete in memory before it is written.
///
///   ZipWriter zip(&text);
///   ASSAY_TRY_STATUS(zip.add("xl/workbook.xml", bytes, ZipMethod::Deflated));
///   ASSAY_TRY_STATUS(zip.finish());
///
/// Invariant: after a failed call the archive is unusable and every later call returns the same
/// error.
class ZipWriter {
 public:
  /// Appends to *out, which must outlive the writer and is expected to be empty.
  explicit ZipWriter(std::string* out);
  explicit ZipWriter(ByteSink sink);
  ~ZipWriter();
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;

  /// errors  Usage (after finish, name longer than 65535 bytes) | NoSpace | Io
  [[nodiscard]] Status add(std::string_view name, ByteSpan content,
                           ZipMethod method = ZipMethod::Stored);
  /// A deflated entry that is made piece by piece.
  /// errors  of `write` | as above
  [[nodiscard]] Status add_deflated(std::string_view name, const PieceWriter& write);
  /// Writes the central directory. Without it nobody can open the file.
  [[nodiscard]] Status finish();

 private:
  [[nodiscard]] Status check(std::string_view name) const;
  struct State;
  std::unique_ptr<State> state_;
};

// ---- torch's records ----------------------------------------------------------------------------

/// Multiple of this many bytes at which torch lets the data of a record start; mmap needs it.
inline constexpr uint64_t kTorchAlignment = 64;

/// Where one record of a torch archive lies. Filled by torch_record_header(), the CRC by
/// torch_record_trailer().
struct TorchRecord {
  std::string name;
  uint64_t size = 0;
  uint32_t crc = 0;
  uint64_t header_offset = 0;
  uint64_t data_offset = 0;
};

/// Local header of a record whose header starts at `header_offset`: CRC and sizes 0, an "FB" extra
/// field that pads the data to a multiple of 64, a zip64 extra when size or offset need one.
/// Appends to *out, completes *record.
void append_torch_record_header(uint64_t header_offset, uint64_t size, TorchRecord* record,
                                std::string* out);
/// Data descriptor that follows the data: 16 bytes, or 24 when size or offset need zip64.
void append_torch_record_trailer(const TorchRecord& record, std::string* out);
/// Central directory, zip64 end record and locator, classic end record; `directory_offset` is where
/// they start.
void append_torch_directory(const std::vector<TorchRecord>& records, uint64_t directory_offset,
                            std::string* out);

}  // namespace assay::formats

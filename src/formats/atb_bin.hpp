// SPDX-License-Identifier: Apache-2.0
// ATB's tensor files: a text header of name=value lines, then raw bytes; also the records without
// data (description
// only, statistics).   Bytes: docs/formats/atb-bin.md
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "formats/atb_types.hpp"
#include "tensor/dims.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::formats {

struct AtbAttribute {
  std::string_view name;
  std::string_view value;
};

/// The text in front of the payload: $Version, $Object.Count, $Object.Length, the attributes in the
/// order given, $Object.data when there is a payload, $End.
/// payload_bytes   nothing for a record without object: description only, statistics
[[nodiscard]] std::string atb_bin_header(std::span<const AtbAttribute> attributes,
                                         std::optional<uint64_t> payload_bytes);

/// One number of a statistics record. Complex tensors have an imaginary part.
struct AtbNumber {
  double real = NAN;
  double imaginary = 0;
  friend bool operator==(const AtbNumber&, const AtbNumber&) = default;
};

/// What a statistics record says; a value that is missing or "N/A" is nothing.
struct AtbStatistics {
  std::optional<AtbNumber> max;
  std::optional<AtbNumber> min;
  std::optional<AtbNumber> mean;
  std::optional<AtbNumber> l2norm;
  std::optional<int64_t> nan_count;  // only our own probe writes the counts
  std::optional<int64_t> inf_count;
};

inline constexpr size_t kMaxAtbHeaderLines = 8000;  // the limit of the library's own reader
inline constexpr size_t kMaxAtbHeaderBytes = 1 << 20;

/// The first record of a file. Everything borrows the bytes of the file.
struct AtbBin {
  int64_t format = kAtbUndefined;
  int64_t dtype = kAtbUndefined;
  Dims dims;
  std::vector<AtbAttribute> attributes;  // all that do not begin with '$', in file order
  /// Nothing in a description, a statistics record, a reference.
  std::optional<ByteSpan> payload;
  uint64_t payload_offset = 0;              // in the file
  std::optional<AtbStatistics> statistics;  // when there is a max, min, mean or l2norm
  std::string_view reference;  // data=2_0_outtensor0.bin: the same tensor was saved there
  bool ended = true;           // false: a record without payload lacks its $End line
  uint64_t record_bytes = 0;   // where a second, appended record would start

  /// The value of an attribute; nothing when the record does not have it.
  [[nodiscard]] std::optional<std::string_view> attribute(std::string_view name) const;
};

/// Parses header and place of the payload of the first record; what follows is left alone.
///
/// file      the whole file; any size, never trusted
/// errors    BadMagic (does not begin with $Version=) | Truncated (header or payload ends early;
///           offset of the missing byte) | Invalid (a line without exactly one '=', a name twice, a
///           zero byte, a number that is none, a negative size) | TooLarge (header lines or bytes,
///           more than 64 dimensions)
[[nodiscard]] Result<AtbBin> read_atb_bin(ByteSpan file);

/// The payload as a tensor in the order in which it is stored. A FRACTAL_NZ payload whose `dims`
/// are the logical [..., rows, columns] gets its stored shape [..., columns / c0, rows / 16 * 16,
/// c0], with c0 = 32 bytes, when that is what the payload's size says.
///
/// errors    NotFound (no payload: description, statistics, reference) | Unsupported (dtype number
///           without a type here) | TooLarge | Truncated (dims need more bytes than the payload has)
[[nodiscard]] Result<TensorView> atb_bin_view(const AtbBin& record);

}  // namespace assay::formats

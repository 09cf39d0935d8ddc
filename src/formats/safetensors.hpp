// SPDX-License-Identifier: Apache-2.0
// Reading .safetensors files with every check of the reference reader, and rendering their headers.
// Layout with offsets: docs/formats/safetensors.md
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.hpp"
#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::formats {

/// Limit of the reference implementation.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  TensorView view;           // C-contiguous, borrowed
  uint64_t file_offset = 0;  // of the first byte, from the start of the file
};

struct Safetensors {
  std::vector<SafetensorsEntry> entries;  // by file offset
  std::vector<std::pair<std::string, std::string>> metadata;
  std::shared_ptr<const void> owner;  // keeps a mapping alive; empty when the caller owns the bytes
  /// nullptr when there is none.
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;
};

/// Parses one file held in memory. The views borrow `file`.
///
/// Accepted exactly what the format allows: the tensors cover the data area without holes or
/// overlaps, every size is shape times element size, names are unique, spaces may follow the JSON
/// text. "F4" elements come in pairs: the last dimension counts bytes in the result
/// (float4_e2m1fn_x2).
///
/// errors    Truncated | BadMagic (no '{' at byte 8, for example the zeros of a file whose writer
///           was killed) | Invalid (JSON, duplicate names, holes, overlaps, sizes) |
///           Unsupported (dtype) | TooLarge (header)
/// source    huggingface/safetensors: safetensors/src/tensor.rs
[[nodiscard]] Result<Safetensors> read_safetensors(ByteSpan file);
/// The same; the result keeps the mapping alive.
[[nodiscard]] Result<Safetensors> read_safetensors_file(const MappedFile& file);

/// What one line of a header says; offsets count from the end of the header region, as in the file.
struct SafetensorsHeaderEntry {
  std::string name;
  DType dtype = DType::UInt8;
  Dims shape;
  uint64_t begin = 0;  // data_offsets[0]
  uint64_t end = 0;    // data_offsets[1]
};

/// The header region: u64 length, JSON, spaces.
///
/// reserved_bytes   size of the whole region including the 8 bytes of length, at least 16; 0 means
///                  the smallest multiple of 64
/// errors           TooLarge (does not fit into reserved_bytes) | Unsupported (dtype without a
///                  safetensors name) | Usage
[[nodiscard]] Result<std::string> safetensors_header(
    const std::vector<SafetensorsHeaderEntry>& entries,
    const std::vector<std::pair<std::string, std::string>>& metadata, uint64_t reserved_bytes = 0);

/// A whole file in memory: tensors in the given order, each 8-byte aligned only where sizes make it
/// so (the format knows no padding between tensors). Views must be contiguous without lazy bits.
/// errors    as safetensors_header | Usage
[[nodiscard]] Result<std::string> write_safetensors(
    const std::vector<std::pair<std::string, TensorView>>& tensors,
    const std::vector<std::pair<std::string, std::string>>& metadata = {});

}  // namespace assay::formats

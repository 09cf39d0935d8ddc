// SPDX-License-Identifier: Apache-2.0
// Reading .gguf model files of ggml programs, versions 2 and 3, either byte order.
// Layout with offsets: docs/formats/gguf.md
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.hpp"
#include "base/result.hpp"
#include "tensor/block_types.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::formats {

enum class GgufType : uint8_t {
  UInt8,
  Int8,
  UInt16,
  Int16,
  UInt32,
  Int32,
  Float32,
  Bool,
  String,
  Array,
  UInt64,
  Int64,
  Float64,
};
[[nodiscard]] std::string_view gguf_type_name(GgufType type);  // "uint8", "string"

/// One value of the metadata, borrowed from the file. An array's elements are read when they are
/// asked for.
struct GgufValue {
  GgufType type = GgufType::UInt8;
  GgufType element_type = GgufType::UInt8;  // of an Array
  uint64_t count = 1;                       // elements of an Array; otherwise 1
  /// A number's bytes, a string's text without its length, an array's elements as they stand.
  ByteSpan bytes;
  bool big_endian = false;

  /// Integers and bools that fit; nothing otherwise.
  [[nodiscard]] std::optional<int64_t> integer() const;
  [[nodiscard]] std::optional<double> number() const;  // also integers
  [[nodiscard]] std::optional<std::string_view> text() const;
  /// Element i of an array of numbers; of a number, for i = 0, itself.
  [[nodiscard]] std::optional<int64_t> integer_at(uint64_t i) const;
  /// Elements of an array in order, until `take` returns false.
  void for_each(const std::function<bool(const GgufValue&)>& take) const;
};

/// For people: numbers, texts in quotes inside arrays, at most `max_elements` of an array and then
/// its size: [1, 2, ...] (32000).
[[nodiscard]] std::string gguf_value_text(const GgufValue& value, size_t max_elements = 8);

struct GgufEntry {
  std::string key;
  GgufValue value;
  uint64_t file_offset = 0;  // of the key's length
};

struct GgufTensor {
  std::string name;
  Dims shape;  // row-major: the file's sizes in reverse order
  uint32_t ggml_type = 0;
  std::optional<DType> dtype;       // of plain types
  std::optional<BlockType> blocks;  // of block-quantised types
  uint64_t file_offset = 0;         // of the first byte, from the start of the file
  ByteSpan bytes;                   // little-endian unless the file is not; empty with a problem
  std::string problem;              // a type that nobody here knows, so that its size is not known
};
/// "float32", "q8_0", "type 31"
[[nodiscard]] std::string gguf_type_text(const GgufTensor& tensor);

struct Gguf {
  uint32_t version = 0;
  bool big_endian = false;
  uint64_t alignment = 32;
  uint64_t data_offset = 0;
  std::vector<GgufEntry> metadata;    // in the file's order
  std::vector<GgufTensor> tensors;    // in the file's order
  std::shared_ptr<const void> owner;  // keeps a mapping alive; empty when the caller owns the bytes

  /// nullptr when there is none.
  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const;
  /// Text of general.architecture; empty when there is none.
  [[nodiscard]] std::string_view architecture() const;
};

/// Parses one file held in memory. Values and tensors borrow `file`.
///
/// Every length is checked against the file before it is used; memory is bounded by a small
/// multiple of the file. Names are unique, tensors are aligned, inside the file and do not overlap.
///
/// errors    BadMagic | Unsupported (version) | Truncated (offset of what is missing) |
///           Invalid (types, counts, names, alignment, overlaps; offset) | TooLarge
/// source    ggml-org/ggml: include/gguf.h, docs/gguf.md
[[nodiscard]] Result<Gguf> read_gguf(ByteSpan file);
/// The same; the result keeps the mapping alive.
[[nodiscard]] Result<Gguf> read_gguf_file(const MappedFile& file);

/// The values: plain types as they are, borrowed from the file; block types in float32, in memory
/// of their own. Elements of a big-endian file are turned round.
/// errors    Unsupported (type that cannot be decoded, blocks of a big-endian file)
[[nodiscard]] Result<Tensor> gguf_tensor(const Gguf& file, const GgufTensor& tensor);

}  // namespace assay::formats

// SPDX-License-Identifier: Apache-2.0
// Dump files of CANN's graph engine: a protobuf header, then the operands of one operator. Read in
// cann_dump.cpp (where the payload is), cann_message.cpp and cann_nano.cpp (headers);
// cann_tensor.cpp makes tensors of them. Bytes: docs/formats/cann-dump.md
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "formats/cann_types.hpp"
#include "tensor/dims.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::formats {

/// Which tensor of the graph before fusion an output is (message OriginalOp).
struct CannOrigin {
  std::string name;
  int64_t output_index = 0;  // -1: the writer did not know
  int32_t data_type = 0;     // run-time numbering, unlike CannTensor::data_type
  int32_t format = 0;
  friend bool operator==(const CannOrigin&, const CannOrigin&) = default;
};

/// One input or output. `data` borrows the file.
struct CannTensor {
  int32_t data_type = 0;  // numbering of the header: 1 is float32
  int32_t format = 0;     // 2 ND, 29 FRACTAL_NZ, ...
  int32_t sub_format = 0;
  Dims shape;                          // as stored, in `format`
  std::optional<Dims> original_shape;  // of the framework
  uint64_t size_bytes = 0;             // may exceed what the shape needs: alignment
  uint64_t address = 0;
  uint64_t offset = 0;
  uint32_t arg_index = 0;   // exception files: argument of the kernel; see also has_operand_indices
  uint32_t input_type = 0;  // the same; inputs only
  std::vector<std::pair<uint64_t, uint64_t>> dim_range;
  std::optional<CannOrigin> origin;  // outputs only
  ByteSpan data;
  std::string problem;  // why it cannot be used; empty when all is well
};

/// A buffer (type 0: L1) or a workspace (type 0: log) of the operator.
struct CannBuffer {
  int32_t type = 0;
  uint64_t size_bytes = 0;
  uint32_t arg_index = 0;
  ByteSpan data;
  std::string problem;
};

struct CannAttribute {
  std::string name;
  std::string value;
  friend bool operator==(const CannAttribute&, const CannAttribute&) = default;
};

enum class CannVariant : uint8_t {
  Current,  // u64 header length, header, payload
  Inline,   // the whole file is the header, tensor bytes stand in its `data` fields
  Nano,     // tag-length-value header with a magic number
};

struct CannDump {
  CannVariant variant = CannVariant::Current;
  std::string version;
  uint64_t dump_time_us = 0;  // since 1970
  std::string op_name;        // as in the graph; the file's name has some characters replaced
  std::string message;        // dfx_message
  std::vector<CannAttribute> attributes;
  std::vector<CannTensor> inputs;
  std::vector<CannTensor> outputs;
  std::vector<CannBuffer> buffers;
  std::vector<CannBuffer> workspaces;
  bool has_operand_indices = false;   // operands were left out; arg_index counts the operator's
  std::vector<std::string> warnings;  // sizes that contradict each other: one sentence each
};

inline constexpr size_t kMaxCannOperands = 1 << 16;  // of each kind
inline constexpr size_t kMaxCannRank = 64;
inline constexpr std::string_view kCannDumpVersion = "2.0";  // of the current variant

/// Index of a tensor among the operator's inputs or outputs; `position` is its place in the file.
[[nodiscard]] inline size_t cann_operand_index(const CannDump& dump, const CannTensor& tensor,
                                               size_t position) {
  return dump.has_operand_indices ? tensor.arg_index : position;
}

/// Parses one dump file held in memory. In the payload inputs come first, then outputs, buffers and
/// workspaces; in files with a message (of an exception) workspaces before buffers. A tensor whose
/// bytes are missing keeps its description and says so in `problem`; the others stay usable.
///
/// file      the whole file; any size, never trusted
/// errors    Truncated (8 bytes or less, a header longer than the file) | Invalid (header is no
///           DumpData) | TooLarge (more than 65536 operands of a kind)
[[nodiscard]] Result<CannDump> read_cann_dump(ByteSpan file);

/// The header alone: description without data. errors  Invalid | TooLarge
[[nodiscard]] Result<CannDump> read_cann_header(ByteSpan header);
/// The same of the Nano variant. errors  Truncated | Invalid | TooLarge
[[nodiscard]] Result<CannDump> read_cann_nano_header(ByteSpan header);

/// The first 8 + N bytes of a file: header length and header. The bytes of inputs, outputs, buffers
/// and workspaces (with a message: workspaces, then buffers) follow in that order as they are,
/// without gaps.
///
/// dump      `variant`, `version`, `warnings` and every `problem` are ignored: the current variant,
///           version "2.0", is written. Each operand's `data` is exactly `size_bytes` long: a
///           reader finds a later tensor only by the sizes of those before it. Sizes are 64 bits
///           wide throughout. With `has_operand_indices` the arg_index of every tensor is its index
///           among the operator's inputs or outputs, and the attribute that says so is added.
/// errors    Invalid: data and size_bytes differ, a negative dimension | TooLarge: the header
///           exceeds 2 GiB, protobuf's limit
[[nodiscard]] Result<std::vector<std::byte>> cann_dump_header(const CannDump& dump);

/// True when the first bytes can only be such a file: header length and version "2.0", or Nano's
/// magic. Files without these bytes are told by their name.
[[nodiscard]] bool looks_like_cann_dump(ByteSpan file);

/// The tensor in the framework's order. Tiled layouts (FRACTAL_NZ, FRACTAL_Z, NC1HWC0, ...) are
/// converted into memory of their own and cut to `original_shape`; where the shapes do not allow
/// that, and for every other layout, the result borrows the file and has the stored shape. Types of
/// 1, 2, 4 and 6 bits become int8, uint8 or, without loss, float32, in memory of their own; int4
/// does so only where it is tiled.
///
/// errors    Truncated (fewer bytes than the shape needs, or none) | Unsupported (element type) |
///           TooLarge
[[nodiscard]] Result<Tensor> cann_tensor(const CannTensor& tensor);

/// What cann_tensor() gives, without reading the bytes.
struct CannHeader {
  DType dtype = DType::Float32;
  Dims shape;
  bool tiled = false;  // still in its stored, tiled order
};
/// errors  as cann_tensor()
[[nodiscard]] Result<CannHeader> cann_header(const CannTensor& tensor);

/// The tensor as it lies in the file. errors  as cann_tensor()
[[nodiscard]] Result<TensorView> cann_stored_view(const CannTensor& tensor);

}  // namespace assay::formats

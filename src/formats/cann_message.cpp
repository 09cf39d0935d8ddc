// SPDX-License-Identifier: Apache-2.0
// The header of a dump file, message DumpData in protobuf's binary form: every field once, for
// reading and for writing.
//
//   0a 03 "2.0"      1, version                32 09 "model/add"   6, name of the operator
//   10 c0 c4 bf ..   2, time                   22 10 ..            4, an input: 08 01   1, float32
//   1a 19 ..         3, an output                                              10 02   2, ND
//                                                                              1a 03 0a 01 02   3, shape [2] ...
#include <algorithm>
#include <cstring>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "formats/cann_dump.hpp"

namespace assay::formats {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

constexpr uint64_t kMaxHeaderBytes = (uint64_t{1} << 31) - 1;
constexpr uint32_t kUnknownOutput = 0xFFFFFFFF;

// Fields of a message stand in the order of their numbers; `fields` is a reader or a writer.
constexpr auto kOriginFields = [](auto& fields, auto& origin) {
  fields.text(1, origin.name);
  fields.output_index(2, origin.output_index);
  fields.number(3, origin.data_type);
  fields.number(4, origin.format);
};

/// The field that a message stands at. What no call takes is unknown or of another wire type;
/// number 0 is no field.
class FieldReader {
 public:
  /// Hands every field to fields(FieldReader&). Throws protozero::exception where the bytes are no
  /// message.
  template <typename Fields>
  static void read(pbf_reader message, Fields fields) {
    while (message.next()) {
      FieldReader field(message);
      fields(field);
      if (!field.taken_) message.skip();
    }
  }

  template <std::integral T>
  void number(uint32_t field, T& value) {
    if (is(field, pbf_wire_type::varint)) value = static_cast<T>(message_.get_uint64());
  }
  void output_index(uint32_t field, int64_t& index) {
    if (!is(field, pbf_wire_type::varint)) return;
    const uint32_t stored = message_.get_uint32();
    index = stored == kUnknownOutput ? -1 : int64_t{stored};
  }
  void text(uint32_t field, std::string& value) {
    if (is(field, pbf_wire_type::length_delimited)) value = message_.get_string();
  }
  void bytes(uint32_t field, ByteSpan& value) {
    if (!is(field, pbf_wire_type::length_delimited)) return;
    const protozero::data_view view = message_.get_view();
    value = as_bytes(std::string_view(view.data(), view.size()));
  }
  /// A shape with a problem is left as far as it goes, or out where there may be none.
  void shape(uint32_t field, Dims& shape, std::string& problem) {
    if (!is(field, pbf_wire_type::length_delimited)) return;
    std::tie(shape, problem) = read_shape(message_.get_message());
  }
  void shape(uint32_t field, std::optional<Dims>& shape) {
    if (!is(field, pbf_wire_type::length_delimited)) return;
    auto [dims, problem] = read_shape(message_.get_message());
    if (problem.empty()) shape = std::move(dims);
  }
  void origin(uint32_t field, std::optional<CannOrigin>& origin) {
    if (!is(field, pbf_wire_type::length_delimited)) return;
    CannOrigin& found = origin.emplace();
    read(message_.get_message(), [&](FieldReader& content) { kOriginFields(content, found); });
  }
  /// Messages of the same number; no more than `most` are kept. fields(FieldReader&, Item&)
  template <typename Item, typename Fields>
  void list(uint32_t field, std::vector<Item>& items, size_t most, Fields fields) {
    if (!is(field, pbf_wire_type::length_delimited)) return;
    Item item;
    read(message_.get_message(), [&](FieldReader& content) { fields(content, item); });
    if (items.size() < most) items.push_back(std::move(item));
  }

 private:
  explicit FieldReader(pbf_reader& message) : message_(message) {}

  [[nodiscard]] bool is(uint32_t field, pbf_wire_type type) {
    const bool found = !taken_ && message_.tag() == field && message_.wire_type() == type;
    taken_ = taken_ || found;
    return found;
  }

  static std::pair<Dims, std::string> read_shape(pbf_reader message) {
    std::pair<Dims, std::string> result;
    const auto add = [&result](uint64_t size) {
      auto& [dims, problem] = result;
      if (size > static_cast<uint64_t>(INT64_MAX)) {
        problem = "a dimension of " + std::to_string(size);
      } else if (dims.size() == kMaxCannRank) {
        problem = "more than 64 dimensions";
      } else {
        dims.push_back(static_cast<int64_t>(size));
      }
    };
    read(message, [&](FieldReader& field) {
      if (field.is(1, pbf_wire_type::varint)) add(field.message_.get_uint64());
      if (field.is(1, pbf_wire_type::length_delimited)) {
        for (const uint64_t size : field.message_.get_packed_uint64()) add(size);
      }
    });
    return result;
  }

  pbf_reader& message_;
  bool taken_ = false;
};

/// Writes fields in the order of the calls. proto3 leaves out numbers that are 0 and texts that are
/// empty.
class FieldWriter {
 public:
  explicit FieldWriter(std::string& message) : writer_(message) {}

  template <std::integral T>
  void number(uint32_t field, T value) {
    if (field == 0 || value == 0) return;
    if constexpr (std::is_signed_v<T>)
      writer_.add_int32(field, value);
    else
      writer_.add_uint64(field, value);
  }
  void output_index(uint32_t field, int64_t index) {
    number(field, static_cast<uint32_t>(index));  // -1: kUnknownOutput
  }
  void text(uint32_t field, const std::string& value) {
    if (!value.empty()) writer_.add_string(field, value);
  }
  void bytes(uint32_t, ByteSpan) {}  // they stand in the payload
  /// Present even when the shape is that of a scalar and the message therefore empty.
  void shape(uint32_t field, const std::optional<Dims>& shape, const std::string& = {}) {
    if (!shape) return;
    std::string content;
    protozero::pbf_writer(content).add_packed_uint64(1, shape->begin(), shape->end());
    writer_.add_message(field, content);
  }
  void origin(uint32_t field, const std::optional<CannOrigin>& origin) {
    if (origin && !origin->name.empty()) message(field, *origin, kOriginFields);
  }
  template <typename Item, typename Fields>
  void list(uint32_t field, const std::vector<Item>& items, size_t, Fields fields) {
    for (const Item& item : items) message(field, item, fields);
  }

 private:
  template <typename Item, typename Fields>
  void message(uint32_t field, const Item& item, Fields fields) {
    if (field == 0) return;
    std::string content;
    FieldWriter writer(content);
    fields(writer, item);
    writer_.add_message(field, content);
  }

  protozero::pbf_writer writer_;
};

constexpr auto kRangeFields = [](auto& fields, auto& range) {
  fields.number(1, range.first);
  fields.number(2, range.second);
};

/// Inputs and outputs have the same fields under other numbers from 4 on; 0: not among them.
struct TensorNumbers {
  uint32_t origin, data, size, original_shape, sub_format, address, dim_range, offset, arg_index,
      input_type;
};
constexpr TensorNumbers kOutputNumbers = {4, 5, 6, 7, 8, 9, 10, 11, 12, 0};
constexpr TensorNumbers kInputNumbers = {0, 4, 5, 6, 7, 8, 0, 9, 10, 11};

template <const TensorNumbers& kNumbers>
constexpr auto kTensorFields = [](auto& fields, auto& tensor) {
  fields.number(1, tensor.data_type);
  fields.number(2, tensor.format);
  fields.shape(3, tensor.shape, tensor.problem);
  fields.origin(kNumbers.origin, tensor.origin);
  fields.bytes(kNumbers.data, tensor.data);
  fields.number(kNumbers.size, tensor.size_bytes);
  fields.shape(kNumbers.original_shape, tensor.original_shape);
  fields.number(kNumbers.sub_format, tensor.sub_format);
  fields.number(kNumbers.address, tensor.address);
  fields.list(kNumbers.dim_range, tensor.dim_range, kMaxCannRank, kRangeFields);
  fields.number(kNumbers.offset, tensor.offset);
  fields.number(kNumbers.arg_index, tensor.arg_index);
  fields.number(kNumbers.input_type, tensor.input_type);
};

constexpr auto kBufferFields = [](auto& fields, auto& buffer) {
  fields.number(1, buffer.type);
  fields.bytes(2, buffer.data);
  fields.number(3, buffer.size_bytes);
};
constexpr auto kWorkspaceFields = [](auto& fields, auto& workspace) {
  kBufferFields(fields, workspace);
  fields.number(4, workspace.arg_index);
};

constexpr auto kAttributeFields = [](auto& fields, auto& attribute) {
  fields.text(1, attribute.name);
  fields.text(2, attribute.value);
};

constexpr auto kDumpFields = [](auto& fields, auto& dump) {
  constexpr size_t kMost = kMaxCannOperands + 1;  // one more, which tells that there are too many
  fields.text(1, dump.version);
  fields.number(2, dump.dump_time_us);
  fields.list(3, dump.outputs, kMost, kTensorFields<kOutputNumbers>);
  fields.list(4, dump.inputs, kMost, kTensorFields<kInputNumbers>);
  fields.list(5, dump.buffers, kMost, kBufferFields);
  fields.text(6, dump.op_name);
  fields.list(7, dump.attributes, kMost, kAttributeFields);
  fields.list(8, dump.workspaces, kMost, kWorkspaceFields);
  fields.text(9, dump.message);
};

/// Ours: arg_index is the index among the operator's inputs or outputs. In the vendor's files the
/// k-th input can be operand k + n, and arg_index is 0 or, after an exception, a kernel's.
CannAttribute operand_indices() { return {"assay_operand_index", "arg_index"}; }

Status check_sizes(std::string_view kind, const auto& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].size_bytes != operands[i].data.size())
      return fail(Errc::Invalid, std::string(kind) + " " + std::to_string(i) + " announces " +
                                     std::to_string(operands[i].size_bytes) + " bytes and has " +
                                     std::to_string(operands[i].data.size()));
  }
  return {};
}

Status check_shapes(std::string_view kind, const std::vector<CannTensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const Dims& shape : {tensors[i].shape, tensors[i].original_shape.value_or(Dims{})}) {
      if (std::ranges::any_of(shape, [](int64_t size) { return size < 0; }))
        return fail(Errc::Invalid, std::string(kind) + " " + std::to_string(i) + " has the shape " +
                                       shape_text(shape));
    }
  }
  return {};
}

}  // namespace

Result<CannDump> read_cann_header(ByteSpan header) {
  CannDump dump;
  const std::string_view text = as_text(header);
  try {
    FieldReader::read(pbf_reader(text.data(), text.size()),
                      [&](FieldReader& fields) { kDumpFields(fields, dump); });
  } catch (const protozero::exception& error) {
    return fail(Errc::Invalid, std::string("the header is no DumpData message: ") + error.what());
  }
  dump.has_operand_indices = std::erase(dump.attributes, operand_indices()) > 0;
  const size_t most = std::max({dump.outputs.size(), dump.inputs.size(), dump.buffers.size(),
                                dump.workspaces.size(), dump.attributes.size()});
  if (most > kMaxCannOperands)
    return fail(Errc::TooLarge, "more than 65536 operands or attributes");
  return dump;
}

Result<std::vector<std::byte>> cann_dump_header(const CannDump& dump) {
  ASSAY_TRY_STATUS(check_sizes("input", dump.inputs));
  ASSAY_TRY_STATUS(check_shapes("input", dump.inputs));
  ASSAY_TRY_STATUS(check_sizes("output", dump.outputs));
  ASSAY_TRY_STATUS(check_shapes("output", dump.outputs));
  ASSAY_TRY_STATUS(check_sizes("buffer", dump.buffers));
  ASSAY_TRY_STATUS(check_sizes("workspace", dump.workspaces));
  CannDump written = dump;
  written.version = kCannDumpVersion;
  if (dump.has_operand_indices) written.attributes.push_back(operand_indices());
  std::string header(8, '\0');
  FieldWriter fields(header);
  kDumpFields(fields, written);
  const uint64_t size_bytes = header.size() - 8;
  if (size_bytes > kMaxHeaderBytes)
    return fail(Errc::TooLarge,
                "a header of " + std::to_string(size_bytes) + " bytes; protobuf ends at 2 GiB");
  std::memcpy(header.data(), &size_bytes, 8);
  const ByteSpan bytes = as_bytes(header);
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

}  // namespace assay::formats

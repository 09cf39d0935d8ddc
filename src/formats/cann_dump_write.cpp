// SPDX-License-Identifier: Apache-2.0
#include "formats/cann_dump_write.hpp"

#include <algorithm>
#include <cstring>
#include <protozero/pbf_writer.hpp>

namespace assay::formats {
namespace {

using protozero::pbf_writer;

constexpr uint64_t kMaxHeaderBytes = (uint64_t{1} << 31) - 1;

// proto3 leaves out numbers that are 0 and texts that are empty.
void add_number(pbf_writer* message, uint32_t field, uint64_t value) {
  if (value != 0) message->add_uint64(field, value);
}
void add_signed(pbf_writer* message, uint32_t field, int32_t value) {
  if (value != 0) message->add_int32(field, value);
}
void add_text(pbf_writer* message, uint32_t field, const std::string& text) {
  if (!text.empty()) message->add_string(field, text);
}

/// Present even when the shape is that of a scalar and the message therefore empty.
void add_shape(pbf_writer* message, uint32_t field, const Dims& shape) {
  std::string content;
  pbf_writer(content).add_packed_uint64(1, shape.begin(), shape.end());
  message->add_message(field, content);
}

void add_origin(pbf_writer* message, uint32_t field, const CannOrigin& origin) {
  std::string content;
  pbf_writer writer(content);
  add_text(&writer, 1, origin.name);
  // An index that is not known is -1 in 32 bits without sign.
  add_number(&writer, 2, static_cast<uint32_t>(origin.output_index));
  add_signed(&writer, 3, origin.data_type);
  add_signed(&writer, 4, origin.format);
  message->add_message(field, content);
}

void add_output(pbf_writer* message, const CannTensor& tensor) {
  std::string content;
  pbf_writer writer(content);
  add_signed(&writer, 1, tensor.data_type);
  add_signed(&writer, 2, tensor.format);
  add_shape(&writer, 3, tensor.shape);
  if (tensor.origin && !tensor.origin->name.empty()) add_origin(&writer, 4, *tensor.origin);
  add_number(&writer, 6, tensor.size_bytes);
  if (tensor.original_shape) add_shape(&writer, 7, *tensor.original_shape);
  add_signed(&writer, 8, tensor.sub_format);
  add_number(&writer, 9, tensor.address);
  for (const auto& [start, end] : tensor.dim_range) {
    std::string range;
    pbf_writer range_writer(range);
    add_number(&range_writer, 1, start);
    add_number(&range_writer, 2, end);
    writer.add_message(10, range);
  }
  add_number(&writer, 11, tensor.offset);
  add_number(&writer, 12, tensor.arg_index);
  message->add_message(3, content);
}

void add_input(pbf_writer* message, const CannTensor& tensor) {
  std::string content;
  pbf_writer writer(content);
  add_signed(&writer, 1, tensor.data_type);
  add_signed(&writer, 2, tensor.format);
  add_shape(&writer, 3, tensor.shape);
  add_number(&writer, 5, tensor.size_bytes);
  if (tensor.original_shape) add_shape(&writer, 6, *tensor.original_shape);
  add_signed(&writer, 7, tensor.sub_format);
  add_number(&writer, 8, tensor.address);
  add_number(&writer, 9, tensor.offset);
  add_number(&writer, 10, tensor.arg_index);
  add_number(&writer, 11, tensor.input_type);
  message->add_message(4, content);
}

/// `field` 5: a buffer, which has no arg_index; 8: a workspace.
void add_buffer(pbf_writer* message, uint32_t field, const CannBuffer& buffer) {
  std::string content;
  pbf_writer writer(content);
  add_signed(&writer, 1, buffer.type);
  add_number(&writer, 3, buffer.size_bytes);
  if (field == 8) add_number(&writer, 4, buffer.arg_index);
  message->add_message(field, content);
}

void add_attribute(pbf_writer* message, const CannAttribute& attribute) {
  std::string content;
  pbf_writer writer(content);
  add_text(&writer, 1, attribute.name);
  add_text(&writer, 2, attribute.value);
  message->add_message(7, content);
}

Status check_size(std::string_view kind, size_t index, uint64_t size_bytes, ByteSpan data) {
  if (size_bytes == data.size()) return {};
  return fail(Errc::Invalid, std::string(kind) + " " + std::to_string(index) + " announces " +
                                 std::to_string(size_bytes) + " bytes and has " +
                                 std::to_string(data.size()));
}

Status check_tensors(std::string_view kind, const std::vector<CannTensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    ASSAY_TRY_STATUS(check_size(kind, i, tensors[i].size_bytes, tensors[i].data));
    for (const Dims& shape : {tensors[i].shape, tensors[i].original_shape.value_or(Dims{})}) {
      if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; }))
        return fail(Errc::Invalid, std::string(kind) + " " + std::to_string(i) + " has the shape " +
                                       list_text(shape.span()));
    }
  }
  return {};
}

Status check_buffers(std::string_view kind, const std::vector<CannBuffer>& buffers) {
  for (size_t i = 0; i < buffers.size(); ++i)
    ASSAY_TRY_STATUS(check_size(kind, i, buffers[i].size_bytes, buffers[i].data));
  return {};
}

}  // namespace

Result<std::vector<std::byte>> cann_dump_header(const CannDump& dump) {
  ASSAY_TRY_STATUS(check_tensors("input", dump.inputs));
  ASSAY_TRY_STATUS(check_tensors("output", dump.outputs));
  ASSAY_TRY_STATUS(check_buffers("buffer", dump.buffers));
  ASSAY_TRY_STATUS(check_buffers("workspace", dump.workspaces));
  std::string header;
  pbf_writer writer(header);
  writer.add_string(1, "2.0");
  add_number(&writer, 2, dump.dump_time_us);
  for (const CannTensor& output : dump.outputs) add_output(&writer, output);
  for (const CannTensor& input : dump.inputs) add_input(&writer, input);
  for (const CannBuffer& buffer : dump.buffers) add_buffer(&writer, 5, buffer);
  add_text(&writer, 6, dump.op_name);
  for (const CannAttribute& attribute : dump.attributes) add_attribute(&writer, attribute);
  if (dump.has_operand_indices)
    add_attribute(&writer,
                  {std::string(kCannOperandIndices), std::string(kCannOperandIndicesInArgIndex)});
  for (const CannBuffer& workspace : dump.workspaces) add_buffer(&writer, 8, workspace);
  add_text(&writer, 9, dump.message);
  if (header.size() > kMaxHeaderBytes)
    return fail(Errc::TooLarge,
                "a header of " + std::to_string(header.size()) + " bytes; protobuf ends at 2 GiB");
  std::vector<std::byte> file(8 + header.size());
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

}  // namespace assay::formats

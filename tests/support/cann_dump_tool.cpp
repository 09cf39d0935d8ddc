// SPDX-License-Identifier: Apache-2.0
// Lets google.protobuf judge our dump files: tests/python/test_cann_dump_proto.py runs it.
//
//   cann_dump_tool write FILE    a dump file from the lines on stdin
//   cann_dump_tool read FILE     the same lines from a dump file
//
// A line has cells with a tab between them; texts and bytes are hexadecimal, a shape is "2x3" or "-", none is "none":
//   dump       time  op name  message  1 when arg_index counts operands
//   attribute  name  value
//   input      data type  format  sub format  shape  original shape  address  offset  arg_index  input_type  data
//   output     the same with original operator (name:index:type:format) in place of input_type
//   buffer     type  data
//   workspace  type  arg_index  data
// After each input and output `read` prints what the tensor is worth: "value  dtype  shape  bytes" or "problem  text".
#include <cstdio>
#include <iostream>
#include <list>
#include <string>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/cann_dump.hpp"
#include "tensor/convert.hpp"

namespace {

using namespace assay;
using namespace assay::formats;
using Cells = std::vector<std::string_view>;

constexpr std::string_view kNone = "none";

// ---- writing -------------------------------------------------------------------------------------

template <typename Number>
Number number(std::string_view cell) {
  const auto value = parse_number<Number>(cell);
  ASSAY_CHECK(value.has_value(), "the test writes numbers");
  return *value;
}

std::string bytes_of_hex(std::string_view cell) {
  std::string bytes;
  for (size_t i = 0; i + 1 < cell.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(cell.substr(i, 2)), nullptr, 16)));
  return bytes;
}

Dims shape_of(std::string_view cell) {
  Dims shape;
  if (cell == "-") return shape;
  for (const std::string_view size : split(cell, 'x')) shape.push_back(number<int64_t>(size));
  return shape;
}

std::optional<CannOrigin> origin_of(std::string_view cell) {
  if (cell == kNone) return std::nullopt;
  const Cells parts = split(cell, ':');
  return CannOrigin{bytes_of_hex(parts.at(0)), number<int64_t>(parts.at(1)),
                    number<int32_t>(parts.at(2)), number<int32_t>(parts.at(3))};
}

struct Description {
  CannDump dump;
  std::list<std::string> payloads;  // what the operands borrow

  ByteSpan keep(std::string_view hex) {
    payloads.push_back(bytes_of_hex(hex));
    return as_bytes(payloads.back());
  }
  void add(const Cells& cells) {
    const std::string_view kind = cells[0];
    if (kind == "dump") {
      dump.dump_time_us = number<uint64_t>(cells.at(1));
      dump.op_name = bytes_of_hex(cells.at(2));
      dump.message = bytes_of_hex(cells.at(3));
      dump.has_operand_indices = cells.at(4) == "1";
    } else if (kind == "attribute") {
      dump.attributes.push_back({bytes_of_hex(cells.at(1)), bytes_of_hex(cells.at(2))});
    } else if (kind == "buffer") {
      const ByteSpan data = keep(cells.at(2));
      dump.buffers.push_back({number<int32_t>(cells.at(1)), data.size(), 0, data, ""});
    } else if (kind == "workspace") {
      const ByteSpan data = keep(cells.at(3));
      dump.workspaces.push_back(
          {number<int32_t>(cells.at(1)), data.size(), number<uint32_t>(cells.at(2)), data, ""});
    } else {
      add_tensor(cells, kind == "input" ? &dump.inputs : &dump.outputs);
    }
  }
  void add_tensor(const Cells& cells, std::vector<CannTensor>* tensors) {
    CannTensor tensor;
    tensor.data_type = number<int32_t>(cells.at(1));
    tensor.format = number<int32_t>(cells.at(2));
    tensor.sub_format = number<int32_t>(cells.at(3));
    tensor.shape = shape_of(cells.at(4));
    if (cells.at(5) != kNone) tensor.original_shape = shape_of(cells.at(5));
    tensor.address = number<uint64_t>(cells.at(6));
    tensor.offset = number<uint64_t>(cells.at(7));
    tensor.arg_index = number<uint32_t>(cells.at(8));
    if (tensors == &dump.inputs) {
      tensor.input_type = number<uint32_t>(cells.at(9));
    } else {
      tensor.origin = origin_of(cells.at(9));
    }
    tensor.data = keep(cells.at(10));
    tensor.size_bytes = tensor.data.size();
    tensors->push_back(std::move(tensor));
  }
};

Status write_dump(const std::string& path) {
  Description description;
  for (std::string line; std::getline(std::cin, line);) description.add(split(line, '\t'));
  const CannDump& dump = description.dump;
  ASSAY_TRY(const std::vector<std::byte> header, cann_dump_header(dump));
  std::string file(as_text(header));
  for (const auto* list : {&dump.inputs, &dump.outputs}) {
    for (const CannTensor& tensor : *list) file += as_text(tensor.data);
  }
  const bool is_exception = !dump.message.empty();
  for (const auto* list : {is_exception ? &dump.workspaces : &dump.buffers,
                           is_exception ? &dump.buffers : &dump.workspaces}) {
    for (const CannBuffer& buffer : *list) file += as_text(buffer.data);
  }
  return write_file_atomically(path, as_bytes(file));
}

// ---- reading -------------------------------------------------------------------------------------

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    out += "0123456789abcdef"[static_cast<uint8_t>(c) >> 4];
    out += "0123456789abcdef"[static_cast<uint8_t>(c) & 15];
  }
  return out;
}
std::string hex(ByteSpan bytes) { return hex(as_text(bytes)); }

std::string shape_cell(const Dims& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "-" : text;
}

void print(std::initializer_list<std::string> cells) {
  std::string line;
  for (const std::string& cell : cells) line += (line.empty() ? "" : "\t") + cell;
  std::printf("%s\n", line.c_str());
}

void print_value(const CannTensor& tensor) {
  const auto value = cann_tensor(tensor);
  const auto header = cann_header(tensor);
  ASSAY_CHECK(value.has_value() == header.has_value(), "the header promises what the tensor keeps");
  if (!value) return print({"problem", value.error().message});
  const TensorView& view = value->view;
  ASSAY_CHECK(header->dtype == view.dtype && header->shape == view.shape,
              "the header promises what the tensor keeps");
  print({"value", std::string(name(view.dtype)), shape_cell(view.shape),
         hex(view.contiguous_bytes())});
}

void print_tensor(const CannTensor& tensor, bool is_input) {
  std::string last = std::to_string(tensor.input_type);
  if (!is_input) {
    last = tensor.origin
               ? hex(tensor.origin->name) + ":" + std::to_string(tensor.origin->output_index) +
                     ":" + std::to_string(tensor.origin->data_type) + ":" +
                     std::to_string(tensor.origin->format)
               : std::string(kNone);
  }
  print({is_input ? "input" : "output", std::to_string(tensor.data_type),
         std::to_string(tensor.format), std::to_string(tensor.sub_format), shape_cell(tensor.shape),
         tensor.original_shape ? shape_cell(*tensor.original_shape) : std::string(kNone),
         std::to_string(tensor.address), std::to_string(tensor.offset),
         std::to_string(tensor.arg_index), last, hex(tensor.data)});
  print_value(tensor);
}

Status read_dump(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  ASSAY_TRY(const CannDump dump, read_cann_dump(file.bytes()));
  print({"dump", std::to_string(dump.dump_time_us), hex(dump.op_name), hex(dump.message),
         dump.has_operand_indices ? "1" : "0"});
  for (const CannAttribute& attribute : dump.attributes)
    print({"attribute", hex(attribute.name), hex(attribute.value)});
  for (const CannTensor& tensor : dump.inputs) print_tensor(tensor, true);
  for (const CannTensor& tensor : dump.outputs) print_tensor(tensor, false);
  for (const CannBuffer& buffer : dump.buffers)
    print({"buffer", std::to_string(buffer.type), hex(buffer.data)});
  for (const CannBuffer& buffer : dump.workspaces)
    print({"workspace", std::to_string(buffer.type), std::to_string(buffer.arg_index),
           hex(buffer.data)});
  for (const std::string& warning : dump.warnings) print({"warning", warning});
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "cann_dump_tool write FILE | read FILE\n");
    return 2;
  }
  const bool writes = std::string_view(argv[1]) == "write";
  const Status done = writes ? write_dump(argv[2]) : read_dump(argv[2]);
  if (!done) std::fprintf(stderr, "error: %s\n", done.error().describe().c_str());
  return done ? 0 : 1;
}

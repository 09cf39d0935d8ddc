// SPDX-License-Identifier: Apache-2.0
// The header of Nano's dump files: blocks of tag, length and value. Types are in the run time's
// numbering.
//
//   | u32 5A5A5A5A | u32 version | u32 tag (4 inputs, 5 outputs) | u32 length | u32 count | record ... | next block ...
//
//   record  i32 type, i32 format, i32 kind of address, of outputs i32 index, i32 type, i32 format of the original operator,
//           u64 address, u64 offset, u64 size, u32 length of inner blocks: 0 shape, 1 original shape, 2 original name
#include "formats/cann_dump.hpp"

namespace assay::formats {
namespace {

constexpr uint32_t kInputs = 4;
constexpr uint32_t kOutputs = 5;

Result<Dims> nano_dims(ByteSpan values) {
  Dims dims;
  if (values.size() % 8 != 0 || values.size() / 8 > kMaxCannRank)
    return fail(Errc::Invalid, "a shape of " + std::to_string(values.size()) + " bytes");
  for (size_t at = 0; at < values.size(); at += 8) {
    const auto size = load<uint64_t>(values.data() + at);
    if (size > static_cast<uint64_t>(INT64_MAX))
      return fail(Errc::Invalid, "a dimension of " + std::to_string(size));
    dims.push_back(static_cast<int64_t>(size));
  }
  return dims;
}

Result<CannTensor> read_nano_tensor(ByteReader* reader, bool is_output) {
  CannTensor tensor;
  ASSAY_TRY(const auto type, reader->read<int32_t>());
  tensor.data_type = cann_from_runtime(type);
  ASSAY_TRY(tensor.format, reader->read<int32_t>());
  ASSAY_TRY_STATUS(reader->skip(4));  // kind of address
  CannOrigin origin;
  if (is_output) {
    ASSAY_TRY(origin.output_index, reader->read<int32_t>());
    ASSAY_TRY(origin.data_type, reader->read<int32_t>());
    ASSAY_TRY(origin.format, reader->read<int32_t>());
  }
  ASSAY_TRY(tensor.address, reader->read<uint64_t>());
  ASSAY_TRY(tensor.offset, reader->read<uint64_t>());
  ASSAY_TRY(tensor.size_bytes, reader->read<uint64_t>());
  ASSAY_TRY(const auto list_bytes, reader->read<uint32_t>());
  ASSAY_TRY(const ByteSpan list, reader->read_bytes(list_bytes));
  ByteReader items(list);
  while (items.remaining() > 0) {
    ASSAY_TRY(const auto tag, items.read<uint32_t>());
    ASSAY_TRY(const auto length, items.read<uint32_t>());
    ASSAY_TRY(const ByteSpan values, items.read_bytes(length));
    if (tag == 0) {
      ASSAY_TRY(tensor.shape, nano_dims(values));
    } else if (tag == 1) {
      ASSAY_TRY(tensor.original_shape, nano_dims(values));
    } else if (tag == 2) {
      origin.name = as_text(values);
    }
  }
  if (is_output && !origin.name.empty()) tensor.origin = std::move(origin);
  return tensor;
}

Status read_nano_tensors(ByteSpan block, bool is_output, std::vector<CannTensor>* out) {
  ByteReader reader(block);
  ASSAY_TRY(const auto count, reader.read<uint32_t>());
  if (count > kMaxCannOperands)
    return fail(Errc::TooLarge, std::to_string(count) + " operands of one kind");
  for (uint32_t i = 0; i < count; ++i) {
    ASSAY_TRY(CannTensor tensor, read_nano_tensor(&reader, is_output));
    out->push_back(std::move(tensor));
  }
  return {};
}

}  // namespace

Result<CannDump> read_cann_nano_header(ByteSpan header) {
  ByteReader reader(header);
  CannDump dump;
  dump.variant = CannVariant::Nano;
  ASSAY_TRY_STATUS(reader.skip(4));  // magic
  ASSAY_TRY(const auto version, reader.read<uint32_t>());
  dump.version = std::to_string(version);
  while (reader.remaining() > 0) {
    ASSAY_TRY(const auto tag, reader.read<uint32_t>());
    ASSAY_TRY(const auto length, reader.read<uint32_t>());
    ASSAY_TRY(const ByteSpan block, reader.read_bytes(length));
    if (tag == kInputs) ASSAY_TRY_STATUS(read_nano_tensors(block, false, &dump.inputs));
    if (tag == kOutputs) ASSAY_TRY_STATUS(read_nano_tensors(block, true, &dump.outputs));
  }
  return dump;
}

}  // namespace assay::formats

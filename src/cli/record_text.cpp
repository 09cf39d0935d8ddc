// SPDX-License-Identifier: Apache-2.0
// Records in quantised blocks are named by their block type, all others by their dtype.
#include "cli/record_text.hpp"

#include "base/text.hpp"
#include "run/strided_payload.hpp"
#include "tensor/dims.hpp"

namespace assay::cli {

std::optional<BlockType> block_type(const run::TensorRecord& record) {
  return block_type_from_name(record.memory_format);
}

std::string dtype_text(const run::TensorRecord& record) {
  if (block_type(record)) return record.memory_format;
  return record.dtype ? std::string(name(*record.dtype)) : "?";
}

std::string type_and_shape(const run::TensorRecord& record) {
  std::string text = dtype_text(record);
  if (record.shape) text += ' ' + list_text(record.shape->span());
  if (!run::has_plain_values(record) && !block_type(record))
    text += ' ' + printable(record.memory_format);
  return text;
}

uint64_t tensor_bytes(const run::TensorRecord& record) {
  if (!record.dtype || !record.shape) return 0;
  const std::optional<int64_t> count = element_count(*record.shape);
  if (!count) return 0;
  if (const auto blocks = block_type(record))
    return blocked_bytes(*blocks, *record.shape).value_or(0);
  return storage_bytes(*record.dtype, static_cast<uint64_t>(*count)).value_or(0);
}

}  // namespace assay::cli

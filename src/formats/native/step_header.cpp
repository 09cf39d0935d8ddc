// SPDX-License-Identifier: Apache-2.0
//   {"__metadata__":{"run":"..","file":"step-000000.safetensors","digest":".."},
//    "3:model.norm.output.":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},
//    "__pad.0":{"dtype":"U8","shape":[32],"data_offsets":[32,64]}, ...
#include "formats/native/step_header.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/json_text.hpp"
#include "tensor/node.hpp"

namespace assay::native {
namespace {

void append_entry(RecordText& out, std::string_view name, std::string_view dtype,
                  std::span<const int64_t> shape, uint64_t begin, uint64_t end) {
  const std::array offsets = {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
  out += ',';
  append_quoted(out, name);
  out += R"(:{"dtype":")";
  out += dtype;
  out += R"(","shape":)";
  append_list(out, shape);
  out += R"(,"data_offsets":)";
  append_list(out, offsets);
  out += '}';
}

void append_bytes(RecordText& out, std::string_view name, uint64_t begin, uint64_t end) {
  const auto size = static_cast<int64_t>(end - begin);
  append_entry(out, name, "U8", {&size, 1}, begin, end);
}

}  // namespace

std::string step_file_stem(int64_t step) {
  char stem[32];
  std::snprintf(stem, sizeof(stem), "step-%06lld", static_cast<long long>(step));
  return stem;
}

std::string payload_name(const Record& record) {
  return std::to_string(record.number) + ':' + node_name(record) + '.' +
         std::string(role_name(record.role)) + '.' + *record.slot;
}

uint64_t StepHeader::bound(const Record& record) {
  // Quotes, keys, the longest dtype and role names, the record's number and two offsets of 15
  // digits.
  constexpr uint64_t kFixed = 150, kPadEntry = 110, kDigits = 20;
  const auto quoted_size = [](std::string_view text) {
    uint64_t size = 0;
    for (const char c : text) size += (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) ? 1u : 6u;
    return size;
  };
  const uint64_t operation_size =
      record.operation != nullptr ? quoted_size(*record.operation) + kDigits : 0;
  return kFixed + kPadEntry + quoted_size(record.node->name) + operation_size +
         quoted_size(*record.slot) + kDigits * static_cast<uint64_t>(record.ndim);
}

void StepHeader::add(const RecordBatch& batch, const Record& record, uint64_t begin) {
  const size_t text_begin = texts_.text().size();
  const uint64_t end = begin + record.payload->size_bytes;
  const std::string_view dtype = info(record.dtype).safetensors;
  // Element types without a name there are bytes.
  if (dtype.empty() || record.raw_bytes)
    append_bytes(texts_, payload_name(record), begin, end);
  else
    append_entry(texts_, payload_name(record), dtype, batch.shape_of(record), begin, end);
  entries_.push_back({begin, end, text_begin, texts_.text().size() - text_begin});
}

std::string StepHeader::text(const StepMetadata& metadata, uint64_t end) {
  // Lines of threads that capture at the same time come one thread after the other.
  std::ranges::stable_sort(entries_, {}, &Entry::begin);
  RecordText out;
  out += JsonObject()
             .add_json(key::kMetadata, JsonObject()
                                           .add(key::kRun, metadata.run)
                                           .add(key::kFile, metadata.file)
                                           .add(key::kDigest, metadata.digest)
                                           .text())
             .open_text();
  uint64_t data_end = 0;
  uint64_t pad_count = 0;
  const auto add_pad = [&](uint64_t pad_end) {
    if (pad_end != data_end)
      append_bytes(out, "__pad." + std::to_string(pad_count++), data_end, pad_end);
  };
  for (const Entry& entry : entries_) {
    add_pad(entry.begin);
    out += texts_.text().substr(entry.text_begin, entry.text_size);
    data_end = entry.end;
  }
  add_pad(end);
  out += '}';
  return std::string(out.text());
}

}  // namespace assay::native

// SPDX-License-Identifier: Apache-2.0
// Any bytes as a line of records.jsonl: no crash, and what is accepted is consistent.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "run/records_line.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const auto parsed = assay::run::parse_records_line(line);
  if (!parsed) return 0;
  if (parsed->operation && !parsed->operation->parameters.empty()) {
    // The arguments of an operator are an object of JSON again.
    const std::string_view text = parsed->operation->parameters;
    if (text.front() != '{' || text.back() != '}') std::abort();
  }
  const assay::run::TensorRecord& record = parsed->record;
  if (record.value_id < -1 || record.producer < -1 || record.storage_offset < 0) std::abort();
  if (record.bytes) {
    // A place in a file comes with a type and shape whose size is the stated one.
    if (!record.dtype || !record.shape || record.bytes->file.find('/') != std::string::npos)
      std::abort();
    const auto count = assay::element_count(*record.shape);
    if (!count || assay::storage_bytes(*record.dtype, static_cast<uint64_t>(*count)) !=
                      record.bytes->size_bytes) {
      std::abort();
    }
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "formats/atb_bin.hpp"
#include "formats/fuzz_support.hpp"

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan file = std::as_bytes(std::span(data, size));
  const auto record = read_atb_bin(file);
  if (!record) return 0;
  ASSAY_CHECK(record->record_bytes <= size, "a record lies inside its file");
  const auto view = atb_bin_view(*record);
  if (view) touch(*view);
  // Attributes and payload, written again, read back as they were.
  std::optional<uint64_t> payload_bytes;
  if (record->payload) payload_bytes = record->payload->size();
  std::string written = atb_bin_header(record->attributes, payload_bytes);
  if (record->payload) written += as_text(*record->payload);
  const auto again = read_atb_bin(as_bytes(written));
  ASSAY_CHECK(again && again->dims == record->dims && again->dtype == record->dtype &&
                  again->payload.has_value() == record->payload.has_value() &&
                  (!record->payload || as_text(*again->payload) == as_text(*record->payload)),
              "written and read again it is the same");
  return 0;
}

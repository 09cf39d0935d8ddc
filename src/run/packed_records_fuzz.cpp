// SPDX-License-Identifier: Apache-2.0
// Packed records with any bytes over them, and any bytes as packed records: an error, or records
// that can be asked for. The first two bytes of the input say where the others go.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "run/coverage.hpp"
#include "run/packed_records.hpp"

namespace {

void unpack(assay::ByteSpan packed) {
  using namespace assay::run;
  UnpackOptions options;
  options.checks = std::make_shared<PayloadChecks>(std::make_shared<FoundDamage>());
  std::vector<TensorRecord> records;
  if (!assay::run::unpack_records(packed, options, &records)) {
    if (!records.empty()) std::abort();
    return;
  }
  for (const TensorRecord& record : records) {
    if (record.node.size() > packed.size() || role_name(record.role).empty()) std::abort();
    if (record.shape && record.shape->size() > packed.size()) std::abort();
  }
}

std::string some_records() {
  using namespace assay::run;
  std::vector<TensorRecord> records(3);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].order = i;
    records[i].node = "model.layers." + std::to_string(i);
    records[i].shape = assay::Dims{2, static_cast<int64_t>(i)};
    records[i].bytes = ByteLocation{.file = "f", .offset = i * 300, .size_bytes = 8, .raw = true};
    assay::stats::TensorStats stats{.count = 4};
    stats.nan_count = static_cast<int64_t>(i);
    if (i > 0) stats.sketch.emplace();
    records[i].stats = stats;
  }
  records[2].digest = assay::stats::Digest{1, 2};
  return pack_records(records);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const assay::ByteSpan input(reinterpret_cast<const std::byte*>(data), size);
  unpack(input);
  if (size < 3) return 0;
  std::string packed = some_records();
  const size_t start = (data[0] * 256U + data[1]) % packed.size();
  for (size_t i = 2; i < size && start + i - 2 < packed.size(); ++i)
    packed[start + i - 2] = static_cast<char>(data[i]);
  unpack(assay::as_bytes(packed));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Of a run only the records that a part names are sent, packed, and numbered anew in the order in
// which they are asked for.
#include "run/part_archive.hpp"

#include "run/packed_records.hpp"

namespace assay::run {

std::string mark_of(ByteSpan bytes) {
  ArchiveReader archive(bytes);
  std::string mark;
  archive(mark);
  return archive.is_good() ? mark : std::string();
}

void write_value(ByteWriter& archive, const FoundValue& value) {
  archive(static_cast<uint8_t>(value.index()));
  std::visit(
      [&](const auto& one) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(one)>, std::monostate>) archive(one);
      },
      value);
}

void read_value(ArchiveReader& archive, FoundValue* value) {
  uint8_t kind = 0;
  archive(kind);
  const auto take = [&](auto one) {
    archive(one);
    *value = std::move(one);
  };
  switch (kind) {
    case 0:
      *value = std::monostate();
      return;
    case 1:
      return take(double());
    case 2:
      return take(int64_t());
    case 3:
      return take(std::string());
    default:
      archive.fail_now();
  }
}

size_t SomeRecords::place_of(size_t record) {
  const auto [place, is_new] = places_.try_emplace(record, records_.size());
  if (is_new) records_.push_back(run_.records[record]);
  return place->second;
}

void SomeRecords::write(ByteWriter& out) const {
  const std::string packed = pack_records(records_);
  out(run_.layout, run_.path, packed);
}

void read_run(ArchiveReader& archive, Run* run) {
  std::string packed;
  archive(run->layout, run->path, packed);
  if (!archive.is_good() || run->layout > Layout::Fingerprint) return archive.fail_now();
  UnpackOptions options;
  options.checks = std::make_shared<PayloadChecks>(run->found_damage);
  if (!unpack_records(as_bytes(packed), options, &run->records)) archive.fail_now();
}

}  // namespace assay::run

// SPDX-License-Identifier: Apache-2.0
// New form, and the old one of 2048 bytes with three regions:
//
//   0   u32 5a5a5a5a, version, valid, kind, reserved, length      0    DHA Atomic Add: u64 fields    512   its status
//   24  u64 fields in the order of the kind's table               128  L2 Atomic Add                 768   its status
//                                                                 256  AI Core                       1024  its status
#include "formats/overflow_report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

namespace assay::formats {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kMagic = 0x5A5A5A5A;
constexpr size_t kPayloadBytes = 2048;
constexpr uint32_t kFourStatusWords = 1;  // version from which the cores have them

/// A field of 8 bytes and its key in JSON.
struct Field {
  std::string_view key;
  uint64_t OverflowEntry::* member;
  bool is_address = false;
};

// Every kind ends with its status, which stands behind these.
constexpr Field kCoreFields[] = {
    {"model_id", &OverflowEntry::model_id},       {"stream_id", &OverflowEntry::stream_id},
    {"task_id", &OverflowEntry::task_id},         {"task_type", &OverflowEntry::task_type},
    {"context_id", &OverflowEntry::context_id},   {"thread_id", &OverflowEntry::thread_id},
    {"pc_start", &OverflowEntry::pc_start, true}, {"para_base", &OverflowEntry::para_base, true},
    {"core_id", &OverflowEntry::core_id},         {"block_id", &OverflowEntry::block_id}};
constexpr Field kCpuFields[] = {
    {"model_id", &OverflowEntry::model_id},     {"stream_id", &OverflowEntry::stream_id},
    {"task_id", &OverflowEntry::task_id},       {"task_type", &OverflowEntry::task_type},
    {"context_id", &OverflowEntry::context_id}, {"cpu_id", &OverflowEntry::cpu_id},
    {"thread_id", &OverflowEntry::thread_id}};
constexpr Field kSdmaFields[] = {{"model_id", &OverflowEntry::model_id},
                                 {"stream_id", &OverflowEntry::stream_id},
                                 {"task_id", &OverflowEntry::task_id},
                                 {"task_type", &OverflowEntry::task_type},
                                 {"context_id", &OverflowEntry::context_id},
                                 {"thread_id", &OverflowEntry::thread_id},
                                 {"src_addr", &OverflowEntry::source_address, true},
                                 {"dst_addr", &OverflowEntry::target_address, true},
                                 {"channel_id", &OverflowEntry::channel_id}};
constexpr Field kOldFields[] = {
    {"model_id", &OverflowEntry::model_id},       {"stream_id", &OverflowEntry::stream_id},
    {"task_id", &OverflowEntry::task_id},         {"task_type", &OverflowEntry::task_type},
    {"pc_start", &OverflowEntry::pc_start, true}, {"para_base", &OverflowEntry::para_base, true}};
constexpr Field kOldCoreFields[] = {{"kernel_code", &OverflowEntry::kernel_code, true},
                                    {"block_id", &OverflowEntry::block_id}};

/// A kind of the new form; its number is its place in the table.
struct NewKind {
  OverflowCore core;
  std::string_view name;
  std::span<const Field> fields;
};
constexpr NewKind kNewKinds[] = {{OverflowCore::AiCore, "AIC", kCoreFields},
                                 {OverflowCore::AiVector, "AIV", kCoreFields},
                                 {OverflowCore::AiCpu, "AICPU", kCpuFields},
                                 {OverflowCore::Sdma, "SDMA", kSdmaFields}};

/// A kind of the old form: where its fields, further fields and status stand.
struct OldKind {
  OverflowCore core;
  std::string_view name;
  size_t fields_at;
  std::span<const Field> more_fields;
  size_t more_at;  // the status follows them
};
constexpr OldKind kOldKinds[] = {{OverflowCore::DhaAtomicAdd, "DHA Atomic Add", 0, {}, 512},
                                 {OverflowCore::L2AtomicAdd, "L2 Atomic Add", 128, {}, 768},
                                 {OverflowCore::AiCore, "AI Core", 256, kOldCoreFields, 1024}};

const NewKind* new_kind(OverflowCore core) {
  const auto* found = std::find_if(std::begin(kNewKinds), std::end(kNewKinds),
                                   [core](const NewKind& kind) { return kind.core == core; });
  return found == std::end(kNewKinds) ? nullptr : found;
}

size_t status_words(const NewKind& kind, uint32_t version) {
  const bool is_core = kind.core == OverflowCore::AiCore || kind.core == OverflowCore::AiVector;
  return is_core && version == kFourStatusWords ? 4 : 1;
}

// ---- reading ------------------------------------------------------------------------------------

void load_fields(ByteSpan bytes, std::span<const Field> fields, OverflowEntry* entry) {
  for (size_t i = 0; i < fields.size(); ++i)
    entry->*fields[i].member = load<uint64_t>(bytes.data() + 8 * i);
}

/// Precondition: kPayloadBytes are there.
OverflowEntry read_old_kind(ByteSpan payload, const OldKind& kind) {
  OverflowEntry entry;
  entry.core = kind.core;
  load_fields(payload.subspan(kind.fields_at), kOldFields, &entry);
  load_fields(payload.subspan(kind.more_at), kind.more_fields, &entry);
  entry.status[0] = load<uint64_t>(payload.data() + kind.more_at + 8 * kind.more_fields.size());
  return entry;
}

bool is_empty(OverflowEntry entry) {
  OverflowEntry nothing;
  nothing.core = entry.core;
  return entry == nothing;
}

OverflowReport read_old(ByteSpan payload) {
  OverflowReport report;
  report.is_old = true;
  for (const OldKind& kind : kOldKinds) {
    const OverflowEntry entry = read_old_kind(payload, kind);
    if (!is_empty(entry)) report.entries.push_back(entry);
  }
  return report;
}

Result<OverflowReport> read_new(ByteSpan payload) {
  ByteReader reader(payload);
  OverflowReport report;
  ASSAY_TRY_STATUS(reader.skip(4));  // magic
  ASSAY_TRY(report.version, reader.read<uint32_t>());
  ASSAY_TRY(const auto valid, reader.read<uint32_t>());
  ASSAY_TRY(const auto type, reader.read<uint32_t>());
  ASSAY_TRY_STATUS(reader.skip(4));
  ASSAY_TRY(const auto data_bytes, reader.read<uint32_t>());
  if (valid == 0) return report;
  if (type >= std::size(kNewKinds))
    return fail(Errc::Unsupported, "kind " + std::to_string(type) + " of core is not supported",
                12);
  const NewKind& kind = kNewKinds[type];
  const size_t field_bytes = 8 * kind.fields.size();
  const uint64_t offset = reader.offset();
  ASSAY_TRY(const ByteSpan data, reader.read_bytes(data_bytes));
  if (data.size() < field_bytes + 8)
    return fail(Errc::Invalid,
                "a report of kind " + std::string(kind.name) + " has " +
                    std::to_string(data.size()) + " bytes and needs " +
                    std::to_string(field_bytes + 8),
                offset);
  OverflowEntry entry;
  entry.core = kind.core;
  load_fields(data, kind.fields, &entry);
  const size_t words =
      std::min(status_words(kind, report.version), (data.size() - field_bytes) / 8);
  for (size_t i = 0; i < words; ++i)
    entry.status[i] = load<uint64_t>(data.data() + field_bytes + 8 * i);
  report.entries.push_back(entry);
  return report;
}

// ---- writing ------------------------------------------------------------------------------------

void store(std::vector<std::byte>* bytes, size_t at, auto value) {
  std::memcpy(bytes->data() + at, &value, sizeof value);
}

void store_fields(std::vector<std::byte>* bytes, size_t at, std::span<const Field> fields,
                  const OverflowEntry& entry) {
  for (size_t i = 0; i < fields.size(); ++i) store(bytes, at + 8 * i, entry.*fields[i].member);
}

std::string hexadecimal(uint64_t value) {
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + digits;
}

void add_fields(std::span<const Field> fields, const OverflowEntry& entry, Json* object) {
  for (const Field& field : fields) {
    const uint64_t value = entry.*field.member;
    const std::string key(field.key);
    if (field.is_address) {
      (*object)[key] = hexadecimal(value);
    } else {
      (*object)[key] = value;
    }
  }
}

Json old_json(const OverflowReport& report) {
  Json json = Json::object();
  for (const OldKind& kind : kOldKinds) {
    const auto found =
        std::find_if(report.entries.begin(), report.entries.end(),
                     [&](const OverflowEntry& entry) { return entry.core == kind.core; });
    const OverflowEntry entry = found == report.entries.end() ? OverflowEntry{} : *found;
    Json& object = json[std::string(kind.name)];
    add_fields(kOldFields, entry, &object);
    add_fields(kind.more_fields, entry, &object);
    object["status"] = entry.status[0];
  }
  return json;
}

Json new_json(const OverflowReport& report) {
  Json json = {{"magic", hexadecimal(kMagic)}, {"version", report.version}};
  Json& block = json["acc_list"];
  block = Json::object();
  block["valid"] = report.entries.empty() ? 0 : 1;
  if (report.entries.empty()) return json;
  const OverflowEntry& entry = report.entries.front();
  const NewKind* kind = new_kind(entry.core);
  if (kind == nullptr) return json;
  const size_t words = status_words(*kind, report.version);
  block["acc_type"] = kind->name;
  block["rsv"] = 0;
  block["data_len"] = 8 * (kind->fields.size() + words);
  Json& data = block["data"];
  add_fields(kind->fields, entry, &data);
  if (words == 1) {
    data["status"] = entry.status[0];
  } else {
    data["status"] = entry.status;
  }
  return json;
}

struct StatusBit {
  uint64_t bit;
  std::string_view meaning;
};
constexpr StatusBit kCoreStatus[] = {
    {0x8, "the smallest signed integer was negated"},
    {0x10, "an integer addition, subtraction, multiplication or multiply-add overflowed"},
    {0x20, "a floating-point operation overflowed"},
    {0x80, "a negative number was converted to an unsigned integer"},
    {0x100, "a conversion of float32 or int32 to float16 overflowed"},
    {0x400, "the accumulation of a matrix product overflowed"}};

}  // namespace

Result<OverflowReport> read_overflow_report(ByteSpan payload) {
  if (payload.size() < 4)
    return fail(Errc::Truncated, "a report has at least 4 bytes", payload.size());
  if (load<uint32_t>(payload.data()) == kMagic) return read_new(payload);
  if (payload.size() != kPayloadBytes)
    return fail(Errc::Invalid, "is no overflow report: " + std::to_string(payload.size()) +
                                   " bytes without magic number, the old form has 2048");
  return read_old(payload);
}

std::vector<std::byte> write_overflow_report(const OverflowEntry& entry) {
  std::vector<std::byte> bytes(kPayloadBytes);
  if (const NewKind* kind = new_kind(entry.core)) {
    const size_t field_bytes = 8 * kind->fields.size();
    store(&bytes, 0, kMagic);
    store(&bytes, 8, uint32_t{1});  // valid
    store(&bytes, 12, static_cast<uint32_t>(kind - kNewKinds));
    store(&bytes, 20, static_cast<uint32_t>(field_bytes + 8));
    store_fields(&bytes, 24, kind->fields, entry);
    store(&bytes, 24 + field_bytes, entry.status[0]);
    return bytes;
  }
  for (const OldKind& kind : kOldKinds) {
    if (kind.core != entry.core) continue;
    store_fields(&bytes, kind.fields_at, kOldFields, entry);
    store(&bytes, kind.more_at, entry.status[0]);
  }
  return bytes;
}

std::string overflow_report_json(const OverflowReport& report) {
  return (report.is_old ? old_json(report) : new_json(report)).dump(4);
}

std::vector<std::string> overflow_causes(const OverflowEntry& entry) {
  uint64_t status = 0;
  for (const uint64_t word : entry.status) status |= word;
  if (status == 0) return {};
  switch (entry.core) {
    case OverflowCore::DhaAtomicAdd:
    case OverflowCore::L2AtomicAdd:
      return {"an atomic addition in memory overflowed"};
    case OverflowCore::AiCpu:
      return {"an operator on the AI CPU overflowed"};
    case OverflowCore::Sdma:
      return {"an addition during a copy overflowed"};
    case OverflowCore::AiCore:
    case OverflowCore::AiVector:
      break;
  }
  std::vector<std::string> causes;
  for (const StatusBit& bit : kCoreStatus) {
    if ((status & bit.bit) == 0) continue;
    causes.emplace_back(bit.meaning);
    status &= ~bit.bit;
  }
  if (status != 0) causes.push_back("status " + hexadecimal(status) + " without a known meaning");
  return causes;
}

}  // namespace assay::formats

// SPDX-License-Identifier: Apache-2.0
// A dump file as a whole: which variant it is, and where each operand's bytes are.
//
//   0         8        8 + N
//   | u64 N   | header | input 0 | input 1 | ... | output 0 | ... | buffers | workspaces |
//                        exactly `size` bytes each, no gaps       `-- the other way round after an exception
#include "formats/cann_dump.hpp"

#include <algorithm>
#include <array>

namespace assay::formats {
namespace {

constexpr uint32_t kNanoMagic = 0x5A5A5A5A;

bool has_nano_magic(ByteSpan file) {
  return file.size() >= 16 && load<uint32_t>(file.data() + 8) == kNanoMagic &&
         load<uint64_t>(file.data()) <= file.size() - 8;
}

/// A tensor or buffer that has its place in the payload.
struct Slot {
  uint64_t size_bytes;
  uint64_t address;
  bool is_tensor;
  ByteSpan* data;
  std::string* problem;
};

std::vector<Slot> payload_order(CannDump* dump) {
  std::vector<Slot> slots;
  for (auto* list : {&dump->inputs, &dump->outputs}) {
    for (CannTensor& t : *list)
      slots.push_back({t.size_bytes, t.address, true, &t.data, &t.problem});
  }
  std::array lists = {&dump->buffers, &dump->workspaces};
  // Files of an exception, which say what happened, have the workspaces first.
  if (!dump->message.empty()) std::swap(lists[0], lists[1]);
  for (auto* list : lists) {
    for (CannBuffer& b : *list) slots.push_back({b.size_bytes, 1, false, &b.data, &b.problem});
  }
  return slots;
}

/// Sum of sizes; nothing when it exceeds 2^64 - 1.
std::optional<uint64_t> total_bytes(const std::vector<Slot>& slots) {
  uint64_t total = 0;
  for (const Slot& slot : slots) {
    if (slot.data->empty() && add_overflows(total, slot.size_bytes, &total)) return std::nullopt;
  }
  return total;
}

/// Tensors that announce bytes but had no address when the file was written: their bytes are not
/// there and everything behind them lies that much earlier. Empty where that does not explain the
/// file: writers that give no addresses at all write every byte.
std::vector<const Slot*> tensors_without_address(const std::vector<Slot>& slots,
                                                 std::optional<uint64_t> announced,
                                                 uint64_t payload_bytes) {
  std::vector<const Slot*> absent;
  uint64_t absent_bytes = 0;
  bool has_addresses = false;
  for (const Slot& slot : slots) {
    if (!slot.is_tensor || slot.size_bytes == 0 || !slot.data->empty()) continue;
    has_addresses |= slot.address != 0;
    if (slot.address != 0) continue;
    absent.push_back(&slot);
    if (add_overflows(absent_bytes, slot.size_bytes, &absent_bytes)) return {};
  }
  const bool explains_size = announced && *announced - absent_bytes == payload_bytes;
  // A single one can also be told from a file whose end is missing as well.
  const bool is_single = absent.size() == 1 && has_addresses;
  if (explains_size || is_single) return absent;
  return {};
}

void place_payload(CannDump* dump, ByteSpan payload) {
  const std::vector<Slot> slots = payload_order(dump);
  const std::optional<uint64_t> announced = total_bytes(slots);
  std::vector<const Slot*> absent;
  if (announced != payload.size()) {
    if (!announced || *announced > payload.size())
      absent = tensors_without_address(slots, announced, payload.size());
    dump->warnings.push_back(
        "the header announces " + (announced ? std::to_string(*announced) : "more than 2^64") +
        " bytes, the file has " + std::to_string(payload.size()) +
        (absent.empty() ? "" : "; tensors without an address were taken to be absent"));
  }
  ByteReader reader(payload);
  for (const Slot& slot : slots) {
    if (!slot.data->empty()) continue;  // inline, as in old files
    if (std::find(absent.begin(), absent.end(), &slot) != absent.end()) {
      *slot.problem = "the tensor had no address when it was dumped, its bytes are missing";
      continue;
    }
    if (const auto bytes = reader.read_bytes(slot.size_bytes)) {
      *slot.data = *bytes;
    } else if (slot.problem->empty()) {
      *slot.problem = "the file ends before the tensor: " + bytes.error().message;
      // What follows could only be read from a wrong place.
      reader = ByteReader(payload, payload.size());
    }
  }
}

Result<CannDump> read_current(ByteSpan file) {
  ByteReader reader(file);
  ASSAY_TRY(const uint64_t header_bytes, reader.read<uint64_t>());
  if (header_bytes > reader.remaining()) {
    return fail(Errc::Truncated,
                "the header has " + std::to_string(header_bytes) + " bytes, the file ends after " +
                    std::to_string(reader.remaining()),
                0);
  }
  // What a writer leaves that was stopped before it wrote the header.
  if (header_bytes == 0) return fail(Errc::Invalid, "the header is empty", 0);
  ASSAY_TRY(const ByteSpan header, reader.read_bytes(header_bytes));
  ASSAY_TRY(CannDump dump,
            has_nano_magic(file) ? read_cann_nano_header(header) : read_cann_header(header));
  place_payload(&dump, file.subspan(reader.offset()));
  return dump;
}

Result<CannDump> read_inline(ByteSpan file) {
  ASSAY_TRY(CannDump dump, read_cann_header(file));
  if (dump.version == kCannDumpVersion || (dump.inputs.empty() && dump.outputs.empty()))
    return fail(Errc::Invalid, "is no dump with its data inside the header");
  dump.variant = CannVariant::Inline;
  for (auto* list : {&dump.inputs, &dump.outputs}) {
    for (CannTensor& tensor : *list) {
      if (tensor.size_bytes == 0) tensor.size_bytes = tensor.data.size();
    }
  }
  return dump;
}

}  // namespace

bool looks_like_cann_dump(ByteSpan file) {
  if (has_nano_magic(file)) return true;
  constexpr std::string_view kVersionField =
      "\x0a\x03"
      "2.0";
  return file.size() > 8 + kVersionField.size() && load<uint64_t>(file.data()) <= file.size() - 8 &&
         as_text(file).substr(8).starts_with(kVersionField);
}

Result<CannDump> read_cann_dump(ByteSpan file) {
  if (file.size() <= 8)
    return fail(Errc::Truncated,
                "a dump has more than 8 bytes, this file " + std::to_string(file.size()),
                file.size());
  Result<CannDump> current = read_current(file);
  if (current || has_nano_magic(file)) return current;
  // An old file starts with a field where the length would stand.
  if (Result<CannDump> old = read_inline(file)) return old;
  return current;
}

}  // namespace assay::formats

// SPDX-License-Identifier: Apache-2.0
#include "formats/cann_dump.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <protozero/pbf_reader.hpp>

#include "tensor/half.hpp"

namespace assay::formats {
namespace {

constexpr uint32_t kNanoMagic = 0x5A5A5A5A;
constexpr uint32_t kUnknownOutput = 0xFFFFFFFF;
constexpr std::string_view kCurrentVersion = "2.0";
constexpr size_t kMaxRank = 64;
constexpr size_t kMaxAttributes = 1 << 16;
constexpr int32_t kUndefinedType = 0;

// Memory formats that can be undone.
constexpr int32_t kNhwc = 1;
constexpr int32_t kNc1hwc0 = 3;
constexpr int32_t kFractalZ = 4;
constexpr int32_t kC1hwnc0 = 9;
constexpr int32_t kNc1hwc0C04 = 12;
constexpr int32_t kHwcn = 16;
constexpr int32_t kNdhwc = 27;
constexpr int32_t kFractalZz = 28;
constexpr int32_t kFractalNz = 29;
constexpr int32_t kDhwcn = 31;
constexpr int32_t kNdc1hwc0 = 32;
constexpr int32_t kFractalZ3d = 33;

// ---- the header ----------------------------------------------------------------------------------

using protozero::pbf_reader;

constexpr uint32_t varint_field(uint32_t number) { return number << 3; }
constexpr uint32_t bytes_field(uint32_t number) { return (number << 3) | 2; }

ByteSpan bytes_of(pbf_reader& message) {
  const protozero::data_view view = message.get_view();
  return as_bytes(std::string_view(view.data(), view.size()));
}

/// Calls take(message, field) for every field; `field` is number and wire type in one. A field that
/// take() leaves alone, because it is unknown or of another wire type, is skipped.
/// Throws protozero::exception where the bytes are no message.
template <typename Take>
void each_field(pbf_reader message, Take take) {
  while (message.next()) {
    const uint32_t field = message.tag() << 3 | static_cast<uint32_t>(message.wire_type());
    if (!take(message, field)) message.skip();
  }
}

struct RawShape {
  Dims dims;
  std::string problem;
};

RawShape read_shape(pbf_reader message) {
  RawShape shape;
  const auto add = [&shape](uint64_t size) {
    if (size > static_cast<uint64_t>(INT64_MAX)) {
      shape.problem = "a dimension of " + std::to_string(size);
    } else if (shape.dims.size() == kMaxRank) {
      shape.problem = "more than 64 dimensions";
    } else {
      shape.dims.push_back(static_cast<int64_t>(size));
    }
  };
  each_field(message, [&](pbf_reader& m, uint32_t field) {
    if (field == varint_field(1)) {
      add(m.get_uint64());
    } else if (field == bytes_field(1)) {
      for (const uint64_t size : m.get_packed_uint64()) add(size);
    } else {
      return false;
    }
    return true;
  });
  return shape;
}

CannOrigin read_origin(pbf_reader message) {
  CannOrigin origin;
  each_field(message, [&](pbf_reader& m, uint32_t field) {
    switch (field) {
      case bytes_field(1):
        origin.name = m.get_string();
        return true;
      case varint_field(2): {
        const uint32_t index = m.get_uint32();
        origin.output_index = index == kUnknownOutput ? -1 : int64_t{index};
        return true;
      }
      case varint_field(3):
        origin.data_type = m.get_enum();
        return true;
      case varint_field(4):
        origin.format = m.get_enum();
        return true;
      default:
        return false;
    }
  });
  return origin;
}

std::pair<uint64_t, uint64_t> read_range(pbf_reader message) {
  std::pair<uint64_t, uint64_t> range;
  each_field(message, [&](pbf_reader& m, uint32_t field) {
    if (field != varint_field(1) && field != varint_field(2)) return false;
    (field == varint_field(1) ? range.first : range.second) = m.get_uint64();
    return true;
  });
  return range;
}

/// Inputs and outputs have the same fields under other numbers from 4 on.
struct TensorFields {
  uint32_t origin, data, size, original_shape, sub_format, address, offset, arg_index, dim_range,
      input_type;
};
constexpr TensorFields kOutputFields = {4, 5, 6, 7, 8, 9, 11, 12, 10, 0};
constexpr TensorFields kInputFields = {0, 4, 5, 6, 7, 8, 9, 10, 0, 11};

CannTensor read_tensor(pbf_reader message, const TensorFields& numbers) {
  CannTensor tensor;
  const auto is = [](uint32_t number, uint32_t field) {
    return number != 0 && field == varint_field(number);
  };
  each_field(message, [&](pbf_reader& m, uint32_t field) {
    const uint32_t number = field >> 3;
    if (field == varint_field(1)) {
      tensor.data_type = m.get_enum();
    } else if (field == varint_field(2)) {
      tensor.format = m.get_enum();
    } else if (field == bytes_field(3)) {
      RawShape shape = read_shape(m.get_message());
      tensor.shape = shape.dims;
      tensor.problem = std::move(shape.problem);
    } else if (is(numbers.size, field)) {
      tensor.size_bytes = m.get_uint64();
    } else if (is(numbers.sub_format, field)) {
      tensor.sub_format = m.get_int32();
    } else if (is(numbers.address, field)) {
      tensor.address = m.get_uint64();
    } else if (is(numbers.offset, field)) {
      tensor.offset = m.get_uint64();
    } else if (is(numbers.arg_index, field)) {
      tensor.arg_index = m.get_uint32();
    } else if (is(numbers.input_type, field)) {
      tensor.input_type = m.get_uint32();
    } else if (field != bytes_field(number)) {
      return false;
    } else if (number == numbers.data) {
      tensor.data = bytes_of(m);
    } else if (number == numbers.original_shape) {
      RawShape shape = read_shape(m.get_message());
      if (shape.problem.empty()) tensor.original_shape = shape.dims;
    } else if (number == numbers.origin && number != 0) {
      tensor.origin = read_origin(m.get_message());
    } else if (number == numbers.dim_range && number != 0) {
      const auto range = read_range(m.get_message());
      if (tensor.dim_range.size() < kMaxRank) tensor.dim_range.push_back(range);
    } else {
      return false;
    }
    return true;
  });
  return tensor;
}

CannBuffer read_buffer(pbf_reader message) {
  CannBuffer buffer;
  each_field(message, [&](pbf_reader& m, uint32_t field) {
    switch (field) {
      case varint_field(1):
        buffer.type = m.get_enum();
        return true;
      case bytes_field(2):
        buffer.data = bytes_of(m);
        return true;
      case varint_field(3):
        buffer.size_bytes = m.get_uint64();
        return true;
      case varint_field(4):
        buffer.arg_index = m.get_uint32();
        return true;
      default:
        return false;
    }
  });
  return buffer;
}

CannAttribute read_attribute(pbf_reader message) {
  CannAttribute attribute;
  each_field(message, [&](pbf_reader& m, uint32_t field) {
    if (field != bytes_field(1) && field != bytes_field(2)) return false;
    (field == bytes_field(1) ? attribute.name : attribute.value) = m.get_string();
    return true;
  });
  return attribute;
}

/// errors  Invalid | TooLarge
Result<CannDump> read_dump_data(ByteSpan header) {
  CannDump dump;
  bool too_many = false;
  const auto add = [&too_many](auto* list, auto item, size_t limit) {
    if (list->size() < limit) {
      list->push_back(std::move(item));
    } else {
      too_many = true;
    }
  };
  const std::string_view text = as_text(header);
  try {
    each_field(pbf_reader(text.data(), text.size()), [&](pbf_reader& m, uint32_t field) {
      switch (field) {
        case bytes_field(1):
          dump.version = m.get_string();
          return true;
        case varint_field(2):
          dump.dump_time_us = m.get_uint64();
          return true;
        case bytes_field(3):
          add(&dump.outputs, read_tensor(m.get_message(), kOutputFields), kMaxCannOperands);
          return true;
        case bytes_field(4):
          add(&dump.inputs, read_tensor(m.get_message(), kInputFields), kMaxCannOperands);
          return true;
        case bytes_field(5):
          add(&dump.buffers, read_buffer(m.get_message()), kMaxCannOperands);
          return true;
        case bytes_field(6):
          dump.op_name = m.get_string();
          return true;
        case bytes_field(7): {
          CannAttribute attribute = read_attribute(m.get_message());
          if (attribute.name == kCannOperandIndices &&
              attribute.value == kCannOperandIndicesInArgIndex) {
            dump.has_operand_indices = true;
          } else {
            add(&dump.attributes, std::move(attribute), kMaxAttributes);
          }
          return true;
        }
        case bytes_field(8):
          add(&dump.workspaces, read_buffer(m.get_message()), kMaxCannOperands);
          return true;
        case bytes_field(9):
          dump.message = m.get_string();
          return true;
        default:
          return false;
      }
    });
  } catch (const protozero::exception& error) {
    return fail(Errc::Invalid, std::string("the header is no DumpData message: ") + error.what());
  }
  if (too_many) return fail(Errc::TooLarge, "more than 65536 operands or attributes");
  return dump;
}

// ---- placing the payload -------------------------------------------------------------------------

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

/// Tensors that announce bytes but had no address when the file was written: their bytes are not there and
/// everything behind them lies that much earlier. Empty where that does not explain the file: writers that
/// give no addresses at all write every byte.
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
  ASSAY_TRY(CannDump dump, read_dump_data(header));
  place_payload(&dump, file.subspan(reader.offset()));
  return dump;
}

Result<CannDump> read_inline(ByteSpan file) {
  ASSAY_TRY(CannDump dump, read_dump_data(file));
  if (dump.version == kCurrentVersion || (dump.inputs.empty() && dump.outputs.empty()))
    return fail(Errc::Invalid, "is no dump with its data inside the header");
  dump.variant = CannVariant::Inline;
  for (auto* list : {&dump.inputs, &dump.outputs}) {
    for (CannTensor& tensor : *list) {
      if (tensor.size_bytes == 0) tensor.size_bytes = tensor.data.size();
    }
  }
  return dump;
}

// ---- nano ----------------------------------------------------------------------------------------

Result<Dims> nano_dims(ByteSpan values) {
  Dims dims;
  if (values.size() % 8 != 0 || values.size() / 8 > kMaxRank)
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

Result<CannDump> read_nano(ByteSpan file) {
  constexpr uint32_t kInputs = 4;
  constexpr uint32_t kOutputs = 5;
  ByteReader whole(file);
  ASSAY_TRY(const auto header_bytes, whole.read<uint64_t>());
  ASSAY_TRY(const ByteSpan header, whole.read_bytes(header_bytes));
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
  place_payload(&dump, file.subspan(whole.offset()));
  return dump;
}

bool has_nano_magic(ByteSpan file) {
  return file.size() >= 16 && load<uint32_t>(file.data() + 8) == kNanoMagic &&
         load<uint64_t>(file.data()) <= file.size() - 8;
}

// ---- element types and layouts -------------------------------------------------------------------

/// A type of less than a byte, and what its values become.
struct Packing {
  uint8_t bits;
  DType decoded;
  bool first_in_highest_bits;  // as numpy.unpackbits has it; the others start in the lowest
  float (*decode)(uint8_t);    // nullptr: an integer
};

std::optional<Packing> packing_of(int32_t data_type) {
  switch (data_type) {
    case 28:  // int4
      return Packing{4, DType::Int8, false, nullptr};
    case 29:  // uint1
      return Packing{1, DType::UInt8, true, nullptr};
    case 30:  // int2
      return Packing{2, DType::Int8, false, nullptr};
    case 31:  // uint2
      return Packing{2, DType::UInt8, false, nullptr};
    case 37:
      return Packing{6, DType::Float32, false, float6_e3m2_to_float};
    case 38:
      return Packing{6, DType::Float32, false, float6_e2m3_to_float};
    case 39:
      return Packing{4, DType::Float32, false, float4_e2m1fn_to_float};
    case 40:
      return Packing{4, DType::Float32, false, float4_e1m2_to_float};
    default:
      return std::nullopt;
  }
}

/// errors  Truncated | TooLarge
Result<size_t> packed_count(const CannTensor& tensor, const Packing& packing) {
  const std::optional<int64_t> count = element_count(tensor.shape);
  uint64_t bits = 0;
  if (!count || mul_overflows(static_cast<uint64_t>(*count), uint64_t{packing.bits}, &bits))
    return fail(Errc::TooLarge, "the shape has too many elements");
  if (bits > tensor.data.size() * uint64_t{8})
    return fail(Errc::Truncated, "the shape needs " + std::to_string(bits) + " bits, there are " +
                                     std::to_string(tensor.data.size() * uint64_t{8}));
  return static_cast<size_t>(*count);
}

/// Value i as its bits. Those of six bits lie in a stream across bytes: 100 of them in 75 bytes.
uint8_t packed_bits(ByteSpan data, const Packing& packing, size_t i) {
  const size_t first_bit = i * packing.bits;
  const size_t byte = first_bit / 8;
  unsigned pair = static_cast<unsigned>(data[byte]);
  if (packing.first_in_highest_bits) return static_cast<uint8_t>(pair >> (7 - first_bit % 8) & 1u);
  if (first_bit % 8 + packing.bits > 8) pair |= static_cast<unsigned>(data[byte + 1]) << 8;
  return static_cast<uint8_t>(pair >> (first_bit % 8) & ((1u << packing.bits) - 1u));
}

std::byte packed_integer(const Packing& packing, uint8_t bits) {
  const bool is_negative = packing.decoded == DType::Int8 && (bits >> (packing.bits - 1)) != 0;
  return static_cast<std::byte>(is_negative ? bits - (1 << packing.bits) : bits);
}

/// One element for each value, in the stored order.
Result<Tensor> unpack(const CannTensor& tensor, const Packing& packing) {
  ASSAY_TRY(const size_t count, packed_count(tensor, packing));
  auto memory = std::make_shared<std::vector<std::byte>>();
  if (packing.decode == nullptr) {
    memory->resize(count);
    for (size_t i = 0; i < count; ++i)
      (*memory)[i] = packed_integer(packing, packed_bits(tensor.data, packing, i));
  } else {
    memory->resize(count * sizeof(float));
    for (size_t i = 0; i < count; ++i) {
      const float value = packing.decode(packed_bits(tensor.data, packing, i));
      std::memcpy(memory->data() + i * sizeof(float), &value, sizeof(float));
    }
  }
  ASSAY_TRY(const TensorView view, make_view(packing.decoded, tensor.shape, ByteSpan(*memory)));
  return Tensor{view, memory};
}

/// How the stored axes make up the axes of the original shape.
struct Untiling {
  Dims stored;                         // the stored shape, with axes that hold several ones split
  std::vector<std::vector<int>> axes;  // for each original axis its stored ones, outermost first
  Dims original = {};                  // set when the choice is made
};

int64_t extent(const Untiling& untiling, size_t axis) {
  int64_t product = 1;
  for (const int source : untiling.axes[axis])
    product *= untiling.stored[static_cast<size_t>(source)];
  return product;
}

/// True when every original axis is what is stored, up to the filling of its last tile.
bool fits(const Untiling& untiling, const Dims& original) {
  if (untiling.axes.size() != original.size()) return false;
  for (size_t axis = 0; axis < original.size(); ++axis) {
    const std::vector<int>& sources = untiling.axes[axis];
    const int64_t tile =
        sources.size() > 1 ? untiling.stored[static_cast<size_t>(sources.back())] : 1;
    const int64_t whole = extent(untiling, axis);
    if (original[axis] > whole || whole - original[axis] >= std::max<int64_t>(tile, 1))
      return false;
  }
  return true;
}

/// Splits the first stored axis into `parts` and one part more, which takes what is left and stands at
/// position `rest` among them. Nothing when it does not divide.
std::optional<Dims> split_first(const Dims& shape, std::vector<int64_t> parts, size_t rest) {
  int64_t known = 1;
  for (const int64_t part : parts) {
    if (part <= 0 || mul_overflows(known, part, &known)) return std::nullopt;
  }
  if (shape[0] % known != 0) return std::nullopt;
  parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(rest), shape[0] / known);
  Dims split{std::span<const int64_t>(parts)};
  for (size_t i = 1; i < shape.size(); ++i) split.push_back(shape[i]);
  return split;
}

/// [..., C1, N1, N0, C0] or, for FRACTAL_ZZ, [..., N1, C1, N0, C0].
std::vector<Untiling> untile_matrix(const CannTensor& tensor, const Dims& original) {
  const Dims& shape = tensor.shape;
  if (shape.size() < 4 || original.size() < 2) return {};
  const size_t leading = original.size() - 2;
  const auto count = [](std::span<const int64_t> sizes) { return element_count(sizes); };
  if (count(shape.span().first(shape.size() - 4)) != count(original.span().first(leading)))
    return {};
  Untiling untiling;
  untiling.stored = Dims(original.span().first(leading));
  for (const int64_t size : shape.span().last(4)) untiling.stored.push_back(size);
  const int first = static_cast<int>(leading);
  for (int axis = 0; axis < first; ++axis) untiling.axes.push_back({axis});
  if (tensor.format == kFractalZz) {
    untiling.axes.push_back({first, first + 2});
    untiling.axes.push_back({first + 1, first + 3});
  } else {
    untiling.axes.push_back({first + 1, first + 2});
    untiling.axes.push_back({first, first + 3});
  }
  return {untiling};
}

/// [C1 H W, N1, N0, C0]: weights of a convolution. The header does not say whether the original shape
/// is NCHW, HWCN or NHWC, so each is offered.
std::vector<Untiling> untile_weights(const Dims& shape, const Dims& original) {
  std::vector<Untiling> candidates;
  if (shape.size() != 4 || original.size() != 4) return candidates;
  const auto add = [&](int64_t height, int64_t width, std::vector<std::vector<int>> axes) {
    if (auto stored = split_first(shape, {height, width}, 0))
      candidates.push_back({*std::move(stored), std::move(axes)});
  };
  // Stored: 0 C1, 1 H, 2 W, 3 N1, 4 N0, 5 C0.
  add(original[2], original[3], {{3, 4}, {0, 5}, {1}, {2}});
  add(original[0], original[1], {{1}, {2}, {0, 5}, {3, 4}});
  add(original[1], original[2], {{3, 4}, {1}, {2}, {0, 5}});
  return candidates;
}

/// [D C1 H W, N1, N0, C0], original shape NCDHW.
std::vector<Untiling> untile_weights_3d(const Dims& shape, const Dims& original) {
  if (shape.size() != 4 || original.size() != 5) return {};
  auto stored = split_first(shape, {original[2], original[3], original[4]}, 1);
  if (!stored) return {};
  // Stored: 0 D, 1 C1, 2 H, 3 W, 4 N1, 5 N0, 6 C0.
  return {{*std::move(stored), {{4, 5}, {1, 6}, {0}, {2}, {3}}}};
}

std::vector<Untiling> plain_axes(const Dims& shape, size_t rank,
                                 std::vector<std::vector<std::vector<int>>> orders) {
  std::vector<Untiling> candidates;
  if (shape.size() != rank) return candidates;
  for (auto& axes : orders) candidates.push_back({shape, std::move(axes)});
  return candidates;
}

/// The ways a stored shape of a format can be meant, the likeliest first.
std::vector<Untiling> untilings(const CannTensor& tensor, const Dims& original) {
  const Dims& shape = tensor.shape;
  switch (tensor.format) {
    case kFractalNz:
    case kFractalZz:
      return untile_matrix(tensor, original);
    case kFractalZ:
      // Grouped weights interleave the groups.
      return tensor.sub_format > 1 ? std::vector<Untiling>{} : untile_weights(shape, original);
    case kFractalZ3d:
      return tensor.sub_format > 1 ? std::vector<Untiling>{} : untile_weights_3d(shape, original);
    case kNc1hwc0:
    case kNc1hwc0C04:
      return plain_axes(shape, 5, {{{0}, {1, 4}, {2}, {3}}, {{0}, {2}, {3}, {1, 4}}});
    case kC1hwnc0:
      return plain_axes(shape, 5, {{{3}, {0, 4}, {1}, {2}}, {{1}, {2}, {0, 4}, {3}}});
    case kNdc1hwc0:
      return plain_axes(shape, 6, {{{0}, {2, 5}, {1}, {3}, {4}}, {{0}, {1}, {3}, {4}, {2, 5}}});
    case kNhwc:
      return plain_axes(shape, 4, {{{0}, {3}, {1}, {2}}});
    case kHwcn:
      return plain_axes(shape, 4, {{{3}, {2}, {0}, {1}}});
    case kNdhwc:
      return plain_axes(shape, 5, {{{0}, {4}, {1}, {2}, {3}}});
    case kDhwcn:
      return plain_axes(shape, 5, {{{4}, {3}, {0}, {1}, {2}}});
    default:
      return {};
  }
}

/// Formats whose elements do not lie in the order of their logical axes.
bool is_tiled(int32_t format) {
  constexpr std::array<int32_t, 12> kTiled = {kNc1hwc0,   kFractalZ,   5,           6,
                                              kC1hwnc0,   kNc1hwc0C04, 13,          kFractalZz,
                                              kFractalNz, kNdc1hwc0,   kFractalZ3d, 39};
  return std::find(kTiled.begin(), kTiled.end(), format) != kTiled.end();
}

/// Nothing: the tensor stays as it is stored.
std::optional<Untiling> choose_untiling(const CannTensor& tensor) {
  // Of an undefined type only the bytes are known: their view does not have the tensor's shape.
  if (!tensor.original_shape || *tensor.original_shape == tensor.shape ||
      tensor.data_type == kUndefinedType || element_count(tensor.shape).value_or(0) == 0)
    return std::nullopt;
  for (Untiling& untiling : untilings(tensor, *tensor.original_shape)) {
    if (!fits(untiling, *tensor.original_shape)) continue;
    untiling.original = *tensor.original_shape;
    return std::move(untiling);
  }
  return std::nullopt;
}

/// Types that fill bytes, and int4 in its stored order, borrow the file.
std::optional<Packing> packing_to_undo(const CannTensor& tensor, bool is_untiled) {
  if (dtype_from_cann(tensor.data_type) && !is_untiled) return std::nullopt;
  return packing_of(tensor.data_type);
}

/// For index i of an original axis: where its elements start, in elements of the stored tensor.
std::vector<int64_t> axis_offsets(const Untiling& untiling, size_t axis, int64_t size) {
  const Dims strides = contiguous_strides(untiling.stored);
  std::vector<int64_t> offsets(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    int64_t rest = i;
    int64_t offset = 0;
    const std::vector<int>& sources = untiling.axes[axis];
    for (auto source = sources.rbegin(); source != sources.rend(); ++source) {
      const auto stored_axis = static_cast<size_t>(*source);
      offset += rest % untiling.stored[stored_axis] * strides[stored_axis];
      rest /= untiling.stored[stored_axis];
    }
    offsets[static_cast<size_t>(i)] = offset;
  }
  return offsets;
}

/// Elements that stand beside each other in both orders.
struct Stretch {
  int64_t offset;  // of the first, in the stored tensor
  size_t count;
};

/// Of a tiled axis the rows of its tiles: 16 elements of fp16 in FRACTAL_NZ.
std::vector<Stretch> stretches_of(const std::vector<int64_t>& offsets) {
  std::vector<Stretch> stretches;
  for (const int64_t offset : offsets) {
    if (!stretches.empty() &&
        stretches.back().offset + static_cast<int64_t>(stretches.back().count) == offset) {
      ++stretches.back().count;
    } else {
      stretches.push_back({offset, 1});
    }
  }
  return stretches;
}

/// Copies in the order of the original shape, whose element count is not 0.
/// offsets   of each of its axes, from axis_offsets()
void copy_untiled(const std::byte* stored, const std::vector<std::vector<int64_t>>& offsets,
                  size_t element_bytes, std::byte* out) {
  std::vector<size_t> index(offsets.size(), 0);
  const std::vector<Stretch> inner = stretches_of(offsets.back());
  for (;;) {
    int64_t start = 0;
    for (size_t axis = 0; axis + 1 < offsets.size(); ++axis) start += offsets[axis][index[axis]];
    for (const Stretch& stretch : inner) {
      const size_t bytes = stretch.count * element_bytes;
      std::memcpy(out, stored + static_cast<size_t>(start + stretch.offset) * element_bytes, bytes);
      out += bytes;
    }
    size_t axis = offsets.size() - 1;
    while (axis > 0 && ++index[axis - 1] == offsets[axis - 1].size()) index[--axis] = 0;
    if (axis == 0) return;
  }
}

/// Precondition: the choice of choose_untiling(), and `view` holds the stored elements without gaps.
Result<Tensor> untile(const TensorView& view, const Untiling& untiling) {
  const Dims& original = untiling.original;
  const std::optional<int64_t> count = element_count(original);
  if (!count) return fail(Errc::TooLarge, "the original shape has too many elements");
  const size_t element_bytes = info(view.dtype).element_bits / 8;
  auto memory =
      std::make_shared<std::vector<std::byte>>(static_cast<size_t>(*count) * element_bytes);
  if (*count > 0) {
    std::vector<std::vector<int64_t>> offsets;
    for (size_t axis = 0; axis < original.size(); ++axis)
      offsets.push_back(axis_offsets(untiling, axis, original[axis]));
    copy_untiled(view.storage.data(), offsets, element_bytes, memory->data());
  }
  ASSAY_TRY(const TensorView result, make_view(view.dtype, original, ByteSpan(*memory)));
  return Tensor{result, memory};
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
  if (has_nano_magic(file)) return read_nano(file);
  Result<CannDump> current = read_current(file);
  if (current) return current;
  // An old file starts with a field where the length would stand.
  if (Result<CannDump> old = read_inline(file)) return old;
  return current;
}

Result<TensorView> cann_stored_view(const CannTensor& tensor) {
  if (!tensor.problem.empty()) return fail(Errc::Truncated, tensor.problem);
  const std::optional<DType> dtype = dtype_from_cann(tensor.data_type);
  if (!dtype)
    return fail(Errc::Unsupported, "element type " + std::to_string(tensor.data_type) + " (" +
                                       cann_dtype_name(tensor.data_type) +
                                       ") of a CANN dump cannot be read as numbers");
  const Dims shape = tensor.data_type == kUndefinedType
                         ? Dims{static_cast<int64_t>(tensor.data.size())}
                         : tensor.shape;
  return make_view(*dtype, shape, tensor.data);
}

Result<CannHeader> cann_header(const CannTensor& tensor) {
  if (!tensor.problem.empty()) return fail(Errc::Truncated, tensor.problem);
  const std::optional<Untiling> untiling = choose_untiling(tensor);
  CannHeader header;
  if (const auto packing = packing_to_undo(tensor, untiling.has_value())) {
    ASSAY_TRY_STATUS(packed_count(tensor, *packing));
    header.dtype = packing->decoded;
    header.shape = tensor.shape;
  } else {
    ASSAY_TRY(const TensorView stored, cann_stored_view(tensor));
    header.dtype = stored.dtype;
    header.shape = stored.shape;
  }
  header.tiled = !untiling && is_tiled(tensor.format);
  if (untiling) header.shape = untiling->original;
  return header;
}

Result<Tensor> cann_tensor(const CannTensor& tensor) {
  if (!tensor.problem.empty()) return fail(Errc::Truncated, tensor.problem);
  const std::optional<Untiling> untiling = choose_untiling(tensor);
  Tensor stored;
  if (const auto packing = packing_to_undo(tensor, untiling.has_value())) {
    ASSAY_TRY(stored, unpack(tensor, *packing));
  } else {
    ASSAY_TRY(stored.view, cann_stored_view(tensor));
  }
  if (untiling) return untile(stored.view, *untiling);
  return stored;
}

}  // namespace assay::formats

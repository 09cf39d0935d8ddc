// SPDX-License-Identifier: Apache-2.0
// | "GGUF" | u32 version | u64 tensors | u64 keys | key ... | tensor ... | zeros up to the alignment | data |
//
//   key      text, u32 type, value                       text     u64 length, bytes
//   tensor   text, u32 n, n x u64 sizes (fastest first), u32 element type, u64 offset in the data
//
// When the low 16 bits of the version are zero, every number of the file is big-endian.
#include "formats/gguf.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <unordered_set>

#include "base/text.hpp"

namespace assay::formats {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;
constexpr uint32_t kMaxDims = 4;                     // of ggml
constexpr size_t kMaxNesting = 8;                    // arrays of arrays; writers use one level
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;       // length of a key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // length of a name, dims, type, offset
constexpr uint64_t kMinArrayBytes = 4 + 8;

constexpr std::array<std::string_view, 13> kTypeNames = {
    "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
    "bool",  "string", "array",  "uint64", "int64",  "float64"};

/// Bytes of a value of fixed size; 0 for strings and arrays.
uint64_t fixed_size(GgufType type) {
  constexpr std::array<uint8_t, 13> kSizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kSizes[static_cast<size_t>(type)];
}

template <typename T>
T load_in_order(const std::byte* at, bool big_endian) {
  std::array<std::byte, sizeof(T)> raw;
  std::memcpy(raw.data(), at, sizeof(T));
  if (big_endian) std::reverse(raw.begin(), raw.end());
  return std::bit_cast<T>(raw);
}

/// A cursor that knows the file's byte order.
class Cursor {
 public:
  Cursor(ByteSpan bytes, uint64_t start, bool big_endian)
      : reader_(bytes, start), big_endian_(big_endian) {}

  [[nodiscard]] uint64_t offset() const { return reader_.offset(); }
  [[nodiscard]] uint64_t remaining() const { return reader_.remaining(); }
  [[nodiscard]] bool big_endian() const { return big_endian_; }
  Result<ByteSpan> bytes(uint64_t count) { return reader_.read_bytes(count); }
  template <typename T>
  Result<T> number() {
    ASSAY_TRY(const ByteSpan raw, reader_.read_bytes(sizeof(T)));
    return load_in_order<T>(raw.data(), big_endian_);
  }
  Result<std::string_view> text() {
    ASSAY_TRY(const uint64_t length, number<uint64_t>());
    ASSAY_TRY(const ByteSpan raw, reader_.read_bytes(length));
    return as_text(raw);
  }
  Result<GgufType> type() {
    const uint64_t at = offset();
    ASSAY_TRY(const uint32_t code, number<uint32_t>());
    if (code >= kTypeNames.size())
      return fail(Errc::Invalid, "unknown type " + std::to_string(code) + " of a value", at);
    return static_cast<GgufType>(code);
  }

 private:
  ByteReader reader_;
  bool big_endian_;
};

/// Steps over `count` elements, so that everything behind them is known to be inside the file.
Status skip_elements(GgufType type, uint64_t count, size_t depth, Cursor* cursor) {
  const uint64_t at = cursor->offset();
  if (const uint64_t size = fixed_size(type); size > 0) {
    uint64_t bytes = 0;
    if (mul_overflows(count, size, &bytes))
      return fail(Errc::TooLarge, "an array of " + std::to_string(count) + " elements", at);
    return cursor->bytes(bytes).transform([](ByteSpan) {});
  }
  const uint64_t smallest = type == GgufType::String ? sizeof(uint64_t) : kMinArrayBytes;
  if (count > cursor->remaining() / smallest) {
    return fail(Errc::Truncated,
                "an array of " + std::to_string(count) + " elements, " +
                    std::to_string(cursor->remaining()) + " bytes are left",
                at);
  }
  if (type == GgufType::Array && depth >= kMaxNesting)
    return fail(Errc::TooLarge, "arrays are nested deeper than " + std::to_string(kMaxNesting), at);
  for (uint64_t i = 0; i < count; ++i) {
    if (type == GgufType::String) {
      ASSAY_TRY_STATUS(cursor->text().transform([](std::string_view) {}));
      continue;
    }
    ASSAY_TRY(const GgufType element_type, cursor->type());
    ASSAY_TRY(const uint64_t element_count, cursor->number<uint64_t>());
    ASSAY_TRY_STATUS(skip_elements(element_type, element_count, depth + 1, cursor));
  }
  return {};
}

Result<GgufValue> read_value(GgufType type, ByteSpan file, Cursor* cursor) {
  GgufValue value;
  value.type = type;
  value.big_endian = cursor->big_endian();
  if (type == GgufType::String) {
    ASSAY_TRY(const std::string_view text, cursor->text());
    value.bytes = as_bytes(text);
    return value;
  }
  if (type != GgufType::Array) {
    ASSAY_TRY(value.bytes, cursor->bytes(fixed_size(type)));
    return value;
  }
  ASSAY_TRY(value.element_type, cursor->type());
  ASSAY_TRY(value.count, cursor->number<uint64_t>());
  const uint64_t begin = cursor->offset();
  ASSAY_TRY_STATUS(skip_elements(value.element_type, value.count, 0, cursor));
  value.bytes = file.subspan(begin, cursor->offset() - begin);
  return value;
}

struct PlainType {
  uint32_t ggml_type;
  DType dtype;
};
// ggml-org/ggml: include/ggml.h, enum ggml_type
constexpr std::array<PlainType, 8> kPlainTypes = {{{0, DType::Float32},
                                                   {1, DType::Float16},
                                                   {24, DType::Int8},
                                                   {25, DType::Int16},
                                                   {26, DType::Int32},
                                                   {27, DType::Int64},
                                                   {28, DType::Float64},
                                                   {30, DType::BFloat16}}};

std::optional<DType> plain_type(uint32_t ggml_type) {
  for (const PlainType& plain : kPlainTypes) {
    if (plain.ggml_type == ggml_type) return plain.dtype;
  }
  return std::nullopt;
}

/// One line of the directory; `file_offset` counts from the start of the data until
/// place_tensors().
Result<GgufTensor> read_tensor_info(Cursor* cursor) {
  GgufTensor tensor;
  ASSAY_TRY(const std::string_view name, cursor->text());
  tensor.name = name;
  const uint64_t at = cursor->offset();
  ASSAY_TRY(const uint32_t dims, cursor->number<uint32_t>());
  if (dims > kMaxDims) {
    return fail(Errc::Invalid,
                "tensor '" + tensor.name + "' has " + std::to_string(dims) + " dimensions", at);
  }
  std::array<int64_t, kMaxDims> sizes{};
  for (uint32_t i = 0; i < dims; ++i) {
    ASSAY_TRY(const uint64_t size, cursor->number<uint64_t>());
    if (size > static_cast<uint64_t>(INT64_MAX))
      return fail(Errc::Invalid, "a size of tensor '" + tensor.name + "' is beyond 2^63", at);
    sizes[dims - 1 - i] = static_cast<int64_t>(size);
  }
  tensor.shape = Dims(std::span<const int64_t>(sizes).first(dims));
  ASSAY_TRY(tensor.ggml_type, cursor->number<uint32_t>());
  tensor.dtype = plain_type(tensor.ggml_type);
  tensor.blocks = block_type_from_ggml(tensor.ggml_type);
  ASSAY_TRY(tensor.file_offset, cursor->number<uint64_t>());
  return tensor;
}

Result<uint64_t> tensor_bytes(const GgufTensor& tensor) {
  const auto count = element_count(tensor.shape);
  std::optional<uint64_t> size;
  if (count && tensor.dtype) size = storage_bytes(*tensor.dtype, static_cast<uint64_t>(*count));
  if (tensor.blocks) size = blocked_bytes(*tensor.blocks, tensor.shape);
  if (!size) {
    return fail(Errc::Invalid, "tensor '" + tensor.name + "' of " + gguf_type_text(tensor) +
                                   " cannot have the shape " + list_text(tensor.shape.span()));
  }
  return *size;
}

/// Finds the bytes of a tensor that was read with an offset from the start of the data.
Status place_tensor(ByteSpan file, const Gguf& gguf, GgufTensor* tensor) {
  const uint64_t relative = tensor->file_offset;
  if (relative % gguf.alignment != 0) {
    return fail(Errc::Invalid,
                "tensor '" + tensor->name + "' is at " + std::to_string(relative) +
                    ", no multiple of the alignment " + std::to_string(gguf.alignment),
                gguf.data_offset);
  }
  if (add_overflows(relative, gguf.data_offset, &tensor->file_offset) ||
      tensor->file_offset > file.size()) {
    return fail(Errc::Truncated,
                "tensor '" + tensor->name + "' begins at " + std::to_string(relative) +
                    " of the data, the file has " + std::to_string(file.size()) + " bytes",
                file.size());
  }
  if (!tensor->dtype && !tensor->blocks) {
    tensor->problem = "element type " + std::to_string(tensor->ggml_type) + " is not known";
    return {};
  }
  ASSAY_TRY(const uint64_t size, tensor_bytes(*tensor));
  if (size > file.size() - tensor->file_offset) {
    return fail(Errc::Truncated,
                "tensor '" + tensor->name + "' has " + std::to_string(size) + " bytes at " +
                    std::to_string(tensor->file_offset) + ", the file ends at " +
                    std::to_string(file.size()),
                file.size());
  }
  tensor->bytes = file.subspan(tensor->file_offset, size);
  return {};
}

Status check_overlaps(const std::vector<GgufTensor>& tensors) {
  std::vector<const GgufTensor*> by_offset;
  for (const GgufTensor& tensor : tensors) {
    if (!tensor.bytes.empty()) by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->file_offset < b->file_offset;
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& before = *by_offset[i - 1];
    if (by_offset[i]->file_offset - before.file_offset < before.bytes.size()) {
      return fail(Errc::Invalid,
                  "tensor '" + by_offset[i]->name + "' overlaps '" + before.name + "'",
                  by_offset[i]->file_offset);
    }
  }
  return {};
}

Status read_metadata(ByteSpan file, uint64_t count, Cursor* cursor, Gguf* out) {
  std::unordered_set<std::string_view> names;
  for (uint64_t i = 0; i < count; ++i) {
    GgufEntry entry;
    entry.file_offset = cursor->offset();
    ASSAY_TRY(const std::string_view key, cursor->text());
    if (!names.insert(key).second) {
      return fail(Errc::Invalid, "the key '" + std::string(key) + "' stands twice",
                  entry.file_offset);
    }
    entry.key = key;
    ASSAY_TRY(const GgufType type, cursor->type());
    ASSAY_TRY(entry.value, read_value(type, file, cursor));
    out->metadata.push_back(std::move(entry));
  }
  return {};
}

Status read_directory(uint64_t count, Cursor* cursor, Gguf* out) {
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = cursor->offset();
    ASSAY_TRY(GgufTensor tensor, read_tensor_info(cursor));
    if (!names.insert(tensor.name).second)
      return fail(Errc::Invalid, "the tensor '" + tensor.name + "' stands twice", at);
    out->tensors.push_back(std::move(tensor));
  }
  return {};
}

/// How many of something the file says it has, and could have.
Result<uint64_t> read_count(std::string_view what, uint64_t smallest_bytes, Cursor* cursor) {
  const uint64_t at = cursor->offset();
  ASSAY_TRY(const uint64_t count, cursor->number<uint64_t>());
  if (count > cursor->remaining() / smallest_bytes) {
    return fail(Errc::Truncated,
                "the file says " + std::to_string(count) + " " + std::string(what) + ", " +
                    std::to_string(cursor->remaining()) + " bytes are left",
                at);
  }
  return count;
}

Status read_alignment(Gguf* out) {
  const GgufValue* value = out->find("general.alignment");
  if (value == nullptr) return {};
  const auto alignment = value->integer();
  if (!alignment || *alignment <= 0 || static_cast<uint64_t>(*alignment) > kMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return fail(Errc::Invalid,
                "general.alignment is " + gguf_value_text(*value) + ", no power of two up to 2^30");
  }
  out->alignment = static_cast<uint64_t>(*alignment);
  return {};
}

template <typename Float>
std::string shortest_text(Float value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

std::string scalar_text(const GgufValue& value, bool quoted) {
  if (const auto text = value.text()) return quoted ? json_quote(*text) : std::string(*text);
  if (value.type == GgufType::Bool) return value.integer() == 0 ? "false" : "true";
  if (value.type == GgufType::UInt64)
    return std::to_string(load_in_order<uint64_t>(value.bytes.data(), value.big_endian));
  if (const auto integer = value.integer()) return std::to_string(*integer);
  // As few digits as tell it from every other float32.
  if (value.type == GgufType::Float32)
    return shortest_text(static_cast<float>(value.number().value_or(0)));
  return shortest_text(value.number().value_or(0));
}

/// Plain values of a file in the other byte order.
Result<Tensor> turned_round(const GgufTensor& tensor) {
  const size_t size = info(*tensor.dtype).element_bits / 8;
  const auto bytes =
      std::make_shared<std::vector<std::byte>>(tensor.bytes.begin(), tensor.bytes.end());
  for (auto at = bytes->begin(); at != bytes->end(); at += static_cast<std::ptrdiff_t>(size))
    std::reverse(at, at + static_cast<std::ptrdiff_t>(size));
  ASSAY_TRY(const TensorView view, make_view(*tensor.dtype, tensor.shape, *bytes));
  return Tensor{view, bytes};
}

}  // namespace

std::string_view gguf_type_name(GgufType type) { return kTypeNames[static_cast<size_t>(type)]; }

std::optional<int64_t> GgufValue::integer() const {
  const std::byte* at = bytes.data();
  switch (type) {
    case GgufType::UInt8:
      return load<uint8_t>(at);
    case GgufType::Bool:
      return load<uint8_t>(at) != 0 ? 1 : 0;
    case GgufType::Int8:
      return load<int8_t>(at);
    case GgufType::UInt16:
      return load_in_order<uint16_t>(at, big_endian);
    case GgufType::Int16:
      return load_in_order<int16_t>(at, big_endian);
    case GgufType::UInt32:
      return load_in_order<uint32_t>(at, big_endian);
    case GgufType::Int32:
      return load_in_order<int32_t>(at, big_endian);
    case GgufType::Int64:
      return load_in_order<int64_t>(at, big_endian);
    case GgufType::UInt64: {
      const auto value = load_in_order<uint64_t>(at, big_endian);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    case GgufType::Float32:
    case GgufType::Float64:
    case GgufType::String:
    case GgufType::Array:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> GgufValue::number() const {
  if (type == GgufType::Float32) return load_in_order<float>(bytes.data(), big_endian);
  if (type == GgufType::Float64) return load_in_order<double>(bytes.data(), big_endian);
  if (type == GgufType::UInt64)
    return static_cast<double>(load_in_order<uint64_t>(bytes.data(), big_endian));
  if (const auto value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<std::string_view> GgufValue::text() const {
  if (type != GgufType::String) return std::nullopt;
  return as_text(bytes);
}

std::optional<int64_t> GgufValue::integer_at(uint64_t i) const {
  if (type != GgufType::Array) return i == 0 ? integer() : std::nullopt;
  const uint64_t size = fixed_size(element_type);
  if (size == 0 || i >= count) return std::nullopt;
  GgufValue element;
  element.type = element_type;
  element.big_endian = big_endian;
  element.bytes = bytes.subspan(i * size, size);
  return element.integer();
}

void GgufValue::for_each(const std::function<bool(const GgufValue&)>& take) const {
  Cursor cursor(bytes, 0, big_endian);
  for (uint64_t i = 0; i < count; ++i) {
    // read_gguf() has walked over the elements once, so reading them cannot fail.
    const Result<GgufValue> element = read_value(element_type, bytes, &cursor);
    if (!element || !take(*element)) return;
  }
}

std::string gguf_value_text(const GgufValue& value, size_t max_elements) {
  if (value.type != GgufType::Array) return scalar_text(value, false);
  std::string out = "[";
  size_t shown = 0;
  value.for_each([&](const GgufValue& element) {
    if (shown == max_elements) return false;
    out += shown++ == 0 ? "" : ", ";
    out += element.type == GgufType::Array ? gguf_value_text(element, max_elements)
                                           : scalar_text(element, true);
    return true;
  });
  if (shown == value.count) return out + "]";
  return out + (shown == 0 ? "...] (" : ", ...] (") + std::to_string(value.count) + ")";
}

std::string gguf_type_text(const GgufTensor& tensor) {
  if (tensor.dtype) return std::string(name(*tensor.dtype));
  if (tensor.blocks) return std::string(name(*tensor.blocks));
  return "type " + std::to_string(tensor.ggml_type);
}

const GgufValue* Gguf::find(std::string_view key) const {
  for (const GgufEntry& entry : metadata) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

const GgufTensor* Gguf::find_tensor(std::string_view wanted) const {
  for (const GgufTensor& tensor : tensors) {
    if (tensor.name == wanted) return &tensor;
  }
  return nullptr;
}

std::string_view Gguf::architecture() const {
  const GgufValue* value = find("general.architecture");
  return value == nullptr ? std::string_view() : value->text().value_or(std::string_view());
}

Result<Gguf> read_gguf(ByteSpan file) {
  if (!as_text(file).starts_with(kMagic))
    return fail(Errc::BadMagic, "the file does not begin with 'GGUF'", 0);
  ByteReader head(file, kMagic.size());
  ASSAY_TRY(const uint32_t raw_version, head.read<uint32_t>());
  Gguf out;
  // The magic is the same in both byte orders; a small number read the wrong way has no low half.
  out.big_endian = (raw_version & 0xFFFF) == 0 && raw_version != 0;
  out.version = out.big_endian ? __builtin_bswap32(raw_version) : raw_version;
  if (out.version != 2 && out.version != 3) {
    return fail(Errc::Unsupported,
                "version " + std::to_string(out.version) + " of GGUF; 2 and 3 can be read",
                kMagic.size());
  }
  Cursor cursor(file, head.offset(), out.big_endian);
  ASSAY_TRY(const uint64_t tensor_count, read_count("tensors", kMinTensorBytes, &cursor));
  ASSAY_TRY(const uint64_t entry_count, read_count("metadata keys", kMinEntryBytes, &cursor));
  ASSAY_TRY_STATUS(read_metadata(file, entry_count, &cursor, &out));
  ASSAY_TRY_STATUS(read_alignment(&out));
  ASSAY_TRY_STATUS(read_directory(tensor_count, &cursor, &out));
  // A file without tensors may end right here.
  out.data_offset = align_up(cursor.offset(), out.alignment);
  for (GgufTensor& tensor : out.tensors) ASSAY_TRY_STATUS(place_tensor(file, out, &tensor));
  ASSAY_TRY_STATUS(check_overlaps(out.tensors));
  return out;
}

Result<Gguf> read_gguf_file(const MappedFile& file) {
  auto result = in_file(file.path(), read_gguf(file.bytes()));
  if (result) result->owner = std::make_shared<const MappedFile>(file);
  return result;
}

Result<Tensor> gguf_tensor(const Gguf& file, const GgufTensor& tensor) {
  if (!tensor.problem.empty()) return fail(Errc::Unsupported, tensor.problem, tensor.file_offset);
  if (tensor.dtype) {
    if (file.big_endian) return turned_round(tensor);
    ASSAY_TRY(const TensorView view, make_view(*tensor.dtype, tensor.shape, tensor.bytes));
    return Tensor{view, file.owner};
  }
  if (file.big_endian) {
    return fail(Errc::Unsupported,
                "blocks of " + gguf_type_text(tensor) + " in a big-endian file are not supported",
                tensor.file_offset);
  }
  return decode_tensor(*tensor.blocks, tensor.shape, tensor.bytes);
}

}  // namespace assay::formats

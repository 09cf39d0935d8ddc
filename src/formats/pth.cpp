// SPDX-License-Identifier: Apache-2.0
// A zip whose records lie in one folder, each stored and 64-byte aligned; files of before torch 1.6
// are one stream:
//
//   name/data.pkl    pickle: _rebuild_tensor_v2(storage "0", offset, size, stride, ..)
//   name/byteorder   "little"
//   name/data/0      the bytes of storage "0"
//
//   | pickle: magic | pickle: protocol | pickle: system | pickle: the object | pickle: keys | u64 count, bytes | ...
#include "formats/pth.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/text.hpp"
#include "formats/pickle.hpp"
#include "formats/zip.hpp"

namespace assay::formats {
namespace {

using pickle::Kind;
using pickle::Pickle;
using pickle::Value;
using pickle::ValueId;

// ---- storages -----------------------------------------------------------------------------------

struct StorageClass {
  std::string_view name;
  DType dtype;
};
constexpr StorageClass kStorageClasses[] = {
    {"DoubleStorage", DType::Float64},
    {"FloatStorage", DType::Float32},
    {"HalfStorage", DType::Float16},
    {"BFloat16Storage", DType::BFloat16},
    {"LongStorage", DType::Int64},
    {"IntStorage", DType::Int32},
    {"ShortStorage", DType::Int16},
    {"CharStorage", DType::Int8},
    {"ByteStorage", DType::UInt8},
    {"BoolStorage", DType::Bool},
    {"ComplexDoubleStorage", DType::Complex128},
    {"ComplexFloatStorage", DType::Complex64},
    {"QInt8Storage", DType::QInt8},
    {"QUInt8Storage", DType::QUInt8},
    {"QInt32Storage", DType::QInt32},
    {"QUInt4x2Storage", DType::QUInt4x2},
    {"QUInt2x4Storage", DType::QUInt2x4},
};
constexpr std::string_view kUntypedStorage = "UntypedStorage";

uint64_t element_bytes(DType dtype) { return info(dtype).element_bits / 8u; }

/// What a persistent id says: ("storage", class, key, location, element count[, view]).
struct StorageRef {
  std::optional<DType> dtype;  // nothing for an UntypedStorage, which counts bytes
  std::string_view key;
  std::string_view location;
  uint64_t size_bytes = 0;
  uint64_t offset_bytes = 0;  // of a view into the storage (legacy files only)
  uint64_t pickle_offset = 0;

  [[nodiscard]] uint64_t unit_bytes() const { return dtype ? element_bytes(*dtype) : 1; }
};

/// Where the raw bytes of storages come from: records of a zip, or the tail of a legacy stream.
class StorageSource {
 public:
  virtual ~StorageSource() = default;
  /// All bytes that the file has for `key`. errors NotFound when there are none.
  [[nodiscard]] virtual Result<SharedBytes> bytes_of(std::string_view key) = 0;
  /// True when elements have their most significant byte first.
  [[nodiscard]] virtual bool big_endian() const { return false; }
};

void reverse_units(std::string* bytes, uint64_t unit) {
  for (size_t at = 0; at + unit <= bytes->size(); at += unit) {
    std::reverse(bytes->begin() + static_cast<std::ptrdiff_t>(at),
                 bytes->begin() + static_cast<std::ptrdiff_t>(at + unit));
  }
}

// ---- from symbols to tensors --------------------------------------------------------------------

class Interpreter {
 public:
  Interpreter(const Pickle& pickle, StorageSource* source) : pickle_(pickle), source_(source) {}

  Result<std::vector<PthEntry>> run() {
    ASSAY_TRY_STATUS(flatten(pickle_.root, "", 0));
    return std::move(entries_);
  }

  // Also used to learn the sizes of a legacy file's storages.
  Result<StorageRef> storage_ref(const Value& persistent) const;

 private:
  [[nodiscard]] const Value& at(ValueId id) const { return pickle_.values[id]; }
  [[nodiscard]] static bool is_global(const Value& value, std::string_view module,
                                      std::string_view name) {
    return value.kind == Kind::Global && value.text == module && value.name == name;
  }
  [[nodiscard]] static std::string full_name(const Value& global) {
    return std::string(global.text) + "." + std::string(global.name);
  }

  Status flatten(ValueId id, const std::string& path, int depth);
  Status flatten_items(const std::vector<ValueId>& items, const std::string& path, int depth);
  Status flatten_pairs(const std::vector<ValueId>& items, const std::string& path, int depth);
  Status flatten_call(const Value& call, const std::string& path, int depth);
  Status flatten_global(const Value& global, const std::string& path);
  Result<bool> flatten_container_call(const Value& call, const Value& callable,
                                      const std::string& path, int depth);
  void add_value(const std::string& path, std::string type, std::string text);

  Status charge_text(uint64_t size_bytes, const Value& value);
  Result<std::string> key_text(const Value& key) const;
  Result<std::span<const ValueId>> arguments_of(ValueId id, size_t at_least,
                                                std::string_view what) const;
  Result<int64_t> integer(ValueId id, std::string_view what) const;
  Result<Dims> dims(ValueId id, std::string_view what) const;
  Result<DType> dtype_global(ValueId id) const;

  Result<PthEntry> rebuild(ValueId callable, ValueId arguments, int depth);
  Result<PthEntry> rebuild_nested(ValueId tensor, int depth);
  Result<PthEntry> rebuild_tensor(const Value& callable, ValueId arguments);
  Status apply_metadata(ValueId metadata, TensorView* view) const;
  Result<SharedBytes> storage_bytes_of(const StorageRef& ref, DType dtype);

  const Pickle& pickle_;
  StorageSource* source_;
  std::vector<PthEntry> entries_;
  size_t visited_ = 0;
  uint64_t text_bytes_ = 0;  // copied into entries so far, at most twice what it will be
  std::map<std::pair<std::string, uint64_t>, SharedBytes> swapped_;  // by key and unit
};

Result<int64_t> Interpreter::integer(ValueId id, std::string_view what) const {
  const Value& value = at(id);
  if (value.kind == Kind::BigInt) {
    return fail(Errc::TooLarge, "the " + std::string(what) + " does not fit into 64 bits",
                value.offset);
  }
  if (value.kind != Kind::Int)
    return fail(Errc::Invalid, "the " + std::string(what) + " is not an integer", value.offset);
  return value.integer;
}

Result<std::span<const ValueId>> Interpreter::arguments_of(ValueId id, size_t at_least,
                                                           std::string_view what) const {
  const Value& tuple = at(id);
  if (tuple.kind != Kind::Tuple)
    return fail(Errc::Invalid, std::string(what) + " without arguments", tuple.offset);
  if (tuple.items.size() < at_least) {
    return fail(Errc::Invalid,
                std::string(what) + " with " + std::to_string(tuple.items.size()) +
                    " arguments, expected at least " + std::to_string(at_least),
                tuple.offset);
  }
  return std::span<const ValueId>(tuple.items);
}

Result<Dims> Interpreter::dims(ValueId id, std::string_view what) const {
  const Value* value = &at(id);
  // torch.Size((2, 3)) instead of the plain tuple.
  if (value->kind == Kind::Call && is_global(at(value->callable), "torch", "Size")) {
    const Value& arguments = at(value->arguments);
    if (arguments.items.size() == 1) value = &at(arguments.items[0]);
  }
  if (value->kind != Kind::Tuple && value->kind != Kind::List) {
    return fail(Errc::Invalid, "the " + std::string(what) + " is not a tuple", value->offset);
  }
  if (value->items.size() > kMaxPthRank) {
    return fail(
        Errc::Unsupported,
        "a tensor of " + std::to_string(value->items.size()) + " dimensions is not supported",
        value->offset);
  }
  Dims result;
  result.resize(value->items.size());
  for (size_t i = 0; i < value->items.size(); ++i) {
    ASSAY_TRY(result[i], integer(value->items[i], what));
  }
  return result;
}

Result<DType> Interpreter::dtype_global(ValueId id) const {
  const Value& value = at(id);
  if (value.kind == Kind::Global && value.text == "torch") {
    if (const auto dtype = dtype_from_name(value.name)) return *dtype;
    return fail(Errc::Unsupported, "dtype " + full_name(value) + " is not supported", value.offset);
  }
  return fail(Errc::Invalid, "the element type is not a torch.dtype", value.offset);
}

Result<StorageRef> Interpreter::storage_ref(const Value& persistent) const {
  if (persistent.kind != Kind::Persistent)
    return fail(Errc::Invalid, "the storage is not a persistent id", persistent.offset);
  ASSAY_TRY(const auto parts, arguments_of(persistent.arguments, 5, "a persistent id"));
  if (at(parts[0]).kind != Kind::String || at(parts[0]).text != "storage") {
    return fail(Errc::Unsupported, "a persistent id that is not a storage is not supported",
                persistent.offset);
  }
  const Value& type = at(parts[1]);
  const Value& key = at(parts[2]);
  const Value& location = at(parts[3]);
  if (type.kind != Kind::Global || key.kind != Kind::String || location.kind != Kind::String) {
    return fail(Errc::Invalid, "a storage id needs a class, a key and a location",
                persistent.offset);
  }
  if (location.text.size() > kMaxPthPathBytes) {
    return fail(Errc::TooLarge, "a location longer than any name", location.offset);
  }
  StorageRef ref;
  ref.key = key.text;
  ref.location = location.text;
  ref.pickle_offset = persistent.offset;
  if (type.name != kUntypedStorage) {
    const auto* found =
        std::find_if(std::begin(kStorageClasses), std::end(kStorageClasses),
                     [&](const StorageClass& known) { return known.name == type.name; });
    if (found == std::end(kStorageClasses) || !type.text.starts_with("torch")) {
      return fail(Errc::Unsupported, "storage class " + full_name(type) + " is not supported",
                  type.offset);
    }
    ref.dtype = found->dtype;
  }
  ASSAY_TRY(const int64_t count, integer(parts[4], "element count of a storage"));
  int64_t size_bytes = 0;
  if (count < 0 || mul_overflows(count, static_cast<int64_t>(ref.unit_bytes()), &size_bytes)) {
    return fail(Errc::Invalid, "a storage of " + std::to_string(count) + " elements",
                persistent.offset);
  }
  ref.size_bytes = static_cast<uint64_t>(size_bytes);
  if (parts.size() < 6 || at(parts[5]).kind == Kind::None) return ref;
  // A storage that is part of another: (key of the view, offset, size), in elements.
  ASSAY_TRY(const auto view, arguments_of(parts[5], 3, "a storage view"));
  ASSAY_TRY(const int64_t offset, integer(view[1], "offset of a storage view"));
  ASSAY_TRY(const int64_t size, integer(view[2], "size of a storage view"));
  if (offset < 0 || size < 0 || offset > count || size > count - offset) {
    return fail(Errc::Invalid, "a storage view outside its storage", persistent.offset);
  }
  ref.offset_bytes = static_cast<uint64_t>(offset) * ref.unit_bytes();
  ref.size_bytes = static_cast<uint64_t>(size) * ref.unit_bytes();
  return ref;
}

Result<SharedBytes> Interpreter::storage_bytes_of(const StorageRef& ref, DType dtype) {
  if (ref.location == "meta")
    return fail(Errc::Unsupported, "tensor kind meta: it has no data", ref.pickle_offset);
  ASSAY_TRY(SharedBytes all, source_->bytes_of(ref.key));
  const uint64_t needed = ref.offset_bytes + ref.size_bytes;
  if (needed > all.bytes.size()) {
    return fail(Errc::Truncated,
                "storage '" + std::string(ref.key) + "' should have " + std::to_string(needed) +
                    " bytes, the file holds " + std::to_string(all.bytes.size()),
                ref.pickle_offset);
  }
  const uint64_t unit = is_complex(dtype) ? element_bytes(dtype) / 2 : element_bytes(dtype);
  if (source_->big_endian() && unit > 1) {
    SharedBytes& swapped = swapped_[{std::string(ref.key), unit}];
    if (swapped.owner == nullptr) {
      auto copy = std::make_shared<std::string>(as_text(all.bytes));
      reverse_units(copy.get(), unit);
      swapped = {as_bytes(*copy), copy};
    }
    all = swapped;
  }
  all.bytes = all.bytes.subspan(ref.offset_bytes, ref.size_bytes);
  return all;
}

Status Interpreter::apply_metadata(ValueId id, TensorView* view) const {
  const Value& metadata = at(id);
  if (metadata.kind == Kind::None) return {};
  if (metadata.kind != Kind::Dict)
    return fail(Errc::Invalid, "tensor metadata is not a dict", metadata.offset);
  for (size_t i = 0; i + 1 < metadata.items.size(); i += 2) {
    const Value& key = at(metadata.items[i]);
    const Value& value = at(metadata.items[i + 1]);
    if (key.kind != Kind::String) continue;
    const bool set = value.kind == Kind::Bool && value.integer != 0;
    if (key.text == "conj") view->conjugate = set;
    if (key.text == "neg") view->negative = set;
  }
  return {};
}

// _rebuild_tensor[_v2|_v3] and _rebuild_npu_tensor:
//   (storage, offset, size, stride
//    [, requires_grad, hooks[, dtype (v3) or format (npu)][, metadata]])
Result<PthEntry> Interpreter::rebuild_tensor(const Value& callable, ValueId arguments) {
  const bool npu = callable.name == "_rebuild_npu_tensor";
  const bool v3 = callable.name == "_rebuild_tensor_v3";
  ASSAY_TRY(const auto parts, arguments_of(arguments, v3 || npu ? 7 : 4, callable.name));
  ASSAY_TRY(const StorageRef ref, storage_ref(at(parts[0])));
  ASSAY_TRY(const int64_t offset, integer(parts[1], "storage offset"));
  ASSAY_TRY(const Dims shape, dims(parts[2], "size"));
  ASSAY_TRY(const Dims strides, dims(parts[3], "stride"));
  DType dtype = ref.dtype.value_or(DType::UInt8);
  if (v3) {
    ASSAY_TRY(dtype, dtype_global(parts[6]));
  }

  ASSAY_TRY(SharedBytes storage, storage_bytes_of(ref, dtype));
  auto view = make_view(dtype, shape, strides, storage.bytes, offset);
  if (!view && npu) {
    // Some torch_npu releases save a compacted storage with the strides of the tensor it came from.
    const auto count = element_count(shape);
    const auto compact_bytes =
        count ? storage_bytes(dtype, static_cast<uint64_t>(*count)) : std::nullopt;
    if (compact_bytes == ref.size_bytes) view = make_view(dtype, shape, storage.bytes);
  }
  if (!view) {
    Error error = std::move(view).error();
    error.offset = callable.offset;
    return fail(std::move(error));
  }
  const size_t metadata = v3 || npu ? 7 : 6;
  if (parts.size() > metadata) {
    ASSAY_TRY_STATUS(apply_metadata(parts[metadata], &*view));
  }
  PthEntry entry;
  entry.tensor = {*view, storage.owner};
  entry.location = std::string(ref.location);
  entry.requires_grad =
      parts.size() > 4 && at(parts[4]).kind == Kind::Bool && at(parts[4]).integer != 0;
  if (npu && at(parts[6]).kind == Kind::Int)
    entry.npu_format = static_cast<int>(at(parts[6]).integer);
  return entry;
}

Result<PthEntry> Interpreter::rebuild_nested(ValueId id, int depth) {
  const Value& tensor = at(id);
  if (tensor.kind != Kind::Call)
    return fail(Errc::Invalid, "a parameter that holds no tensor", tensor.offset);
  return rebuild(tensor.callable, tensor.arguments, depth + 1);
}

Result<PthEntry> Interpreter::rebuild(ValueId callable_id, ValueId arguments, int depth) {
  const Value& callable = at(callable_id);
  if (depth > kMaxPthDepth)
    return fail(Errc::TooLarge, "tensors nested too deeply", callable.offset);
  if (callable.kind != Kind::Global)
    return fail(Errc::Unsupported, "a call of something unnamed is not supported", callable.offset);
  const bool utils = callable.text == "torch._utils";
  if (utils && (callable.name == "_rebuild_tensor" || callable.name == "_rebuild_tensor_v2" ||
                callable.name == "_rebuild_tensor_v3")) {
    return rebuild_tensor(callable, arguments);
  }
  if (is_global(callable, "torch_npu.utils.storage", "_rebuild_npu_tensor"))
    return rebuild_tensor(callable, arguments);
  if (utils &&
      (callable.name == "_rebuild_parameter" || callable.name == "_rebuild_parameter_with_state")) {
    ASSAY_TRY(const auto parts, arguments_of(arguments, 3, callable.name));
    ASSAY_TRY(PthEntry entry, rebuild_nested(parts[0], depth));
    entry.parameter = true;
    entry.requires_grad = at(parts[1]).kind == Kind::Bool && at(parts[1]).integer != 0;
    return entry;  // a state behind it is not looked at
  }
  if (is_global(callable, "torch._tensor", "_rebuild_from_type_v2")) {
    ASSAY_TRY(const auto parts, arguments_of(arguments, 4, callable.name));
    return rebuild(parts[0], parts[2], depth + 1);  // function, type, arguments, state
  }
  if (callable.text.starts_with("torch") && callable.name.starts_with("_rebuild_")) {
    return fail(Errc::Unsupported,
                "tensor kind " + std::string(callable.name.substr(9)) + " is not supported",
                callable.offset);
  }
  return fail(Errc::Unsupported, "class or function " + full_name(callable) + " is not supported",
              callable.offset);
}

// ---- the tree of containers ---------------------------------------------------------------------

void Interpreter::add_value(const std::string& path, std::string type, std::string text) {
  PthEntry entry;
  entry.path = path;
  entry.kind = PthEntry::Kind::Value;
  entry.type = std::move(type);
  entry.text = std::move(text);
  entries_.push_back(std::move(entry));
}

std::string hex_text(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char c : bytes) {
    out += kDigits[static_cast<uint8_t>(c) >> 4];
    out += kDigits[static_cast<uint8_t>(c) & 15u];
  }
  return out;
}

// An integer too long for 64 bits, most significant byte first, as two's complement.
std::string big_integer_text(std::string_view little_endian) {
  return "0x" + hex_text(std::string(little_endian.rbegin(), little_endian.rend()));
}

Result<std::string> Interpreter::key_text(const Value& key) const {
  switch (key.kind) {
    case Kind::String:
      return std::string(key.text);
    case Kind::Int:
      return std::to_string(key.integer);
    case Kind::Bool:
      return std::string(key.integer != 0 ? "True" : "False");
    case Kind::Float:
      return python_repr(key.real);
    case Kind::None:
      return std::string("None");
    default:
      return fail(Errc::Unsupported,
                  "a dict key that is neither text nor a number is not supported", key.offset);
  }
}

std::string joined(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

// Before a text is copied: the same long key or string may be copied for many entries.
Status Interpreter::charge_text(uint64_t size_bytes, const Value& value) {
  text_bytes_ += size_bytes;
  if (text_bytes_ <= kMaxPthTextBytes) return {};
  return fail(Errc::TooLarge, "texts of more than " + std::to_string(kMaxPthTextBytes) + " bytes",
              value.offset);
}

Status Interpreter::flatten_items(const std::vector<ValueId>& items, const std::string& path,
                                  int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    ASSAY_TRY_STATUS(flatten(items[i], joined(path, std::to_string(i)), depth + 1));
  }
  return {};
}

Status Interpreter::flatten_pairs(const std::vector<ValueId>& items, const std::string& path,
                                  int depth) {
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    ASSAY_TRY(const std::string key, key_text(at(items[i])));
    ASSAY_TRY_STATUS(flatten(items[i + 1], joined(path, key), depth + 1));
  }
  return {};
}

// Python containers and small values that pickle as calls. False: it was something else.
Result<bool> Interpreter::flatten_container_call(const Value& call, const Value& callable,
                                                 const std::string& path, int depth) {
  const std::vector<ValueId>& arguments = at(call.arguments).items;
  const bool builtin = callable.text == "__builtin__" || callable.text == "builtins";
  if (callable.text == "collections" &&
      (callable.name == "OrderedDict" || callable.name == "defaultdict" ||
       callable.name == "Counter")) {
    // OrderedDict([(key, value), ...]) and Counter({key: value}); defaultdict's argument is its
    // factory.
    if (!arguments.empty() && callable.name != "defaultdict") {
      const Value& initial = at(arguments[0]);
      std::vector<ValueId> pairs =
          initial.kind == Kind::Dict ? initial.items : std::vector<ValueId>{};
      if (initial.kind == Kind::List) {
        for (const ValueId id : initial.items) {
          if (at(id).items.size() != 2)
            return fail(Errc::Invalid, "an OrderedDict item that is no pair", at(id).offset);
          pairs.insert(pairs.end(), at(id).items.begin(), at(id).items.end());
        }
      }
      ASSAY_TRY_STATUS(flatten_pairs(pairs, path, depth));
    }
    ASSAY_TRY_STATUS(flatten_pairs(call.items, path, depth));
    return true;
  }
  if ((builtin && (callable.name == "set" || callable.name == "frozenset")) ||
      is_global(callable, "torch", "Size")) {
    if (!arguments.empty()) {
      ASSAY_TRY_STATUS(flatten_items(at(arguments[0]).items, path, depth));
    }
    return true;
  }
  if (is_global(callable, "torch", "device")) {
    std::string text;
    for (const ValueId id : arguments) {
      ASSAY_TRY(const std::string part, key_text(at(id)));
      text += (text.empty() ? "" : ":") + part;
    }
    add_value(path, "device", text);
    return true;
  }
  if (builtin && callable.name == "complex" && arguments.size() == 2 &&
      at(arguments[0]).kind == Kind::Float && at(arguments[1]).kind == Kind::Float) {
    const double imaginary = at(arguments[1]).real;
    add_value(path, "complex",
              "(" + python_repr(at(arguments[0]).real) + (imaginary < 0 ? "" : "+") +
                  python_repr(imaginary) + "j)");
    return true;
  }
  // How protocol 2 spells bytes: the text holds one character (of up to two UTF-8 bytes) for each.
  if (is_global(callable, "_codecs", "encode") && !arguments.empty() &&
      at(arguments[0]).kind == Kind::String) {
    std::string bytes;
    const std::string_view text = at(arguments[0]).text;
    ASSAY_TRY_STATUS(charge_text(2 * text.size(), call));
    for (size_t i = 0; i < text.size(); ++i) {
      const auto lead = static_cast<uint8_t>(text[i]);
      if (lead < 0x80) {
        bytes += text[i];
      } else if ((lead == 0xC2 || lead == 0xC3) && i + 1 < text.size()) {
        bytes += static_cast<char>((lead << 6) | (static_cast<uint8_t>(text[++i]) & 0x3F));
      } else {
        return fail(Errc::Invalid, "bytes that are not latin-1 text", call.offset);
      }
    }
    add_value(path, "bytes", hex_text(bytes));
    return true;
  }
  return false;
}

Status Interpreter::flatten_call(const Value& call, const std::string& path, int depth) {
  const Value& callable = at(call.callable);
  if (callable.kind == Kind::Global) {
    ASSAY_TRY(const bool done, flatten_container_call(call, callable, path, depth));
    if (done) return {};
  }
  ASSAY_TRY(PthEntry entry, rebuild(call.callable, call.arguments, depth));
  ASSAY_TRY_STATUS(charge_text(entry.location.size(), call));
  entry.path = path;
  entries_.push_back(std::move(entry));
  return {};
}

Status Interpreter::flatten_global(const Value& global, const std::string& path) {
  if (global.text == "torch") {
    if (const auto dtype = dtype_from_name(global.name)) {
      add_value(path, "dtype", torch_name(*dtype));
      return {};
    }
  }
  return fail(Errc::Unsupported, "class or function " + full_name(global) + " is not supported",
              global.offset);
}

Status Interpreter::flatten(ValueId id, const std::string& path, int depth) {
  const Value& value = at(id);
  const size_t most = std::min(kMaxPthVisited, kMaxPthSharing * pickle_.values.size() + 1024);
  if (++visited_ > most) {
    return fail(
        Errc::TooLarge,
        "containers that share values too often: more than " + std::to_string(most) + " leaves",
        value.offset);
  }
  if (depth > kMaxPthDepth)
    return fail(Errc::TooLarge, "containers nested too deeply", value.offset);
  if (path.size() > kMaxPthPathBytes)
    return fail(Errc::TooLarge, "dict keys longer than any name", value.offset);
  ASSAY_TRY_STATUS(charge_text(path.size() + 2 * value.text.size(), value));  // hexadecimal doubles
  switch (value.kind) {
    case Kind::None:
      add_value(path, "NoneType", "None");
      return {};
    case Kind::Bool:
      add_value(path, "bool", value.integer != 0 ? "True" : "False");
      return {};
    case Kind::Int:
      add_value(path, "int", std::to_string(value.integer));
      return {};
    case Kind::BigInt:
      add_value(path, "int", big_integer_text(value.text));
      return {};
    case Kind::Float:
      add_value(path, "float", python_repr(value.real));
      return {};
    case Kind::String:
      add_value(path, "str", std::string(value.text));
      return {};
    case Kind::Bytes:
      add_value(path, "bytes", hex_text(value.text));
      return {};
    case Kind::Tuple:
    case Kind::List:
    case Kind::Set:
      return flatten_items(value.items, path, depth);
    case Kind::Dict:
      return flatten_pairs(value.items, path, depth);
    case Kind::Global:
      return flatten_global(value, path);
    case Kind::Call:
      return flatten_call(value, path, depth);
    case Kind::Persistent:
      return fail(Errc::Unsupported, "a storage that belongs to no tensor is not supported",
                  value.offset);
  }
  return fail(Errc::Internal, "a pickle value of no kind", value.offset);
}

// ---- zip files ----------------------------------------------------------------------------------

class ZipStorages : public StorageSource {
 public:
  ZipStorages(const ZipArchive& archive, std::string prefix)
      : archive_(archive), prefix_(std::move(prefix)) {
    for (const ZipEntry& entry : archive.entries) by_name_.emplace(entry.name, &entry);
  }

  [[nodiscard]] const ZipEntry* find(std::string_view record) const {
    const auto found = by_name_.find(prefix_ + std::string(record));
    return found == by_name_.end() ? nullptr : found->second;
  }
  Result<SharedBytes> bytes_of(std::string_view key) override {
    const std::string record = "data/" + std::string(key);
    const ZipEntry* entry = find(record);
    if (entry == nullptr) return fail(Errc::NotFound, "the file has no record '" + record + "'");
    if (entry->method == static_cast<uint16_t>(ZipMethod::Stored))
      return read_zip_entry(archive_, *entry);
    SharedBytes& inflated = inflated_[entry->name];
    if (inflated.owner == nullptr) {
      ASSAY_TRY(inflated, read_zip_entry(archive_, *entry));
    }
    return inflated;
  }
  [[nodiscard]] bool big_endian() const override { return big_endian_; }
  void set_big_endian(bool value) { big_endian_ = value; }

 private:
  const ZipArchive& archive_;
  std::string prefix_;
  std::unordered_map<std::string_view, const ZipEntry*> by_name_;
  std::unordered_map<std::string_view, SharedBytes> inflated_;
  bool big_endian_ = false;
};

constexpr int kHighestArchiveVersion = 10;
constexpr uint64_t kMaxSmallRecordBytes = 64;

Status check_version(const ZipArchive& archive, const ZipStorages& storages) {
  const ZipEntry* entry = storages.find("version");
  if (entry == nullptr) entry = storages.find(".data/version");
  if (entry == nullptr) return {};
  ASSAY_TRY(const SharedBytes content, read_zip_entry(archive, *entry, kMaxSmallRecordBytes));
  int version = 0;
  for (const char c : as_text(content.bytes)) {
    if (c < '0' || c > '9') break;
    if (version < 1000) version = version * 10 + (c - '0');
  }
  if (version < 1 || version > kHighestArchiveVersion) {
    return fail(Errc::Unsupported,
                "torch archive version " + std::to_string(version) + " is not supported",
                entry->data_offset);
  }
  return {};
}

Status check_byte_order(const ZipArchive& archive, ZipStorages* storages) {
  const ZipEntry* entry = storages->find("byteorder");
  if (entry == nullptr) return {};  // before torch 2.1: little
  ASSAY_TRY(const SharedBytes content, read_zip_entry(archive, *entry, kMaxSmallRecordBytes));
  const std::string_view order = as_text(content.bytes);
  if (order != "little" && order != "big") {
    return fail(Errc::Invalid, "byte order is neither 'little' nor 'big'", entry->data_offset);
  }
  storages->set_big_endian(order == "big");
  return {};
}

Result<std::vector<PthEntry>> read_zip_kind(ByteSpan file) {
  ASSAY_TRY(const ZipArchive archive, read_zip(file));
  if (archive.entries.empty()) return fail(Errc::Invalid, "an empty zip file");
  const std::string& first = archive.entries.front().name;
  const size_t slash = first.find('/');
  if (slash == std::string::npos)
    return fail(Errc::BadMagic, "a zip file, but not one of torch.save");
  ZipStorages storages(archive, first.substr(0, slash + 1));
  if (storages.find("constants.pkl") != nullptr) {
    return fail(
        Errc::Unsupported,
        "a TorchScript program, not a saved tensor: load it with torch.jit and save its tensors");
  }
  const ZipEntry* entry = storages.find("data.pkl");
  if (entry == nullptr)
    return fail(Errc::BadMagic, "a zip file without data.pkl, not one of torch.save");
  ASSAY_TRY_STATUS(check_version(archive, storages));
  ASSAY_TRY_STATUS(check_byte_order(archive, &storages));
  if (entry->size > kMaxPickleBytes) {
    return fail(Errc::TooLarge, "data.pkl has " + std::to_string(entry->size) + " bytes",
                entry->header_offset);
  }
  ASSAY_TRY(const SharedBytes stream, read_zip_entry(archive, *entry, kMaxPickleBytes));
  // Offsets inside an inflated pickle have no place in the file.
  const uint64_t base = stream.owner == nullptr ? entry->data_offset : 0;
  ASSAY_TRY(const Pickle pickle, pickle::read_pickle(stream.bytes, kMaxPickleValues, base));
  return Interpreter(pickle, &storages).run();
}

// ---- legacy streams -----------------------------------------------------------------------------

class LegacyStorages : public StorageSource {
 public:
  Result<SharedBytes> bytes_of(std::string_view key) override {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) {
      return fail(Errc::NotFound, "the file has no storage '" + std::string(key) + "'");
    }
    return SharedBytes{found->second, nullptr};
  }
  void add(std::string_view key, ByteSpan bytes) { by_key_[key] = bytes; }

 private:
  std::unordered_map<std::string_view, ByteSpan> by_key_;
};

// Fails unless the third pickle, a dict, has little_endian True.
Status check_system_info(const Pickle& info) {
  const Value& dict = info.values[info.root];
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value& value = info.values[dict.items[i + 1]];
    if (info.values[dict.items[i]].text == "little_endian" && value.kind == Kind::Bool &&
        value.integer == 0) {
      return fail(Errc::Unsupported, "a legacy file from a big-endian machine is not supported",
                  value.offset);
    }
  }
  return {};
}

// Layout: five pickles (magic number, protocol version, system info, object, list of storage keys),
// then for each key i64 element count and the elements.
Result<std::vector<PthEntry>> read_legacy_kind(ByteSpan file) {
  std::array<Pickle, 5> pickles;
  uint64_t offset = 0;
  for (Pickle& one : pickles) {
    const ByteSpan rest = file.subspan(offset);
    ASSAY_TRY(one, pickle::read_pickle(rest.first(std::min<uint64_t>(rest.size(), kMaxPickleBytes)),
                                       kMaxPickleValues, offset));
    offset += one.size_bytes;
  }
  ASSAY_TRY_STATUS(check_system_info(pickles[2]));
  const Pickle& object = pickles[3];
  LegacyStorages storages;
  Interpreter interpreter(object, &storages);
  // The element size of a storage stands only where the object names it.
  std::unordered_map<std::string_view, uint64_t> unit_bytes;
  for (const Value& value : object.values) {
    if (value.kind != Kind::Persistent) continue;
    ASSAY_TRY(const StorageRef ref, interpreter.storage_ref(value));
    unit_bytes[ref.key] = ref.unit_bytes();
  }
  const Pickle& keys = pickles[4];
  ByteReader reader(file, offset);
  for (const ValueId id : keys.values[keys.root].items) {
    const std::string_view key = keys.values[id].text;
    const auto unit = unit_bytes.find(key);
    if (unit == unit_bytes.end()) {
      return fail(Errc::Invalid, "storage '" + std::string(key) + "' belongs to no tensor",
                  keys.values[id].offset);
    }
    const uint64_t at = reader.offset();
    ASSAY_TRY(const auto count, reader.read<int64_t>());
    int64_t size = 0;
    if (count < 0 || mul_overflows(count, static_cast<int64_t>(unit->second), &size)) {
      return fail(Errc::Invalid, "a storage of " + std::to_string(count) + " elements", at);
    }
    ASSAY_TRY(const ByteSpan bytes, reader.read_bytes(static_cast<uint64_t>(size)));
    storages.add(key, bytes);
  }
  return interpreter.run();
}

// LONG1 of the magic number 0x1950A86A20F9469CFC6C, STOP: the whole first pickle but for its
// protocol and frame.
constexpr std::string_view kLegacyMagic("\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19\x2E", 13);
constexpr size_t kFrameBytes = 9;  // FRAME and a u64, from protocol 4 on
constexpr size_t kTarMagicOffset = 257;

}  // namespace

bool is_legacy_pth(ByteSpan file) {
  std::string_view text = as_text(file);
  if (text.size() < 2 || text[0] != '\x80' || text[1] < 2 || text[1] > 5) return false;
  text.remove_prefix(2);
  if (text.starts_with('\x95') && text.size() > kFrameBytes) text.remove_prefix(kFrameBytes);
  return text.starts_with(kLegacyMagic);
}

Result<std::vector<PthEntry>> read_pth(ByteSpan file) {
  const std::string_view text = as_text(file);
  if (text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06")) return read_zip_kind(file);
  if (is_legacy_pth(file)) return read_legacy_kind(file);
  if (text.size() > kTarMagicOffset && text.substr(kTarMagicOffset).starts_with("ustar")) {
    return fail(Errc::Unsupported,
                "a tar file as torch before 0.4 wrote: load and save it once with a newer torch");
  }
  return fail(Errc::BadMagic, "not a file of torch.save: neither a zip nor a legacy stream", 0);
}

Result<std::vector<PthEntry>> read_pth_file(const MappedFile& file) {
  auto entries = in_file(file.path(), read_pth(file.bytes()));
  if (!entries) return entries;
  const auto mapping = std::make_shared<const MappedFile>(file);
  for (PthEntry& entry : *entries) {
    if (entry.kind == PthEntry::Kind::Tensor && entry.tensor.owner == nullptr)
      entry.tensor.owner = mapping;
  }
  return entries;
}

}  // namespace assay::formats

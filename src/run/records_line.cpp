// SPDX-License-Identifier: Apache-2.0
// One reader over two ways to look into a line: PlainLine takes what our own writers write, and is
// fast; AnyObject takes any JSON, and also says what is wrong with a line that is refused.
//   docs/formats/native.md, "records.jsonl"
#include "run/records_line.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/atb_types.hpp"
#include "formats/json_fields.hpp"
#include "formats/native/schema.hpp"
#include "formats/plain_json.hpp"
#include "run/atb_record.hpp"
#include "run/strided_payload.hpp"
#include "tensor/block_types.hpp"

namespace assay::run {
namespace {

using formats::member;
using nlohmann::json;
namespace key = native::key;

constexpr size_t kMostAxes = 1024;

Error wrong(std::string_view key, std::string_view expected) {
  return {Errc::Invalid,
          {},
          std::nullopt,
          "key '" + std::string(key) + "' is not " + std::string(expected)};
}

// Two ways to look into the object of a line, with the same functions: `find`, nullptr when there
// is no such member, and what the value is, nothing when it is something else.

/// As any JSON.
struct AnyObject {
  using Value = json;
  const json& object;

  [[nodiscard]] const json* find(std::string_view name) const { return member(object, name); }
  [[nodiscard]] static std::optional<int64_t> integer(const json& value) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<uint64_t>();
      if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(number);
    }
    if (value.is_number_integer()) return value.get<int64_t>();
    return std::nullopt;
  }
  [[nodiscard]] static std::optional<double> real(const json& value) {
    if (!value.is_number()) return std::nullopt;
    return value.get<double>();
  }
  [[nodiscard]] static std::optional<std::string_view> text(const json& value) {
    if (!value.is_string()) return std::nullopt;
    return value.get_ref<const std::string&>();
  }
  [[nodiscard]] static bool is_object(const json& value) { return value.is_object(); }
  [[nodiscard]] static std::optional<AnyObject> inner(const json& value) {
    if (!value.is_object()) return std::nullopt;
    return AnyObject{value};
  }
  [[nodiscard]] static std::optional<std::vector<std::string>> texts(const json& value) {
    if (!value.is_array()) return std::nullopt;
    std::vector<std::string> all;
    for (const json& item : value) {
      if (!item.is_string()) return std::nullopt;
      all.push_back(item.get<std::string>());
    }
    return all;
  }
  /// Calls take() for each; false when they are no list of at most kMostAxes integers.
  [[nodiscard]] static bool integers(const json& value, const auto& take) {
    if (!value.is_array() || value.size() > kMostAxes) return false;
    for (const json& item : value) {
      const std::optional<int64_t> number = integer(item);
      if (!number) return false;
      take(*number);
    }
    return true;
  }
  /// The text of an object in the line.
  [[nodiscard]] static std::string object_text(const json& value, std::string_view line,
                                               std::string_view name);
  /// Python's spelling for the plain values, JSON for the rest.
  [[nodiscard]] static std::optional<std::string> plain_text(const json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
    if (value.is_null()) return "None";
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  [[nodiscard]] const json* find_even_null(std::string_view name) const {
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }
};

/// As a writer of ours wrote it. What it does not understand is left to AnyObject.
struct PlainLine {
  using Value = formats::PlainObject::Value;
  using Kind = formats::PlainObject::Kind;
  formats::PlainObject object;

  [[nodiscard]] const Value* find(std::string_view name) const {
    const Value* value = object.find(name);
    return value != nullptr && value->kind == Kind::Literal && value->text == "null" ? nullptr
                                                                                     : value;
  }
  [[nodiscard]] static std::optional<int64_t> integer(const Value& value) {
    return value.kind == Kind::Integer ? parse_number<int64_t>(value.text) : std::nullopt;
  }
  [[nodiscard]] static std::optional<double> real(const Value& value) {
    if (value.kind != Kind::Integer && value.kind != Kind::Real) return std::nullopt;
    return parse_number<double>(value.text);
  }
  [[nodiscard]] static std::optional<std::string_view> text(const Value& value) {
    return value.kind == Kind::Text ? std::optional(value.text) : std::nullopt;
  }
  [[nodiscard]] static bool is_object(const Value& value) { return value.kind == Kind::Object; }
  [[nodiscard]] static std::optional<PlainLine> inner(const Value& value) {
    if (value.kind != Kind::Object) return std::nullopt;
    std::optional<formats::PlainObject> object = formats::PlainObject::parse(value.text);
    return object ? std::optional(PlainLine{*object}) : std::nullopt;
  }
  [[nodiscard]] static std::optional<std::vector<std::string>> texts(const Value& value) {
    // Names in quotes, between commas.
    if (value.kind != Kind::Array) return std::nullopt;
    std::vector<std::string> all;
    for (const std::string_view item : split(value.text.substr(1, value.text.size() - 2), ',')) {
      if (item.empty() && value.text.size() == 2) break;
      if (item.size() < 2 || item.front() != '"' || item.back() != '"') return std::nullopt;
      all.emplace_back(item.substr(1, item.size() - 2));
    }
    return all;
  }
  [[nodiscard]] static bool integers(const Value& value, const auto& take) {
    if (value.kind != Kind::Array) return false;
    formats::PlainIntegers numbers(value.text);
    size_t count = 0;
    for (auto number = numbers.next(); number; number = numbers.next()) {
      if (++count > kMostAxes) return false;
      take(*number);
    }
    return numbers.is_whole();
  }
  [[nodiscard]] static std::string object_text(const Value& value, std::string_view,
                                               std::string_view) {
    return std::string(value.text);
  }
  /// Of values that are written in one way only.
  [[nodiscard]] static std::optional<std::string> plain_text(const Value& value) {
    if (value.kind == Kind::Text || integer(value)) return std::string(value.text);
    if (value.text == "true") return "True";
    if (value.text == "false") return "False";
    if (value.text == "null") return "None";
    return std::nullopt;
  }
  [[nodiscard]] const Value* find_even_null(std::string_view name) const {
    return object.find(name);
  }
};

/// Leaves *out alone when the key is absent.
template <typename Object>
Status take_integer(const Object& object, std::string_view key, int64_t minimum, int64_t* out) {
  const auto* value = object.find(key);
  if (value == nullptr) return {};
  const std::optional<int64_t> number = Object::integer(*value);
  if (!number || *number < minimum)
    return fail(wrong(key, "an integer of at least " + std::to_string(minimum)));
  *out = *number;
  return {};
}

template <typename Object, typename Text>
Status take_text(const Object& object, std::string_view key, Text* out) {
  const auto* value = object.find(key);
  if (value == nullptr) return {};
  const std::optional<std::string_view> text = Object::text(*value);
  if (!text) return fail(wrong(key, "a string"));
  *out = Text(*text);
  return {};
}

template <typename Object>
Status take_dims(const Object& object, std::string_view key, InternedDims* out) {
  const auto* value = object.find(key);
  if (value == nullptr) return {};
  Dims dims;
  if (!Object::integers(*value, [&](int64_t size) { dims.push_back(size); }))
    return fail(wrong(key, "a list of at most 1024 integers"));
  *out = dims;
  return {};
}

template <typename Object>
std::optional<double> real_number(const typename Object::Value& value) {
  const std::optional<std::string_view> text = Object::text(value);
  if (!text) return Object::real(value);
  if (*text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (*text == "Infinity") return std::numeric_limits<double>::infinity();
  if (*text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

/// Sixteen float32 as the hexadecimal digits of their bits.
std::optional<stats::Sketch> parse_sketch(std::string_view text) {
  stats::Sketch sketch;
  constexpr size_t kDigits = 8;
  if (text.size() != kDigits * sketch.size()) return std::nullopt;
  for (size_t i = 0; i < sketch.size(); ++i) {
    const char* begin = text.data() + i * kDigits;
    uint32_t bits = 0;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, bits, 16);
    if (error != std::errc{} || end != begin + kDigits) return std::nullopt;
    sketch[i] = std::bit_cast<float>(bits);
    if (!std::isfinite(sketch[i])) return std::nullopt;
  }
  return sketch;
}

template <typename Object>
Status take_sketch(const Object& stats, std::optional<stats::Sketch>* out) {
  std::string_view text;
  ASSAY_TRY_STATUS(take_text(stats, key::kSketch, &text));
  if (stats.find(key::kSketch) == nullptr) return {};
  *out = parse_sketch(text);
  if (!*out) return fail(wrong(key::kSketch, "128 hexadecimal digits of sixteen finite numbers"));
  return {};
}

template <typename Object>
Status take_stats(const Object& object, RecordStats* out) {
  const auto* value = object.find(key::kStats);
  if (value == nullptr) return {};
  const std::optional<Object> inner = Object::inner(*value);
  if (!inner) return fail(wrong(key::kStats, "an object"));
  stats::TensorStats stats;
  ASSAY_TRY_STATUS(take_integer(*inner, key::kCount, 0, &stats.count));
  ASSAY_TRY_STATUS(take_integer(*inner, key::kNan, 0, &stats.nan_count));
  ASSAY_TRY_STATUS(take_integer(*inner, key::kPositiveInf, 0, &stats.positive_inf_count));
  ASSAY_TRY_STATUS(take_integer(*inner, key::kNegativeInf, 0, &stats.negative_inf_count));
  const struct {
    std::string_view key;
    double* target;
  } numbers[] = {{key::kMin, &stats.min},
                 {key::kMax, &stats.max},
                 {key::kMean, &stats.mean},
                 {key::kL2, &stats.l2_norm}};
  for (const auto& [key, target] : numbers) {
    const auto* item = inner->find(key);
    if (item == nullptr) continue;
    const std::optional<double> number = real_number<Object>(*item);
    if (!number) return fail(wrong(key, "a number"));
    *target = *number;
  }
  ASSAY_TRY_STATUS(take_sketch(*inner, &stats.sketch));
  *out = stats;
  return {};
}

/// `file`, `offset` and `bytes`, of a line or of its `view`.
template <typename Object>
Status take_location(const Object& object, TensorRecord* record) {
  std::string file;
  ASSAY_TRY_STATUS(take_text(object, key::kFile, &file));
  if (file.empty()) return {};
  int64_t offset = 0;
  int64_t size = 0;
  ASSAY_TRY_STATUS(take_integer(object, key::kOffset, 0, &offset));
  ASSAY_TRY_STATUS(take_integer(object, key::kBytes, 0, &size));
  // The name is joined to the rank folder and must not lead out of it.
  if (file.find('/') != std::string::npos || file.find('\0') != std::string::npos || file == "." ||
      file == "..") {
    record->problem = "the record names '" + file + "', which is no file of its folder";
    return {};
  }
  ByteLocation location;
  location.file = std::move(file);
  location.offset = static_cast<uint64_t>(offset);
  location.size_bytes = static_cast<uint64_t>(size);
  location.raw = true;
  record->bytes = std::move(location);
  return {};
}

/// A place in the bytes of another record, where the elements lie as `strides` say.
template <typename Object>
Status take_view(const Object& object, RecordsLine* line) {
  TensorRecord& record = line->record;
  const auto* value = object.find(key::kView);
  if (value == nullptr) return {};
  const std::optional<Object> inner = Object::inner(*value);
  if (!inner) return fail(wrong(key::kView, "an object"));
  int64_t of = -1;
  ASSAY_TRY_STATUS(take_integer(*inner, key::kViewOf, 0, &of));
  if (of < 0) return fail(wrong(key::kViewOf, "a number of a record"));
  line->same_as = of;
  line->is_view = true;
  if (record.bytes) {
    record.problem = "the record is a view and has bytes of its own";
    record.bytes.reset();
    return {};
  }
  ASSAY_TRY_STATUS(take_location(*inner, &record));
  if (!record.bytes && record.problem.empty()) record.problem = "the record is a view of no file";
  return {};
}

/// Once shape and strides are known. In C order it is a payload as any other.
void settle_view(TensorRecord* record) {
  if (!record->memory_format.empty() || !record->shape || !record->strides) {
    record->problem = "the record is a view and has blocks, or no strides";
    record->bytes.reset();
  } else if (*record->strides != contiguous_strides(*record->shape)) {
    record->memory_format = kStrided;
  }
}

/// Bytes from the first element to the last, of elements of whole bytes; nothing where some of them
/// have to overlap, since there are more of them than places.
std::optional<uint64_t> spanned_bytes(const TensorRecord& record) {
  const Dims& shape = *record.shape;
  const Dims& strides = *record.strides;
  const int64_t count = element_count(shape).value_or(0);
  if (shape.size() != strides.size() || count <= 0 || info(*record.dtype).element_bits % 8 != 0)
    return std::nullopt;
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t reach = 0;
    if (strides[i] < 0 || mul_overflows(shape[i] - 1, strides[i], &reach) ||
        add_overflows(last, reach, &last))
      return std::nullopt;
  }
  if (last < count - 1) return std::nullopt;
  return storage_bytes(*record.dtype, static_cast<uint64_t>(last) + 1);
}

std::optional<uint64_t> payload_bytes(const TensorRecord& record) {
  if (is_strided(record)) return spanned_bytes(record);
  if (const auto blocks = block_type_from_name(record.memory_format))
    return blocked_bytes(*blocks, *record.shape);
  const int64_t count = element_count(*record.shape).value_or(0);
  return storage_bytes(*record.dtype, static_cast<uint64_t>(count));
}

/// Shape, dtype and size must agree before anything is computed from them.
void check_consistency(TensorRecord* record) {
  std::string problem;
  if (record->bytes && !record->dtype) {
    problem = "the record says where the bytes are but not their dtype";
  } else if (record->bytes && !record->shape) {
    problem = "the record says where the bytes are but not their shape";
  } else if (record->shape && !element_count(*record->shape)) {
    problem = "the record has the impossible shape " + list_text(record->shape->span());
  } else if (record->bytes) {
    const std::optional<uint64_t> needed = payload_bytes(*record);
    if (!needed || *needed != record->bytes->size_bytes) {
      const std::string type(record->memory_format.empty()
                                 ? name(*record->dtype)
                                 : std::string_view(record->memory_format));
      problem = "the record says " + std::to_string(record->bytes->size_bytes) + " bytes, " + type +
                list_text(record->shape->span()) + " has " +
                (needed ? std::to_string(*needed) : std::string("none or too many"));
    }
  }
  if (problem.empty()) return;
  record->problem = problem;
  record->bytes.reset();
}

/// The element type; of block types, "q8_0", the type of the values that they are decoded to.
template <typename Object>
Status take_dtype(const Object& object, TensorRecord* record) {
  std::string dtype;
  ASSAY_TRY_STATUS(take_text(object, key::kDtype, &dtype));
  if (dtype.empty()) return {};
  record->dtype = dtype_from_name(dtype);
  if (record->dtype) return {};
  const std::optional<BlockType> blocks = block_type_from_name(dtype);
  if (!blocks) {
    record->problem = "unknown dtype '" + dtype + "'";
    return {};
  }
  record->dtype = DType::Float32;
  record->memory_format = dtype;
  int64_t values = info(*blocks).block_values;
  int64_t bytes = info(*blocks).block_bytes;
  ASSAY_TRY_STATUS(take_integer(object, key::kBlock, 1, &values));
  ASSAY_TRY_STATUS(take_integer(object, key::kBlockBytes, 1, &bytes));
  if (values != info(*blocks).block_values || bytes != info(*blocks).block_bytes) {
    record->problem = "a block of " + dtype + " has " + std::to_string(values) + " values in " +
                      std::to_string(bytes) + " bytes in this run, " +
                      std::to_string(info(*blocks).block_values) + " in " +
                      std::to_string(info(*blocks).block_bytes) + " are known";
  }
  return {};
}

/// Sizes as some engines have them, fastest first: they must be the reverse of the shape.
template <typename Object>
Status check_ne(const Object& object, TensorRecord* record) {
  InternedDims ne;
  ASSAY_TRY_STATUS(take_dims(object, key::kSizes, &ne));
  if (!ne || !record->shape || !record->problem.empty()) return {};
  const Dims& shape = *record->shape;
  bool is_same = true;
  for (size_t i = 0; i < std::max(ne->size(), shape.size()); ++i) {
    const int64_t size = i < shape.size() ? shape[shape.size() - 1 - i] : 1;
    is_same = is_same && size == (i < ne->size() ? (*ne)[i] : 1);
  }
  if (!is_same) {
    record->problem = "the record has the shape " + list_text(shape.span()) +
                      ", which is not the reverse of its ne " + list_text(ne->span());
  }
  return {};
}

/// When an ATB tensor was taken, and in which order its values lie.
template <typename Object>
Status take_atb_keys(const Object& object, TensorRecord* record) {
  std::string_view moment;
  ASSAY_TRY_STATUS(take_text(object, key::kMoment, &moment));
  if (moment.empty()) return {};
  if (moment != "before" && moment != "after")
    return fail(wrong(key::kMoment, "'before' or 'after'"));
  record->moment = moment == "before" ? Moment::Before : Moment::After;
  int64_t format = formats::kAtbFormatNd;
  ASSAY_TRY_STATUS(take_integer(object, key::kFormat, 0, &format));
  record->memory_format = atb_memory_format(format);
  return {};
}

/// Which value the tensor is: keys of the operator level.
template <typename Object>
Status take_value_ids(const Object& object, TensorRecord* record) {
  ASSAY_TRY_STATUS(take_integer(object, key::kValueId, 0, &record->value_id));
  ASSAY_TRY_STATUS(take_integer(object, key::kStorage, 0, &record->storage_id));
  ASSAY_TRY_STATUS(take_integer(object, key::kStorageOffset, 0, &record->storage_offset));
  ASSAY_TRY_STATUS(take_integer(object, key::kVersion, 0, &record->storage_version));
  ASSAY_TRY_STATUS(take_integer(object, key::kFrom, 0, &record->producer));
  return take_text(object, key::kLeaf, &record->leaf);
}

template <typename Object>
Status take_names(const Object& object, std::string_view key, std::vector<std::string>* out) {
  const auto* value = object.find(key);
  if (value == nullptr) return {};
  std::optional<std::vector<std::string>> texts = Object::texts(*value);
  if (!texts) return fail(wrong(key, "a list of strings"));
  *out = *std::move(texts);
  return {};
}

/// Index behind the string that begins with the quote at `begin`. `text` is well-formed.
size_t end_of_string(std::string_view text, size_t begin) {
  size_t i = begin + 1;
  while (text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return i + 1;
}

/// The text of a top-level key's object, as it stands in the line: a parsed object forgets the
/// order of its keys, which is the schema's. The last one wins, as it does with the parser. `line`
/// is a well-formed JSON object.
std::string_view object_text(std::string_view line, std::string_view key) {
  std::string_view found;
  std::string_view last_string;
  size_t depth = 0;
  size_t begin = std::string_view::npos;  // of the object that is being passed
  for (size_t i = 0; i < line.size();) {
    if (line[i] == '"') {
      const size_t end = end_of_string(line, i);
      if (depth == 1) last_string = line.substr(i + 1, end - i - 2);
      i = end;
      continue;
    }
    if (line[i] == '{' || line[i] == '[') {
      if (++depth == 2 && line[i] == '{' && last_string == key) begin = i;
    } else if (line[i] == '}' || line[i] == ']') {
      if (--depth == 1 && begin != std::string_view::npos) {
        found = line.substr(begin, i + 1 - begin);
        begin = std::string_view::npos;
      }
    }
    ++i;
  }
  return found;
}

std::string AnyObject::object_text(const json& value, std::string_view line,
                                   std::string_view name) {
  std::string text(run::object_text(line, name));
  // A key written with escapes is found by the parser only.
  if (text.empty()) text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text;
}

template <typename Object>
Result<OperationRecord> take_operation(const Object& object, std::string_view line,
                                       const TensorRecord& place) {
  OperationRecord operation;
  operation.step_name = place.step_name;
  operation.step = place.step;
  operation.node = place.node;
  operation.op_type = place.op_type;
  operation.module_call = place.call;
  ASSAY_TRY_STATUS(take_text(object, key::kModule, &operation.module));
  ASSAY_TRY_STATUS(take_names(object, key::kWrites, &operation.writes));
  if (const auto* args = object.find(key::kArguments); args != nullptr) {
    if (!Object::is_object(*args)) return fail(wrong(key::kArguments, "an object"));
    operation.parameters = Object::object_text(*args, line, key::kArguments);
  }
  return operation;
}

/// The number of another line.
template <typename Object>
Status take_reference(const Object& object, std::string_view key, std::optional<int64_t>* out) {
  if (object.find(key) == nullptr) return {};
  int64_t number = 0;
  ASSAY_TRY_STATUS(take_integer(object, key, 0, &number));
  *out = number;
  return {};
}

template <typename Object>
Status take_digest(const Object& object, TensorRecord* record) {
  std::string_view digest;
  ASSAY_TRY_STATUS(take_text(object, key::kDigest, &digest));
  if (digest.empty()) return {};
  record->digest = stats::parse_digest(digest);
  if (!record->digest) return fail(wrong(key::kDigest, "32 hexadecimal digits"));
  return {};
}

/// Takes what differs from step to step; everything else comes from the earlier line.
template <typename Object>
Status take_like(const Object& object, RecordsLine* line) {
  TensorRecord& record = line->record;
  ASSAY_TRY_STATUS(take_reference(object, key::kLike, &line->like));
  ASSAY_TRY_STATUS(take_text(object, key::kRun, &line->run_id));
  ASSAY_TRY_STATUS(take_text(object, key::kDevice, &line->device));
  ASSAY_TRY_STATUS(take_reference(object, key::kSameAs, &line->same_as));
  ASSAY_TRY_STATUS(take_value_ids(object, &record));
  ASSAY_TRY_STATUS(take_stats(object, &record.stats));
  ASSAY_TRY_STATUS(take_digest(object, &record));
  ASSAY_TRY_STATUS(take_location(object, &record));
  return record.problem.empty() ? take_view(object, line) : Status{};
}

template <typename Object>
Result<RecordsLine> read_line(const Object& object, std::string_view line) {
  RecordsLine result;
  TensorRecord& record = result.record;
  int64_t order = 0;
  int64_t call = 0;
  ASSAY_TRY_STATUS(take_integer(object, key::kNumber, 0, &result.number));
  ASSAY_TRY_STATUS(take_integer(object, key::kStep, -1, &record.step));
  ASSAY_TRY_STATUS(take_integer(object, key::kOrder, 0, &order));
  ASSAY_TRY_STATUS(take_integer(object, key::kCall, 0, &call));
  if (call > UINT32_MAX) return fail(wrong(key::kCall, "below 2^32"));
  record.order = static_cast<uint64_t>(order);
  record.call = static_cast<uint32_t>(call);
  record.step_name = record.step < 0 ? "weights" : std::to_string(record.step);
  if (object.find(key::kLike) != nullptr) {
    ASSAY_TRY_STATUS(take_like(object, &result));
    return result;
  }
  ASSAY_TRY_STATUS(take_text(object, key::kNode, &record.node));
  ASSAY_TRY_STATUS(take_text(object, key::kType, &record.op_type));
  ASSAY_TRY_STATUS(take_text(object, key::kSlot, &record.slot));
  ASSAY_TRY_STATUS(take_text(object, key::kRun, &result.run_id));
  ASSAY_TRY_STATUS(take_text(object, key::kDevice, &result.device));

  std::string_view role = "output";
  ASSAY_TRY_STATUS(take_text(object, key::kRole, &role));
  const auto known_role = native::from_name<Role>(kRoleNames, role);
  if (!known_role) return fail(Errc::Invalid, "unknown role '" + std::string(role) + "'");
  record.role = *known_role;

  ASSAY_TRY_STATUS(take_reference(object, key::kSameAs, &result.same_as));
  std::string_view kind = "tensor";
  ASSAY_TRY_STATUS(take_text(object, key::kKind, &kind));
  const auto known_kind = native::from_name<native::RecordKind>(native::kRecordKindNames, kind);
  if (!known_kind) return fail(Errc::Invalid, "unknown kind '" + std::string(kind) + "'");
  if (*known_kind == native::RecordKind::Value) {
    const auto* value = object.find_even_null(key::kValue);
    const std::optional<std::string> text = value == nullptr ? "None" : Object::plain_text(*value);
    if (!text) return fail(wrong(key::kValue, "plain"));
    record.value = *text;
    return result;
  }
  if (*known_kind == native::RecordKind::Operator) {
    ASSAY_TRY(result.operation, take_operation(object, line, record));
    return result;
  }

  ASSAY_TRY_STATUS(take_dtype(object, &record));
  ASSAY_TRY_STATUS(take_dims(object, key::kShape, &record.shape));
  ASSAY_TRY_STATUS(check_ne(object, &record));
  ASSAY_TRY_STATUS(take_dims(object, key::kStrides, &record.strides));
  ASSAY_TRY_STATUS(take_atb_keys(object, &record));
  ASSAY_TRY_STATUS(take_value_ids(object, &record));
  ASSAY_TRY_STATUS(take_stats(object, &record.stats));
  ASSAY_TRY_STATUS(take_digest(object, &record));
  if (*known_kind == native::RecordKind::Skipped) {
    std::string reason = "no reason given";
    ASSAY_TRY_STATUS(take_text(object, key::kReason, &reason));
    record.problem = "not captured: " + reason;
    record.not_captured = true;
    return result;
  }
  result.is_tensor = true;
  if (record.problem.empty()) {
    ASSAY_TRY_STATUS(take_location(object, &record));
    if (record.problem.empty()) ASSAY_TRY_STATUS(take_view(object, &result));
    if (record.problem.empty() && result.is_view) settle_view(&record);
    if (record.problem.empty()) check_consistency(&record);
  }
  return result;
}

}  // namespace

Status complete_line(const TensorRecord& earlier, RecordsLine* line) {
  if (earlier.not_captured || !earlier.value.empty() || !has_plain_values(earlier))
    return fail(Errc::Invalid, "is like a line that is no tensor");
  TensorRecord& record = line->record;
  line->is_tensor = true;
  record.role = earlier.role;
  record.node = earlier.node;
  record.op_type = earlier.op_type;
  record.slot = earlier.slot;
  record.call = earlier.call;
  record.moment = earlier.moment;
  record.dtype = earlier.dtype;
  record.shape = earlier.shape;
  record.strides = earlier.strides;
  if (record.leaf.empty()) record.leaf = earlier.leaf;
  if (record.problem.empty() && line->is_view) settle_view(&record);
  if (record.problem.empty()) check_consistency(&record);
  return {};
}

void complete_line(const OperationRecord& earlier, RecordsLine* line) {
  OperationRecord operation = earlier;
  operation.step_name = line->record.step_name;
  operation.step = line->record.step;
  line->operation = std::move(operation);
}

Result<RecordsLine> parse_records_line(std::string_view line) {
  if (line.size() > kMaxRecordLineBytes)
    return fail(Errc::TooLarge, "a record line is longer than 1 MiB", 0);
  if (const std::optional<formats::PlainObject> plain = formats::PlainObject::parse(line)) {
    // A line that is refused is read once more as any JSON, which says what is wrong with it.
    if (Result<RecordsLine> read = read_line(PlainLine{*plain}, line)) return read;
  }
  return parse_any_records_line(line);
}

Result<RecordsLine> parse_any_records_line(std::string_view line) {
  if (formats::json_nesting(line) > formats::kMaxJsonNesting)
    return fail(Errc::TooLarge, "JSON is nested deeper than 64", 0);
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded() || !object.is_object())
    return fail(Errc::Invalid, "the line is no JSON object", 0);
  return read_line(AnyObject{object}, line);
}

}  // namespace assay::run

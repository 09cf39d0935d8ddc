// SPDX-License-Identifier: Apache-2.0
// | u64 n | header: n bytes of JSON | data |
//
//   header   {"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ...}    from the data's start
//
// No byte of the data belongs to no tensor or to two.
#include "formats/safetensors.hpp"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "base/text.hpp"

namespace assay::formats {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kAlignment = 64;
constexpr std::string_view kMetadataKey = "__metadata__";

// ---- the header's JSON --------------------------------------------------------------------------

struct ParsedTensor {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<Dims> shape;
  std::optional<Dims> offsets;
};

/// A SAX handler for exactly the header's grammar; anything else ends the parse with a message.
///   depth 1: {"name": tensor, "__metadata__": {"key": "value"}}
///   depth 2: {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}
/// Nesting beyond these two depths is refused at once, so a hostile header cannot fill the parser's
/// stack.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<ParsedTensor> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string message;
  uint64_t error_position = 0;

  bool start_object(std::size_t) override {
    ++depth_;
    if (depth_ > 2 || list_ != nullptr) return wrong("an object where none belongs");
    if (depth_ == 2) {
      in_metadata_ = top_key_ == kMetadataKey;
      fields_.clear();
      if (!in_metadata_) {
        tensors.emplace_back();
        tensors.back().name = top_key_;
      }
    }
    return true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1 && !in_metadata_) {
      const ParsedTensor& tensor = tensors.back();
      if (!tensor.dtype || !tensor.shape || !tensor.offsets) {
        return wrong("tensor '" + tensor.name + "' lacks dtype, shape or data_offsets");
      }
    }
    return true;
  }
  bool key(string_t& text) override {
    if (depth_ == 1) {
      if (!top_names_.insert(text).second) return wrong("the name '" + text + "' stands twice");
      top_key_ = text;
    } else {
      if (!fields_.insert(text).second)
        return wrong("the key '" + text + "' stands twice in '" + top_key_ + "'");
      field_ = text;
    }
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || list_ != nullptr) return wrong("a list where none belongs");
    ParsedTensor& tensor = tensors.back();
    if (field_ == "shape") {
      list_ = &tensor.shape.emplace();
    } else if (field_ == "data_offsets") {
      list_ = &tensor.offsets.emplace();
    } else {
      return wrong("unknown key '" + field_ + "'");
    }
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr) return wrong("a number where none belongs");
    if (value > static_cast<uint64_t>(INT64_MAX)) return wrong("a number beyond 2^63");
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ != 2 || list_ != nullptr) return wrong("text where none belongs");
    if (in_metadata_) {
      metadata.emplace_back(field_, text);
    } else if (field_ == "dtype") {
      tensors.back().dtype = text;
    } else {
      return wrong("unknown key '" + field_ + "'");
    }
    return true;
  }
  bool null() override { return wrong("null where none belongs"); }
  bool boolean(bool) override { return wrong("a truth value where none belongs"); }
  bool number_integer(number_integer_t) override { return wrong("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return wrong("a fraction"); }
  bool binary(binary_t&) override { return wrong("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_position = position;
    return wrong("the header is not valid JSON");
  }

 private:
  bool wrong(std::string what) {
    if (message.empty()) message = std::move(what);
    return false;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  Dims* list_ = nullptr;
  std::string top_key_;
  std::string field_;
  std::unordered_set<std::string> top_names_;
  std::unordered_set<std::string> fields_;
};

// ---- from header lines to views -----------------------------------------------------------------

struct ElementType {
  DType dtype;
  bool pairs;  // "F4": two values a byte, the shape counts values
};

std::optional<ElementType> element_type(std::string_view text) {
  if (text == "F4") return ElementType{DType::Float4E2M1FNx2, true};
  if (const auto dtype = dtype_from_safetensors(text)) return ElementType{*dtype, false};
  return std::nullopt;
}

Result<SafetensorsEntry> make_entry(ParsedTensor parsed, ByteSpan data, uint64_t data_offset) {
  const auto type = element_type(*parsed.dtype);
  if (!type)
    return fail(Errc::Unsupported,
                "dtype '" + *parsed.dtype + "' of tensor '" + parsed.name + "' is not supported");
  if (parsed.offsets->size() != 2)
    return fail(Errc::Invalid, "data_offsets of '" + parsed.name + "' are not two numbers");
  const auto begin = static_cast<uint64_t>((*parsed.offsets)[0]);
  const auto end = static_cast<uint64_t>((*parsed.offsets)[1]);
  if (begin > end) return fail(Errc::Invalid, "tensor '" + parsed.name + "' ends before it begins");
  if (end > data.size()) {
    return fail(Errc::Truncated,
                "tensor '" + parsed.name + "' ends at " + std::to_string(end) + " of " +
                    std::to_string(data.size()) + " bytes of data",
                data_offset + data.size());
  }
  Dims shape = *parsed.shape;
  if (type->pairs) {
    if (shape.empty() || shape[shape.size() - 1] % 2 != 0) {
      return fail(Errc::Invalid, "tensor '" + parsed.name + "' of F4 has an odd last size");
    }
    shape[shape.size() - 1] /= 2;
  }
  const auto count = element_count(shape);
  const auto size =
      count ? storage_bytes(type->dtype, static_cast<uint64_t>(*count)) : std::nullopt;
  if (size != end - begin) {
    return fail(Errc::Invalid,
                "tensor '" + parsed.name + "' of shape " + list_text(shape.span()) +
                    " does not have " + std::to_string(end - begin) + " bytes",
                data_offset + begin);
  }
  SafetensorsEntry entry;
  entry.name = std::move(parsed.name);
  entry.file_offset = data_offset + begin;
  ASSAY_TRY(entry.view, make_view(type->dtype, shape, data.subspan(begin, end - begin)));
  return entry;
}

// The tensors must cover the data without a hole, so that nothing can hide between them.
Status check_coverage(const std::vector<SafetensorsEntry>& entries, uint64_t data_offset,
                      uint64_t file_size) {
  uint64_t at = data_offset;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.file_offset != at) {
      return fail(Errc::Invalid,
                  "tensor '" + entry.name + "' " +
                      (entry.file_offset < at ? "overlaps the one before it" : "follows a hole"),
                  entry.file_offset);
    }
    at += entry.view.storage.size();
  }
  if (at != file_size) return fail(Errc::Invalid, "bytes behind the last tensor", at);
  return {};
}

}  // namespace

const SafetensorsEntry* Safetensors::find(std::string_view wanted) const {
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name == wanted) return &entry;
  }
  return nullptr;
}

Result<Safetensors> read_safetensors(ByteSpan file) {
  ByteReader reader(file);
  ASSAY_TRY(const auto header_size, reader.read<uint64_t>());
  if (header_size > kMaxSafetensorsHeaderBytes) {
    return fail(Errc::TooLarge,
                "a header of " + std::to_string(header_size) + " bytes: not a safetensors file", 0);
  }
  if (header_size == 0) {
    return fail(Errc::BadMagic,
                "an empty header: not a safetensors file, or its writer was stopped before the end",
                0);
  }
  ASSAY_TRY(const ByteSpan header, reader.read_bytes(header_size));
  if (as_text(header)[0] != '{') {
    return fail(Errc::BadMagic, "the header does not begin with '{': not a safetensors file",
                kLengthBytes);
  }
  HeaderHandler handler;
  const char* text = as_text(header).data();
  if (!nlohmann::json::sax_parse(text, text + header.size(), &handler)) {
    return fail(Errc::Invalid, handler.message, kLengthBytes + handler.error_position);
  }
  const uint64_t data_offset = reader.offset();
  const ByteSpan data = file.subspan(data_offset);
  Safetensors result;
  result.metadata = std::move(handler.metadata);
  result.entries.reserve(handler.tensors.size());
  for (ParsedTensor& parsed : handler.tensors) {
    ASSAY_TRY(SafetensorsEntry entry, make_entry(std::move(parsed), data, data_offset));
    result.entries.push_back(std::move(entry));
  }
  // Empty tensors share their offset with the next one and come first.
  std::sort(result.entries.begin(), result.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tuple(a.file_offset, a.view.storage.size(), std::string_view(a.name)) <
                     std::tuple(b.file_offset, b.view.storage.size(), std::string_view(b.name));
            });
  ASSAY_TRY_STATUS(check_coverage(result.entries, data_offset, file.size()));
  return result;
}

Result<Safetensors> read_safetensors_file(const MappedFile& file) {
  auto result = in_file(file.path(), read_safetensors(file.bytes()));
  if (result) result->owner = std::make_shared<const MappedFile>(file);
  return result;
}

Result<std::string> safetensors_header(
    const std::vector<SafetensorsHeaderEntry>& entries,
    const std::vector<std::pair<std::string, std::string>>& metadata, uint64_t reserved_bytes) {
  if (reserved_bytes != 0 && reserved_bytes < 16)
    return fail(Errc::Usage, "a header region of less than 16 bytes");
  std::string json = "{";
  if (!metadata.empty()) {
    json += json_quote(kMetadataKey) + ":{";
    for (size_t i = 0; i < metadata.size(); ++i) {
      json += (i == 0 ? "" : ",") + json_quote(metadata[i].first) + ":" +
              json_quote(metadata[i].second);
    }
    json += "}";
  }
  for (const SafetensorsHeaderEntry& entry : entries) {
    const bool pairs = entry.dtype == DType::Float4E2M1FNx2 && !entry.shape.empty();
    const std::string_view dtype = pairs ? "F4" : info(entry.dtype).safetensors;
    if (dtype.empty())
      return fail(Errc::Unsupported,
                  "safetensors has no name for " + std::string(name(entry.dtype)));
    Dims shape = entry.shape;
    if (pairs && mul_overflows(shape[shape.size() - 1], int64_t{2}, &shape[shape.size() - 1])) {
      return fail(Errc::TooLarge, "shape " + list_text(shape.span()) + " is too large");
    }
    json += json.size() > 1 ? "," : "";
    json += json_quote(entry.name) + ":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[";
    for (size_t i = 0; i < shape.size(); ++i)
      json += (i == 0 ? "" : ",") + std::to_string(shape[i]);
    json += "],\"data_offsets\":[" + std::to_string(entry.begin) + "," + std::to_string(entry.end) +
            "]}";
  }
  json += "}";
  const uint64_t region =
      reserved_bytes != 0 ? reserved_bytes : align_up(kLengthBytes + json.size(), kAlignment);
  if (kLengthBytes + json.size() > region || region - kLengthBytes > kMaxSafetensorsHeaderBytes) {
    return fail(Errc::TooLarge, "a header of " + std::to_string(json.size()) +
                                    " bytes does not fit into a region of " +
                                    std::to_string(region));
  }
  std::string out;
  out.reserve(region);
  append(out, region - kLengthBytes);
  out += json;
  out.resize(region, ' ');
  return out;
}

Result<std::string> write_safetensors(
    const std::vector<std::pair<std::string, TensorView>>& tensors,
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::vector<SafetensorsHeaderEntry> entries;
  uint64_t at = 0;
  for (const auto& [tensor_name, view] : tensors) {
    if (!view.is_contiguous() || view.conjugate || view.negative) {
      return fail(Errc::Usage,
                  "only contiguous tensors without lazy bits can be written: gather '" +
                      tensor_name + "' first");
    }
    const uint64_t size = view.contiguous_bytes().size();
    entries.push_back({tensor_name, view.dtype, view.shape, at, at + size});
    at += size;
  }
  ASSAY_TRY(std::string out, safetensors_header(entries, metadata));
  for (const auto& tensor : tensors) out += as_text(tensor.second.contiguous_bytes());
  return out;
}

}  // namespace assay::formats

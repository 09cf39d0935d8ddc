// SPDX-License-Identifier: Apache-2.0
// Nesting is counted before the parser sees a text: it goes one call deeper for each { and [.
#include "formats/json_fields.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

namespace assay::formats {
namespace {

/// The items of a list; none when it is no list.
std::span<const nlohmann::json> items_of(const nlohmann::json& object, std::string_view name) {
  const nlohmann::json* list = member(object, name);
  if (list == nullptr || !list->is_array()) return {};
  return list->get_ref<const nlohmann::json::array_t&>();
}

}  // namespace

size_t json_nesting(std::string_view text) {
  size_t depth = 0;
  size_t deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\0') break;  // no JSON goes on behind it; a hole in a file can have any size
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

Result<nlohmann::json> parse_json_object(std::string_view text) {
  if (json_nesting(text) > kMaxJsonNesting)
    return fail(Errc::TooLarge, "JSON is nested deeper than 64", 0);
  nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return fail(Errc::Invalid, "is no JSON object, or was cut off", 0);
  return object;
}

const nlohmann::json* member(const nlohmann::json& value, std::string_view name) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(name);
  return found == value.end() || found->is_null() ? nullptr : &*found;
}

std::string text_of(const nlohmann::json& object, std::string_view name) {
  const nlohmann::json* value = member(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

uint64_t count_of(const nlohmann::json& object, std::string_view name) {
  const nlohmann::json* value = member(object, name);
  return value != nullptr && value->is_number_unsigned() ? value->get<uint64_t>() : 0;
}

std::vector<const nlohmann::json*> objects_of(const nlohmann::json& object, std::string_view name) {
  std::vector<const nlohmann::json*> objects;
  for (const nlohmann::json& item : items_of(object, name)) {
    if (item.is_object()) objects.push_back(&item);
  }
  return objects;
}

std::vector<std::string> texts_of(const nlohmann::json& object, std::string_view name) {
  std::vector<std::string> texts;
  for (const nlohmann::json& item : items_of(object, name)) {
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::string plain_text(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void flatten(const nlohmann::json& value, const std::string& name,
             std::map<std::string, std::string>* out) {
  if (!value.is_object()) {
    (*out)[name] = plain_text(value);
    return;
  }
  for (const auto& [part, item] : value.items()) flatten(item, name + "." + part, out);
}

}  // namespace assay::formats

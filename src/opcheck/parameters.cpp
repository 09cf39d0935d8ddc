// SPDX-License-Identifier: Apache-2.0
// A JSON document that keeps the order of its keys and is shared by copies. Paths are split at '.',
// spellings at '|', lists of known paths at blanks.
#include "opcheck/parameters.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace assay::opcheck {

using Json = nlohmann::ordered_json;

struct Parameters::Document {
  Json root = Json::object();
};

namespace {

constexpr size_t kMaxDepth = 64;

/// Calls use(part) for the parts of text between separators.
template <typename Use>
void for_each_part(std::string_view text, char separator, Use use) {
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (end != 0) use(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

const Json* find_one(const Json& root, std::string_view path) {
  const Json* at = &root;
  for_each_part(path, '.', [&](std::string_view key) {
    if (at == nullptr) return;
    const auto found = at->is_object() ? at->find(std::string(key)) : at->end();
    at = at->is_object() && found != at->end() ? &*found : nullptr;
  });
  return at;
}

/// The first of several spellings that is there and not null.
const Json* find(const Json& root, std::string_view spellings) {
  const Json* result = nullptr;
  for_each_part(spellings, '|', [&](std::string_view path) {
    if (result != nullptr) return;
    const Json* found = find_one(root, path);
    if (found != nullptr && !found->is_null()) result = found;
  });
  return result;
}

std::string text_of(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

tl::unexpected<Error> wrong(std::string_view path, const Json& value, std::string_view what) {
  std::string text = text_of(value);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return fail(Errc::Invalid, "parameter " + std::string(path.substr(0, path.find('|'))) + " is " +
                                 text + ", not " + std::string(what));
}

Result<int64_t> as_integer(std::string_view path, const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(number);
    return wrong(path, value, "a 64-bit integer");
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_boolean()) return static_cast<int64_t>(value.get<bool>());
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (number == std::trunc(number) && std::fabs(number) < 9e15)
      return static_cast<int64_t>(number);
  }
  return wrong(path, value, "an integer");
}

Result<double> as_number(std::string_view path, const Json& value) {
  if (value.is_number()) return value.get<double>();
  return wrong(path, value, "a number");
}

void append_python(const Json& value, std::string* out) {
  if (value.is_object()) {
    *out += '{';
    bool first = true;
    for (const auto& [key, member] : value.items()) {
      if (!first) *out += ", ";
      first = false;
      *out += text_of(Json(key)) + ": ";
      append_python(member, out);
    }
    *out += '}';
  } else if (value.is_array()) {
    *out += '[';
    for (size_t i = 0; i < value.size(); ++i) {
      if (i != 0) *out += ", ";
      append_python(value[i], out);
    }
    *out += ']';
  } else if (value.is_number_float()) {
    *out += python_repr(value.get<double>());
  } else {
    // As Python does by default: everything beyond ASCII as \uXXXX.
    *out += value.dump(-1, ' ', true, Json::error_handler_t::replace);
  }
}

bool is_known(std::string_view path, std::string_view known) {
  bool found = false;
  for_each_part(known, ' ', [&](std::string_view spellings) {
    for_each_part(spellings, '|', [&](std::string_view one) {
      found |= path == one || (path.starts_with(one) && path[one.size()] == '.');
    });
  });
  return found;
}

/// Some known path lies below this one.
bool leads_to_known(std::string_view path, std::string_view known) {
  const std::string prefix = std::string(path) + ".";
  bool found = false;
  for_each_part(known, ' ', [&](std::string_view spellings) {
    for_each_part(spellings, '|', [&](std::string_view one) { found |= one.starts_with(prefix); });
  });
  return found;
}

void collect_unknown(const Json& object, const std::string& prefix, std::string_view known,
                     std::vector<std::string>* out) {
  for (const auto& [key, value] : object.items()) {
    const std::string path = prefix + key;
    if (is_known(path, known)) continue;
    if (leads_to_known(path, known)) {
      if (value.is_object()) collect_unknown(value, path + ".", known, out);
      continue;
    }
    out->push_back(path);
  }
}

}  // namespace

Parameters::Parameters() : document_(std::make_shared<Document>()) {}

Result<Parameters> Parameters::parse(std::string_view json) {
  // The parser builds its tree without recursion, but destroying the tree recurses.
  size_t depth = 0;
  for (const char c : json) {
    if (c == '{' || c == '[') ++depth;
    if (depth > kMaxDepth) {
      size_t open = 0;
      bool quoted = false;
      for (size_t i = 0; i < json.size(); ++i) {
        if (quoted && json[i] == '\\') {
          ++i;
        } else if (json[i] == '"') {
          quoted = !quoted;
        } else if (!quoted && (json[i] == '{' || json[i] == '[')) {
          if (++open > kMaxDepth)
            return fail(Errc::Invalid, "the parameters are nested deeper than 64", i);
        } else if (!quoted && (json[i] == '}' || json[i] == ']') && open > 0) {
          --open;
        }
      }
      break;
    }
  }
  auto document = std::make_shared<Document>();
  try {
    document->root = Json::parse(json);
  } catch (const Json::parse_error& error) {
    return fail(Errc::Invalid, "the parameters are no JSON",
                error.byte == 0 ? 0 : static_cast<uint64_t>(error.byte - 1));
  } catch (const Json::exception&) {  // a number that no double holds
    return fail(Errc::Invalid, "the parameters are no JSON");
  }
  if (document->root.is_null() ||
      (document->root.is_string() && document->root.get<std::string>().empty()))
    document->root = Json::object();
  if (!document->root.is_object())
    return fail(Errc::Invalid, "the parameters are " + std::string(document->root.type_name()) +
                                   ", not an object");
  Parameters result;
  result.document_ = std::move(document);
  return result;
}

bool Parameters::empty() const { return document_->root.empty(); }
bool Parameters::has(std::string_view path) const { return find(document_->root, path) != nullptr; }

Result<int64_t> Parameters::integer(std::string_view path, int64_t otherwise) const {
  const Json* value = find(document_->root, path);
  return value == nullptr ? Result<int64_t>(otherwise) : as_integer(path, *value);
}

Result<double> Parameters::number(std::string_view path, double otherwise) const {
  const Json* value = find(document_->root, path);
  return value == nullptr ? Result<double>(otherwise) : as_number(path, *value);
}

Result<bool> Parameters::boolean(std::string_view path, bool otherwise) const {
  const Json* value = find(document_->root, path);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  if (value->is_number_integer()) return *value != 0;
  return wrong(path, *value, "true or false");
}

Result<std::string> Parameters::text(std::string_view path, std::string_view otherwise) const {
  const Json* value = find(document_->root, path);
  if (value == nullptr) return std::string(otherwise);
  if (value->is_string()) return value->get<std::string>();
  return wrong(path, *value, "a text");
}

Result<std::vector<int64_t>> Parameters::integers(std::string_view path) const {
  std::vector<int64_t> result;
  const Json* value = find(document_->root, path);
  if (value == nullptr) return result;
  if (!value->is_array()) {
    ASSAY_TRY(const int64_t only, as_integer(path, *value));
    return std::vector<int64_t>{only};
  }
  for (const Json& element : *value) {
    ASSAY_TRY(const int64_t number, as_integer(path, element));
    result.push_back(number);
  }
  return result;
}

Result<std::vector<double>> Parameters::numbers(std::string_view path) const {
  std::vector<double> result;
  const Json* value = find(document_->root, path);
  if (value == nullptr) return result;
  if (!value->is_array()) {
    ASSAY_TRY(const double only, as_number(path, *value));
    return std::vector<double>{only};
  }
  for (const Json& element : *value) {
    ASSAY_TRY(const double number, as_number(path, element));
    result.push_back(number);
  }
  return result;
}

Parameters Parameters::with(std::string_view key, bool value) const {
  auto document = std::make_shared<Document>(*document_);
  document->root[std::string(key)] = value;
  Parameters result;
  result.document_ = std::move(document);
  return result;
}

std::vector<std::string> Parameters::unknown(std::string_view known) const {
  std::vector<std::string> result;
  collect_unknown(document_->root, "", known, &result);
  return result;
}

std::string Parameters::python_text() const {
  std::string text;
  append_python(document_->root, &text);
  return text;
}

}  // namespace assay::opcheck

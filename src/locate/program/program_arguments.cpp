// SPDX-License-Identifier: Apache-2.0
// Reads the JSON of an operator's arguments: {"tensor": slot} names an input, and other objects of
// one key ("dtype", "device", "float") say what JSON has no type for.
//   docs/formats/native.md, "Operator level"
#include "locate/program/program_arguments.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "formats/json_fields.hpp"

namespace assay::locate {
namespace {

using nlohmann::json;
using reference::aten::Argument;
using reference::aten::ArgumentList;
using reference::aten::DTypeArgument;
using reference::aten::HostArgument;

/// {"tensor": slot}
const std::string* tensor_slot(const json& value) {
  if (!value.is_object() || value.size() != 1 || value.begin().key() != "tensor") return nullptr;
  return value.begin()->is_string() ? value.begin()->get_ptr<const std::string*>() : nullptr;
}

/// An object of one key, which says what JSON has no type for.
std::optional<Argument> tagged_argument(const json& object, std::string* problem) {
  if (object.size() != 1) {
    *problem = "is no argument that a capture writes";
    return std::nullopt;
  }
  const std::string& tag = object.begin().key();
  const json& value = *object.begin();
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (tag == "dtype") return Argument{DTypeArgument{dtype_from_name(text), text}};
  if (tag == "device" || tag == "layout" || tag == "memory_format" || tag == "generator")
    return Argument{HostArgument{tag, text}};
  if (tag == "other" && text.find("Generator") != std::string::npos)
    return Argument{HostArgument{"generator", text}};
  if (tag == "float") {
    if (text == "inf") return Argument{std::numeric_limits<double>::infinity()};
    if (text == "-inf") return Argument{-std::numeric_limits<double>::infinity()};
    if (text == "nan") return Argument{std::numeric_limits<double>::quiet_NaN()};
  }
  *problem = tag == "other" ? "is a " + text : "is a " + tag + " number " + text;
  return std::nullopt;
}

std::optional<Argument> read_argument(const json& value, std::string* problem) {
  switch (value.type()) {
    case json::value_t::null:
      return Argument{};
    case json::value_t::boolean:
      return Argument{value.get<bool>()};
    case json::value_t::number_integer:
      return Argument{value.get<int64_t>()};
    case json::value_t::number_unsigned:
      if (value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        *problem = "is an integer beyond 64 bits";
        return std::nullopt;
      }
      return Argument{value.get<int64_t>()};
    case json::value_t::number_float:
      return Argument{value.get<double>()};
    case json::value_t::string:
      return Argument{value.get<std::string>()};
    case json::value_t::array: {
      ArgumentList list;
      for (const json& item : value) {
        std::optional<Argument> element = read_argument(item, problem);
        if (!element) return std::nullopt;
        list.push_back(*std::move(element));
      }
      return Argument{std::move(list)};
    }
    case json::value_t::object:
      return tagged_argument(value, problem);
    default:
      *problem = "is no JSON value";
      return std::nullopt;
  }
}

/// Inputs are found by the slots that the arguments imply, so an argument that names another is not
/// understood.
void add_slot(const std::string& slot, const std::string& expected, Operator* one,
              std::vector<std::string>* slots) {
  if (slot != expected)
    one->problem = "argument '" + expected + "' names the tensor '" + slot + "'";
  slots->push_back(slot);
}

void read_list_of_tensors(const std::string& name, const json& list, Operator* one,
                          std::vector<std::string>* slots) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].is_null()) continue;
    const std::string* slot = tensor_slot(list[i]);
    if (slot == nullptr) {
      one->problem = "argument '" + name + "' mixes tensors with other values";
      return;
    }
    add_slot(*slot, name + '.' + std::to_string(i), one, slots);
  }
  one->list_sizes.emplace(name, list.size());
}

bool holds_tensors(const json& value) {
  return value.is_array() && std::any_of(value.begin(), value.end(), [](const json& item) {
           return tensor_slot(item) != nullptr;
         });
}

}  // namespace

std::vector<std::string> read_arguments(std::string_view text, Operator* one) {
  std::vector<std::string> slots;
  if (text.empty()) return slots;
  if (formats::json_nesting(text) > formats::kMaxJsonNesting) {
    one->problem = "arguments are nested too deeply";
    return slots;
  }
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    one->problem = "arguments are no JSON object";
    return slots;
  }
  for (const auto& [name, value] : object.items()) {
    if (const std::string* slot = tensor_slot(value); slot != nullptr) {
      add_slot(*slot, name, one, &slots);
    } else if (holds_tensors(value)) {
      read_list_of_tensors(name, value, one, &slots);
    } else {
      std::string problem;
      std::optional<Argument> argument = read_argument(value, &problem);
      if (argument) {
        one->attributes.emplace(name, *std::move(argument));
      } else {
        one->problem = "argument '" + name + "' " + problem;
      }
    }
  }
  return slots;
}

std::string argument_text(const Argument& argument) {
  struct Text {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(bool value) const { return value ? "True" : "False"; }
    std::string operator()(int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return python_repr(value); }
    std::string operator()(const std::string& value) const { return "'" + value + "'"; }
    std::string operator()(const DTypeArgument& value) const { return value.name; }
    std::string operator()(const HostArgument& value) const { return value.text; }
    std::string operator()(const Tensor& value) const {
      return std::string(name(value.view.dtype)) + list_text(value.view.shape.span());
    }
    std::string operator()(const ArgumentList& list) const {
      std::string text = "[";
      for (const Argument& item : list) {
        if (text.size() > 1) text += ", ";
        text += argument_text(item);
      }
      return text + "]";
    }
  };
  return std::visit(Text{}, argument.value);
}

}  // namespace assay::locate

// SPDX-License-Identifier: Apache-2.0
// Names are taken apart from the front, file names field by field between underscores. A field that
// fits no rule means that the name is not one of the dump's.
#include "run/torch_names.hpp"

#include <string_view>

#include "base/ascii.hpp"
#include "base/numbers.hpp"

namespace assay::run {
namespace {

bool take_prefix(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::optional<TorchFileName> parse_torch_file_name(std::string_view name) {
  if (name.ends_with(".pth")) {
    name.remove_suffix(4);
  } else if (name.ends_with(".pt")) {
    name.remove_suffix(3);
  } else {
    return std::nullopt;
  }
  TorchFileName result;
  if (take_prefix("kwargs_", &name)) {
    if (name.empty()) return std::nullopt;
    result.role = Role::Input;
    result.slot = "kwargs." + std::string(name);
    return result;
  }
  if (take_prefix("input", &name)) {
    result.role = Role::Input;
  } else if (!take_prefix("output", &name)) {
    return std::nullopt;
  }
  while (!name.empty()) {
    if (!take_prefix("_", &name)) return std::nullopt;
    const std::string_view field = name.substr(0, name.find('_'));
    name.remove_prefix(field.size());
    if (field.starts_with("exec") && is_digits(field.substr(4)) && result.slot.empty() &&
        !result.execution) {
      result.execution = parse_number<uint64_t>(field.substr(4));
      if (!result.execution) return std::nullopt;
    } else if (is_digits(field)) {
      if (!result.slot.empty()) result.slot += '.';
      result.slot += field;
    } else {
      return std::nullopt;
    }
  }
  return result;
}

std::optional<DeviceFolderName> parse_device_folder(std::string_view name) {
  const size_t first = name.find('_');
  const size_t last = name.rfind('_');
  if (first == std::string_view::npos || first == 0 || last + 1 == name.size()) return std::nullopt;
  if (is_digits(name.substr(last + 1))) {
    return DeviceFolderName{std::string(name.substr(0, last)), std::string(name.substr(last + 1))};
  }
  if (is_digits(name.substr(0, first))) {
    return DeviceFolderName{std::string(name.substr(first + 1)),
                            std::string(name.substr(0, first))};
  }
  return std::nullopt;
}

bool is_dump_root_name(std::string_view name) {
  return (take_prefix("msit_dump", &name) || take_prefix("ait_dump", &name)) &&
         (name.empty() || name[0] == '_');
}

bool is_module_name(std::string_view name) { return name == "root" || name.starts_with("root."); }

std::optional<Dims> parse_shape_text(std::string_view text) {
  char close = ')';
  if (take_prefix("torch.Size([", &text)) {
    if (!text.ends_with("])")) return std::nullopt;
    text.remove_suffix(1);
    close = ']';
  } else if (!take_prefix("(", &text)) {
    return std::nullopt;
  }
  if (!text.ends_with(close)) return std::nullopt;
  text.remove_suffix(1);
  Dims dims;
  while (!text.empty()) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    const std::string_view field = text.substr(0, text.find(','));
    const std::optional<int64_t> size = parse_number<int64_t>(field);
    if (!size || *size < 0 || dims.size() >= 1024) return std::nullopt;
    dims.push_back(*size);
    text.remove_prefix(std::min(text.size(), field.size() + 1));
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return dims;
}

}  // namespace assay::run

// SPDX-License-Identifier: Apache-2.0
#include "run/atb_names.hpp"

#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::run {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<AtbProcessName> parse_atb_process_folder(std::string_view name) {
  const size_t underscore = name.find('_');
  if (underscore == std::string_view::npos) return std::nullopt;
  const auto device = parse_number<int64_t>(name.substr(0, underscore));
  const std::string_view rest = name.substr(underscore + 1);
  const auto process = parse_number<int64_t>(rest);
  // A failed query of the device gives -1; a process never has a sign.
  if (!device || *device < -1 || !process || *process < 0) return std::nullopt;
  return AtbProcessName{*device, *process};
}

std::optional<AtbNodeName> parse_atb_node_folder(std::string_view name) {
  const size_t underscore = name.find('_');
  if (underscore == 0 || underscore == std::string_view::npos || underscore + 1 == name.size())
    return std::nullopt;
  const auto id = parse_number<uint64_t>(name.substr(0, underscore));
  if (!id) return std::nullopt;
  return AtbNodeName{*id, name.substr(underscore + 1)};
}

std::optional<AtbFileName> parse_atb_file_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".bin";
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  AtbFileName result;
  if (name.starts_with("intensor") || name.starts_with("inTensor")) {
    result.role = Role::Input;
    name.remove_prefix(8);
  } else if (name.starts_with("outtensor") || name.starts_with("outTensor")) {
    result.role = Role::Output;
    name.remove_prefix(9);
  } else {
    return std::nullopt;
  }
  size_t digits = 0;
  while (digits < name.size() && is_digit(name[digits])) ++digits;
  if (digits == 0) return std::nullopt;
  result.index = name.substr(0, digits);
  name.remove_prefix(digits);
  if (name.empty()) return result;
  if (name[0] != '_' || name.size() == 1) return std::nullopt;
  result.parameter = name.substr(1);
  return result;
}

std::string atb_ids_of_node(std::string_view node) {
  std::string ids;
  for (const std::string_view part : split(node, '/')) {
    const std::optional<AtbNodeName> name = parse_atb_node_folder(part);
    if (!name) return {};
    ids += (ids.empty() ? "" : "_") + std::to_string(name->id);
  }
  return ids;
}

std::string_view atb_parent(std::string_view node) {
  const size_t slash = node.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : node.substr(0, slash);
}

bool is_atb_kernel(std::string_view name) { return name.ends_with("Kernel"); }

std::string atb_operation_type(const TensorRecord& record) {
  if (is_atb_kernel(record.op_type)) return record.op_type;
  return record.node.substr(record.node.rfind('_') + 1);
}

std::optional<size_t> atb_operand_number(std::string_view slot) {
  for (const std::string_view mark : {".before", ".after"}) {
    if (slot.ends_with(mark)) slot.remove_suffix(mark.size());
  }
  return parse_number<size_t>(slot);
}

std::optional<int64_t> parse_atb_run_count(std::string_view name) {
  if (name.empty() || name.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  return parse_number<int64_t>(name);
}

}  // namespace assay::run

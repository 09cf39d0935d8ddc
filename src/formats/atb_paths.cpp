// SPDX-License-Identifier: Apache-2.0
// Names are taken apart from the front, paths component by component. One part that the library
// would not write means that the whole is no name of a dump.
#include "formats/atb_paths.hpp"

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "tensor/node.hpp"

namespace assay::formats {
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

std::optional<int64_t> parse_atb_run_count(std::string_view name) {
  if (name.empty() || name.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  return parse_number<int64_t>(name);
}

std::optional<AtbNodePath> parse_atb_node_path(std::string_view path) {
  const size_t process_end = path.find('/');
  if (process_end == std::string_view::npos) return std::nullopt;
  const size_t count_end = path.find('/', process_end + 1);
  if (count_end == std::string_view::npos) return std::nullopt;
  AtbNodePath parts;
  parts.process = path.substr(0, process_end);
  const std::string_view count = path.substr(process_end + 1, count_end - process_end - 1);
  parts.node = path.substr(count_end + 1);
  const auto run_count = parse_atb_run_count(count);
  // Zeros in front are refused: the parts would not give the path again.
  if (!run_count || (count.size() > 1 && count[0] == '0')) return std::nullopt;
  parts.run_count = *run_count;
  if (!parse_atb_process_folder(parts.process)) return std::nullopt;
  for (const std::string_view component : split(parts.node, '/')) {
    if (!parse_atb_node_folder(component)) return std::nullopt;
  }
  return parts;
}

std::optional<AtbTensorPath> parse_atb_tensor_path(std::string_view path) {
  const size_t file_begin = path.rfind('/');
  if (file_begin == std::string_view::npos || file_begin == 0) return std::nullopt;
  const size_t moment_begin = path.rfind('/', file_begin - 1);
  if (moment_begin == std::string_view::npos) return std::nullopt;
  const std::string_view moment = path.substr(moment_begin + 1, file_begin - moment_begin - 1);
  if (moment != "before" && moment != "after") return std::nullopt;
  const auto file = parse_atb_file_name(path.substr(file_begin + 1));
  const auto node = parse_atb_node_path(path.substr(0, moment_begin));
  if (!file || !node) return std::nullopt;
  return AtbTensorPath{node->process, node->run_count, node->node, moment == "before", *file};
}

}  // namespace assay::formats

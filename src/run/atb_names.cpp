// SPDX-License-Identifier: Apache-2.0
// A node is a path of folders, {id}_{type} each, which formats/atb_paths.hpp takes apart; from the
// parts come its ids, the node around it and the type of its operation.
#include "run/atb_names.hpp"

#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::run {

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

}  // namespace assay::run

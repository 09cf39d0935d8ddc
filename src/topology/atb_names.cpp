// SPDX-License-Identifier: Apache-2.0
// The ids are all "_<digits>" at the end of a name, so a type that ends with a number itself has to
// be told.
#include "topology/atb_names.hpp"

namespace assay::topology {
namespace {

/// Where the run of "_<digits>" at the end begins; the whole size when there is none.
size_t ids_begin(std::string_view name) {
  size_t begin = name.size();
  size_t at = name.size();
  while (at > 0) {
    const char c = name[at - 1];
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && !(c == '_' && at < begin)) break;
    --at;
    if (c == '_') begin = at;
  }
  return begin;
}

bool is_ids(std::string_view text) { return !text.empty() && ids_begin(text) == 0; }

}  // namespace

std::string ids_of(std::string_view op_name, std::string_view op_type) {
  if (!op_type.empty() && op_name.starts_with(op_type) && is_ids(op_name.substr(op_type.size())))
    return std::string(op_name.substr(op_type.size() + 1));
  const size_t begin = ids_begin(op_name);
  return begin == op_name.size() ? std::string() : std::string(op_name.substr(begin + 1));
}

std::string type_of(std::string_view op_name) {
  return std::string(op_name.substr(0, ids_begin(op_name)));
}

std::string joined_ids(std::string_view parent_ids, std::string_view child_index) {
  if (parent_ids.empty()) return {};
  return std::string(parent_ids) + "_" + std::string(child_index);
}

}  // namespace assay::topology

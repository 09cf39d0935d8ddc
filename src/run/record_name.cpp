// SPDX-License-Identifier: Apache-2.0
// The records are searched by node, then by full name, then by slot or key; a later search is made
// only when the one before it found nothing.
#include "run/record_name.hpp"

namespace assay::run {
namespace {

template <typename Test>
std::vector<size_t> indices_where(const Run& run, const Test& test) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < run.records.size(); ++i) {
    if (test(run.records[i])) indices.push_back(i);
  }
  return indices;
}

/// Whether the record is called `name`, or `name` and a slot behind it; a node's own name does not
/// count.
bool is_below(const TensorRecord& record, const std::string& name) {
  if (record.node.size() >= name.size() || !name.starts_with(record.node)) return false;
  const std::string full = record_name(record);
  return full == name || full.starts_with(name + '.');
}

}  // namespace

std::string record_name(const TensorRecord& record) {
  std::string name = record.node;
  const auto add = [&](std::string_view part) {
    if (part.empty()) return;
    if (!name.empty()) name += '.';
    name += part;
  };
  if (record.role == Role::Input || record.role == Role::Output) add(role_name(record.role));
  add(record.slot);
  return name;
}

std::vector<size_t> records_named(const Run& run, const std::string& name) {
  std::vector<size_t> found =
      indices_where(run, [&](const TensorRecord& record) { return record.node == name; });
  if (found.empty())
    found = indices_where(run, [&](const TensorRecord& record) { return is_below(record, name); });
  if (found.empty() && run.has(Trait::Files))
    found = indices_where(run, [&](const TensorRecord& record) {
      return record.slot == name || (record.bytes && record.bytes->member == name);
    });
  return found;
}

}  // namespace assay::run

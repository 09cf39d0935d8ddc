// SPDX-License-Identifier: Apache-2.0
// Lines are sorted into nodes by run count. A node is taken when its path is one of operations, and
// a tensor replaces an earlier one with the same node, slot, role and moment.
#include "run/sources/atb_lines.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "run/atb_names.hpp"

namespace assay::run::sources {
namespace {

bool is_node_path(const std::string& node) {
  const std::vector<std::string_view> parts = split(node, '/');
  return parts.size() <= size_t{kMaxAtbDepth} &&
         std::ranges::all_of(
             parts, [](std::string_view part) { return parse_atb_node_folder(part).has_value(); });
}

}  // namespace

size_t AtbLines::PlaceHash::operator()(const Place& place) const noexcept {
  const auto& [node, slot, role, moment] = place;
  const uint64_t word = (uint64_t{node} << 32 | slot) ^
                        (uint64_t{static_cast<uint8_t>(role)} << 8 | static_cast<uint8_t>(moment))
                            << 20;
  return static_cast<size_t>(word * 0x9E3779B97F4A7C15u >> 16);
}

AtbNodes* AtbLines::nodes_of(const std::string& step, const std::string& node) {
  if (!only_step_.empty() && step != only_step_) return nullptr;
  AtbNodes& nodes = steps_[step];
  const auto [known, is_new] = known_[step].nodes.insert(InternedText(node).handle());
  if (!is_new) return &nodes;
  if (!is_node_path(node)) {
    known_[step].nodes.erase(known);
    nodes.warnings.push_back("the records name " + assay::quoted(node.substr(0, 200)) +
                             ", which is no operation; it was left out");
    return nullptr;
  }
  nodes.names.push_back(node);
  return &nodes;
}

void AtbLines::add(TensorRecord record) {
  AtbNodes* nodes = nodes_of(record.step_name, record.node);
  if (nodes == nullptr) return;
  if (record.moment == Moment::Unknown && record.problem.empty())
    record.problem = "the record does not say whether it was taken before or after the operation";
  const Place place{record.node.handle(), record.slot.handle(), record.role, record.moment};
  const auto [known, is_new] =
      known_[record.step_name].records.try_emplace(place, nodes->records.size());
  if (is_new) {
    nodes->records.push_back(std::move(record));
  } else {
    nodes->records[known->second] = std::move(record);
  }
}

void AtbLines::add(OperationRecord operation) {
  AtbNodes* nodes = nodes_of(operation.step_name, operation.node);
  if (nodes == nullptr) return;
  operation.order = 0;
  nodes->operations.push_back(std::move(operation));
}

}  // namespace assay::run::sources

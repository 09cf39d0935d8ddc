// SPDX-License-Identifier: Apache-2.0
// Groups records by token and operator and puts the operands of each in the order of their slots.
#include "pair/graph_operands.hpp"

#include <algorithm>

#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::pair {
namespace {

using run::TensorRecord;

std::vector<std::pair<int64_t, std::string>> slot_order(const std::string& slot) {
  std::vector<std::pair<int64_t, std::string>> key;
  // Names of keyword arguments behind the positions.
  for (const std::string_view part : split(slot, '.'))
    key.emplace_back(parse_number<int64_t>(part).value_or(INT64_MAX), part);
  return key;
}

}  // namespace

GraphTokens group_by_token(const run::Run& run, int rank, uint32_t graph) {
  GraphTokens tokens;
  for (size_t i = 0; i < run.records.size(); ++i) {
    const TensorRecord& record = run.records[i];
    if (record.rank != rank || record.graph != graph || record.call > 0 ||
        record.kind != run::RecordKind::Operand)
      continue;
    if (!record.bytes && !record.stats) continue;
    if (record.role != Role::Input && record.role != Role::Output) continue;
    Operands& op = tokens[record.step][record.node];
    op.name = record.node;
    op.op_type = record.op_type;
    op.file = file_of(record);
    (record.role == Role::Input ? op.inputs : op.outputs).push_back(i);
  }
  for (auto& [token, operators] : tokens) {
    for (auto& [name, op] : operators) {
      for (std::vector<size_t>* list : {&op.inputs, &op.outputs}) {
        std::stable_sort(list->begin(), list->end(), [&run](size_t a, size_t b) {
          return slot_order(run.records[a].slot) < slot_order(run.records[b].slot);
        });
      }
    }
  }
  return tokens;
}

const std::string& file_of(const TensorRecord& record) {
  return record.bytes ? record.bytes->file : record.stats_file;
}

std::string operand_label(const TensorRecord& record) {
  // In a native run the tensors of a step lie in one file, and statistics in none.
  const bool is_part = record.bytes && record.bytes->raw && record.bytes->member.empty();
  const bool has_own_file = !is_part && !file_of(record).empty();
  const std::string file =
      has_own_file ? file_of(record)
                   : "graph_" + std::to_string(record.graph + 1) + "/" + record.node.str();
  if (record.slot.empty()) return file;
  return file + (record.role == Role::Input ? ",inputs," : ",outputs,") + record.slot;
}

}  // namespace assay::pair

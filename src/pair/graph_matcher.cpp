// SPDX-License-Identifier: Apache-2.0
// What graph_matcher_fx.cpp (GE against FX) and graph_matcher_ge.cpp (GE against GE) share: the
// loop over tokens, where an operator comes from, the operands of fused ones, and the counts.
#include "pair/graph_matcher.hpp"

#include <algorithm>
#include <tuple>

#include "base/numbers.hpp"
#include "formats/cann_dump.hpp"
#include "pair/literal_rules.hpp"
#include "run/container.hpp"
#include "run/load.hpp"

namespace assay::pair {

using formats::GraphOp;
using run::Run;
using run::TensorRecord;

namespace {

/// Of pairs that shapes decided, not names.
constexpr double kAlignedConfidence = 0.7;

bool is_control_or_absent(std::string_view edge) {
  return edge.empty() || formats::split_graph_edge(edge).second < 0;
}

}  // namespace

Matching GraphMatcher::match(const GraphTokens& golden, const GraphTokens& mine) {
  std::set<int64_t> golden_seen;
  for (const auto& [token, operators] : mine) {
    const std::optional<int64_t> golden_token = token_in_golden(token);
    if (!golden_token) continue;
    const auto found = golden.find(*golden_token);
    if (found == golden.end()) {
      warn("My token_id " + std::to_string(token) + " not found in golden dump data");
      count_side(Side::Mine, operators, "the step is missing in golden");
      continue;
    }
    golden_seen.insert(*golden_token);
    out_.tokens.push_back(token);
    match_token(found->second, operators);
    count_side(Side::Mine, operators, "no rule finds its counterpart");
    count_side(
        Side::Golden, found->second,
        golden_is_fx_ ? "no operator of GE refers to it" : "no operator of mine refers to it");
  }
  for (const auto& [token, operators] : golden) {
    if (!golden_seen.contains(token) && user_.token_map.empty())
      count_side(Side::Golden, operators, "the step is missing in mine");
  }
  sort();
  return std::move(out_);
}

std::optional<int64_t> GraphMatcher::token_in_golden(int64_t token) const {
  if (user_.token_map.empty()) return token;
  for (const auto& [golden, mine] : user_.token_map) {
    if (mine == token) return golden;
  }
  return std::nullopt;
}

void GraphMatcher::match_token(const Operators& golden, const Operators& mine) {
  all_names_.clear();
  for (const auto& [name, op] : mine) all_names_.insert(name);
  if (!golden_is_fx_) {
    for (const auto& [name, op] : golden) all_names_.insert(name);
  }
  if (!golden_is_fx_ && options_.literal == nullptr) {
    find_renamed(golden);
    graph_inputs_agree_ = same_graph_inputs(golden, mine);
  }
  // Position in the graph, unknown operators first.
  std::vector<const Operands*> ops;
  for (const auto& [name, op] : mine) ops.push_back(&op);
  std::stable_sort(ops.begin(), ops.end(), [this](const Operands* a, const Operands* b) {
    return graph_.position(a->name) < graph_.position(b->name);
  });
  for (const Operands* op : ops) {
    if (options_.literal != nullptr) {
      options_.literal->match_operator(*this, *op, golden);
    } else if (golden_is_fx_) {
      match_fx(*op, golden);
    } else {
      match_ge(*op, golden);
    }
  }
}

OperatorOrigin GraphMatcher::origin_of(const Operands& op) {
  std::vector<std::string> origins;
  if (graph_.find(op.name) == nullptr) {
    for (const GraphValue& value : file_origins(op)) {
      if (!value.op.empty() && std::find(origins.begin(), origins.end(), value.op) == origins.end())
        origins.push_back(value.op);
    }
  }
  return graph_.origin(op.name, origins, all_names_);
}

const std::vector<GraphValue>& GraphMatcher::file_origins(const Operands& op) {
  if (origins_of_file_.first == op.file) return origins_of_file_.second;
  origins_of_file_ = {op.file, {}};
  std::vector<GraphValue>& values = origins_of_file_.second;
  // A file that cannot be read was reported when the run was opened.
  const auto container = run::open_container(op.file);
  if (!container) return values;
  const auto dump = formats::read_cann_dump((*container)->bytes());
  if (!dump) return values;
  for (const formats::CannTensor& output : dump->outputs) {
    values.push_back(output.origin ? GraphValue{output.origin->name, output.origin->output_index}
                                   : GraphValue{});
    if (values.back().output < 0) values.back().output = static_cast<int64_t>(values.size()) - 1;
  }
  return values;
}

GraphValue GraphMatcher::value_of_output(const Operands& op, const OperatorOrigin& origin,
                                         size_t i) {
  if (const auto value = graph_.origin_of_output(op.name, i);
      value && graph_.find(value->op) != nullptr)
    return *value;
  if (origin.rule != Rule::EqualNames) {
    const std::vector<GraphValue>& values = file_origins(op);
    if (i < values.size() && graph_.find(values[i].op) != nullptr) return values[i];
  }
  return {origin.members.empty() ? "" : origin.members.back()->name, static_cast<int64_t>(i)};
}

std::vector<GraphOperand> GraphMatcher::external_operands(
    const std::vector<const GraphOp*>& members) const {
  const auto is_member = [&members](std::string_view name) {
    return std::any_of(members.begin(), members.end(),
                       [name](const GraphOp* op) { return op->name == name; });
  };
  std::vector<GraphOperand> operands;
  for (const GraphOp* op : members) {
    size_t place = 0;
    size_t data_place = 0;
    for (const std::string& edge : op->inputs) {
      if (is_control_or_absent(edge)) continue;
      const auto [name, output] = formats::split_graph_edge(edge);
      const GraphOp* producer = graph_.find(name);
      GraphOperand operand{
          op,
          place++,
          data_place,
          std::string(name),
          output,
          producer != nullptr && (producer->type == "Const" || producer->type == "Constant")};
      if (!operand.constant) ++data_place;
      if (!is_member(name)) operands.push_back(std::move(operand));
    }
  }
  return operands;
}

std::optional<std::vector<const GraphOperand*>> GraphMatcher::operands_of_inputs(
    const Operands& op, const std::vector<GraphOperand>& operands) const {
  const auto values = graph_.values_of_inputs(op.name);
  if (!values) return std::nullopt;
  std::vector<GraphValue> present;
  for (const GraphValue& value : *values) {
    if (!value.op.empty()) present.push_back(value);
  }
  const bool by_place = present.size() == op.inputs.size();
  std::vector<const GraphOperand*> found;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    // Of inputs that were left out the others keep their indices.
    const auto slot = parse_number<size_t>(mine_.records[op.inputs[i]].slot);
    const size_t place = by_place ? i : slot.value_or(SIZE_MAX);
    const std::vector<GraphValue>& list = by_place ? present : *values;
    if (place >= list.size()) return std::nullopt;
    const auto operand =
        std::find_if(operands.begin(), operands.end(), [&](const GraphOperand& candidate) {
          return candidate.producer == list[place].op &&
                 candidate.producer_output == list[place].output;
        });
    if (operand == operands.end()) return std::nullopt;
    found.push_back(&*operand);
  }
  return found;
}

OperandShape GraphMatcher::shape_of(const Run& run, size_t index) {
  const TensorRecord& record = run.records[index];
  if (&run == &mine_ || (record.dtype && record.shape)) return {record.dtype, record.shape};
  const auto [at, is_new] = golden_shapes_.try_emplace(index);
  if (is_new) {
    TensorRecord copy = record;
    if (const Status read = run::load_header(copy)) {
      at->second = {{copy.dtype, copy.shape}, false};
    } else {
      // Objects and texts: an argument that never was a tensor. What is damaged may be one.
      at->second.no_tensor = read.error().code == Errc::Unsupported;
    }
  }
  return at->second.shape;
}

bool GraphMatcher::is_scalar_argument(size_t index) {
  if (!golden_is_fx_ || golden_.records[index].role != Role::Input) return false;
  const OperandShape shape = shape_of(golden_, index);
  if (golden_shapes_[index].no_tensor) return true;
  if (!shape.dtype || !shape.shape || !shape.shape->empty()) return false;
  return *shape.dtype == DType::Float64 || *shape.dtype == DType::Int64 ||
         *shape.dtype == DType::Bool || *shape.dtype == DType::Complex128;
}

std::vector<size_t> GraphMatcher::tensor_inputs(const Operands& fx, size_t wanted) {
  const auto is_list = [this](size_t i) {
    const OperandShape shape = shape_of(golden_, i);
    return shape.dtype == DType::Int64 && shape.shape && shape.shape->size() == 1;
  };
  std::vector<size_t> inputs;
  std::vector<size_t> without_lists;
  std::vector<size_t> with_scalars;
  for (const size_t i : fx.inputs) {
    const bool scalar = is_scalar_argument(i);
    if (!scalar) inputs.push_back(i);
    if (!scalar && !is_list(i)) without_lists.push_back(i);
    if (!golden_shapes_[i].no_tensor) with_scalars.push_back(i);
  }
  for (const std::vector<size_t>* list : {&inputs, &without_lists, &with_scalars}) {
    if (list->size() != wanted) continue;
    if (list == &without_lists) {
      for (const size_t i : inputs) {
        if (is_list(i)) lists_.insert(i);
      }
    }
    return *list;
  }
  return inputs;
}

void GraphMatcher::add(size_t golden, size_t mine, Rule rule, double confidence,
                       const std::string& label) {
  RecordPair pair;
  pair.golden = golden;
  pair.mine = mine;
  pair.rule = rule;
  pair.confidence = confidence;
  pair.mine_label = operand_label(mine_.records[mine]);
  if (!golden_is_fx_) pair.golden_label = operand_label(golden_.records[golden]);
  if (!label.empty()) pair.golden_label = label;
  golden_used_[golden] = true;
  mine_used_[mine] = true;
  out_.pairs.push_back(std::move(pair));
}

void GraphMatcher::pair_inputs(const std::vector<int64_t>& golden, const std::vector<size_t>& mine,
                               Rule rule) {
  const auto fits = [&](size_t i) {
    return golden[i] < 0 || operand_similarity(shape_of(golden_, static_cast<size_t>(golden[i])),
                                               shape_of(mine_, mine[i])) > 0;
  };
  bool in_order = golden.size() == mine.size();
  for (size_t i = 0; in_order && i < golden.size(); ++i) in_order = fits(i);
  if (in_order) {
    for (size_t i = 0; i < golden.size(); ++i) {
      if (golden[i] >= 0) add(static_cast<size_t>(golden[i]), mine[i], rule);
    }
    return;
  }
  std::vector<size_t> present;
  std::vector<OperandShape> golden_shapes;
  std::vector<OperandShape> mine_shapes;
  for (const int64_t g : golden) {
    if (g < 0) continue;
    present.push_back(static_cast<size_t>(g));
    golden_shapes.push_back(shape_of(golden_, present.back()));
  }
  for (const size_t m : mine) mine_shapes.push_back(shape_of(mine_, m));
  const OperandAlignment aligned = align_operands(golden_shapes, mine_shapes);
  for (const auto& [g, m] : aligned.pairs)
    add(present[g], mine[m], Rule::AlignedByShape, kAlignedConfidence);
  constexpr const char* kAmbiguous = "ambiguous: other operands would fit as well";
  for (const size_t g : aligned.ambiguous_first) golden_why_[present[g]] = kAmbiguous;
  for (const size_t m : aligned.ambiguous_second) mine_why_[mine[m]] = kAmbiguous;
}

void GraphMatcher::pair_in_order(const std::vector<size_t>& golden, const std::vector<size_t>& mine,
                                 Rule rule) {
  for (size_t i = 0; i < std::min(golden.size(), mine.size()); ++i) add(golden[i], mine[i], rule);
}

bool GraphMatcher::changes_form_only(const Operands& op) {
  return op.op_type.find("Cast") != std::string::npos ||
         op.op_type.find("TransData") != std::string::npos;
}

void GraphMatcher::match_own_input(const Operands& op) {
  if (!changes_form_only(op)) return explain(op, "the operator is not in the graph");
  for (size_t i = 0; i < std::min(op.inputs.size(), op.outputs.size()); ++i) {
    RecordPair pair;
    pair.golden = op.inputs[i];
    pair.mine = op.outputs[i];
    pair.golden_in_mine = true;
    pair.rule = Rule::OwnInput;
    pair.golden_label = operand_label(mine_.records[op.inputs[i]]);
    pair.mine_label = operand_label(mine_.records[op.outputs[i]]);
    mine_used_[op.inputs[i]] = mine_used_[op.outputs[i]] = true;
    out_.pairs.push_back(std::move(pair));
  }
}

void GraphMatcher::explain(const Operands& op, const std::string& reason) {
  for (const auto* list : {&op.inputs, &op.outputs}) {
    for (const size_t i : *list) mine_why_.emplace(i, reason);
  }
}

void GraphMatcher::explain_inside(const Operands& fused, const Operands& member) {
  for (const auto* list : {&member.inputs, &member.outputs}) {
    for (const size_t i : *list)
      golden_why_.emplace(i,
                          "inside the fused operator " + fused.name + ", which keeps it to itself");
  }
}

void GraphMatcher::warn_missing_fx(const Operands& op, const std::string& fx) {
  warn("FX data missing, GE tensor name: " + op.name + ", FX tensor name: " + fx);
}

void GraphMatcher::count_side(Side side, const Operators& operators, const std::string& otherwise) {
  const bool is_mine = side == Side::Mine;
  for (const auto& [name, op] : operators) {
    for (const auto* list : {&op.inputs, &op.outputs}) {
      for (const size_t i : *list) {
        const bool used = (is_mine ? mine_used_ : golden_used_)[i];
        const bool has_none =
            is_mine ? skipped_.contains(i) : lists_.contains(i) || is_scalar_argument(i);
        if (!used && has_none) continue;
        ++(is_mine ? out_.mine_candidates : out_.golden_candidates);
        if (used) {
          ++(is_mine ? out_.mine_matched : out_.golden_matched);
          continue;
        }
        const auto& why = is_mine ? mine_why_ : golden_why_;
        const auto found = why.find(i);
        out_.unmatched.push_back({side, i, found == why.end() ? otherwise : found->second});
      }
    }
  }
}

void GraphMatcher::sort() {
  if (options_.literal != nullptr) {
    options_.literal->sort_graph(&out_.pairs);
  } else {
    std::stable_sort(
        out_.pairs.begin(), out_.pairs.end(), [this](const RecordPair& a, const RecordPair& b) {
          const TensorRecord& first = mine_.records[a.mine];
          const TensorRecord& second = mine_.records[b.mine];
          return std::tuple(first.step, first.order) < std::tuple(second.step, second.order);
        });
  }
  std::stable_sort(out_.unmatched.begin(), out_.unmatched.end(),
                   [](const UnmatchedRecord& a, const UnmatchedRecord& b) {
                     return std::pair(a.side, a.record) < std::pair(b.side, b.record);
                   });
}

}  // namespace assay::pair

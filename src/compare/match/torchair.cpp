// SPDX-License-Identifier: Apache-2.0
// An operator of GE's dump is traced back to the graph before fusion (match/ge_graph.hpp), and from
// there to the FX node that its attributes name, or to the operators of an unfused dump. Rules:
// docs/formats/ge-tree.md
#include "compare/match/torchair.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "compare/match/align_operands.hpp"
#include "compare/match/ge_graph.hpp"
#include "formats/cann_dump.hpp"
#include "run/container.hpp"

namespace assay::compare {
namespace {

using formats::GraphOp;
using run::Role;
using run::Run;
using run::TensorRecord;

constexpr std::string_view kFusedOpType = "AutomaticBufferFusionOp";
/// Of pairs that shapes decided, not names.
constexpr double kAlignedConfidence = 0.7;

// ---- records of one operator ---------------------------------------------------------------------

/// The records of one operator or FX node in one token.
struct Operands {
  std::string name;
  std::string op_type;
  std::string file;
  std::vector<size_t> inputs;  // in the order of their slots
  std::vector<size_t> outputs;
  bool damaged = false;  // the file could not be read: its one record stands for its outputs
};

/// By name; in natural order of file names, which is the order the original met them in.
using Operators = std::map<std::string, Operands, std::less<>>;
using Tokens = std::map<int64_t, Operators>;

std::vector<std::pair<int64_t, std::string>> slot_order(const std::string& slot) {
  std::vector<std::pair<int64_t, std::string>> key;
  for (const std::string_view part : split(slot, '.'))
    key.emplace_back(parse_number<int64_t>(part).value_or(-1), part);
  return key;
}

Tokens group_by_token(const Run& run, int rank, uint32_t graph) {
  Tokens tokens;
  for (size_t i = 0; i < run.records.size(); ++i) {
    const TensorRecord& record = run.records[i];
    if (record.rank != rank || record.graph != graph || record.call > 0 || !record.bytes) continue;
    if (record.role != Role::Input && record.role != Role::Output) continue;
    Operands& op = tokens[record.step][record.node];
    op.name = record.node;
    op.op_type = record.op_type;
    op.file = record.bytes->file;
    op.damaged = op.damaged || (run.layout == "ge-tree" && record.slot.empty());
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

/// "file,inputs,0": how the original names an operand of a dump file.
std::string operand_label(const TensorRecord& record) {
  const std::string& file = record.bytes->file;
  if (record.slot.empty()) return file;
  return file + (record.role == Role::Input ? ",inputs," : ",outputs,") + record.slot;
}

bool is_control_or_absent(std::string_view edge) {
  return edge.empty() || formats::split_graph_edge(edge).second < 0;
}

/// An operand of an operator of the graph before fusion.
struct GraphOperand {
  const GraphOp* op = nullptr;
  size_t place = 0;       // among the operands that have data
  size_t data_place = 0;  // the same without constants
  std::string producer;
  int64_t producer_output = 0;
  bool constant = false;
};

// ---- one graph of one rank -----------------------------------------------------------------------

class GraphMatcher {
 public:
  /// graph         the graph before the passes, with what is known of mine's fusion
  /// golden_graph  what is known of golden's fusion
  GraphMatcher(const Run& golden, const Run& mine, const MatchOptions& options,
               const GeGraph& graph, const GeGraph& golden_graph)
      : golden_(golden),
        mine_(mine),
        options_(options),
        graph_(graph),
        golden_graph_(golden_graph),
        golden_is_fx_(golden.layout == "fx-tree"),
        golden_used_(golden.records.size(), false),
        mine_used_(mine.records.size(), false) {}

  Matching match(const Tokens& golden, const Tokens& mine) {
    std::set<int64_t> golden_seen;
    for (const auto& [token, operators] : mine) {
      const std::optional<int64_t> golden_token = token_in_golden(token);
      if (!golden_token) continue;
      const auto found = golden.find(*golden_token);
      if (found == golden.end()) {
        warn("My token_id " + std::to_string(token) + " not found in golden dump data");
        count_side(Side::Mine, operators, "the token is missing in golden");
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
      if (!golden_seen.contains(token) && options_.token_map.empty())
        count_side(Side::Golden, operators, "the token is missing in mine");
    }
    sort();
    return std::move(out_);
  }

 private:
  /// Nothing: the user's map leaves the token out.
  std::optional<int64_t> token_in_golden(int64_t token) const {
    if (options_.token_map.empty()) return token;
    for (const auto& [golden, mine] : options_.token_map) {
      if (mine == token) return golden;
    }
    return std::nullopt;
  }

  void match_token(const Operators& golden, const Operators& mine) {
    mine_names_.clear();
    for (const auto& [name, op] : mine) mine_names_.insert(name);
    all_names_ = mine_names_;
    if (!golden_is_fx_) {
      for (const auto& [name, op] : golden) all_names_.insert(name);
    }
    if (!golden_is_fx_ && !options_.msit) find_renamed(golden);
    // Position in the graph, unknown operators first.
    std::vector<const Operands*> ops;
    for (const auto& [name, op] : mine) ops.push_back(&op);
    std::stable_sort(ops.begin(), ops.end(), [this](const Operands* a, const Operands* b) {
      return graph_.position(a->name) < graph_.position(b->name);
    });
    for (const Operands* op : ops) {
      if (golden_is_fx_) {
        options_.msit ? match_fx_msit(*op, golden) : match_fx(*op, golden);
      } else {
        options_.msit ? match_ge_msit(*op, golden) : match_ge(*op, golden);
      }
    }
  }

  // ---- shared ----

  OperatorOrigin origin_of(const Operands& op) const {
    if (options_.msit) return graph_.decompose(op.name, all_names_);
    std::vector<std::string> origins;
    if (graph_.find(op.name) == nullptr) {
      for (const GraphValue& value : file_origins(op)) {
        if (!value.op.empty() &&
            std::find(origins.begin(), origins.end(), value.op) == origins.end())
          origins.push_back(value.op);
      }
    }
    return graph_.origin(op.name, origins, all_names_);
  }

  /// What the dump file itself says about its outputs; an empty name where it says nothing.
  static std::vector<GraphValue> file_origins(const Operands& op) {
    std::vector<GraphValue> values;
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

  /// The value before fusion that output `i` is.
  GraphValue value_of_output(const Operands& op, const OperatorOrigin& origin, size_t i) const {
    if (const auto value = graph_.origin_of_output(op.name, i);
        value && graph_.find(value->op) != nullptr)
      return *value;
    if (origin.members.size() != 1) {
      const std::vector<GraphValue> values = file_origins(op);
      if (i < values.size() && graph_.find(values[i].op) != nullptr) return values[i];
    }
    return {origin.members.empty() ? "" : origin.members.back()->name, static_cast<int64_t>(i)};
  }

  /// The operands that a fused operator takes from outside, in the order of its members.
  std::vector<GraphOperand> external_operands(const std::vector<const GraphOp*>& members) const {
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

  OperandShape shape_of(const Run& run, size_t index) {
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

  /// Arguments of an FX node that are tensors: numbers, lists of them and None have files, too.
  bool is_scalar_argument(size_t index) {
    if (!golden_is_fx_ || golden_.records[index].role != Role::Input) return false;
    const OperandShape shape = shape_of(golden_, index);
    if (golden_shapes_[index].no_tensor) return true;
    if (!shape.dtype || !shape.shape || !shape.shape->empty()) return false;
    return *shape.dtype == DType::Float64 || *shape.dtype == DType::Int64 ||
           *shape.dtype == DType::Bool || *shape.dtype == DType::Complex128;
  }

  std::vector<size_t> tensor_inputs(const Operands& fx) {
    std::vector<size_t> inputs;
    for (const size_t i : fx.inputs) {
      if (!is_scalar_argument(i)) inputs.push_back(i);
    }
    return inputs;
  }

  void add(size_t golden, size_t mine, std::string_view reason, double confidence = 1) {
    RecordPair pair;
    pair.golden = golden;
    pair.mine = mine;
    pair.reason = reason;
    pair.confidence = confidence;
    pair.mine_label = operand_label(mine_.records[mine]);
    if (!golden_is_fx_) pair.golden_label = operand_label(golden_.records[golden]);
    golden_used_[golden] = true;
    mine_used_[mine] = true;
    out_.pairs.push_back(std::move(pair));
  }

  /// Pairs lists in order when each fits its counterpart, otherwise by what their shapes say.
  /// golden   -1 for an operand whose record is missing
  void pair_inputs(const std::vector<int64_t>& golden, const std::vector<size_t>& mine,
                   std::string_view reason) {
    const auto fits = [&](size_t i) {
      return golden[i] < 0 || operand_similarity(shape_of(golden_, static_cast<size_t>(golden[i])),
                                                 shape_of(mine_, mine[i])) > 0;
    };
    bool in_order = golden.size() == mine.size();
    for (size_t i = 0; in_order && i < golden.size(); ++i) in_order = fits(i);
    if (in_order) {
      for (size_t i = 0; i < golden.size(); ++i) {
        if (golden[i] >= 0) add(static_cast<size_t>(golden[i]), mine[i], reason);
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
      add(present[g], mine[m], "aligned by shape", kAlignedConfidence);
    constexpr const char* kAmbiguous = "ambiguous: other operands would fit as well";
    for (const size_t g : aligned.ambiguous_first) golden_why_[present[g]] = kAmbiguous;
    for (const size_t m : aligned.ambiguous_second) mine_why_[mine[m]] = kAmbiguous;
  }

  void pair_in_order(const std::vector<size_t>& golden, const std::vector<size_t>& mine,
                     std::string_view reason) {
    for (size_t i = 0; i < std::min(golden.size(), mine.size()); ++i)
      add(golden[i], mine[i], reason);
  }

  /// An operator that nobody knows but that may only change layout or precision.
  void match_own_input(const Operands& op) {
    if (op.op_type.find("Cast") == std::string::npos &&
        op.op_type.find("TransData") == std::string::npos) {
      if (!options_.msit) explain(op, "the operator is not in the graph");
      return;
    }
    for (size_t i = 0; i < std::min(op.inputs.size(), op.outputs.size()); ++i) {
      RecordPair pair;
      pair.golden = op.inputs[i];
      pair.mine = op.outputs[i];
      pair.golden_in_mine = true;
      pair.reason = "own input";
      pair.golden_label = operand_label(mine_.records[op.inputs[i]]);
      pair.mine_label = operand_label(mine_.records[op.outputs[i]]);
      mine_used_[op.inputs[i]] = mine_used_[op.outputs[i]] = true;
      out_.pairs.push_back(std::move(pair));
    }
  }

  void explain(const Operands& op, const std::string& reason) {
    for (const auto* list : {&op.inputs, &op.outputs}) {
      for (const size_t i : *list) mine_why_.emplace(i, reason);
    }
  }

  void warn(std::string text) { out_.warnings.push_back(std::move(text)); }
  void warn_missing_fx(const Operands& op, const std::string& fx) {
    warn("FX data missing, GE tensor name: " + op.name + ", FX tensor name: " + fx);
  }

  // ---- GE against FX ----

  void match_fx(const Operands& op, const Operators& fx) {
    const OperatorOrigin origin = origin_of(op);
    // Only a part of the name is known: what the rest did to the tensors is not.
    if (origin.members.empty() || !origin.rest.empty()) return match_own_input(op);
    std::set<std::string> missing;
    const auto node_of = [&](const FxValue& value) -> const Operands* {
      const auto found = fx.find(value.node);
      if (found != fx.end()) return &found->second;
      if (missing.insert(value.node).second) warn_missing_fx(op, value.node);
      return nullptr;
    };
    for (size_t i = 0; i < op.outputs.size(); ++i) match_fx_output(op, origin, i, node_of);
    match_fx_inputs(op, origin, node_of);
  }

  template <typename NodeOf>
  void match_fx_output(const Operands& op, const OperatorOrigin& origin, size_t i, NodeOf node_of) {
    const GraphValue value = value_of_output(op, origin, i);
    const GraphOp* maker = graph_.find(value.op);
    const auto fx_value = maker == nullptr || value.output < 0
                              ? std::nullopt
                              : fx_value_of(*maker, static_cast<size_t>(value.output));
    if (!fx_value) {
      mine_why_[op.outputs[i]] = "the graph names no FX value for it";
      return;
    }
    const Operands* node = node_of(*fx_value);
    if (node == nullptr) {
      mine_why_[op.outputs[i]] = "FX data missing: " + fx_value->node;
      return;
    }
    const std::string slot = std::to_string(fx_value->output);
    const auto record = std::find_if(node->outputs.begin(), node->outputs.end(), [&](size_t index) {
      return golden_.records[index].slot == slot;
    });
    if (record == node->outputs.end()) {
      mine_why_[op.outputs[i]] = "the FX node has no output " + slot;
    } else {
      add(*record, op.outputs[i], origin.members.size() == 1 ? "fx tensor name" : origin.rule);
    }
  }

  /// The FX node that an operator of the graph was made from: that of its first output with data.
  template <typename NodeOf>
  static const Operands* fx_node_of(const GraphOp& op, NodeOf node_of) {
    for (size_t i = 0; i < op.output_desc.size(); ++i) {
      const auto value = fx_value_of(op, i);
      if (!value) continue;
      if (const Operands* node = node_of(*value)) return node;
    }
    return nullptr;
  }

  template <typename NodeOf>
  void match_fx_inputs(const Operands& op, const OperatorOrigin& origin, NodeOf node_of) {
    const std::vector<GraphOperand> operands = external_operands(origin.members);
    // For each member the tensors that its FX node took; nothing where the counts contradict.
    std::map<const GraphOp*, std::vector<size_t>> tensors;
    const std::vector<size_t>* first_tensors = nullptr;
    bool counts_agree = true;
    for (const GraphOp* member : origin.members) {
      const Operands* node = fx_node_of(*member, node_of);
      if (node == nullptr) {
        counts_agree = false;
        continue;
      }
      std::vector<size_t>& list = tensors[member] = tensor_inputs(*node);
      if (first_tensors == nullptr) first_tensors = &list;
      size_t wanted = 0;
      for (const GraphOperand& operand : external_operands({member})) wanted += !operand.constant;
      counts_agree = counts_agree && wanted == list.size();
    }
    if (first_tensors == nullptr) return;
    size_t constants = 0;
    for (const GraphOperand& operand : operands) constants += operand.constant;
    const bool with_constants = op.inputs.size() == operands.size();
    if (counts_agree && (with_constants || op.inputs.size() + constants == operands.size())) {
      std::vector<int64_t> golden;
      std::vector<size_t> mine;
      size_t at = 0;
      for (const GraphOperand& operand : operands) {
        if (operand.constant) {
          if (with_constants) skipped_.insert(op.inputs[at++]);
          continue;
        }
        golden.push_back(static_cast<int64_t>(tensors[operand.op][operand.data_place]));
        mine.push_back(op.inputs[at++]);
      }
      return pair_inputs(golden, mine, origin.members.size() == 1 ? "fx tensor name" : origin.rule);
    }
    align_by_shape(*first_tensors, op.inputs);
  }

  void align_by_shape(const std::vector<size_t>& golden, const std::vector<size_t>& mine) {
    std::vector<int64_t> list(golden.begin(), golden.end());
    // One list longer than the other makes pair_inputs() look at shapes.
    if (list.size() == mine.size()) list.push_back(-1);
    pair_inputs(list, mine, "aligned by shape");
  }

  // ---- GE fused against unfused ----

  void match_ge(const Operands& op, const Operators& golden) {
    const OperatorOrigin origin = origin_of(op);
    const auto same = golden.find(op.name);
    // A name that golden has is better than the same name taken apart.
    const bool use_same = same != golden.end() && op.op_type != kFusedOpType &&
                          (origin.members.empty() || origin.rule == "equal names" ||
                           origin.rule == "name decomposition");
    if (use_same) {
      const std::vector<size_t>& inputs = same->second.inputs;
      pair_inputs({inputs.begin(), inputs.end()}, op.inputs, "equal names");
      pair_in_order(same->second.outputs, op.outputs, "equal names");
      return;
    }
    const bool is_fused = !origin.members.empty() &&
                          (origin.rule != "equal names" || golden_makes(op, origin, golden));
    if (is_fused && origin.rest.empty()) {
      match_fused_inputs(op, origin, golden);
      match_fused_outputs(op, origin, golden);
      return;
    }
    warn(is_fused || op.op_type == kFusedOpType
             ? "Failed parsing fused op name: " + (is_fused ? origin.rest : op.name) +
                   ". Compare manually if required."
             : "Golden data missing, My tensor name: " + op.name);
    explain(op, is_fused ? "its name cannot be taken apart" : "the operator is not in golden");
  }

  void match_fused_inputs(const Operands& op, const OperatorOrigin& origin,
                          const Operators& golden) {
    for (const GraphOp* member : origin.members) {
      if (!golden.contains(member->name)) warn("No dump data for op: " + member->name + ".");
    }
    std::vector<int64_t> records;
    for (const GraphOperand& operand : external_operands(origin.members))
      records.push_back(golden_operand(operand, golden));
    pair_inputs(records, op.inputs, origin.rule);
  }

  /// The input of a member, or what its producer made where the member has no file; -1: neither.
  int64_t golden_operand(const GraphOperand& operand, const Operators& golden) const {
    if (const auto member = golden.find(operand.op->name); member != golden.end()) {
      const std::vector<size_t>& inputs = member->second.inputs;
      return operand.place < inputs.size() ? static_cast<int64_t>(inputs[operand.place]) : -1;
    }
    const Result<size_t> made = golden_output({operand.producer, operand.producer_output}, golden);
    return made ? static_cast<int64_t>(*made) : -1;
  }

  /// Operators of golden that are not in the graph, by the values before fusion that they make: the
  /// unfused side, too, may be compiled and have names of its own.
  void find_renamed(const Operators& golden) {
    renamed_.clear();
    for (const auto& [name, op] : golden) {
      if (graph_.find(name) != nullptr) continue;
      const std::vector<GraphValue> values = file_origins(op);
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        GraphValue value = i < values.size() ? values[i] : GraphValue{};
        if (const auto known = golden_graph_.origin_of_output(name, i)) value = *known;
        if (!value.op.empty()) renamed_.try_emplace({value.op, value.output}, op.outputs[i]);
      }
    }
  }

  /// The record of golden that holds a value of the graph, or why there is none.
  Result<size_t> golden_output(const GraphValue& value, const Operators& golden) const {
    const auto maker = golden.find(value.op);
    if (maker == golden.end()) {
      const auto other = renamed_.find({value.op, value.output});
      if (other != renamed_.end()) return other->second;
      return fail(Errc::NotFound, "No dump data for op: " + value.op);
    }
    const std::vector<size_t>& outputs = maker->second.outputs;
    if (value.output < 0 || static_cast<size_t>(value.output) >= outputs.size())
      return fail(Errc::NotFound, "the unfused operator has no such output: " + value.op);
    return outputs[static_cast<size_t>(value.output)];
  }

  bool golden_makes(const Operands& op, const OperatorOrigin& origin,
                    const Operators& golden) const {
    return !op.outputs.empty() && golden_output(value_of_output(op, origin, 0), golden).has_value();
  }

  void match_fused_outputs(const Operands& op, const OperatorOrigin& origin,
                           const Operators& golden) {
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const Result<size_t> record = golden_output(value_of_output(op, origin, i), golden);
      if (record) {
        add(*record, op.outputs[i], origin.rule);
      } else {
        mine_why_[op.outputs[i]] = record.error().message;
      }
    }
  }

  // ---- as the original did -----------------------------------------------------------------------

  /// Files sorted by their names: INPUT.10 before INPUT.2.
  std::vector<size_t> by_file_name(std::vector<size_t> records) const {
    std::sort(records.begin(), records.end(), [this](size_t a, size_t b) {
      return golden_.records[a].bytes->file < golden_.records[b].bytes->file;
    });
    return records;
  }

  void match_fx_msit(const Operands& op, const Operators& fx) {
    const OperatorOrigin origin = origin_of(op);
    if (origin.members.empty()) return match_own_input(op);
    const auto nodes_of = [&](const GraphOp& member) {
      std::vector<const Operands*> nodes;
      for (size_t i = 0; i < member.output_desc.size(); ++i) {
        const auto value = fx_value_of(member, i);
        if (!value) continue;
        const auto node = fx.find(value->node);
        if (node == fx.end()) {
          warn_missing_fx(op, value->node);
        } else {
          nodes.push_back(&node->second);
        }
      }
      return nodes;
    };
    if (origin.members.size() == 1) {
      const std::vector<const Operands*> nodes = nodes_of(*origin.members[0]);
      if (nodes.empty()) return;
      // Rows of earlier descriptors were overwritten by those of the last.
      pair_in_order(by_file_name(nodes.back()->inputs), op.inputs, "fx tensor name");
      pair_in_order(by_file_name(nodes.back()->outputs), op.outputs, "fx tensor name");
      return;
    }
    for (const Operands* node : nodes_of(*origin.members.front()))
      pair_in_order(by_file_name(node->inputs), op.inputs, "name decomposition");
    for (const Operands* node : nodes_of(*origin.members.back()))
      pair_in_order(by_file_name(node->outputs), op.outputs, "name decomposition");
  }

  void match_ge_msit(const Operands& op, const Operators& golden) {
    std::vector<std::pair<int64_t, std::string>> inputs;  // record, label
    const Operands* last = nullptr;
    std::string_view rule = "equal names";
    if (op.op_type.starts_with(kFusedOpType)) {
      rule = "name decomposition";
      last = gather_fused_msit(op, golden, &inputs);
    } else if (const auto same = golden.find(op.name); same != golden.end()) {
      last = &same->second;
      for (const size_t i : last->inputs) inputs.emplace_back(static_cast<int64_t>(i), last->file);
    } else {
      return warn("Golden data missing, My tensor name: " + op.name);
    }
    std::string output_label = last == nullptr ? "" : last->file;
    const size_t rows = std::min(inputs.size(), op.inputs.size());
    for (size_t i = 0; i < rows; ++i) {
      if (i == 0) output_label += ",inputs,0";
      if (inputs[i].first < 0) continue;  // the original's metrics failed here
      add(static_cast<size_t>(inputs[i].first), op.inputs[i], rule);
      out_.pairs.back().golden_label = inputs[i].second;
    }
    if (last == nullptr) return;
    for (size_t i = 0; i < std::min(last->outputs.size(), op.outputs.size()); ++i) {
      output_label += ",outputs," + std::to_string(i);
      add(last->outputs[i], op.outputs[i], rule);
      out_.pairs.back().golden_label = output_label;
    }
  }

  /// Inputs of all members that no member makes; returns the last member that has a file.
  const Operands* gather_fused_msit(const Operands& op, const Operators& golden,
                                    std::vector<std::pair<int64_t, std::string>>* inputs) {
    const OperatorOrigin origin = graph_.decompose(op.name, all_names_);
    if (!origin.rest.empty())
      warn("Failed parsing fused op name: " + origin.rest + ". Compare manually if required.");
    const Operands* last = nullptr;
    for (const GraphOp* member : origin.members) {
      const auto found = golden.find(member->name);
      const bool dumped = found != golden.end();
      if (dumped) {
        last = &found->second;
      } else {
        warn("No dump data for op: " + member->name + ".");
      }
      const size_t count =
          dumped ? std::min(member->inputs.size(), last->inputs.size()) : member->inputs.size();
      for (size_t i = 0; i < count; ++i) {
        const std::string_view producer = formats::split_graph_edge(member->inputs[i]).first;
        if (std::any_of(origin.members.begin(), origin.members.end(),
                        [&](const GraphOp* other) { return other->name == producer; }))
          continue;
        if (dumped) {
          inputs->emplace_back(static_cast<int64_t>(last->inputs[i]),
                               last->file + ",inputs," + std::to_string(i));
        } else {
          inputs->emplace_back(-1, "");
        }
      }
    }
    return last;
  }

  // ---- the end ----

  void count_side(Side side, const Operators& operators, const std::string& otherwise) {
    const bool is_mine = side == Side::Mine;
    for (const auto& [name, op] : operators) {
      for (const auto* list : {&op.inputs, &op.outputs}) {
        for (const size_t i : *list) {
          if (is_mine ? skipped_.contains(i) : is_scalar_argument(i)) continue;
          ++(is_mine ? out_.mine_candidates : out_.golden_candidates);
          if ((is_mine ? mine_used_ : golden_used_)[i]) {
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

  void sort() {
    if (options_.msit) {
      const auto key = [](const RecordPair& pair) {
        const std::string_view label = pair.mine_label;
        return label.substr(label.rfind('.') + 1);
      };
      std::stable_sort(
          out_.pairs.begin(), out_.pairs.end(),
          [&key](const RecordPair& a, const RecordPair& b) { return key(a) < key(b); });
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

  struct KnownShape {
    OperandShape shape;
    bool no_tensor = false;
  };

  const Run& golden_;
  const Run& mine_;
  const MatchOptions& options_;
  const GeGraph& graph_;
  const GeGraph& golden_graph_;
  const bool golden_is_fx_;
  Matching out_;
  std::set<std::string, std::less<>> mine_names_;
  std::set<std::string, std::less<>> all_names_;               // of operators that have files
  std::map<std::pair<std::string, int64_t>, size_t> renamed_;  // values to records of golden
  std::vector<bool> golden_used_;
  std::vector<bool> mine_used_;
  std::unordered_map<size_t, KnownShape> golden_shapes_;
  std::unordered_map<size_t, std::string> golden_why_;  // unmatched
  std::unordered_map<size_t, std::string> mine_why_;
  std::set<size_t> skipped_;  // of mine: constants, which have no counterpart to look for
};

// ---- ranks and graphs ----------------------------------------------------------------------------

std::set<int> ranks_of(const Run& run) {
  std::set<int> ranks;
  for (const TensorRecord& record : run.records) ranks.insert(record.rank);
  return ranks;
}

std::vector<uint32_t> graphs_of(const Run& run, int rank) {
  std::set<uint32_t> graphs;
  for (const TensorRecord& record : run.records) {
    if (record.rank == rank) graphs.insert(record.graph);
  }
  return {graphs.begin(), graphs.end()};
}

/// True when the dump has a folder for each rank.
bool has_rank_folders(const Run& run) {
  return std::any_of(run.graph_files.begin(), run.graph_files.end(),
                     [](const Run::GraphFile& file) { return file.rank >= 0; });
}

/// (golden, mine)
Result<std::vector<std::pair<int, int>>> common_ranks(const Run& golden, const Run& mine,
                                                      const MatchOptions& options,
                                                      std::vector<std::string>* warnings) {
  const std::set<int> golden_ranks = ranks_of(golden);
  const std::set<int> mine_ranks = ranks_of(mine);
  std::vector<std::pair<int, int>> ranks;
  for (const int rank : mine_ranks) {
    if (golden_ranks.contains(rank)) ranks.emplace_back(rank, rank);
  }
  if (!has_rank_folders(mine)) {
    if (!options.ranks.empty())
      warnings->push_back("the dump has no folders of ranks: the choice of ranks has no effect");
    // The folder of one rank can be compared by itself with a dump without such folders.
    if (ranks.empty() && golden_ranks.size() == 1 && mine_ranks.size() == 1)
      ranks.emplace_back(*golden_ranks.begin(), *mine_ranks.begin());
  } else if (!options.ranks.empty()) {
    for (const int rank : options.ranks) {
      if (!golden_ranks.contains(rank) || !mine_ranks.contains(rank))
        return fail(Errc::Usage, "rank " + std::to_string(rank) + " is not present on both sides");
    }
    std::erase_if(ranks, [&options](const auto& rank) {
      return std::find(options.ranks.begin(), options.ranks.end(), rank.second) ==
             options.ranks.end();
    });
  }
  if (ranks.empty()) return fail(Errc::Usage, "No common rank data in golden_path and my_path.");
  return ranks;
}

/// The graph of golden that belongs to one of mine: that of the same number, or, where the two sides
/// number them differently, that in the same place.
std::optional<uint32_t> golden_graph_of(const std::vector<uint32_t>& golden,
                                        const std::vector<uint32_t>& mine, size_t place) {
  if (std::find(golden.begin(), golden.end(), mine[place]) != golden.end() &&
      (golden == mine || golden.size() != mine.size()))
    return mine[place];
  if (golden.size() == mine.size()) return golden[place];
  return std::nullopt;
}

bool is_text_before_passes(const std::string& path) {
  return path.substr(path.rfind('/') + 1).starts_with("dynamo_original_");
}

/// What the texts of golden say about its fusion; nothing without them.
GeGraph read_metadata(const Run& golden, int rank, uint32_t graph,
                      std::vector<std::string>* warnings) {
  GeGraph out;
  for (const Run::GraphFile& file : golden.graph_files) {
    if ((file.rank >= 0 && file.rank != rank) || file.graph != graph ||
        is_text_before_passes(file.path))
      continue;
    if (const Status read = out.add_metadata(file.path); !read)
      warnings->push_back(read.error().describe());
  }
  return out;
}

/// The graph before the passes, or what comes next to it, with the metadata of the others.
Result<GeGraph> read_graph(const Run& mine, int rank, uint32_t graph,
                           std::vector<std::string>* warnings) {
  std::vector<const Run::GraphFile*> files;
  for (const Run::GraphFile& file : mine.graph_files) {
    if ((file.rank < 0 || file.rank == rank) && file.graph == graph) files.push_back(&file);
  }
  std::stable_partition(files.begin(), files.end(), [](const Run::GraphFile* file) {
    return is_text_before_passes(file->path);
  });
  if (files.empty()) {
    warnings->push_back("graph " + std::to_string(graph) + ": there is no text of it");
    return GeGraph();
  }
  ASSAY_TRY(GeGraph out, GeGraph::read(files[0]->path));
  for (size_t i = is_text_before_passes(files[0]->path) ? 1 : 0; i < files.size(); ++i) {
    if (const Status read = out.add_metadata(files[i]->path); !read)
      warnings->push_back(read.error().describe());
  }
  return out;
}

}  // namespace

bool is_torchair_pair(const run::Run& golden, const run::Run& mine) {
  return mine.layout == "ge-tree" && !mine.graph_files.empty() &&
         (golden.layout == "fx-tree" || golden.layout == "ge-tree");
}

Result<std::vector<GraphMatching>> match_torchair(const run::Run& golden, const run::Run& mine,
                                                  const MatchOptions& options) {
  std::vector<std::string> warnings;
  ASSAY_TRY(const auto ranks, common_ranks(golden, mine, options, &warnings));
  std::vector<GraphMatching> out;
  for (const auto& [golden_rank, mine_rank] : ranks) {
    const std::vector<uint32_t> golden_graphs = graphs_of(golden, golden_rank);
    const std::vector<uint32_t> mine_graphs = graphs_of(mine, mine_rank);
    if (golden_graphs.size() != mine_graphs.size())
      warnings.push_back("mine has " + std::to_string(mine_graphs.size()) + " graphs, golden " +
                         std::to_string(golden_graphs.size()));
    for (size_t i = 0; i < mine_graphs.size(); ++i) {
      ASSAY_TRY(const GeGraph graph, read_graph(mine, mine_rank, mine_graphs[i], &warnings));
      const auto golden_graph = golden_graph_of(golden_graphs, mine_graphs, i);
      GeGraph golden_texts;
      if (golden_graph) golden_texts = read_metadata(golden, golden_rank, *golden_graph, &warnings);
      GraphMatcher matcher(golden, mine, options, graph, golden_texts);
      GraphMatching matching;
      matching.rank = has_rank_folders(mine) ? mine_rank : -1;
      matching.graph = static_cast<int>(mine_graphs[i]);
      matching.matching = matcher.match(
          golden_graph ? group_by_token(golden, golden_rank, *golden_graph) : Tokens{},
          group_by_token(mine, mine_rank, mine_graphs[i]));
      matching.matching.ranks = {mine_rank};
      out.push_back(std::move(matching));
    }
  }
  if (!out.empty()) {
    std::vector<std::string>& first = out[0].matching.warnings;
    first.insert(first.begin(), warnings.begin(), warnings.end());
  }
  return out;
}

}  // namespace assay::compare

// SPDX-License-Identifier: Apache-2.0
// Pairs the tensors of one graph on one rank.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pair/align_operands.hpp"
#include "pair/ge_graph.hpp"
#include "pair/graph_operands.hpp"
#include "pair/match.hpp"

namespace assay::pair {

/// The FX node that has a value; nullptr when it was not dumped.
using FxNodeOf = std::function<const Operands*(const FxValue&)>;

/// Rules: docs/formats/ge-tree.md. Used once: match() gives away what was collected.
class GraphMatcher {
 public:
  /// graph         the graph before the passes, with what is known of the run under test's fusion
  /// golden_graph  what is known of golden's fusion
  GraphMatcher(const run::Run& golden, const run::Run& mine, const UserRules& user,
               const MatchOptions& options, const GeGraph& graph, const GeGraph& golden_graph)
      : golden_(golden),
        mine_(mine),
        user_(user),
        options_(options),
        graph_(graph),
        golden_graph_(golden_graph),
        golden_is_fx_(golden.has(run::Trait::FxNodes)),
        golden_used_(golden.records.size(), false),
        mine_used_(mine.records.size(), false) {}

  /// The pairs of all tokens; the arguments are the operators of the graph on this rank.
  [[nodiscard]] Matching match(const GraphTokens& golden, const GraphTokens& mine);

  // ---- what LiteralRules::match_operator needs ----

  [[nodiscard]] const run::Run& golden() const { return golden_; }
  [[nodiscard]] bool golden_is_fx() const { return golden_is_fx_; }
  /// The members of a fused operator by names alone.
  [[nodiscard]] OperatorOrigin decompose(const Operands& op) const {
    return graph_.decompose(op.name, all_names_);
  }
  /// label   what golden's path column says; empty: what ours says
  void add(size_t golden, size_t mine, Rule rule, double confidence = 1,
           const std::string& label = "");
  void pair_in_order(const std::vector<size_t>& golden, const std::vector<size_t>& mine, Rule rule);
  /// An operator that may only change layout or precision, against its own input.
  void match_own_input(const Operands& op);
  [[nodiscard]] static bool changes_form_only(const Operands& op);
  void warn(std::string text) { out_.warnings.push_back(std::move(text)); }
  void warn_missing_fx(const Operands& op, const std::string& fx);

 private:
  /// Nothing: the user's map leaves the token out.
  std::optional<int64_t> token_in_golden(int64_t token) const;

  void match_token(const Operators& golden, const Operators& mine);

  // ---- shared ----

  OperatorOrigin origin_of(const Operands& op);

  /// What the dump file itself says about its outputs; an empty name where it says nothing.
  const std::vector<GraphValue>& file_origins(const Operands& op);

  /// The value before fusion that output `i` is.
  GraphValue value_of_output(const Operands& op, const OperatorOrigin& origin, size_t i);

  /// The operands that a fused operator takes from outside, in the order of its members.
  std::vector<GraphOperand> external_operands(
      const std::vector<const formats::GraphOp*>& members) const;

  /// Which of `operands` each input of a fused operator is, by the optimised graph; nothing where
  /// that does not tell of all of them.
  std::optional<std::vector<const GraphOperand*>> operands_of_inputs(
      const Operands& op, const std::vector<GraphOperand>& operands) const;

  /// Of golden's files without a header in the records; read once each.
  OperandShape shape_of(const run::Run& run, size_t index);

  /// True for an argument of an FX node that never was a tensor: numbers, texts and None have
  /// files, too.
  bool is_scalar_argument(size_t index);

  /// The inputs of an FX node that are tensors, as far as `wanted`, how many the graph has, tells:
  /// a tensor of rank 0 looks like a number, a list of numbers like a tensor.
  std::vector<size_t> tensor_inputs(const Operands& fx, size_t wanted);

  /// Pairs lists in order when each fits its counterpart, otherwise by what their shapes say.
  /// golden   -1 for an operand whose record is missing
  void pair_inputs(const std::vector<int64_t>& golden, const std::vector<size_t>& mine, Rule rule);

  void explain(const Operands& op, const std::string& reason);
  /// Of a member of a fused operator: what is not paired has no file on the other side.
  void explain_inside(const Operands& fused, const Operands& member);

  // ---- GE against FX: graph_matcher_fx.cpp ----

  void match_fx(const Operands& op, const Operators& fx);

  void match_fx_output(const Operands& op, const OperatorOrigin& origin, size_t i,
                       const FxNodeOf& node_of);

  /// The FX node that an operator of the graph was made from: that of its first output with data.
  static const Operands* fx_node_of(const formats::GraphOp& op, const FxNodeOf& node_of);

  void match_fx_inputs(const Operands& op, const OperatorOrigin& origin, const FxNodeOf& node_of);

  void align_by_shape(const std::vector<size_t>& golden, const std::vector<size_t>& mine);

  // ---- GE fused against unfused: graph_matcher_ge.cpp ----

  /// Whether graph inputs of equal name are the same inputs: they are numbered anew in each
  /// compilation, and one more in front of the others moves them all.
  bool same_graph_inputs(const Operators& golden, const Operators& mine);

  void match_ge(const Operands& op, const Operators& golden);

  void pair_by_slot(const std::vector<size_t>& golden, const std::vector<size_t>& mine, Rule rule);

  void match_fused_inputs(const Operands& op, const OperatorOrigin& origin,
                          const Operators& golden);

  /// The input of a member, or what its producer made where the member has no file; -1: neither.
  int64_t golden_operand(const GraphOperand& operand, const Operators& golden) const;

  /// Operators of golden that are not in the graph, by the values before fusion that they make: the
  /// unfused side, too, may be compiled and have names of its own.
  void find_renamed(const Operators& golden);

  /// The record of golden that holds a value of the graph, or why there is none.
  Result<size_t> golden_output(const GraphValue& value, const Operators& golden) const;

  bool golden_makes(const Operands& op, const OperatorOrigin& origin, const Operators& golden);

  void match_fused_outputs(const Operands& op, const OperatorOrigin& origin,
                           const Operators& golden);

  // ---- the end ----

  void count_side(Side side, const Operators& operators, const std::string& otherwise);

  void sort();

  struct KnownShape {
    OperandShape shape;
    bool no_tensor = false;
  };

  const run::Run& golden_;
  const run::Run& mine_;
  const UserRules& user_;
  const MatchOptions& options_;
  const GeGraph& graph_;
  const GeGraph& golden_graph_;
  const bool golden_is_fx_;
  Matching out_;
  std::set<std::string, std::less<>> all_names_;               // of operators that have files
  std::map<std::pair<std::string, int64_t>, size_t> renamed_;  // values to records of golden
  bool graph_inputs_agree_ = true;                             // of the token at hand
  std::vector<bool> golden_used_;
  std::vector<bool> mine_used_;
  std::pair<std::string, std::vector<GraphValue>> origins_of_file_;  // of the last file asked for
  std::unordered_map<size_t, KnownShape> golden_shapes_;
  std::unordered_map<size_t, std::string> golden_why_;  // unmatched
  std::unordered_map<size_t, std::string> mine_why_;
  std::set<size_t> lists_;    // of golden: arguments that are lists of numbers
  std::set<size_t> skipped_;  // of mine: constants, which have no counterpart to look for
};

}  // namespace assay::pair

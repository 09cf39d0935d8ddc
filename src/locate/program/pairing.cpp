// SPDX-License-Identifier: Apache-2.0
// Operators, module calls and weights of two programs, as pair/ pairs them.
#include "locate/program/pairing.hpp"

#include <algorithm>

namespace assay::locate {
namespace {

static_assert(kNone == pair::kNoPartner);

std::vector<pair::Execution> operators_of(const Program& program) {
  std::vector<pair::Execution> out;
  out.reserve(program.operators.size());
  for (const Operator& one : program.operators) {
    const bool passes_on = is_transparent(one.name);
    out.push_back({one.rank, one.step, one.module, one.module_call,
                   passes_on ? std::string_view() : std::string_view(one.name)});
  }
  return out;
}

std::vector<pair::Execution> calls_of(const Program& program) {
  std::vector<pair::Execution> out;
  out.reserve(program.calls.size());
  for (const ModuleCall& one : program.calls)
    out.push_back({one.rank, one.step, one.module, one.call});
  return out;
}

std::vector<pair::LeafRead> leaf_reads(const Program& program) {
  std::vector<pair::LeafRead> reads;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    for (const Use& use : program.operators[i].inputs) {
      if (!use.leaf.empty() && use.producer == kNone) reads.push_back({i, use.slot, use.leaf});
    }
  }
  return reads;
}

pair::LeafPairs pair_leaves(const Program& golden, const Program& mine,
                            const pair::OperatorPairs& operators) {
  return pair::pair_leaves({golden.leaves, leaf_reads(golden)}, {mine.leaves, leaf_reads(mine)},
                           *mine.coded, operators);
}

/// Of the slots that both sides have with a shape.
bool equal_shapes(const Program& golden, const std::vector<Use>& of_golden, const Program& mine,
                  const std::vector<Use>& of_mine) {
  return std::ranges::all_of(of_mine, [&](const Use& use) {
    const auto partner = std::ranges::find(of_golden, use.slot, &Use::slot);
    if (partner == of_golden.end()) return true;
    const InternedDims theirs = golden.run->records[partner->record].shape;
    const InternedDims ours = mine.run->records[use.record].shape;
    return !theirs || !ours || *theirs == *ours || mine.joined.contains(use.record);
  });
}

bool equal_shapes(const Program& golden, const Program& mine, const pair::CallPairs& calls) {
  for (size_t i = 0; i < mine.calls.size(); ++i) {
    if (calls.golden_of[i] == kNone) continue;
    const ModuleCall& theirs = golden.calls[calls.golden_of[i]];
    const ModuleCall& ours = mine.calls[i];
    if (!equal_shapes(golden, theirs.inputs, mine, ours.inputs) ||
        !equal_shapes(golden, theirs.outputs, mine, ours.outputs))
      return false;
  }
  return true;
}

}  // namespace

Pairing pair_programs(const Program& golden, const Program& mine) {
  // Regrouped steps have modules only: operators of golden's steps are others.
  std::vector<pair::Execution> golden_operators = operators_of(golden);
  std::vector<pair::Execution> mine_operators = operators_of(mine);
  if (mine.regrouped || mine.is_shared) {
    for (pair::Execution& one : mine_operators) one.name = {};
    for (pair::Execution& one : golden_operators) one.name = {};
  }
  Pairing pairing;
  static_cast<pair::OperatorPairs&>(pairing) =
      pair::pair_operators(golden_operators, mine_operators);
  pairing.leaves = pair_leaves(golden, mine, pairing);
  pair::CallPairs calls = pair::pair_calls(calls_of(golden), calls_of(mine));
  pairing.same_shapes = equal_shapes(golden, mine, calls);
  pairing.golden_call_of = std::move(calls.golden_of);
  pairing.mine_call_of = std::move(calls.mine_of);
  return pairing;
}

}  // namespace assay::locate

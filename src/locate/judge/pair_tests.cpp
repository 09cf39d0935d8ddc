// SPDX-License-Identifier: Apache-2.0
// Weights are always tested; arguments, topology and edges only where both programs have operators
// of one engine that stand for each other one by one.
#include "locate/judge/pair_tests.hpp"

#include <algorithm>

#include "locate/program/program.hpp"

namespace assay::locate {

Finding finding_at(const PairContext& pair, FindingKind kind, size_t mine_operator,
                   size_t golden_operator) {
  Finding finding;
  finding.kind = kind;
  finding.hard = kind == FindingKind::Weight;
  finding.confidence = finding.hard ? Confidence::High : Confidence::Medium;
  finding.mine_operator = mine_operator;
  finding.golden_operator = golden_operator;
  if (golden_operator != kNone) finding.golden_node = pair.golden.operators[golden_operator].node;
  if (mine_operator == kNone && golden_operator == kNone) return finding;
  const Operator& one = mine_operator != kNone ? pair.mine.operators[mine_operator]
                                               : pair.golden.operators[golden_operator];
  finding.rank = one.rank;
  finding.step = one.step;
  finding.module = one.module;
  finding.node = one.node;
  finding.op_type = one.name;
  finding.time = one.time;
  return finding;
}

Result<PairTests> test_pairs(const Program& golden, const Program& mine, const Pairing& pairing,
                             const std::atomic<bool>* interrupted) {
  const PairContext pair{golden, mine, pairing, interrupted};
  PairTests tests;
  test_weights(pair, &tests);
  // Operators of two engines, or of one rank of several, have no arguments, sequences or edges in
  // common.
  if (golden.level == CaptureLevel::Operators && mine.level == CaptureLevel::Operators &&
      golden.engine == mine.engine && !mine.regrouped && !mine.is_shared) {
    test_attributes(pair, &tests);
    test_topology(pair, &tests);
    test_edges(pair, &tests);
  }
  if (pair.stopped()) return fail(Errc::Interrupted, "interrupted");
  std::ranges::stable_sort(tests.findings, {}, &Finding::time);
  return tests;
}

}  // namespace assay::locate

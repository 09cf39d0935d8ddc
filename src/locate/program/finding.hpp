// SPDX-License-Identifier: Apache-2.0
// What a test found at one place; candidates for the first wrong operator are made of these.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>

#include "locate/program/program.hpp"
#include "locate/program/row_judgement.hpp"

namespace assay::locate {

enum class FindingKind : uint8_t {
  OwnError,   // an operator's result is not that of its inputs
  Weight,     // a parameter or buffer differs from golden's
  Attribute,  // an argument differs
  Constant,   // an anonymous leaf differs: position ids, masks
  Topology,   // an operator without partner
  Edge,       // an input is not the output it should be
  // golden's function on the run under test's values gives something else (cross substitution)
  Gap,
  MeasuredFloor,   // beyond the floor of healthy runs (levels N and S)
  NanOrigin,       // NaN or infinity out of finite inputs
  Structure,       // shape or integer values differ
  RankDivergence,  // a replicated tensor differs between ranks
};
[[nodiscard]] RowJudgement judgement_of(FindingKind kind);
[[nodiscard]] std::string_view kind_name(FindingKind kind);  // "own_error" "weight" ...

enum class Confidence : uint8_t { High, Medium, Low };
[[nodiscard]] std::string_view confidence_name(Confidence confidence);

/// "8.6", "31"; above a million, where the digits say nothing, in words
[[nodiscard]] std::string amount_text(double value);
/// "31x", "more than a million times"
[[nodiscard]] std::string times_text(double ratio);
/// "3.1 %"; above 1000 % in words
[[nodiscard]] std::string percent_text(double share);

struct Finding {
  FindingKind kind = FindingKind::OwnError;
  /// A verdict by itself; otherwise a suspicion that cross substitution must confirm.
  ///   docs/localisation.md, "Pair tests"
  bool hard = true;
  Confidence confidence = Confidence::High;
  // Where:
  int rank = 0;
  int64_t step = 0;
  std::string module;  // path; the owner
  std::string also;  // second place it may be: "attention core or output projection"; may be empty
  std::string node;  // operator node or module path
  std::string golden_node = {};  // its partner in golden, where there is one
  std::string op_type;           // "aten.mul.Tensor", "LlamaRMSNorm"
  std::string module_type = {};  // class of `module`, where the run knows it
  std::string source = {};       // file and line of its code, where the run knows it
  std::string slot;              // tensor, parameter or argument: "weight", "eps"
  uint64_t time =
      // of the operator or module call in the run under test's execution order (weights: first
      // consumer)
      0;
  size_t mine_operator = kNone;  // index into the run under test's operators
  size_t golden_operator = kNone;
  // index into the run under test's records, of the tensor that is wrong
  size_t mine_record = kNone;
  size_t golden_record = kNone;
  // How much, where known (NaN: not):
  double ratio = NAN;    // times what rounding explains: max(z, e), R, |m-g| in half ULPs
  double err_in = NAN;   // relative L2 of the inputs against golden's
  double err_out = NAN;  // of the output
  double err_own = NAN;  // of the output against the reference on the run under test's own inputs
  double noise_floor = NAN;  // relative L2 that rounding explains there
  double worst_ulp = NAN;    // largest error of one element, ULP of its type
  double allowed_ulp = NAN;
  bool by_steps = false;  // `ratio` is in steps of the run under test's codes, which may be coarse
  /// A weight whose numbers golden's program was replayed with: what it computes cannot clear it.
  bool replayed_as_mine = false;
  bool idle = false;   // no part that could be seen of what is wrong around it comes from there
  std::string cause;   // what made it, found by another test: "extra aten.add.Tensor"; may be empty
  std::string detail;  // "eps 1e-05 against 1e-06"; one clause for people
  std::string hypothesis;  // "weight differs from golden by a constant factor 1.03"; may be empty
};

/// In the order of execution.
[[nodiscard]] inline bool comes_before(const Finding& a, const Finding& b) {
  return std::tie(a.step, a.time, a.rank) < std::tie(b.step, b.time, b.rank);
}

}  // namespace assay::locate

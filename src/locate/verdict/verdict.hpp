// SPDX-License-Identifier: Apache-2.0
// From what the stages found to one verdict.   docs/localisation.md, "The order of things"
#pragma once
#include <functional>

#include "locate/verdict/locate.hpp"
#include "locate/verdict/locate_identical.hpp"
#include "locate/verdict/same_inputs.hpp"

namespace assay::locate {

/// What the stages of locate() left. nullptr: the stage did not run.
struct Stages {
  const Program* golden = nullptr;  // always there
  const Program* mine = nullptr;    // always there
  const Pairing* pairing = nullptr;
  const OwnErrors* own = nullptr;         // of mine
  const OwnErrors* golden_own = nullptr;  // of golden
  const PairTests* tests = nullptr;
  const Walk* walk = nullptr;
  const FloorFindings* floors = nullptr;
  /// NaN origins, diverging ranks and whatever else is a verdict by itself.
  std::vector<Finding> more = {};
  /// Coarse kernels of leaf modules.
  std::vector<CoarseGroup> more_coarse = {};
  TokenChoices tokens = {};
  IdenticalValues identical = {};
  /// What mine was given otherwise than golden; nothing: no difference was seen.
  std::optional<InputDifference> inputs = {};
  /// The run under test's operators are not golden's (another engine, tokens cut into other steps):
  /// its modules are judged by the walk.
  bool across_engines = false;
  /// Steps were paired by their tokens (another engine, tokens cut into other steps), and these of
  /// mine have none of golden's.
  bool steps_by_tokens = false;
  std::vector<int64_t> unpaired_steps = {};
  /// What of golden mine has nothing for, so that the run is not clean; empty: nothing.
  std::string missing = {};
  /// The run under test's findings are in its order of execution: run::Run::order_known.
  bool order_known = true;
  /// False for findings outside the slice that the user asked for; empty: everything counts.
  std::function<bool(const Finding&)> in_slice = {};
};

/// Findings in the run under test's execution order, confirmed or refuted; outcome, confidence,
/// coverage, notes. `chain`, `next` and errors against golden are left to locate().
[[nodiscard]] Verdict compose_verdict(const Stages& stages);

/// Share of operators that must be judged before a run may be called clean.
inline constexpr double kCleanCoverage = 0.95;
/// Share of a value that an error may have and pass for rounding, in a run that is called clean:
/// of 16 bits, of more; of less all of it.
inline constexpr double kUnseen16 = 0.05, kUnseen32 = 0.005;
/// The same finding in this many layers is one of the program, not of a layer.
inline constexpr size_t kSystematicLayers = 3;

}  // namespace assay::locate

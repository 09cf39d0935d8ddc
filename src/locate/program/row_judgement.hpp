// SPDX-License-Identifier: Apache-2.0
// What is said of the operator behind a row of the table; columns of --verdict,
// docs/localisation.md.
#pragma once
#include <cstdint>
#include <string_view>

namespace assay::locate {

/// How an operator's own error became known.
enum class OwnSource : uint8_t {
  None,      // it is not known
  Exact,     // the operator was computed again from the inputs it had
  Replay,    // golden's program was run on the values before it
  Measured,  // held against what healthy runs differ by
};
[[nodiscard]] std::string_view own_source_name(OwnSource source);  // "" "exact" ...

/// What is said of a row, or of the record behind it.
enum class RowJudgement : uint8_t {
  None,
  // It is wrong, and this is what is wrong with it:
  OwnError,
  Weight,
  Attribute,
  Constant,
  Topology,
  Edge,
  Gap,
  MeasuredFloor,
  NanOrigin,
  Structural,
  RankDivergence,
  // It is not the first that is wrong:
  Noise,         // as much as rounding explains
  Inherited,     // its inputs differ as much
  NanInherited,  // NaN came in with its inputs
  Amplified,     // its inputs differ less
  Drift,         // more than one rounding, and nothing else is known
};
[[nodiscard]] std::string_view judgement_name(RowJudgement judgement);  // "" "own_error" ...

}  // namespace assay::locate

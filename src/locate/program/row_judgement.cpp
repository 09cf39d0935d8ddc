// SPDX-License-Identifier: Apache-2.0
// Names of the judgements of a row, as the columns of --verdict have them.
#include "locate/program/row_judgement.hpp"

#include <iterator>

namespace assay::locate {

std::string_view own_source_name(OwnSource source) {
  constexpr std::string_view kNames[] = {"", "exact", "replay", "measured"};
  return kNames[static_cast<size_t>(source)];
}

std::string_view judgement_name(RowJudgement judgement) {
  constexpr std::string_view kNames[] = {
      "",      "own_error", "weight",         "attribute",  "constant",   "topology",
      "edge",  "gap",       "measured_floor", "nan_origin", "structural", "rank_divergence",
      "noise", "inherited", "nan_inherited",  "amplified",  "drift"};
  static_assert(std::size(kNames) == static_cast<size_t>(RowJudgement::Drift) + 1);
  return kNames[static_cast<size_t>(judgement)];
}

}  // namespace assay::locate

// SPDX-License-Identifier: Apache-2.0
// Own errors of operators in parts (run/parts.hpp), by processes that have the files.
//   docs/scale.md
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "locate/judge/own_error.hpp"

namespace assay::locate {

/// Begins the parts of a check of operators.
inline constexpr std::string_view kOperatorsMark = "assay operators 1";

struct OperatorsElsewhere {
  std::vector<size_t> here;  // numbers of operators that are left to this process, ascending
  bool interrupted = false;  // the user stopped it: the rest is judged nowhere
  std::map<std::string, size_t> failed = {};  // why parts failed -> operators in them
};

/// Has `options.parts` judge the operators whose records can be sent, of one rank and step
/// together. A part that fails becomes errors with the reason.
///
/// by_operator   gets what is found, by the operator's number
/// errors        of run::PartRunner::run()
[[nodiscard]] Result<OperatorsElsewhere> judge_elsewhere(
    const Program& program, const OwnErrorOptions& options,
    std::vector<std::vector<OwnError>>* by_operator);

/// Judges the operators of a part.
///
/// request   run::PartRunner::Request::body, of the same version of this program; nothing in it is
///           trusted
/// options   jobs, max_memory and `interrupted` of this process; the rest is in the part
/// errors    Invalid (another version's, or damaged), Interrupted
[[nodiscard]] Result<std::string> run_part(ByteSpan request, OwnErrorOptions options);

}  // namespace assay::locate

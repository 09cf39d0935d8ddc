// SPDX-License-Identifier: Apache-2.0
// Checking operations in parts (run/parts.hpp), whose answers are results of cases.   docs/scale.md
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "opcheck/check.hpp"

namespace assay::opcheck {

/// Begins the parts of a check of operations.
inline constexpr std::string_view kCasesMark = "assay cases 1";

/// Has `options.parts` check the cases whose records can be sent: of one rank and step together, an
/// operation over ranks with its peers. A part that fails becomes results with the reason.
///
/// done     gets results by their case's number, in any order; nothing: the user stopped it
/// returns  the numbers of the cases that are left to this process, ascending
/// errors   of run::PartRunner::run()
[[nodiscard]] Result<std::vector<size_t>> check_elsewhere(
    const CaseList& cases, const CheckOptions& options,
    const std::function<void(size_t number, std::optional<CaseResult> result)>& done);

/// Checks the cases of a part.
///
/// request   run::PartRunner::Request::body, of the same version of this program; nothing in it is
///           trusted
/// options   metrics of the user, jobs, max_memory and `interrupted` of this process; the rest is in
///           the part
/// errors    Invalid (another version's, or damaged), Interrupted
[[nodiscard]] Result<std::string> run_part(ByteSpan request, CheckOptions options);

}  // namespace assay::opcheck

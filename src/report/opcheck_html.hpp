// SPDX-License-Identifier: Apache-2.0
// One page that opens from a mail: no network, no other files.
#pragma once
#include <string>

#include "opcheck/check.hpp"

namespace assay::report {

/// Totals, a table of the operation types, and the outputs: first those that failed, with their
/// worst element and its neighbours, then the others; buttons and a search field filter them.
[[nodiscard]] std::string opcheck_html(const opcheck::Report& report);

}  // namespace assay::report

// SPDX-License-Identifier: Apache-2.0
// What a verdict says about golden's values: errors of the candidates, and of what lies behind the
// first.
#pragma once
#include "locate/verdict/locate.hpp"

namespace assay::locate {

/// Fills err_in, err_out and golden_node of the first candidates, and the chain behind the first:
/// outputs of repeated blocks and of the model, in the same step.
void add_errors_against_golden(const Program& golden, const Program& mine, const Pairing& pairing,
                               Verdict* verdict);

}  // namespace assay::locate

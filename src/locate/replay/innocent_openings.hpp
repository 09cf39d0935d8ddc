// SPDX-License-Identifier: Apache-2.0
// Differences that undo each other in golden's own program are no fault, whatever else is wrong in
// the module around them.   docs/localisation.md, "Functions decide"
#pragma once
#include "locate/replay/module_scopes.hpp"
#include "locate/replay/scopes.hpp"

namespace assay::locate {

/// Closes what is innocent of that which no module closed: weights and arguments that, all of a
/// module put into golden's program together, leave what it returns as it was; and values that do.
void set_aside_innocent(const Program& golden, const Program& mine, const Pairing& pairing,
                        const WalkOptions& options, const Replay& replay, MemoryGate* gate,
                        const ModuleScopes& modules, std::vector<Judged>* judged, Closed* closed);

/// `right` and the difference of `other` from it, with signs drawn at random, in fp64.
///
/// errors  Invalid (another shape)
[[nodiscard]] Result<Tensor> with_signs_drawn(const Tensor& right, const Tensor& other);

}  // namespace assay::locate

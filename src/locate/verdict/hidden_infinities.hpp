// SPDX-License-Identifier: Apache-2.0
// Infinities inside a module whose output is golden's all the same: the cube in GELU that overflows
// in Float16 is 1 behind tanh, whatever it is.   docs/localisation.md, "Columns of the table"
#pragma once
#include "locate/replay/walk.hpp"
#include "locate/verdict/nan_origin.hpp"

namespace assay::locate {

/// Takes infinities out of `origins` that do not matter: operators made them, without any NaN,
/// inside a module whose output the walk judged to be golden's function of what the module was
/// given, as it did all other values of that module and of those inside it from there on; and none
/// of these is infinite. When no origin is left, nothing is inherited either.
///
/// returns  those taken out, in execution order
[[nodiscard]] std::vector<Finding> take_hidden_infinities(const Program& mine, const Walk& walk,
                                                          NanOrigins* origins);

}  // namespace assay::locate

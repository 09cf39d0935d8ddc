// SPDX-License-Identifier: Apache-2.0
// Weights in codes under names that no library has.   docs/localisation.md, "Pair tests"
#pragma once
#include "locate/program/program.hpp"

namespace assay::locate {

/// Where modules of mine have integers in place of golden's weights: which of their parameters and
/// buffers are codes, scales and zero points is what makes golden's weights in most of them, within
/// the step of the codes. All of them are read so from then on: Program::coded of mine.
void learn_codes(const Program& golden, Program* mine);

}  // namespace assay::locate

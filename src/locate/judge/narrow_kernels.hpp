// SPDX-License-Identifier: Apache-2.0
// Kernels of float32 that round the operands of products: found on the products themselves.
//   docs/localisation.md, "Products narrower than their storage"
#pragma once
#include "locate/judge/own_error.hpp"

namespace assay::locate {

/// Where most products of a kind (the same operator) err by more than float32 explains, and
/// operands of one narrower type explain these: all of the kind that err are judged with such
/// operands. Fills OwnErrors::products and narrow_kinds.
void judge_narrow_kernels(const Program& program, const OwnErrorOptions& options,
                          std::vector<std::vector<OwnError>>* by_operator, OwnErrors* result);

}  // namespace assay::locate

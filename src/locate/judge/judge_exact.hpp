// SPDX-License-Identifier: Apache-2.0
// Outputs that no rounding explains: moved values, integers, truth values.
//   docs/localisation.md, "Own error"
#pragma once
#include "locate/judge/own_error.hpp"

namespace assay::locate {

/// Integers and truth values: equal or wrong. Where several answers are right, another right one is
/// no error.
/// errors  of aten::indices_select_same_values()
[[nodiscard]] Status judge_integers(const reference::aten::Call& call,
                                    const std::vector<Tensor>& outputs, size_t output,
                                    const TensorView& mine, OwnError* result);

/// Values of operands, moved. A scalar among them (a fill value, a limit) is rounded once.
/// errors  Unsupported (types that are no plain floats)
[[nodiscard]] Status judge_exact(const TensorView& reference, const TensorView& mine,
                                 OwnError* result);

/// All statistics infinite.
void set_wrong(int64_t worst, std::string reason, OwnError* result);

}  // namespace assay::locate

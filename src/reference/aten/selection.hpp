// SPDX-License-Identifier: Apache-2.0
// Results whose order torch leaves open.
#pragma once
#include "reference/aten/call.hpp"

namespace assay::reference::aten {

/// True for overloads with results that several answers are right for: places of equal values
/// (topk, sort, argmax, median ...), and the order of topk(sorted=False).
[[nodiscard]] bool has_open_order(std::string_view name);

/// Whether captured results are right ones: values as they must be, places that select the same
/// values as the reference's do, none twice where each counts once, in any order for
/// topk(sorted=False).
///
/// outputs  of evaluate(call)
/// output   which one `mine` is
/// mine     what was captured: values or places
/// errors   Unsupported (an overload without open order) | Invalid (no such output) | of evaluate()
[[nodiscard]] Result<bool> indices_select_same_values(const Call& call,
                                                      const std::vector<Tensor>& outputs,
                                                      size_t output, const TensorView& mine);

}  // namespace assay::reference::aten

// SPDX-License-Identifier: Apache-2.0
// How a weight was written otherwise, whatever else is wrong in it.
//   docs/localisation.md, "Functions decide"
#pragma once
#include <optional>

#include "tensor/tensor_view.hpp"

namespace assay::locate {

struct RewrittenWeight {
  Tensor expected;        // golden's weight, written as mine's is, in fp64
  double difference = 0;  // relative L2 of mine from it
};

/// What golden's weight would be if mine were nothing but written otherwise: times one factor or a
/// factor of each row or column, with a number added to each of these, its rows or columns in
/// another order. Medians decide, so that a fault in less than half of the values stays what it is.
///
/// returns  nothing for other shapes, and for weights of more than 16 million values; an order of more
///          than 8192 rows is not looked for
[[nodiscard]] std::optional<RewrittenWeight> as_rewritten(const Tensor& golden, const Tensor& mine);

}  // namespace assay::locate

// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tensor/tensor_view.hpp"

namespace assay {

/// Equal bytes of equal types and shapes, without arithmetic; views without gaps may differ in
/// shape. False for types whose elements share bytes, and where one side alone is a negative or a
/// conjugate.
[[nodiscard]] bool has_equal_bytes(const TensorView& a, const TensorView& b);

}  // namespace assay

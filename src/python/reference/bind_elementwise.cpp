// SPDX-License-Identifier: Apache-2.0
// assay.reference: activations and element-wise arithmetic.
#include "python/reference/bind.hpp"

namespace nb = nanobind;

namespace assay::python {

void bind_elementwise(nb::module_&) {}

}  // namespace assay::python

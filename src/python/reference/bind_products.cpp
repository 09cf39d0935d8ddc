// SPDX-License-Identifier: Apache-2.0
// assay.reference: matrix products and sums over ranks.
#include "python/reference/bind.hpp"

namespace nb = nanobind;

namespace assay::python {

void bind_products(nb::module_&) {}

}  // namespace assay::python

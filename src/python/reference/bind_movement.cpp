// SPDX-License-Identifier: Apache-2.0
// assay.reference: moves of data and caches.
#include "python/reference/bind.hpp"

namespace nb = nanobind;

namespace assay::python {

void bind_movement(nb::module_&) {}

}  // namespace assay::python

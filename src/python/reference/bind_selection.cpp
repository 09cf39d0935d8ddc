// SPDX-License-Identifier: Apache-2.0
// assay.reference: reductions, sorting, sampling.
#include "python/reference/bind.hpp"

namespace nb = nanobind;

namespace assay::python {

void bind_selection(nb::module_&) {}

}  // namespace assay::python

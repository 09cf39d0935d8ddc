// SPDX-License-Identifier: Apache-2.0
// assay.reference: norms and rotary embeddings.
#include "python/reference/bind.hpp"

namespace nb = nanobind;

namespace assay::python {

void bind_norms(nb::module_&) {}

}  // namespace assay::python

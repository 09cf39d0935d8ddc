// SPDX-License-Identifier: Apache-2.0
// assay.reference: attention.
#include "python/reference/bind.hpp"

namespace nb = nanobind;

namespace assay::python {

void bind_attention(nb::module_&) {}

}  // namespace assay::python

// SPDX-License-Identifier: Apache-2.0
#include "python/module.hpp"
#include "python/reference/bind.hpp"

namespace nb = nanobind;

NB_MODULE(_opcheck, m) {
  m.doc() = "Native half of assay.reference and assay.opcheck: operators recomputed in fp64.";
  assay::python::be_quiet_at_exit();
  assay::python::bind_errors(m);
  assay::python::bind_opcheck(m);
  assay::python::bind_locate(m);
  assay::python::bind_verdict(m);
  assay::python::bind_movement(m);
  assay::python::bind_elementwise(m);
  assay::python::bind_norms(m);
  assay::python::bind_selection(m);
  assay::python::bind_products(m);
  assay::python::bind_attention(m);
  assay::python::bind_aten(m);
}

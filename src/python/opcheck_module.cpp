// SPDX-License-Identifier: Apache-2.0
#include "python/module.hpp"
#include "python/reference/operators.hpp"

namespace nb = nanobind;

NB_MODULE(_opcheck, m) {
  m.doc() = "Native half of assay.reference and assay.opcheck: operators recomputed in fp64.";
  assay::python::be_quiet_at_exit();
  assay::python::bind_errors(m);
  assay::python::bind_opcheck(m);
  assay::python::bind_locate(m);
  assay::python::bind_repeat(m);
  assay::python::bind_verdict(m);
  assay::python::prepare_operands();
  assay::python::Operators operators(m);
  assay::python::add_movement(operators);
  assay::python::add_elementwise(operators);
  assay::python::add_norms(operators);
  assay::python::add_selection(operators);
  assay::python::add_products(operators);
  assay::python::add_attention(operators);
  assay::python::bind_aten(m);
}

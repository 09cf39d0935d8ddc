// SPDX-License-Identifier: Apache-2.0
// The extension module assay._opcheck: verdicts, opcheck and the reference operators, by family.
#include "python/binding/array.hpp"
#include "python/module.hpp"
#include "python/reference/operators.hpp"

namespace assay::python {
namespace {

void fill(binding::Module& m) {
  bind_errors();
  binding::bind_lent_memory(m);
  bind_opcheck(m);
  bind_locate(m);
  bind_repeat(m);
  bind_verdict(m);
  prepare_operands();
  Operators operators(m);
  add_movement(operators);
  add_elementwise(operators);
  add_norms(operators);
  add_selection(operators);
  add_products(operators);
  add_attention(operators);
  bind_aten(m);
}

}  // namespace
}  // namespace assay::python

PyMODINIT_FUNC PyInit__opcheck() {
  return assay::binding::make_module(
      "_opcheck", "Native half of assay.reference and assay.opcheck: operators recomputed in fp64.",
      &assay::python::fill);
}

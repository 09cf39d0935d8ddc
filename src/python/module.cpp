// SPDX-License-Identifier: Apache-2.0
// The extension module assay._core: errors and lent memory first, then files, runs, comparison and
// topology, each by its own bind_*.cpp.
#include "python/module.hpp"
#include "python/binding/array.hpp"

namespace assay::python {
namespace {

void fill(binding::Module& m) {
  m.set("__version__", ASSAY_VERSION);
  bind_remote();
  bind_errors();
  binding::bind_lent_memory(m);
  bind_formats(m);
  bind_run(m);
  bind_compare(m);
  bind_topology(m);
}

}  // namespace
}  // namespace assay::python

PyMODINIT_FUNC PyInit__core() {
  return assay::binding::make_module(
      "_core", "Native half of assay for offline work: runs, tensor files, comparison.",
      &assay::python::fill);
}

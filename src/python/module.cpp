// SPDX-License-Identifier: Apache-2.0
#include "python/module.hpp"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  m.doc() = "Native half of assay for offline work: runs, tensor files, comparison.";
  m.attr("__version__") = ASSAY_VERSION;
  assay::python::be_quiet_at_exit();
  assay::python::bind_remote();
  assay::python::bind_errors(m);
  assay::python::bind_formats(m);
  assay::python::bind_run(m);
  assay::python::bind_compare(m);
  assay::python::bind_topology(m);
}

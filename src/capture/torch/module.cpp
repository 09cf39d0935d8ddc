// SPDX-License-Identifier: Apache-2.0
// The extension module assay._capture: what runs inside a PyTorch process. Plain CPython C API, no
// libtorch.
#include "capture/torch/extension.hpp"

namespace {

PyModuleDef capture_module = {PyModuleDef_HEAD_INIT,
                              "assay._capture",
                              "Native half of the PyTorch capture. Use assay.capture.",
                              -1,
                              nullptr,
                              nullptr,
                              nullptr,
                              nullptr,
                              nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__capture() {
  PyObject* module = PyModule_Create(&capture_module);
  if (module == nullptr) return nullptr;
  if (assay::capture::ExtensionPart::add_all(module) != 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}

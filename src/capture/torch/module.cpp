// SPDX-License-Identifier: Apache-2.0
// The extension module assay._capture: what runs inside a PyTorch process. Plain CPython C API, no
// libtorch.
#include "capture/torch/extension.hpp"

#include <vector>

namespace assay::capture {

PyObject* call_with_tuple(PyObject* self, PyObject* args, PyObject* kwargs) {
  std::vector<PyObject*> arguments;
  const Py_ssize_t count = PyTuple_Size(args);
  for (Py_ssize_t i = 0; i < count; ++i) arguments.push_back(PyTuple_GetItem(args, i));
  const Ref keys(kwargs != nullptr ? PyDict_Keys(kwargs) : nullptr);
  const Ref names(keys ? PyList_AsTuple(keys.get()) : nullptr);
  if (kwargs != nullptr && !names) return nullptr;
  for (Py_ssize_t i = 0; names && i < PyTuple_Size(names.get()); ++i)
    arguments.push_back(PyDict_GetItemWithError(kwargs, PyTuple_GetItem(names.get(), i)));
  return reinterpret_cast<VectorCallable*>(self)->call(self, arguments.data(),
                                                       static_cast<size_t>(count), names.get());
}

}  // namespace assay::capture

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

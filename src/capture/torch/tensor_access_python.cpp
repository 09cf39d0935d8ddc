// SPDX-License-Identifier: Apache-2.0
// look(tensor): one look at a tensor as a dict. For `assay doctor` and the tests of every row of
// the access table.
#include "capture/torch/extension.hpp"
#include "capture/torch/python_compat.hpp"
#include "capture/torch/tensor_access.hpp"

namespace assay::capture {
namespace {

PyObject* int_tuple(const int64_t* values, int count) {
  PyObject* tuple = PyTuple_New(count);
  for (int i = 0; tuple != nullptr && i < count; ++i)
    (void)PyTuple_SetItem(tuple, i, PyLong_FromLongLong(values[i]));
  return tuple;
}

PyObject* look_python(PyObject*, PyObject* object) {
  TensorAccess* access = TensorAccess::get();
  if (access == nullptr) return nullptr;
  if (!access->is_tensor(object)) {
    PyErr_SetString(PyExc_TypeError, "look() takes a torch.Tensor");
    return nullptr;
  }
  TensorLook look;
  access->look(object, look);
  const char* readable[] = {"memory", "device", "nothing"};
  PyObject* shape = look.has_shape ? int_tuple(look.shape, look.ndim) : new_ref(Py_None);
  PyObject* strides =
      look.strides != nullptr ? int_tuple(look.strides, look.ndim) : new_ref(Py_None);
  const bool memory = look.readable == Readable::Memory;
  return Py_BuildValue(
      "{s:s,s:s,s:z,s:s,s:N,s:N,s:K,s:O,s:O,s:O,s:L}", "readable",
      readable[static_cast<int>(look.readable)], "reason", look.reason, "dtype", look.dtype_name,
      "device", device_text(look), "shape", shape, "strides", strides, "data",
      static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(look.data)), "conjugate",
      look.conjugate ? Py_True : Py_False, "negative", look.negative ? Py_True : Py_False,
      "covered", memory && access->storage_covers(object, look) ? Py_True : Py_False, "version",
      static_cast<long long>(access->version(object)));
}

PyObject* use_exchange_table_python(PyObject*, PyObject* argument) {
  TensorAccess* access = TensorAccess::get();
  if (access == nullptr) return nullptr;
  const int use = PyObject_IsTrue(argument);
  if (use < 0) return nullptr;
  access->use_exchange_table(use != 0);
  return PyBool_FromLong(access->has_exchange_table());
}

PyMethodDef tensor_functions[] = {
    {"look", look_python, METH_O,
     "look(tensor) -> dict: what the capture sees of a tensor: readable, "
     "reason, dtype, shape, strides, data, device."},
    {"use_exchange_table", use_exchange_table_python, METH_O,
     "use_exchange_table(use) -> bool: False reads tensors through "
     "attributes, as on torch before 2.10; returns whether "
     "this torch has the table."},
    {nullptr, nullptr, 0, nullptr}};

const ExtensionPart tensor_part([](PyObject* module) {
  return PyModule_AddFunctions(module, tensor_functions);
});

}  // namespace
}  // namespace assay::capture

// SPDX-License-Identifier: Apache-2.0
// How the parts of assay._capture put their types and functions into the module: each .cpp that has
// some defines one static ExtensionPart; module.cpp runs them all when Python imports the module.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace assay::capture {

class ExtensionPart {
 public:
  /// add    returns 0, or -1 with a Python exception set
  explicit ExtensionPart(int (*add)(PyObject* module)) : add_(add), next_(first()) {
    first() = this;
  }
  ExtensionPart(const ExtensionPart&) = delete;
  ExtensionPart& operator=(const ExtensionPart&) = delete;

  [[nodiscard]] static int add_all(PyObject* module) {
    for (const ExtensionPart* part = first(); part != nullptr; part = part->next_) {
      if (part->add_(module) != 0) return -1;
    }
    return 0;
  }

 private:
  [[nodiscard]] static ExtensionPart*& first() {
    static ExtensionPart* head = nullptr;
    return head;
  }
  int (*add_)(PyObject* module);
  ExtensionPart* next_;
};

/// A Python object that owns a T.
template <typename T>
struct Holder {
  PyObject_HEAD T* held;
};

template <typename T>
[[nodiscard]] T& held_by(PyObject* self) {
  return *reinterpret_cast<Holder<T>*>(self)->held;
}

/// object.method() -> None
template <typename T, void (T::*method)()>
PyObject* call_held(PyObject* self, PyObject*) {
  (held_by<T>(self).*method)();
  Py_RETURN_NONE;
}

/// The type of such objects; needs PyType_Ready().
template <typename T>
[[nodiscard]] PyTypeObject holder_type(const char* name, newfunc make, PyMethodDef* methods,
                                       PyGetSetDef* properties) {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = name;
  type.tp_basicsize = sizeof(Holder<T>);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_new = make;
  type.tp_dealloc = [](PyObject* self) {
    delete reinterpret_cast<Holder<T>*>(self)->held;
    Py_TYPE(self)->tp_free(self);
  };
  type.tp_methods = methods;
  type.tp_getset = properties;
  return type;
}

/// Puts a static type into the module. Returns 0, or -1 with a Python exception set.
inline int add_type(PyObject* module, const char* name, PyTypeObject* type) {
  if (PyType_Ready(type) != 0) return -1;
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  if (PyModule_AddObject(module, name, reinterpret_cast<PyObject*>(type)) == 0) return 0;
  Py_DECREF(reinterpret_cast<PyObject*>(type));
  return -1;
}

}  // namespace assay::capture

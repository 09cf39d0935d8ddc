// SPDX-License-Identifier: Apache-2.0
// How the parts of assay._capture put their types and functions into the module: each .cpp that has
// some defines one static ExtensionPart; module.cpp runs them all when Python imports the module.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <cstring>

#include "capture/torch/python_compat.hpp"

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

/// A new object of one of our types, zeroed but for its head; nullptr with an exception set.
template <typename Object>
[[nodiscard]] Object* new_object(PyTypeObject* type) {
  return reinterpret_cast<Object*>(PyType_GenericAlloc(type, 0));
}

/// Gives the memory of one back, and its reference to its type.
inline void free_object(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

/// Slot Py_tp_new of types whose objects only we make.
inline PyObject* refuse_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyErr_Format(PyExc_TypeError, "cannot create 'assay._capture.%s' instances",
               class_name(type).c_str());
  return nullptr;
}

/// The type that `spec` describes, nullptr with an exception set. Put into the module under the
/// last part of its name when there is one.
[[nodiscard]] inline PyTypeObject* make_type(PyType_Spec* spec, PyObject* module = nullptr) {
  PyObject* type = PyType_FromSpec(spec);
  if (type == nullptr || module == nullptr) return reinterpret_cast<PyTypeObject*>(type);
  Py_INCREF(type);
  if (PyModule_AddObject(module, std::strrchr(spec->name, '.') + 1, type) == 0)
    return reinterpret_cast<PyTypeObject*>(type);
  Py_DECREF(type);
  Py_DECREF(type);
  return nullptr;
}

// Parts of the interpreter that are the same since 3.8, and that the limited API names only from
// 3.10 (METH_FASTCALL, Py_TPFLAGS_IMMUTABLETYPE) and 3.12 on (the others).
constexpr int kFastCall = 0x0080;
constexpr unsigned long kImmutableType = 1ul << 8;  // 3.9 does not look at it
constexpr unsigned long kHasVectorCall = 1ul << 11;
using VectorCall = PyObject* (*)(PyObject* self, PyObject* const* arguments, size_t flagged_count,
                                 PyObject* names);
[[nodiscard]] constexpr size_t argument_count(size_t flagged_count) {
  return flagged_count & ~(size_t{1} << (8 * sizeof(size_t) - 1));
}

/// The head of objects that are called without a tuple of arguments (PEP 590). Their type has the
/// flag kHasVectorCall, and these two slots.
struct VectorCallable {
  PyObject_HEAD VectorCall call;
};
inline PyMemberDef vector_call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(VectorCallable, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
/// Slot Py_tp_call: for callers that have a tuple.
PyObject* call_with_tuple(PyObject* self, PyObject* args, PyObject* kwargs);

/// The type of Holder<T>; it takes no attributes, as types of C do.
template <typename T>
[[nodiscard]] PyTypeObject* make_holder_type(PyObject* module, const char* name, newfunc make,
                                             PyMethodDef* methods, PyGetSetDef* properties) {
  destructor dealloc = [](PyObject* self) {
    delete reinterpret_cast<Holder<T>*>(self)->held;
    free_object(self);
  };
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_methods, methods},
                         {Py_tp_getset, properties},
                         {0, nullptr}};
  PyType_Spec spec = {name, sizeof(Holder<T>), 0, Py_TPFLAGS_DEFAULT | kImmutableType, slots};
  return make_type(&spec, module);
}

}  // namespace assay::capture

// SPDX-License-Identifier: Apache-2.0
// The few calls of the CPython API that differ between 3.9 and 3.14.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace assay::capture {

inline PyObject* new_ref(PyObject* object) {
  Py_INCREF(object);
  return object;
}

/// The object a weak reference points at as a new reference, nullptr when it is gone. No exception.
inline PyObject* weakref_get(PyObject* weakref) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* object = nullptr;
  if (PyWeakref_GetRef(weakref, &object) < 0) PyErr_Clear();
  return object;
#else
  PyObject* object = PyWeakref_GET_OBJECT(weakref);
  return object == Py_None ? nullptr : new_ref(object);
#endif
}

/// Whether a weak reference points at `object`, which the caller holds.
inline bool weakref_is(PyObject* weakref, PyObject* object) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = weakref_get(weakref);
  Py_XDECREF(found);
  return found == object;
#else
  return PyWeakref_GET_OBJECT(weakref) == object;
#endif
}

}  // namespace assay::capture

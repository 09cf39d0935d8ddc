// SPDX-License-Identifier: Apache-2.0
// The few calls of the CPython API that differ between 3.9 and 3.14.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>
#include <string_view>

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

/// "O&" converter of arguments that are paths, to a std::string: as the file system has them, which need not be UTF-8.
inline int path_argument(PyObject* object, void* target) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(object, &bytes) == 0) return 0;
  static_cast<std::string*>(target)->assign(PyBytes_AS_STRING(bytes),
                                            static_cast<size_t>(PyBytes_GET_SIZE(bytes)));
  Py_DECREF(bytes);
  return 1;
}

/// A message as a str; bytes of a path in it that are no UTF-8 are replaced.
inline PyObject* message_text(std::string_view text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

}  // namespace assay::capture

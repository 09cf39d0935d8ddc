// SPDX-License-Identifier: Apache-2.0
// The few calls of the CPython API that differ between 3.9 and 3.14.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>
#include <string_view>
#include <utility>

namespace assay::capture {

inline PyObject* new_ref(PyObject* object) {
  Py_INCREF(object);
  return object;
}

/// Owns a reference, or none.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(other.release()) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  [[nodiscard]] explicit operator bool() const { return object_ != nullptr; }
  [[nodiscard]] PyObject* get() const { return object_; }
  [[nodiscard]] PyObject* release() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

/// The attribute, or none without an exception.
inline Ref attribute(PyObject* object, const char* name) {
  Ref value(object != nullptr ? PyObject_GetAttrString(object, name) : nullptr);
  if (!value) PyErr_Clear();
  return value;
}

/// An attribute of a module; none with an exception set.
inline Ref imported(const char* module, const char* name) {
  const Ref found(PyImport_ImportModule(module));
  return Ref(found ? PyObject_GetAttrString(found.get(), name) : nullptr);
}

/// What str(object) gives, `otherwise` when it raises. Leaves no exception.
inline std::string text_of(PyObject* object, const char* otherwise = "") {
  const Ref text(object != nullptr ? PyObject_Str(object) : nullptr);
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string result = utf8 != nullptr ? utf8 : otherwise;
  PyErr_Clear();
  return result;
}

/// Without the GIL as long as it lives, where it is worth that.
class GilReleased {
 public:
  explicit GilReleased(bool is_worth_it = true)
      : state_(is_worth_it ? PyEval_SaveThread() : nullptr) {}
  ~GilReleased() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

/// Puts the error indicator back as it was, whatever the calls in between did: an exception may be
/// on its way through us.
class ErrorAside {
 public:
  ErrorAside() {
    if (PyErr_Occurred() != nullptr) PyErr_Fetch(&type_, &value_, &traceback_);
  }
  ~ErrorAside() {
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    if (type_ != nullptr) PyErr_Restore(type_, value_, traceback_);
  }
  ErrorAside(const ErrorAside&) = delete;
  ErrorAside& operator=(const ErrorAside&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

/// The address of the exception that `except` blocks around the caller are handling, to compare;
/// nullptr for none.
inline const void* handled_exception() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_GetExcInfo(&type, &value, &traceback);
  const void* address = value == Py_None ? nullptr : value;
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return address;
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

/// "O&" converter of arguments that are paths, to a std::string: as the file system has them, which
/// need not be UTF-8.
inline int path_argument(PyObject* object, void* target) {
  PyObject* converted = nullptr;
  if (PyUnicode_FSConverter(object, &converted) == 0) return 0;
  const Ref bytes(converted);
  static_cast<std::string*>(target)->assign(PyBytes_AS_STRING(converted),
                                            static_cast<size_t>(PyBytes_GET_SIZE(converted)));
  return 1;
}

/// "O&" converter of arguments that are true or false, to a bool.
inline int flag_argument(PyObject* object, void* target) {
  const int truth = PyObject_IsTrue(object);
  if (truth >= 0) *static_cast<bool*>(target) = truth != 0;
  return truth >= 0;
}

/// A message as a str; bytes of a path in it that are no UTF-8 are replaced.
inline PyObject* message_text(std::string_view text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

}  // namespace assay::capture

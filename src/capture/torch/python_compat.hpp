// SPDX-License-Identifier: Apache-2.0
// What we need of CPython and its stable ABI of 3.9 has no call for: one file of this module serves
// every interpreter from 3.9 on.
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

/// The UTF-8 of a str; none with an exception set for other objects and lone surrogates.
class Utf8 {
 public:
  explicit Utf8(PyObject* text) : bytes_(text != nullptr ? PyUnicode_AsUTF8String(text) : nullptr) {
    char* begin = nullptr;
    Py_ssize_t size = 0;
    if (bytes_ && PyBytes_AsStringAndSize(bytes_.get(), &begin, &size) == 0)
      view_ = {begin, static_cast<size_t>(size)};
  }

  [[nodiscard]] explicit operator bool() const { return view_.data() != nullptr; }
  /// A null byte follows.
  [[nodiscard]] std::string_view view() const { return view_; }

 private:
  Ref bytes_;
  std::string_view view_;
};

/// What str(object) gives up to its first null character, `otherwise` when it raises. Leaves no
/// exception.
inline std::string text_of(PyObject* object, const char* otherwise = "") {
  const Ref text(object != nullptr ? PyObject_Str(object) : nullptr);
  const Utf8 utf8(text.get());
  std::string result = utf8 ? utf8.view().data() : otherwise;
  PyErr_Clear();
  return result;
}

/// Items of a list or a tuple, subclasses included.
inline Py_ssize_t size_of(PyObject* sequence) {
  return PyTuple_Check(sequence) ? PyTuple_Size(sequence) : PyList_Size(sequence);
}
/// One of them, borrowed. Precondition: 0 <= index < size_of(sequence).
inline PyObject* item_of(PyObject* sequence, Py_ssize_t index) {
  return PyTuple_Check(sequence) ? PyTuple_GetItem(sequence, index)
                                 : PyList_GetItem(sequence, index);
}

/// Puts an owned reference in the place of another one.
inline void replace(PyObject*& place, PyObject* owned) { Py_XDECREF(std::exchange(place, owned)); }

/// A type's name without its module, "" when it has none. Leaves no exception.
inline std::string class_name(PyTypeObject* type) {
  const std::string name = text_of(attribute(reinterpret_cast<PyObject*>(type), "__name__").get());
  return name.substr(name.rfind('.') + 1);
}

/// Of an object, as the interpreter's own messages name it: types of C with their module.
inline std::string type_text(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const std::string module =
      text_of(attribute(reinterpret_cast<PyObject*>(type), "__module__").get(), "builtins");
  const bool is_of_python = (PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) != 0;
  return is_of_python || module == "builtins" ? class_name(type) : module + "." + class_name(type);
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
  PyObject* object = PyWeakref_GetObject(weakref);
  return object == Py_None ? nullptr : new_ref(object);
}

/// Whether a weak reference points at `object`, which the caller holds.
inline bool weakref_is(PyObject* weakref, PyObject* object) {
  return PyWeakref_GetObject(weakref) == object;
}

/// "O&" converter of arguments that are paths, to a std::string: as the file system has them, which
/// need not be UTF-8.
inline int path_argument(PyObject* object, void* target) {
  PyObject* converted = nullptr;
  if (PyUnicode_FSConverter(object, &converted) == 0) return 0;
  const Ref bytes(converted);
  static_cast<std::string*>(target)->assign(PyBytes_AsString(converted),
                                            static_cast<size_t>(PyBytes_Size(converted)));
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

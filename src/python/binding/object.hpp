// SPDX-License-Identifier: Apache-2.0
// Objects of Python as C++ values that count references, from what the stable ABI of CPython 3.9
// has, so that one file of a module serves every later version. Whatever Python raises is thrown as
// PythonError. All of it needs the GIL.
#pragma once
#include <Python.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace assay::binding {

class Object;
class Handle;

/// What Python gets for a C++ value: defined in convert.hpp.
template <typename T>
Object cast(T&& value);
/// The C++ value of an object; throws a TypeError for another type.
template <typename T>
T cast(Handle source);

/// A borrowed reference, perhaps to nothing.
class Handle {
 public:
  Handle() = default;
  Handle(PyObject* pointer) : pointer_(pointer) {}  // NOLINT: as implicit as a pointer is

  [[nodiscard]] PyObject* ptr() const { return pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }
  [[nodiscard]] bool is_none() const { return pointer_ == Py_None; }
  /// Name of the type, as messages have it.
  [[nodiscard]] std::string type_name() const;
  [[nodiscard]] Object attr(const char* name) const;
  /// Nothing when there is no such attribute.
  [[nodiscard]] Object attr_if_any(const char* name) const;
  [[nodiscard]] Object operator[](size_t index) const;
  template <typename... A>
  Object operator()(A&&... arguments) const;

 protected:
  PyObject* pointer_ = nullptr;
};

/// An owned reference, perhaps to nothing. Counts through the interpreter's functions, never in the
/// field itself: from 3.12 on some objects are immortal, and only the interpreter knows which.
class Object : public Handle {
 public:
  Object() = default;
  Object(const Object& other) : Handle(other) {
    if (pointer_ != nullptr) Py_IncRef(pointer_);
  }
  Object(Object&& other) noexcept : Handle(std::exchange(other.pointer_, nullptr)) {}
  Object& operator=(Object other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~Object() {
    if (pointer_ != nullptr) Py_DecRef(pointer_);
  }

  /// The reference is the caller's now.
  [[nodiscard]] PyObject* release() { return std::exchange(pointer_, nullptr); }
  void reset() { *this = Object(); }

  static Object borrow(Handle handle) {
    Py_IncRef(handle.ptr());
    return steal(handle.ptr());
  }
  static Object steal(PyObject* owned) {
    Object made;
    made.pointer_ = owned;
    return made;
  }
};

/// An error of Python on its way through C++. May be copied and dropped without the GIL.
class PythonError : public std::exception {
 public:
  /// Takes the error that is set.
  PythonError();
  /// A new one, of a class such as PyExc_TypeError.
  PythonError(PyObject* type, const std::string& message);

  /// Sets it again; once.
  void restore() noexcept;
  /// With its traceback, as Python prints it.
  [[nodiscard]] const char* what() const noexcept override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// A new reference, or the error that Python set.
inline Object checked(PyObject* owned) {
  if (owned == nullptr) throw PythonError();
  return Object::steal(owned);
}
/// The same for functions that give -1.
inline void check(int status) {
  if (status < 0) throw PythonError();
}

inline Object none() { return Object::borrow(Py_None); }
Object import_module(const char* name);

/// Strict UTF-8.
struct Str : Object {
  Str() : Str(std::string_view()) {}
  explicit Str(std::string_view text)
      : Object(checked(
            PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())))) {}
  explicit Str(Object other) : Object(std::move(other)) {}
};

struct Bytes : Object {
  explicit Bytes(std::string_view bytes)
      : Object(checked(
            PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())))) {}
  explicit Bytes(Object other) : Object(std::move(other)) {}
  /// Valid as long as the object.
  [[nodiscard]] std::string_view view() const;
};

struct Tuple : Object {
  explicit Tuple(Object other) : Object(std::move(other)) {}
};

struct List : Object {
  List() : Object(checked(PyList_New(0))) {}
  explicit List(Object other) : Object(std::move(other)) {}
  template <typename T>
  void append(T&& value) {
    check(PyList_Append(pointer_, cast(std::forward<T>(value)).ptr()));
  }
  void extend(const List& other) {
    const Py_ssize_t end = PyList_Size(pointer_);
    check(PyList_SetSlice(pointer_, end, end, other.ptr()));
  }
};

class Dict : public Object {
 public:
  Dict() : Object(checked(PyDict_New())) {}
  explicit Dict(Object other) : Object(std::move(other)) {}

  /// What `dict[key] = value` assigns to.
  class Item {
   public:
    Item(const Dict& dict, Object key) : dict_(dict), key_(std::move(key)) {}
    template <typename T>
    void operator=(T&& value) {  // NOLINT: an item is assigned to and nothing else
      check(PyDict_SetItem(dict_.ptr(), key_.ptr(), cast(std::forward<T>(value)).ptr()));
    }

   private:
    const Dict& dict_;
    Object key_;
  };
  Item operator[](std::string_view key) const { return {*this, Str(key)}; }
  Item operator[](Object key) const { return {*this, std::move(key)}; }

  /// Calls function(key, value) for every item.
  template <typename Function>
  void for_each(Function&& function) const {
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(pointer_, &position, &key, &value) != 0;)
      function(Handle(key), Handle(value));
  }
};

/// Calls function(item) for every item of an iterable.
template <typename Function>
void for_each(Handle iterable, Function&& function) {
  const Object iterator = checked(PyObject_GetIter(iterable.ptr()));
  while (const Object item = Object::steal(PyIter_Next(iterator.ptr()))) function(Handle(item));
  if (PyErr_Occurred() != nullptr) throw PythonError();
}

template <typename... T>
Tuple tuple_of(T&&... values) {
  Tuple tuple(checked(PyTuple_New(sizeof...(T))));
  Py_ssize_t position = 0;
  // PyTuple_SetItem() takes the reference over.
  (check(PyTuple_SetItem(tuple.ptr(), position++, cast(std::forward<T>(values)).release())), ...);
  return tuple;
}

template <typename... A>
Object Handle::operator()(A&&... arguments) const {
  return checked(PyObject_CallObject(pointer_, tuple_of(std::forward<A>(arguments)...).ptr()));
}

/// Owns a C++ object for as long as Python needs it.
template <typename T>
Object make_capsule(std::unique_ptr<T> owned, const char* name = nullptr) {
  Object capsule = checked(PyCapsule_New(owned.get(), name, [](PyObject* self) {
    delete static_cast<T*>(PyCapsule_GetPointer(self, PyCapsule_GetName(self)));
  }));
  (void)owned.release();
  return capsule;
}

/// Lets other threads of Python run while it lives.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() { PyEval_RestoreThread(state_); }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};
/// Holds the GIL while it lives, on any thread.
class GilHeld {
 public:
  GilHeld() : state_(PyGILState_Ensure()) {}
  ~GilHeld() { PyGILState_Release(state_); }
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace assay::binding

#include "python/binding/convert.hpp"

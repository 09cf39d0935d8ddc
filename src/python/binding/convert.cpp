// SPDX-License-Identifier: Apache-2.0
// Numbers, text and sequences out of Python.
#include "python/binding/convert.hpp"

namespace assay::binding {
namespace {

/// The object, or nothing instead of the error that Python set when it is one of wrong types.
Object unless_other_type(PyObject* owned) {
  if (owned == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw PythonError();
    PyErr_Clear();
  }
  return Object::steal(owned);
}

/// Nothing instead of an OverflowError.
template <typename T>
std::optional<T> unless_overflow(T value) {
  if (value == static_cast<T>(-1) && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  return value;
}

}  // namespace

Object integer_of(Handle source) { return unless_other_type(PyNumber_Index(source.ptr())); }

std::optional<int64_t> signed_value(Handle integer) {
  return unless_overflow<int64_t>(PyLong_AsLongLong(integer.ptr()));
}

std::optional<uint64_t> unsigned_value(Handle integer) {
  return unless_overflow<uint64_t>(PyLong_AsUnsignedLongLong(integer.ptr()));
}

Fit Converter<double>::load(Handle source, double* stored) {
  *stored = PyFloat_AsDouble(source.ptr());
  if (*stored != -1.0 || PyErr_Occurred() == nullptr) return Fit::Yes;
  if (PyErr_ExceptionMatches(PyExc_OverflowError) != 0) {
    PyErr_Clear();
    return Fit::OtherValue;
  }
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw PythonError();
  PyErr_Clear();
  return Fit::OtherType;
}

// Not PyUnicode_AsUTF8AndSize(), which is in the stable ABI from 3.10 on only.
Fit Converter<std::string>::load(Handle source, std::string* stored) {
  if (!PyUnicode_Check(source.ptr())) return Fit::OtherType;
  PyObject* encoded = PyUnicode_AsUTF8String(source.ptr());
  if (encoded == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw PythonError();
    PyErr_Clear();
    return Fit::OtherValue;
  }
  *stored = Bytes(Object::steal(encoded)).view();
  return Fit::Yes;
}

Object sequence_of(Handle source) {
  if (PyTuple_Check(source.ptr())) return Object::borrow(source);
  if (PyUnicode_Check(source.ptr()) || PyBytes_Check(source.ptr()) ||
      PySequence_Check(source.ptr()) == 0)
    return {};
  return unless_other_type(PySequence_Tuple(source.ptr()));
}

}  // namespace assay::binding

// SPDX-License-Identifier: Apache-2.0
// How arguments of Python become C++ values, and results become objects of Python. A type of ours
// that class.hpp binds goes by reference; the rest are values.
#pragma once
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/binding/object.hpp"

namespace assay::binding {

/// Whether an object is what a parameter takes; if not, what is wrong with it.
enum class Fit : uint8_t { Yes, OtherType, OtherValue };

/// Of type T, without const and reference:
///   Stored         what load() fills and pass() hands to the function
///   parameter()    the annotation of a parameter that takes it
///   expected()     what an error says that it must be
///   result()       the annotation of a result
///   load(source, &stored)
///   give(value)    the object for Python
/// This one is of bound classes; class.hpp defines its functions.
template <typename T>
struct Converter {
  using Stored = T*;
  static std::string parameter();
  static std::string expected() { return parameter(); }
  static std::string result() { return parameter(); }
  static Fit load(Handle source, Stored* stored);
  static T& pass(Stored& stored) { return *stored; }
  static Object give(T value);
};

template <typename T>
struct ValueConverter {
  using Stored = T;
  static T&& pass(T& stored) { return std::move(stored); }
};

/// Whether an object has a type; a subclass is one.
template <typename T>
bool is_instance(Handle handle);
template <>
inline bool is_instance<Str>(Handle handle) {
  return PyUnicode_Check(handle.ptr());
}
template <>
inline bool is_instance<Bytes>(Handle handle) {
  return PyBytes_Check(handle.ptr());
}
template <>
inline bool is_instance<List>(Handle handle) {
  return PyList_Check(handle.ptr());
}
template <>
inline bool is_instance<Tuple>(Handle handle) {
  return PyTuple_Check(handle.ptr());
}
template <>
inline bool is_instance<Dict>(Handle handle) {
  return PyDict_Check(handle.ptr());
}
template <>
inline bool is_instance<bool>(Handle handle) {
  return PyBool_Check(handle.ptr());
}
template <>
inline bool is_instance<int64_t>(Handle handle) {
  return PyLong_Check(handle.ptr());
}
template <>
inline bool is_instance<double>(Handle handle) {
  return PyFloat_Check(handle.ptr());
}

template <>
struct Converter<bool> : ValueConverter<bool> {
  static std::string parameter() { return "bool"; }
  static std::string expected() { return "bool"; }
  static std::string result() { return "bool"; }
  static Fit load(Handle source, bool* stored) {
    *stored = source.ptr() == Py_True;
    return *stored || source.ptr() == Py_False ? Fit::Yes : Fit::OtherType;
  }
  static Object give(bool value) { return Object::borrow(value ? Py_True : Py_False); }
};

/// What counts as an integer: int, and whatever says that it is one (__index__). Gives no object
/// and no error for the rest.
Object integer_of(Handle source);
/// Of an int; nothing when it has more than 64 bits.
std::optional<int64_t> signed_value(Handle integer);
std::optional<uint64_t> unsigned_value(Handle integer);

template <typename T>
  requires std::is_integral_v<T>
struct Converter<T> : ValueConverter<T> {
  static std::string parameter() { return "int"; }
  static std::string expected() {
    return "int from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
           std::to_string(std::numeric_limits<T>::max());
  }
  static std::string result() { return "int"; }
  static Fit load(Handle source, T* stored) {
    Object held;
    if (!PyLong_CheckExact(source.ptr())) {
      held = integer_of(source);
      if (!held) return Fit::OtherType;
      source = held;
    }
    const auto value = [&] {
      if constexpr (std::is_signed_v<T>)
        return signed_value(source);
      else
        return unsigned_value(source);
    }();
    if (!value || !std::in_range<T>(*value)) return Fit::OtherValue;
    *stored = static_cast<T>(*value);
    return Fit::Yes;
  }
  static Object give(T value) {
    if constexpr (std::is_signed_v<T>)
      return checked(PyLong_FromLongLong(value));
    else
      return checked(PyLong_FromUnsignedLongLong(value));
  }
};

template <>
struct Converter<double> : ValueConverter<double> {
  static std::string parameter() { return "float"; }
  static std::string expected() { return "float"; }
  static std::string result() { return "float"; }
  static Fit load(Handle source, double* stored);
  static Object give(double value) { return checked(PyFloat_FromDouble(value)); }
};

template <>
struct Converter<std::string> : ValueConverter<std::string> {
  static std::string parameter() { return "str"; }
  static std::string expected() { return "str that UTF-8 can spell"; }
  static std::string result() { return "str"; }
  static Fit load(Handle source, std::string* stored);
  static Object give(std::string_view value) { return Str(value); }
};
template <>
struct Converter<std::string_view> {  // results only: an argument's text would need an owner
  static std::string result() { return "str"; }
  static Object give(std::string_view value) { return Str(value); }
};
template <>
struct Converter<const char*> : Converter<std::string_view> {};

/// Handle, Object and its kinds pass as they are.
template <typename T>
  requires std::is_base_of_v<Handle, T>
struct Converter<T>
    : ValueConverter<std::conditional_t<std::is_same_v<T, Handle>, Handle, Object>> {
  static std::string parameter() {
    if constexpr (std::is_same_v<T, Str>) return "str";
    if constexpr (std::is_same_v<T, Bytes>) return "bytes";
    if constexpr (std::is_same_v<T, List>) return "list";
    if constexpr (std::is_same_v<T, Tuple>) return "tuple";
    if constexpr (std::is_same_v<T, Dict>) return "dict";
    return "object";
  }
  static std::string expected() { return parameter(); }
  static std::string result() { return parameter(); }
  static Fit load(Handle source,
                  std::conditional_t<std::is_same_v<T, Handle>, Handle, Object>* stored) {
    if constexpr (!std::is_same_v<T, Object> && !std::is_same_v<T, Handle>) {
      if (!is_instance<T>(source)) return Fit::OtherType;
    }
    if constexpr (std::is_same_v<T, Handle>)
      *stored = source;
    else
      *stored = Object::borrow(source);
    return Fit::Yes;
  }
  static T pass(std::conditional_t<std::is_same_v<T, Handle>, Handle, Object>& stored) {
    return T(std::move(stored));
  }
  static Object give(T value) {
    if constexpr (std::is_same_v<T, Handle>)
      return Object::borrow(value);
    else
      return value;
  }
};

template <typename T>
struct Converter<std::optional<T>> : ValueConverter<std::optional<T>> {
  static std::string parameter() { return Converter<T>::parameter() + " | None"; }
  static std::string expected() { return Converter<T>::expected() + ", or None"; }
  static std::string result() { return Converter<T>::result() + " | None"; }
  static Fit load(Handle source, std::optional<T>* stored) {
    if (source.is_none()) return Fit::Yes;
    typename Converter<T>::Stored one{};
    const Fit fit = Converter<T>::load(source, &one);
    if (fit == Fit::Yes) *stored = Converter<T>::pass(one);
    return fit;
  }
  static Object give(std::optional<T> value) {
    return value ? Converter<T>::give(*std::move(value)) : none();
  }
};

/// The items of a sequence, which text and bytes are not here, as a list or tuple. Gives no object
/// and no error for the rest.
Object sequence_of(Handle source);

template <typename T>
struct Converter<std::vector<T>> : ValueConverter<std::vector<T>> {
  static std::string parameter() { return "Sequence[" + Converter<T>::parameter() + "]"; }
  static std::string expected() { return "sequence, its items " + Converter<T>::expected(); }
  static std::string result() { return "list[" + Converter<T>::result() + "]"; }
  static Fit load(Handle source, std::vector<T>* stored) {
    const Object items = sequence_of(source);
    if (!items) return Fit::OtherType;
    const auto count = static_cast<size_t>(PyTuple_Size(items.ptr()));
    stored->reserve(count);
    for (size_t i = 0; i < count; ++i) {
      typename Converter<T>::Stored one{};
      const Fit fit =
          Converter<T>::load(PyTuple_GetItem(items.ptr(), static_cast<Py_ssize_t>(i)), &one);
      if (fit != Fit::Yes) return Fit::OtherValue;
      stored->push_back(Converter<T>::pass(one));
    }
    return Fit::Yes;
  }
  static Object give(std::vector<T> values) {
    List list;
    for (T& value : values) list.append(std::move(value));
    return list;
  }
};

template <typename A, typename B>
struct Converter<std::pair<A, B>> : ValueConverter<std::pair<A, B>> {
  static std::string parameter() {
    return "tuple[" + Converter<A>::parameter() + ", " + Converter<B>::parameter() + "]";
  }
  static std::string expected() {
    return "pair of " + Converter<A>::expected() + " and " + Converter<B>::expected();
  }
  static std::string result() {
    return "tuple[" + Converter<A>::result() + ", " + Converter<B>::result() + "]";
  }
  static Fit load(Handle source, std::pair<A, B>* stored) {
    const Object items = sequence_of(source);
    if (!items) return Fit::OtherType;
    if (PyTuple_Size(items.ptr()) != 2) return Fit::OtherValue;
    typename Converter<A>::Stored first{};
    typename Converter<B>::Stored second{};
    if (Converter<A>::load(PyTuple_GetItem(items.ptr(), 0), &first) != Fit::Yes ||
        Converter<B>::load(PyTuple_GetItem(items.ptr(), 1), &second) != Fit::Yes)
      return Fit::OtherValue;
    stored->first = Converter<A>::pass(first);
    stored->second = Converter<B>::pass(second);
    return Fit::Yes;
  }
  static Object give(std::pair<A, B> value) {
    return tuple_of(std::move(value.first), std::move(value.second));
  }
};

template <typename T>
Object cast(T&& value) {
  return Converter<std::decay_t<T>>::give(std::forward<T>(value));
}

template <typename T>
T cast(Handle source) {
  typename Converter<T>::Stored stored{};
  if (Converter<T>::load(source, &stored) != Fit::Yes) {
    throw PythonError(PyExc_TypeError,
                      "expected " + Converter<T>::expected() + ", not " + source.type_name());
  }
  return Converter<T>::pass(stored);
}

}  // namespace assay::binding

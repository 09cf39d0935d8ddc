// SPDX-License-Identifier: Apache-2.0
// A C function of ours in the place of the one that calls a function of Python: nothing that a
// program looks at is another than without us.
#pragma once
#include <cstddef>
#include <cstring>
#include <utility>

#include "capture/torch/extension.hpp"
#include "capture/torch/python_compat.hpp"

namespace assay::capture {

/// Where functions of Python keep the C function that calls them. The member is the same since 3.8;
/// the limited API has no name for it, nor for the member of their type that tells its place.
inline VectorCall* vector_call_of(PyObject* function) {
  constexpr size_t kTypesOffset = 56;  // PyTypeObject.tp_vectorcall_offset
  Py_ssize_t offset = 0;
  std::memcpy(&offset, reinterpret_cast<const char*>(Py_TYPE(function)) + kTypesOffset,
              sizeof(offset));
  return reinterpret_cast<VectorCall*>(reinterpret_cast<char*>(function) + offset);
}

/// Whether that is where it is: two functions of Python have the same pointer there.
inline bool knows_vector_calls(PyObject* function) {
  const Ref size = attribute(reinterpret_cast<PyObject*>(Py_TYPE(function)), "__basicsize__");
  const Ref other = imported("types", "resolve_bases");
  if (!size || !other || Py_TYPE(other.get()) != Py_TYPE(function)) return false;
  const auto place =
      reinterpret_cast<char*>(vector_call_of(function)) - reinterpret_cast<char*>(function);
  if (place < static_cast<Py_ssize_t>(sizeof(PyObject)) ||
      place + static_cast<Py_ssize_t>(sizeof(VectorCall)) > PyLong_AsSsize_t(size.get()))
    return false;
  return *vector_call_of(function) != nullptr &&
         *vector_call_of(function) == *vector_call_of(other.get());
}

/// A function of Python, and what called it before ours was put there.
struct CallHook {
  PyObject* function = nullptr;  // while ours is in it
  VectorCall original = nullptr;

  // False where nobody knows how.
  bool put(Ref found, VectorCall ours) {
    if (!found || !knows_vector_calls(found.get())) return false;
    original = std::exchange(*vector_call_of(found.get()), ours);
    function = found.release();
    return true;
  }
  // Calls that are at work know what they call.
  void take() {
    *vector_call_of(function) = original;
    replace(function, nullptr);
  }
};

}  // namespace assay::capture

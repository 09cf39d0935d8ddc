// SPDX-License-Identifier: Apache-2.0
// Attributes, items and errors of Python's objects.
#include "python/binding/object.hpp"

namespace assay::binding {

std::string Handle::type_name() const {
  const Object type = Object::borrow(reinterpret_cast<PyObject*>(Py_TYPE(pointer_)));
  return cast<std::string>(type.attr("__name__"));
}

Object Handle::attr(const char* name) const {
  return checked(PyObject_GetAttrString(pointer_, name));
}

Object Handle::attr_if_any(const char* name) const {
  PyObject* found = PyObject_GetAttrString(pointer_, name);
  if (found == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw PythonError();
    PyErr_Clear();
  }
  return Object::steal(found);
}

Object Handle::operator[](size_t index) const {
  return checked(PySequence_GetItem(pointer_, static_cast<Py_ssize_t>(index)));
}

Object import_module(const char* name) { return checked(PyImport_ImportModule(name)); }

std::string_view Bytes::view() const {
  char* data = nullptr;
  Py_ssize_t size = 0;
  check(PyBytes_AsStringAndSize(pointer_, &data, &size));
  return {data, static_cast<size_t>(size)};
}

struct PythonError::State {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  std::string text;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    const GilHeld held;
    Py_DecRef(type);
    Py_DecRef(value);
    Py_DecRef(trace);
  }
};

PythonError::PythonError() : state_(std::make_shared<State>()) {
  PyErr_Fetch(&state_->type, &state_->value, &state_->trace);
  PyErr_NormalizeException(&state_->type, &state_->value, &state_->trace);
}

PythonError::PythonError(PyObject* type, const std::string& message) {
  // A shortened text may end within a character.
  const Object text = checked(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  PyErr_SetObject(type, text.ptr());
  *this = PythonError();
}

void PythonError::restore() noexcept {
  PyErr_Restore(std::exchange(state_->type, nullptr), std::exchange(state_->value, nullptr),
                std::exchange(state_->trace, nullptr));
}

const char* PythonError::what() const noexcept {
  const GilHeld held;
  if (!state_->text.empty() || state_->type == nullptr) return state_->text.c_str();
  try {
    const auto or_none = [](PyObject* part) {
      return part != nullptr ? Handle(part) : Handle(Py_None);
    };
    const Object lines = import_module("traceback")
                             .attr("format_exception")(Handle(state_->type), or_none(state_->value),
                                                       or_none(state_->trace));
    for_each(lines, [&](Handle line) { state_->text += cast<std::string>(line); });
    while (state_->text.ends_with('\n')) state_->text.pop_back();
  } catch (const std::exception&) {
    state_->text = "an error of Python that Python cannot print";
  }
  return state_->text.c_str();
}

}  // namespace assay::binding

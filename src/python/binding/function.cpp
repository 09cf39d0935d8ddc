// SPDX-License-Identifier: Apache-2.0
// From Python's positional and named arguments to the values of a C++ function, and from C++
// exceptions to Python's.
#include "python/binding/function.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>

namespace assay::binding {
namespace {

// Python calls a C function that gets no pointer of ours, so each of our functions needs a C
// function of its own. The stable ABI has no other way: a callable type would cost every method a
// bound object, and hide signatures from Python's inspect module.
constexpr size_t kMostFunctions = 320;
constexpr size_t kMostArguments = 32;
std::array<const Function*, kMostFunctions> g_entries = {};

PyObject* call_fast(const Function& function, PyObject* self, PyObject* const* args,
                    Py_ssize_t count, PyObject* names) noexcept;

// Arguments in a row, of which the last ones have names: the stable ABI has it from 3.10 on, where
// it saves each call a tuple and a dict.
constexpr int kFastCall = 0x0080;  // METH_FASTCALL
template <size_t Index>
PyObject* fast_entry(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return call_fast(*g_entries[Index], self, args, count, names);
}
template <size_t Index>
PyObject* entry(PyObject* self, PyObject* args, PyObject* keywords) {
  return call_function(*g_entries[Index], self, args, keywords);
}

struct Entry {
  PyObject* (*fast)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
  PyObject* (*plain)(PyObject*, PyObject*, PyObject*);
};
template <size_t... Index>
constexpr std::array<Entry, kMostFunctions> all_entries(std::index_sequence<Index...>) {
  return {Entry{fast_entry<Index>, entry<Index>}...};
}
constexpr auto kEntries = all_entries(std::make_index_sequence<kMostFunctions>());

bool has_fast_calls() {
  static const bool known = [] {
    PyObject* const version = PySys_GetObject("hexversion");  // borrowed
    return version != nullptr && cast<int64_t>(version) >= 0x030a0000;
  }();
  return known;
}

std::vector<std::unique_ptr<Function>>& functions() {
  static auto* const all = new std::vector<std::unique_ptr<Function>>();  // never destroyed
  return *all;
}

void (*g_translate)() = nullptr;

std::string repr(Handle value) { return cast<std::string>(checked(PyObject_Repr(value.ptr()))); }

/// "record(): "
std::string place(const Function& function) { return function.name + "(): "; }

[[noreturn]] void refuse(const Function& function, const std::string& problem) {
  throw PythonError(PyExc_TypeError, place(function) + problem);
}

/// Separator, name, annotation and default of the parameters from self on.
std::string parameter_list(const Function& function, bool for_inspect) {
  std::string text = "(";
  const auto add = [&](const std::string& part) { text += (text.size() > 1 ? ", " : "") + part; };
  if (function.has_self) add(for_inspect ? "$self" : "self");
  for (size_t i = 0; i < function.annotations.size(); ++i) {
    if (i == function.positional) add("*");
    const Arg* const argument = function.named ? &function.parameters[i] : nullptr;
    std::string part = argument != nullptr ? argument->name : "arg" + std::to_string(i);
    if (!for_inspect) part += ": " + function.annotations[i];
    if (argument != nullptr && argument->value)
      part += (for_inspect ? "=" : " = ") + repr(argument->value);
    add(part);
  }
  if (!function.named && !function.annotations.empty()) add("/");
  return text + ")";
}

/// Where an argument that was passed by name goes.
size_t index_of(const Function& function, Handle name) {
  for (size_t i = 0; i < function.names.size(); ++i)
    if (name.ptr() == function.names[i].ptr()) return i;
  for (size_t i = 0; i < function.names.size(); ++i) {
    if (PyUnicode_Compare(name.ptr(), function.names[i].ptr()) == 0) return i;
  }
  refuse(function, "has no parameter " + repr(name));
}

/// The values of a call's parameters, each from an argument or a default.
class Values {
 public:
  Values(const Function& function, PyObject* self)
      : function_(function), first_(function.has_self ? 1 : 0) {
    if (function.has_self) values_[0] = self;
  }

  void add_positional(size_t index, PyObject* value) { parameter(index) = value; }
  void check_positional(size_t given) const {
    if (given > function_.positional) {
      refuse(function_, "takes at most " + std::to_string(function_.positional) +
                            " arguments by position, not " + std::to_string(given));
    }
  }
  void add_named(PyObject* name, PyObject* value) {
    Handle& place = parameter(index_of(function_, name));
    if (place) refuse(function_, "has two values for argument " + repr(name));
    place = value;
  }
  /// All of them, after the first `given` ones.
  const Handle* complete(size_t given) {
    const size_t count = function_.annotations.size();
    for (size_t i = given; i < count; ++i) {
      Handle& place = parameter(i);
      if (!place && function_.named) place = function_.parameters[i].value;
      if (!place) refuse_missing(i, given);
    }
    return values_.data();
  }

 private:
  Handle& parameter(size_t index) { return values_[first_ + index]; }
  [[noreturn]] void refuse_missing(size_t index, size_t given) const {
    refuse(function_, function_.named
                          ? "needs argument '" + std::string(function_.parameters[index].name) + "'"
                          : "needs " + std::to_string(function_.annotations.size()) +
                                " arguments, not " + std::to_string(given));
  }

  const Function& function_;
  size_t first_;
  std::array<Handle, kMostArguments + 1> values_;
};

PyObject* call_fast(const Function& function, PyObject* self, PyObject* const* args,
                    Py_ssize_t count, PyObject* names) noexcept {
  try {
    Values values(function, self);
    const auto given = static_cast<size_t>(count);
    values.check_positional(given);
    for (size_t i = 0; i < given; ++i) values.add_positional(i, args[i]);
    if (names != nullptr) {
      const Py_ssize_t named = PyTuple_Size(names);
      for (Py_ssize_t i = 0; i < named; ++i)
        values.add_named(PyTuple_GetItem(names, i), args[count + i]);
    }
    return function.call(values.complete(given)).release();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

}  // namespace

std::string Function::signature() const { return parameter_list(*this, false) + " -> " + result; }

Function& register_function(std::unique_ptr<Function> made) {
  Function& function = *made;
  function.named = !function.parameters.empty();
  const size_t count = function.annotations.size();
  const size_t index = functions().size();
  if ((function.named && function.parameters.size() != count) || count > kMostArguments ||
      index == kMostFunctions)
    throw PythonError(PyExc_SystemError, place(function) + "cannot be bound");
  function.positional = std::min(function.positional, count);
  for (const Arg& argument : function.parameters)
    function.names.push_back(checked(PyUnicode_InternFromString(argument.name)));
  function.text = function.name + parameter_list(function, true) + "\n--\n\n" + function.document;
  // Python goes by the flags which of the types the function has.
  const bool fast = has_fast_calls();
  void* const pointer = fast ? reinterpret_cast<void*>(kEntries[index].fast)
                             : reinterpret_cast<void*>(kEntries[index].plain);
  function.definition = {function.name.c_str(), reinterpret_cast<PyCFunction>(pointer),
                         (fast ? kFastCall : METH_VARARGS) | METH_KEYWORDS, function.text.c_str()};
  g_entries[index] = &function;
  functions().push_back(std::move(made));
  return function;
}

Tuple describe(const Function& function, const std::string& name) {
  return tuple_of("def", name, function.signature(), function.document);
}

PyObject* call_function(const Function& function, PyObject* self, PyObject* args,
                        PyObject* keywords) noexcept {
  try {
    Values values(function, self);
    const Py_ssize_t given = PyTuple_Size(args);
    values.check_positional(static_cast<size_t>(given));
    for (Py_ssize_t i = 0; i < given; ++i)
      values.add_positional(static_cast<size_t>(i), PyTuple_GetItem(args, i));
    if (keywords != nullptr) {
      PyObject* name = nullptr;
      PyObject* value = nullptr;
      for (Py_ssize_t position = 0; PyDict_Next(keywords, &position, &name, &value) != 0;)
        values.add_named(name, value);
    }
    return function.call(values.complete(static_cast<size_t>(given))).release();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

void refuse_argument(const Function& function, size_t index, Handle value, Fit fit,
                     const std::string& expected) {
  constexpr size_t kLongest = 80;
  std::string given = value.type_name();
  if (fit == Fit::OtherValue) {
    given = repr(value);
    if (given.size() > kLongest) given = given.substr(0, kLongest) + "...";
  }
  std::string what = "self";
  if (!function.has_self || index > 0) {
    const size_t parameter = index - (function.has_self ? 1 : 0);
    what = function.named ? "argument '" + std::string(function.parameters[parameter].name) + "'"
                          : "argument " + std::to_string(parameter + 1);
  }
  refuse(function, what + " must be " + expected + ", not " + given);
}

void use_exception_translator(void (*translate)()) { g_translate = translate; }

void set_python_error() noexcept {
  try {
    if (g_translate != nullptr)
      g_translate();
    else
      throw;
  } catch (PythonError& error) {
    error.restore();
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::overflow_error& error) {
    PyErr_SetString(PyExc_OverflowError, error.what());
  } catch (const std::range_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::logic_error& error) {  // invalid_argument, domain_error, length_error
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_SystemError, "an unknown C++ exception");
  }
}

void Module::add(Function& function) {
  const Str module_name{name_};
  const Object made =
      checked(PyCFunction_NewEx(&function.definition, module_.ptr(), module_name.ptr()));
  check(PyObject_SetAttrString(module_.ptr(), function.name.c_str(), made.ptr()));
  describe(assay::binding::describe(function, function.name));
}

PyObject* make_module(const char* name, const char* document,
                      void (*fill)(Module& module)) noexcept {
  // Python keeps it. A shared object is one module.
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, name, document, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  try {
    const Object made = checked(PyModule_Create(&definition));
    Module module(made, std::string("assay.") + name);
    fill(module);
    module.set("_description", Object(module.description()));
    return Object(made).release();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

}  // namespace assay::binding

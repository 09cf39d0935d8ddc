// SPDX-License-Identifier: Apache-2.0
// Tells code that Inductor wrote by the names that its modules begin with.
#include "capture/torch/compiled_code.hpp"

#include <algorithm>
#include <initializer_list>

#include "capture/torch/python_compat.hpp"

namespace assay::capture {
namespace {

constexpr int kMaxModesBetween = 16;

bool is_one_of(PyObject* text, std::initializer_list<const char*> wanted) {
  return text != nullptr && PyUnicode_Check(text) &&
         std::any_of(wanted.begin(), wanted.end(), [text](const char* name) {
           return PyUnicode_CompareWithASCIIString(text, name) == 0;
         });
}

// The modules that Inductor writes begin with the same few names, two of which nobody else has side
// by side. A mode of somebody else may stand between it and us, and torch's own call of an
// operator.
CompiledCode::Caller classify(PyObject* frame, PyObject* code) {
  const Ref globals = attribute(frame, "f_globals");
  const Ref function = attribute(code, "co_name");
  if (!globals || !PyDict_Check(globals.get()) || !function) return CompiledCode::Caller::Other;
  const auto global = [&globals](const char* name) {
    PyObject* value = PyDict_GetItemString(globals.get(), name);  // borrowed
    PyErr_Clear();
    return value;
  };
  if (global("extern_kernels") != nullptr && global("assert_size_stride") != nullptr)
    return CompiledCode::Caller::Inductor;
  const bool passes_on =
      is_one_of(function.get(), {"__torch_dispatch__"}) ||
      is_one_of(global("__name__"), {"torch._ops", "torch._compile", "torch._dynamo.eval_frame"});
  return passes_on ? CompiledCode::Caller::PassesOn : CompiledCode::Caller::Other;
}

}  // namespace

CompiledCode::~CompiledCode() {
  for (auto& [code, caller] : known_) Py_DECREF(code);
}

CompiledCode::Caller CompiledCode::caller_of(PyObject* frame) {
  static PyObject* code_name = PyUnicode_InternFromString("f_code");
  Ref code(PyObject_GetAttr(frame, code_name));
  if (!code) return Caller::Other;
  const auto found = known_.find(code.get());
  if (found != known_.end()) return found->second;
  const Caller caller = classify(frame, code.get());
  if (known_.emplace(code.get(), caller).second) (void)code.release();
  return caller;
}

bool CompiledCode::is_calling() {
  // What Inductor wrote is loaded by this module of torch. As long as it is not there, and it comes
  // with the first compilation, no frame needs to be looked at.
  if (!may_exist_) {
    static PyObject* loader = PyUnicode_InternFromString("torch._inductor.codecache");
    may_exist_ =
        loader == nullptr || PyDict_GetItemWithError(PyImport_GetModuleDict(), loader) != nullptr;
    PyErr_Clear();
    if (!may_exist_) return false;
  }
  PyObject* innermost = reinterpret_cast<PyObject*>(PyEval_GetFrame());
  if (innermost == nullptr) return false;
  Ref frame(new_ref(innermost));
  Caller caller = caller_of(frame.get());
  for (int i = 0; i < kMaxModesBetween && caller == Caller::PassesOn; ++i) {
    Ref outer = attribute(frame.get(), "f_back");
    if (!outer || outer.get() == Py_None) break;
    frame = std::move(outer);
    caller = caller_of(frame.get());
  }
  PyErr_Clear();
  return caller == Caller::Inductor;
}

}  // namespace assay::capture

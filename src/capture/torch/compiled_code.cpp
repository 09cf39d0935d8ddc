// SPDX-License-Identifier: Apache-2.0
#include "capture/torch/compiled_code.hpp"

#include <algorithm>
#include <initializer_list>

namespace assay::capture {
namespace {

constexpr int kMaxModesBetween = 16;

bool is_one_of(PyObject* text, std::initializer_list<const char*> wanted) {
  return text != nullptr && PyUnicode_Check(text) &&
         std::any_of(wanted.begin(), wanted.end(), [text](const char* name) {
           return PyUnicode_CompareWithASCIIString(text, name) == 0;
         });
}

// The modules that Inductor writes begin with the same few names, two of which nobody else has side by side. A mode of
// somebody else may stand between it and us, and torch's own call of an operator.
CompiledCode::Caller classify(PyObject* frame, PyObject* code) {
  PyObject* globals = PyObject_GetAttrString(frame, "f_globals");
  PyObject* function = PyObject_GetAttrString(code, "co_name");
  CompiledCode::Caller caller = CompiledCode::Caller::Other;
  if (globals != nullptr && PyDict_Check(globals) && function != nullptr) {
    PyObject* module = PyDict_GetItemString(globals, "__name__");  // borrowed
    if (PyDict_GetItemString(globals, "extern_kernels") != nullptr &&
        PyDict_GetItemString(globals, "assert_size_stride") != nullptr) {
      caller = CompiledCode::Caller::Inductor;
    } else if (PyUnicode_CompareWithASCIIString(function, "__torch_dispatch__") == 0 ||
               is_one_of(module, {"torch._ops", "torch._compile", "torch._dynamo.eval_frame"})) {
      caller = CompiledCode::Caller::PassesOn;
    }
  }
  PyErr_Clear();
  Py_XDECREF(globals);
  Py_XDECREF(function);
  return caller;
}

}  // namespace

CompiledCode::~CompiledCode() {
  for (auto& [code, caller] : known_) Py_DECREF(code);
}

CompiledCode::Caller CompiledCode::caller_of(PyFrameObject* frame) {
  auto* code = reinterpret_cast<PyObject*>(PyFrame_GetCode(frame));
  const auto found = known_.find(code);
  if (found != known_.end()) {
    Py_DECREF(code);
    return found->second;
  }
  const Caller caller = classify(reinterpret_cast<PyObject*>(frame), code);
  if (!known_.emplace(code, caller).second) Py_DECREF(code);
  return caller;
}

bool CompiledCode::is_calling() {
  // What Inductor wrote is loaded by this module of torch. As long as it is not there, and it comes with the first
  // compilation, no frame needs to be looked at.
  if (!may_exist_) {
    static PyObject* loader = PyUnicode_InternFromString("torch._inductor.codecache");
    may_exist_ =
        loader == nullptr || PyDict_GetItemWithError(PyImport_GetModuleDict(), loader) != nullptr;
    PyErr_Clear();
    if (!may_exist_) return false;
  }
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr) return false;
  Py_INCREF(frame);
  Caller caller = caller_of(frame);
  for (int i = 0; i < kMaxModesBetween && caller == Caller::PassesOn; ++i) {
    PyFrameObject* outer = PyFrame_GetBack(frame);
    if (outer == nullptr) break;
    Py_DECREF(frame);
    frame = outer;
    caller = caller_of(frame);
  }
  Py_DECREF(frame);
  return caller == Caller::Inductor;
}

}  // namespace assay::capture

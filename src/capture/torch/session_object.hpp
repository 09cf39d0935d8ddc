// SPDX-License-Identifier: Apache-2.0
// The Python object around a Session, shared by the types of this extension.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "capture/torch/session.hpp"

namespace assay::capture {

struct SessionObject {
  // nullptr after close() failed to create it; otherwise alive as long as the object.
  PyObject_HEAD Session* session;
  PyObject* wanted;
  PyObject* device;
  PyObject* mode;  // the dispatch mode of an operator-level capture, or nullptr
};

[[nodiscard]] inline Session& session_of(PyObject* session_object) {
  return *reinterpret_cast<SessionObject*>(session_object)->session;
}

/// The heap types, created when the module is imported.
extern PyTypeObject* session_type;
extern PyTypeObject* module_call_type;

/// What module_call.cpp adds to the Session type: session.module_call(module, node).
PyObject* session_module_call(PyObject* self, PyObject* args);
/// What graph_run_python.cpp adds.
PyObject* session_add_graph_operator(PyObject* self, PyObject* args);
PyObject* session_graph_run(PyObject* self, PyObject* args);

}  // namespace assay::capture

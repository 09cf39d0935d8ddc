// SPDX-License-Identifier: Apache-2.0
// Session.add_graph_operator(), Session.graph_run(), and what instrumented code of a compiled graph
// calls for each operator. The work is in session_graph.cpp.
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "capture/torch/extension.hpp"
#include "capture/torch/session_object.hpp"

namespace assay::capture {
namespace {

PyTypeObject* graph_run_type = nullptr;

struct GraphRunObject {
  PyObject_HEAD PyObject* session;  // owned
  GraphRun* run;
};

Session* session_behind(const GraphRunObject* object) {
  return reinterpret_cast<SessionObject*>(object->session)->session;
}

PyObject* end_run(PyObject* self, PyObject*) {
  auto* object = reinterpret_cast<GraphRunObject*>(self);
  session_behind(object)->end_graph_run(*object->run);
  Py_RETURN_NONE;
}

void dealloc_run(PyObject* self) {
  auto* object = reinterpret_cast<GraphRunObject*>(self);
  if (object->run != nullptr) {
    session_behind(object)->end_graph_run(*object->run);
    delete object->run;
  }
  Py_CLEAR(object->session);
  free_object(self);
}

PyMethodDef run_methods[] = {
    {"end", end_run, METH_NOARGS, "After the last operator, also when one has raised."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot run_slots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_run)},
                           {Py_tp_methods, run_methods},
                           {0, nullptr}};
PyType_Spec run_spec = {"assay._capture.GraphRun", sizeof(GraphRunObject), 0, Py_TPFLAGS_DEFAULT,
                        run_slots};

// The arguments of a function that instrumented code calls: (run, number, ...).
struct Call {
  GraphRunObject* object = nullptr;
  uint32_t number = 0;
  std::span<PyObject* const> rest;

  [[nodiscard]] Session& session() const { return *session_behind(object); }
  [[nodiscard]] GraphRun& run() const { return *object->run; }
};

// False with a Python exception set.
bool read_call(PyObject* const* args, Py_ssize_t count, Py_ssize_t least, Call* call) {
  if (count < least || !Py_IS_TYPE(args[0], graph_run_type)) {
    PyErr_SetString(PyExc_TypeError, "takes a GraphRun, the number of an operator and operands");
    return false;
  }
  call->object = reinterpret_cast<GraphRunObject*>(args[0]);
  const unsigned long number = PyLong_AsUnsignedLong(args[1]);
  if (PyErr_Occurred() != nullptr) return false;
  if (number >= call->session().graph_operator_count()) {
    PyErr_SetString(PyExc_IndexError, "no such operator");
    return false;
  }
  call->number = static_cast<uint32_t>(number);
  call->rest = {args + 2, static_cast<size_t>(count - 2)};
  return true;
}

// graph_input(run, number, value)
PyObject* graph_input(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Call call;
  if (!read_call(args, count, 3, &call)) return nullptr;
  call.session().record_graph_input(call.run(), call.number, call.rest[0]);
  Py_RETURN_NONE;
}

// graph_before(run, number, *inputs)
PyObject* graph_before(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Call call;
  if (!read_call(args, count, 2, &call)) return nullptr;
  call.session().record_graph_inputs(call.run(), call.number, call.rest);
  Py_RETURN_NONE;
}

// graph_after(run, number, result, *inputs)
PyObject* graph_after(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Call call;
  if (!read_call(args, count, 3, &call)) return nullptr;
  call.session().record_graph_operator(call.run(), call.number, call.rest[0], call.rest.subspan(1));
  Py_RETURN_NONE;
}

// graph_wrote(run, *tensors)
PyObject* graph_wrote(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count < 1 || !Py_IS_TYPE(args[0], graph_run_type)) {
    PyErr_SetString(PyExc_TypeError, "takes a GraphRun and tensors");
    return nullptr;
  }
  session_behind(reinterpret_cast<GraphRunObject*>(args[0]))
      ->note_graph_writes({args + 1, static_cast<size_t>(count - 1)});
  Py_RETURN_NONE;
}

// Tuple of bool -> vector; false with a Python exception set.
bool read_flags(PyObject* list, std::vector<bool>* flags) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(list); ++i) {
    const int truth = PyObject_IsTrue(PyTuple_GetItem(list, i));
    if (truth < 0) return false;
    flags->push_back(truth != 0);
  }
  return true;
}

template <PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)>
PyCFunction fast() {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef graph_run_functions[] = {
    {"graph_input", fast<graph_input>(), kFastCall,
     "graph_input(run, number, value): what a graph was given, or a constant of it"},
    {"graph_before", fast<graph_before>(), kFastCall,
     "graph_before(run, number, *inputs): inputs that the operator is about to overwrite"},
    {"graph_after", fast<graph_after>(), kFastCall,
     "graph_after(run, number, result, *inputs): an operator ran"},
    {"graph_wrote", fast<graph_wrote>(), kFastCall,
     "graph_wrote(run, *tensors): an operator has written them"},
    {nullptr, nullptr, 0, nullptr}};

const ExtensionPart graph_run_part([](PyObject* module) {
  graph_run_type = make_type(&run_spec);
  return graph_run_type != nullptr ? PyModule_AddFunctions(module, graph_run_functions) : -1;
});

}  // namespace

// add_graph_operator(node, inputs, outputs, left-out inputs, left-out outputs, constants: tuple of
// (place, tensor)) -> number
PyObject* session_add_graph_operator(PyObject* self, PyObject* args) {
  unsigned node = 0;
  int inputs = 0, outputs = 0;
  PyObject *left_inputs = nullptr, *left_outputs = nullptr, *constants = nullptr;
  if (!PyArg_ParseTuple(args, "IppO!O!O!", &node, &inputs, &outputs, &PyTuple_Type, &left_inputs,
                        &PyTuple_Type, &left_outputs, &PyTuple_Type, &constants))
    return nullptr;
  Session& session = *reinterpret_cast<SessionObject*>(self)->session;
  if (node >= session.nodes().size()) {
    PyErr_SetString(PyExc_IndexError, "no such node");
    return nullptr;
  }
  GraphOperator op;
  op.node = node;
  op.inputs = inputs != 0;
  op.outputs = outputs != 0;
  if (!read_flags(left_inputs, &op.left_out_inputs) ||
      !read_flags(left_outputs, &op.left_out_outputs))
    return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_Size(constants); ++i) {
    Py_ssize_t place = 0;
    PyObject* tensor = nullptr;
    if (!PyArg_ParseTuple(PyTuple_GetItem(constants, i), "nO", &place, &tensor)) return nullptr;
    op.constants.emplace_back(static_cast<size_t>(place), Ref(new_ref(tensor)));
  }
  return PyLong_FromUnsignedLong(session.add_graph_operator(std::move(op)));
}

// graph_run(number of the graph's node, step) -> GraphRun
PyObject* session_graph_run(PyObject* self, PyObject* args) {
  unsigned graph = 0;
  long long step = 0;
  if (!PyArg_ParseTuple(args, "IL", &graph, &step)) return nullptr;
  auto* object = new_object<GraphRunObject>(graph_run_type);
  if (object == nullptr) return nullptr;
  object->session = new_ref(self);
  object->run = new (std::nothrow) GraphRun();
  if (object->run == nullptr) {
    Py_DECREF(reinterpret_cast<PyObject*>(object));
    return PyErr_NoMemory();
  }
  session_behind(object)->begin_graph_run(graph, step, *object->run);
  return reinterpret_cast<PyObject*>(object);
}

}  // namespace assay::capture

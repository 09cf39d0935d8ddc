// SPDX-License-Identifier: Apache-2.0
// The dispatch mode as a C object, and its place on torch's stack of modes.
#include "capture/torch/operator_mode.hpp"

#include <cstddef>
#include <cstring>
#include <vector>

#include "capture/torch/extension.hpp"
#include "capture/torch/python_compat.hpp"

namespace assay::capture {
namespace {

PyTypeObject* mode_type = nullptr;

// Its own bound method: torch looks for `__torch_dispatch__`, checks that the method's `__self__`
// is the mode, and calls it. Both names are looked up by C string for every operator. The usual way
// makes Python strings of them, searches types with them and makes a bound method, 0.2 us each;
// here it is a comparison.
struct OperatorMode {
  VectorCallable callable;
  Session* session;
};

// torch's functions for the stack of modes, fetched once and kept.
struct StackFunctions {
  PyObject* size = nullptr;
  PyObject* at = nullptr;
  PyObject* push = nullptr;
  PyObject* pop = nullptr;
};
StackFunctions functions;

bool load_stack_functions() {
  if (functions.pop != nullptr) return true;
  const Ref torch(PyImport_ImportModule("torch._C"));
  const auto load = [&torch](PyObject** function, const char* name) {
    *function = torch ? PyObject_GetAttrString(torch.get(), name) : nullptr;
    return *function != nullptr;
  };
  return load(&functions.size, "_len_torch_dispatch_stack") &&
         load(&functions.at, "_get_dispatch_stack_at") &&
         load(&functions.push, "_push_on_torch_dispatch_stack") &&
         load(&functions.pop, "_pop_torch_dispatch_stack");
}

// Whether tensors of a class among the arguments run other operators in the place of this one, on
// local shards. They come here again, and are recorded. Not so the result of a collective that is
// on its way: it makes views of what is still written, which nobody may read.
bool takes_operators_apart(PyObject* types) {
  for (Py_ssize_t i = 0; i < size_of(types); ++i) {
    const std::string name = class_name(reinterpret_cast<PyTypeObject*>(item_of(types, i)));
    if (name == "DTensor") return true;
  }
  return false;
}

// __torch_dispatch__(function, types, args, kwargs)
PyObject* dispatch(PyObject* self, PyObject* const* given, size_t flags, PyObject* names) {
  const size_t count = argument_count(flags);
  if (count < 3 || !PyTuple_Check(given[2]) || (names != nullptr && PyTuple_Size(names) != 0)) {
    PyErr_SetString(PyExc_TypeError, "__torch_dispatch__ takes a function, types, args and kwargs");
    return nullptr;
  }
  PyObject* function = given[0];
  PyObject* args = given[2];
  if (takes_operators_apart(given[1])) Py_RETURN_NOTIMPLEMENTED;
  PyObject* kwargs = count > 3 && given[3] != Py_None ? given[3] : nullptr;
  Session* session = reinterpret_cast<OperatorMode*>(self)->session;
  if (session == nullptr) return PyObject_Call(function, args, kwargs);
  const OperatorSchema* schema = session->schema_of(function);
  if (schema == nullptr) return PyObject_Call(function, args, kwargs);
  const Ref target(new_ref(schema->target));
  OperatorFrame frame;
  const bool recorded = session->begin_operator(*schema, args, kwargs, frame);
  PyObject* result = PyObject_Call(target.get(), args, kwargs);
  if (!recorded) return result;
  const ErrorAside aside;
  session->end_operator(*schema, args, kwargs, result, frame);
  return result;
}

PyObject* always(PyObject*, PyObject*) { Py_RETURN_TRUE; }
PyObject* always_property(PyObject*, void*) { Py_RETURN_TRUE; }
PyObject* never_property(PyObject*, PyObject*) { Py_RETURN_FALSE; }

PyMethodDef mode_methods[] = {
    // torch.compile neither gives up because of this mode nor shows it what its own code does.
    {"ignore_compile_internals", always, METH_NOARGS, nullptr},
    {"is_infra_mode", never_property, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyObject* mode_itself(PyObject* self, void*) { return new_ref(self); }

PyObject* mode_getattr(PyObject* self, char* name) {
  if (std::strcmp(name, "__torch_dispatch__") == 0 || std::strcmp(name, "__self__") == 0)
    return new_ref(self);
  const Ref text(PyUnicode_FromString(name));
  return text ? PyObject_GenericGetAttr(self, text.get()) : nullptr;
}

PyGetSetDef mode_properties[] = {
    {"__torch_dispatch__", mode_itself, nullptr, nullptr, nullptr},
    {"__self__", mode_itself, nullptr, nullptr, nullptr},
    // Operators with functions among their arguments (flex_attention) come here like all others.
    {"supports_higher_order_operators", always_property, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot mode_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(free_object)},
                            {Py_tp_getattr, reinterpret_cast<void*>(mode_getattr)},
                            {Py_tp_getattro, reinterpret_cast<void*>(PyObject_GenericGetAttr)},
                            {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                            {Py_tp_call, reinterpret_cast<void*>(call_with_tuple)},
                            {Py_tp_members, vector_call_members},
                            {Py_tp_methods, mode_methods},
                            {Py_tp_getset, mode_properties},
                            {0, nullptr}};
PyType_Spec mode_spec = {"assay._capture.OperatorMode", sizeof(OperatorMode), 0,
                         Py_TPFLAGS_DEFAULT | kHasVectorCall, mode_slots};

const ExtensionPart mode_part([](PyObject*) {
  mode_type = make_type(&mode_spec);
  return mode_type != nullptr ? 0 : -1;
});

}  // namespace

PyObject* new_operator_mode() {
  if (!load_stack_functions()) return nullptr;
  auto* mode = new_object<OperatorMode>(mode_type);
  if (mode == nullptr) return nullptr;
  mode->callable.call = dispatch;
  mode->session = nullptr;
  return reinterpret_cast<PyObject*>(mode);
}

void set_mode_session(PyObject* mode, Session* session) noexcept {
  reinterpret_cast<OperatorMode*>(mode)->session = session;
}

int64_t dispatch_stack_size() noexcept {
  const Ref size(PyObject_CallObject(functions.size, nullptr));
  const int64_t value = size ? PyLong_AsLongLong(size.get()) : -1;
  PyErr_Clear();
  return value;
}

bool push_dispatch_mode(PyObject* mode) noexcept {
  const ErrorAside aside;
  return static_cast<bool>(Ref(PyObject_CallFunctionObjArgs(functions.push, mode, nullptr)));
}

bool pop_dispatch_mode(PyObject* mode) noexcept {
  const ErrorAside aside;
  const int64_t size = dispatch_stack_size();
  bool present = false;
  for (int64_t i = 0; i < size && !present; ++i) {
    const Ref found(PyObject_CallFunction(functions.at, "L", static_cast<long long>(i)));
    present = found.get() == mode;
    PyErr_Clear();
  }
  if (!present) return false;
  // What stands above ours goes back in the same order.
  std::vector<Ref> above;
  bool found = false;
  while (!found) {
    Ref top(PyObject_CallFunctionObjArgs(functions.pop, Py_None, nullptr));
    if (!top) break;
    found = top.get() == mode;
    if (!found) above.push_back(std::move(top));
  }
  for (; !above.empty(); above.pop_back())
    (void)Ref(PyObject_CallFunctionObjArgs(functions.push, above.back().get(), nullptr));
  return found;
}

}  // namespace assay::capture

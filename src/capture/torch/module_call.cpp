// SPDX-License-Identifier: Apache-2.0
// ModuleCall: what sees the calls of one module, without anything of ours in the module or its class.
//
// nn.Module.__call__ calls nn.Module._call_impl, a function of Python. An object of that kind has a
// pointer to the C function that calls it (PEP 590), and while something is captured that one is
// ours: it looks the module up by its address, reads the arguments, calls what Python would have
// called, and reads the result. Nothing that a program, a copy, a pickle or a compiler looks at is
// another than without us. `_compiled_call_impl`, which module.compile() puts into the instance, has
// no function of its own: while such a module is captured, a descriptor of the class gives a
// WatchedCall around it. Costs and alternatives: docs/design/torch-capture.md
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/torch/call_hook.hpp"
#include "capture/torch/extension.hpp"
#include "capture/torch/python_compat.hpp"
#include "capture/torch/session_object.hpp"

namespace assay::capture {

PyTypeObject* module_call_type = nullptr;

namespace {

struct ModuleCall;

// The registered calls of captured modules by the module's address, the newest capture's first. An
// entry whose module is gone is no entry: another one may have its address.
using Calls = std::unordered_map<PyObject*, ModuleCall*>;

struct ModuleCall {
  PyObject_HEAD PyObject* session;  // SessionObject
  PyObject* module;                 // weak reference
  PyObject* previous;               // the ModuleCall of a capture that came before us, or nullptr
  PyObject* weakrefs;
  Calls* calls;     // that we are registered in; nullptr after removal
  PyObject* place;  // the module's address, to find our entry when it is gone
  uint32_t node;
};

// In place of nn.Module._compiled_call_impl.
struct CompiledWatch {
  PyObject_HEAD PyObject* name;
  PyObject* original;  // what stands in the class without us
};

// What a captured module's attribute is: callable, once or often.
struct WatchedCall {
  PyObject_HEAD PyObject* call;  // ModuleCall
  PyObject* module;
  PyObject* target;  // what is called without us, bound to the module
};

struct TorchNames {
  PyObject* module_class = nullptr;   // nn.Module
  PyObject* tracing_state = nullptr;  // torch._C._get_tracing_state
  CompiledWatch* compiled_watch = nullptr;
};
TorchNames* torch_names = nullptr;  // leaked on purpose
PyTypeObject* compiled_watch_type = nullptr;
PyTypeObject* watched_call_type = nullptr;

Calls& method_calls() {
  static auto* calls = new Calls;
  return *calls;
}
Calls& compiled_calls() {
  static auto* calls = new Calls;
  return *calls;
}

bool load_torch() {
  if (torch_names != nullptr) return true;
  Ref module_class = imported("torch.nn.modules.module", "Module");
  Ref tracing_state = module_class ? imported("torch._C", "_get_tracing_state") : Ref();
  auto* watch = tracing_state ? new_object<CompiledWatch>(compiled_watch_type) : nullptr;
  if (watch == nullptr) return false;
  watch->name = PyUnicode_InternFromString("_compiled_call_impl");
  torch_names = new TorchNames{module_class.release(), tracing_state.release(), watch};
  return true;
}

// While torch.jit traces, a module runs to be looked at: it is not the program's work.
bool is_tracing() {
  const Ref state(PyObject_CallObject(torch_names->tracing_state, nullptr));
  if (!state) PyErr_Clear();
  return state && state.get() != Py_None;
}

// The __dict__ of an object, past a __getattr__ and the like; none with an exception set.
Ref dict_of(PyObject* object) {
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  return Ref(PyObject_GenericGetAttr(object, name));
}

// What nn.Module itself has under a name; none without an exception.
Ref in_class(PyObject* name) {
  const Ref own_dict = attribute(torch_names->module_class, "__dict__");
  Ref found(own_dict ? PyObject_GetItem(own_dict.get(), name) : nullptr);
  if (!found) PyErr_Clear();
  return found;
}

// --- the calls of a module -------------------------------------------------------------------------

bool is_of(const ModuleCall* call, PyObject* module) { return weakref_is(call->module, module); }

// The newest call that is registered for a module, borrowed, or nullptr.
ModuleCall* find_call(const Calls& calls, PyObject* module) {
  const auto found = calls.find(module);
  return found != calls.end() && is_of(found->second, module) ? found->second : nullptr;
}

PyObject* new_watched_call(ModuleCall* call, PyObject* module, PyObject* target) {
  const Ref owned(target);
  if (!owned) return nullptr;
  auto* watched = new_object<WatchedCall>(watched_call_type);
  if (watched == nullptr) return nullptr;
  watched->call = new_ref(reinterpret_cast<PyObject*>(call));
  watched->module = new_ref(module);
  watched->target = new_ref(owned.get());
  return reinterpret_cast<PyObject*>(watched);
}

// module._compiled_call_impl: what the instance has, otherwise what the class has
PyObject* compiled_watch_get(PyObject* self, PyObject* module, PyObject*) {
  auto* watch = reinterpret_cast<CompiledWatch*>(self);
  if (module == nullptr || module == Py_None) return new_ref(watch->original);
  const Ref own_dict = dict_of(module);
  if (!own_dict) return nullptr;
  PyObject* own = PyDict_GetItemWithError(own_dict.get(), watch->name);
  if (own == nullptr) return PyErr_Occurred() != nullptr ? nullptr : new_ref(watch->original);
  ModuleCall* call = own != Py_None ? find_call(compiled_calls(), module) : nullptr;
  return call == nullptr ? new_ref(own) : new_watched_call(call, module, new_ref(own));
}

int compiled_watch_set(PyObject* self, PyObject* module, PyObject* value) {
  const Ref own_dict = dict_of(module);
  if (!own_dict) return -1;
  PyObject* name = reinterpret_cast<CompiledWatch*>(self)->name;
  if (value != nullptr) return PyDict_SetItem(own_dict.get(), name, value);
  if (PyDict_DelItem(own_dict.get(), name) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_KeyError) != 0) PyErr_SetObject(PyExc_AttributeError, name);
  return -1;
}

// A call that was removed while it runs only passes on.
template <typename Original>
PyObject* captured_call(ModuleCall* self, PyObject* args, PyObject* kwargs, Original original) {
  const Ref held(new_ref(reinterpret_cast<PyObject*>(self)));
  const auto pass_on = [&] {
    auto* previous = reinterpret_cast<ModuleCall*>(self->previous);
    return previous == nullptr ? original() : captured_call(previous, args, kwargs, original);
  };
  CallFrame frame;
  if (self->calls == nullptr || (!inside_root_call() && is_tracing()) ||
      !session_of(self->session).begin(self->node, args, kwargs, frame)) {
    return pass_on();
  }
  const Ref session(new_ref(self->session));
  PyObject* result = pass_on();
  const ErrorAside aside;
  session_of(session.get()).end(self->node, result, frame);
  return result;
}

PyObject* watched_call_call(PyObject* object, PyObject* args, PyObject* kwargs) {
  auto* self = reinterpret_cast<WatchedCall*>(object);
  return captured_call(reinterpret_cast<ModuleCall*>(self->call), args, kwargs,
                       [&] { return PyObject_Call(self->target, args, kwargs); });
}

// __self__, __func__, __name__, __doc__ ...: those of the method.
PyObject* watched_call_getattr(PyObject* object, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(object, name);
  if (found != nullptr || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return found;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<WatchedCall*>(object)->target, name);
}

// Copies and pickles are of the method.
PyObject* watched_call_reduce(PyObject* object, PyObject*) {
  const Ref reduce = attribute(reinterpret_cast<WatchedCall*>(object)->target, "__reduce__");
  if (!reduce) {
    PyErr_SetString(PyExc_TypeError, "cannot pickle what a compiled module runs");
    return nullptr;
  }
  return PyObject_CallObject(reduce.get(), nullptr);
}

PyObject* watched_call_repr(PyObject* object) {
  return PyObject_Repr(reinterpret_cast<WatchedCall*>(object)->target);
}

// --- nn.Module._call_impl --------------------------------------------------------------------------

CallHook call_hook;                 // of nn.Module._call_impl
PyObject* watcher = nullptr;        // (module, args, kwargs): told of calls of other modules
thread_local bool passing = false;  // inside a call that the watcher was told of

// The arguments behind the module, as a tuple and a dict (none without names).
bool pack_arguments(PyObject* const* arguments, size_t count, PyObject* names, Ref* args,
                    Ref* kwargs) {
  *args = Ref(PyTuple_New(static_cast<Py_ssize_t>(count)));
  if (!*args) return false;
  for (size_t i = 0; i < count; ++i) {
    if (PyTuple_SetItem(args->get(), static_cast<Py_ssize_t>(i), new_ref(arguments[i])) != 0)
      return false;
  }
  const Py_ssize_t named = names != nullptr ? PyTuple_Size(names) : 0;
  if (named == 0) return true;
  *kwargs = Ref(PyDict_New());
  if (!*kwargs) return false;
  for (Py_ssize_t i = 0; i < named; ++i) {
    if (PyDict_SetItem(kwargs->get(), PyTuple_GetItem(names, i),
                       arguments[count + static_cast<size_t>(i)]) != 0)
      return false;
  }
  return true;
}

PyObject* call_module(PyObject* function, PyObject* const* arguments, size_t flagged_count,
                      PyObject* names) {
  const size_t count = argument_count(flagged_count);
  const VectorCall original = call_hook.original;
  const auto plain = [&] { return original(function, arguments, flagged_count, names); };
  PyObject* module = count > 0 ? arguments[0] : nullptr;
  if (module == nullptr) return plain();
  ModuleCall* call = find_call(method_calls(), module);
  const bool asks = call == nullptr && watcher != nullptr && !passing && !inside_root_call();
  if (call == nullptr && !asks) return plain();
  Ref args, kwargs;
  if (!pack_arguments(arguments + 1, count - 1, names, &args, &kwargs)) return nullptr;
  if (!asks) return captured_call(call, args.get(), kwargs.get(), plain);
  passing = true;
  const Ref held(new_ref(watcher));
  const Ref told(PyObject_CallFunctionObjArgs(held.get(), module, args.get(),
                                              kwargs ? kwargs.get() : Py_None, nullptr));
  call = told ? find_call(method_calls(), module) : nullptr;
  PyObject* result = !told             ? nullptr
                     : call != nullptr ? captured_call(call, args.get(), kwargs.get(), plain)
                                       : plain();
  passing = false;
  return result;
}

bool set_hook() {
  if (call_hook.function != nullptr) return true;
  const Ref name(PyUnicode_InternFromString("_call_impl"));
  if (call_hook.put(in_class(name.get()), call_module)) return true;
  PyErr_SetString(PyExc_AttributeError, "this torch or Python has no replaceable module call");
  return false;
}

// When nobody asks any more.
void take_hook() {
  if (call_hook.function != nullptr && watcher == nullptr && method_calls().empty())
    call_hook.take();
}

// --- nn.Module._compiled_call_impl -----------------------------------------------------------------

bool put_compiled_watch() {
  CompiledWatch* watch = torch_names->compiled_watch;
  Ref found = in_class(watch->name);
  if (found.get() == reinterpret_cast<PyObject*>(watch)) return true;
  if (!found) {
    PyErr_SetString(PyExc_AttributeError, "this torch has no nn.Module._compiled_call_impl");
    return false;
  }
  replace(watch->original, found.release());
  return PyObject_SetAttr(torch_names->module_class, watch->name,
                          reinterpret_cast<PyObject*>(watch)) == 0;
}

// Unless the program has put something else there since.
bool take_compiled_watch() {
  CompiledWatch* watch = torch_names->compiled_watch;
  return !compiled_calls().empty() ||
         in_class(watch->name).get() != reinterpret_cast<PyObject*>(watch) ||
         PyObject_SetAttr(torch_names->module_class, watch->name, watch->original) == 0;
}

// --- ModuleCall ------------------------------------------------------------------------------------

// Called by assay.torch.capture: sees the module's calls from now on.
PyObject* module_call_install(PyObject* object, PyObject* attribute_name) {
  auto* self = reinterpret_cast<ModuleCall*>(object);
  const std::string name = text_of(attribute_name);
  const bool is_compiled = name == "_compiled_call_impl";
  if (!is_compiled && name != "_call_impl") {
    PyErr_SetString(PyExc_ValueError, "calls are made through another attribute");
    return nullptr;
  }
  const Ref module(weakref_get(self->module));
  if (!module) {
    PyErr_SetString(PyExc_TypeError, "the module is gone");
    return nullptr;
  }
  if (!(is_compiled ? put_compiled_watch() : set_hook())) return nullptr;
  if (self->calls != nullptr) Py_RETURN_NONE;
  self->calls = is_compiled ? &compiled_calls() : &method_calls();
  ModuleCall*& newest = (*self->calls)[module.get()];
  const bool has_previous = newest != nullptr && is_of(newest, module.get());
  replace(self->previous, has_previous ? new_ref(reinterpret_cast<PyObject*>(newest)) : nullptr);
  newest = self;
  self->place = module.get();
  Py_RETURN_NONE;
}

// Takes the call out of the list of its module's.
void unregister(ModuleCall* self) {
  const auto found = self->calls->find(self->place);
  if (found == self->calls->end()) return;
  if (found->second == self) {
    if (self->previous == nullptr)
      self->calls->erase(found);
    else
      found->second = reinterpret_cast<ModuleCall*>(self->previous);
    return;
  }
  for (ModuleCall* newer = found->second; newer != nullptr;) {
    auto* previous = reinterpret_cast<ModuleCall*>(newer->previous);
    if (previous == self) {
      PyObject* older = self->previous;
      Py_XINCREF(older);
      replace(newer->previous, older);
      return;
    }
    newer = previous;
  }
}

PyObject* module_call_remove(PyObject* object, PyObject*) {
  auto* self = reinterpret_cast<ModuleCall*>(object);
  if (self->calls == nullptr) Py_RETURN_NONE;
  const Ref held(new_ref(object));  // a newer call may have held the last reference
  unregister(self);
  const bool was_compiled = std::exchange(self->calls, nullptr) == &compiled_calls();
  take_hook();
  if (was_compiled && !take_compiled_watch()) return nullptr;
  Py_RETURN_NONE;
}

int module_call_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<ModuleCall*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->session);
  Py_VISIT(self->module);
  Py_VISIT(self->previous);
  return 0;
}

int module_call_clear(PyObject* object) {
  auto* self = reinterpret_cast<ModuleCall*>(object);
  if (self->calls != nullptr) unregister(self);
  self->calls = nullptr;
  Py_CLEAR(self->session);
  Py_CLEAR(self->module);
  Py_CLEAR(self->previous);
  return 0;
}

void module_call_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  if (reinterpret_cast<ModuleCall*>(object)->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  (void)module_call_clear(object);
  free_object(object);
}

PyMethodDef module_call_methods[] = {
    {"install", module_call_install, METH_O,
     "install(attribute): sees the calls that are made through it."},
    {"remove", module_call_remove, METH_NOARGS, "Sees no more calls; idempotent."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef module_call_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ModuleCall, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot module_call_slots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                                   {Py_tp_traverse, reinterpret_cast<void*>(module_call_traverse)},
                                   {Py_tp_clear, reinterpret_cast<void*>(module_call_clear)},
                                   {Py_tp_dealloc, reinterpret_cast<void*>(module_call_dealloc)},
                                   {Py_tp_methods, module_call_methods},
                                   {Py_tp_members, module_call_members},
                                   {0, nullptr}};
PyType_Spec module_call_spec = {"assay._capture.ModuleCall", sizeof(ModuleCall), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, module_call_slots};

PyType_Slot compiled_watch_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
    {Py_tp_descr_get, reinterpret_cast<void*>(compiled_watch_get)},
    {Py_tp_descr_set, reinterpret_cast<void*>(compiled_watch_set)},
    {0, nullptr}};
PyType_Spec compiled_watch_spec = {"assay._capture.CompiledWatch", sizeof(CompiledWatch), 0,
                                   Py_TPFLAGS_DEFAULT, compiled_watch_slots};

int watched_call_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<WatchedCall*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->call);
  Py_VISIT(self->module);
  Py_VISIT(self->target);
  return 0;
}
int watched_call_clear(PyObject* object) {
  auto* self = reinterpret_cast<WatchedCall*>(object);
  Py_CLEAR(self->call);
  Py_CLEAR(self->module);
  Py_CLEAR(self->target);
  return 0;
}
void watched_call_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  (void)watched_call_clear(object);
  free_object(object);
}
PyMethodDef watched_call_methods[] = {{"__reduce__", watched_call_reduce, METH_NOARGS, nullptr},
                                      {nullptr, nullptr, 0, nullptr}};
PyType_Slot watched_call_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
    {Py_tp_call, reinterpret_cast<void*>(watched_call_call)},
    {Py_tp_getattro, reinterpret_cast<void*>(watched_call_getattr)},
    {Py_tp_repr, reinterpret_cast<void*>(watched_call_repr)},
    {Py_tp_traverse, reinterpret_cast<void*>(watched_call_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(watched_call_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(watched_call_dealloc)},
    {Py_tp_methods, watched_call_methods},
    {0, nullptr}};
PyType_Spec watched_call_spec = {"assay._capture.WatchedCall", sizeof(WatchedCall), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, watched_call_slots};

// --- functions of the extension --------------------------------------------------------------------

// set_watcher(function or None)
PyObject* set_watcher(PyObject*, PyObject* function) {
  if (!load_torch()) return nullptr;
  if (function != Py_None && !set_hook()) return nullptr;
  replace(watcher, function != Py_None ? new_ref(function) : nullptr);
  passing = false;  // in a forked child
  take_hook();
  Py_RETURN_NONE;
}

// in_watched_call() -> whether this thread is inside a call that was captured or told of
PyObject* in_watched_call(PyObject*, PyObject*) {
  return PyBool_FromLong(passing || inside_root_call() ? 1 : 0);
}

// is_captured(module) -> whether a capture sees its calls
PyObject* is_captured(PyObject*, PyObject* module) {
  const bool found = find_call(method_calls(), module) != nullptr ||
                     find_call(compiled_calls(), module) != nullptr;
  return PyBool_FromLong(found ? 1 : 0);
}

PyMethodDef call_functions[] = {
    {"set_watcher", set_watcher, METH_O,
     "set_watcher(function): (module, args, kwargs) of calls outside any captured one"},
    {"in_watched_call", in_watched_call, METH_NOARGS,
     "in_watched_call() -> whether this thread is inside a call that was captured or told of"},
    {"is_captured", is_captured, METH_O, "is_captured(module) -> whether its calls are seen"},
    {nullptr, nullptr, 0, nullptr}};

const ExtensionPart module_call_part([](PyObject* module) {
  module_call_type = make_type(&module_call_spec, module);
  compiled_watch_type = make_type(&compiled_watch_spec);
  watched_call_type = make_type(&watched_call_spec);
  const bool made =
      module_call_type != nullptr && compiled_watch_type != nullptr && watched_call_type != nullptr;
  return made ? PyModule_AddFunctions(module, call_functions) : -1;
});

}  // namespace

PyObject* session_module_call(PyObject* self, PyObject* args) {
  PyObject* module = nullptr;
  unsigned node = 0;
  if (!load_torch() || !PyArg_ParseTuple(args, "OI", &module, &node)) return nullptr;
  if (node >= session_of(self).nodes().size()) {
    PyErr_SetString(PyExc_IndexError, "no such node");
    return nullptr;
  }
  Ref weak(PyWeakref_NewRef(module, nullptr));
  auto* call = weak ? new_object<ModuleCall>(module_call_type) : nullptr;
  if (call == nullptr) return nullptr;
  call->session = new_ref(self);
  call->module = weak.release();
  call->node = node;
  return reinterpret_cast<PyObject*>(call);
}

}  // namespace assay::capture

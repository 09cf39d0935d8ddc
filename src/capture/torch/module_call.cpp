// SPDX-License-Identifier: Apache-2.0
// ModuleCall: the C object that stands in a module's __dict__ as `_call_impl` while it is captured.
//
// nn.Module.__call__ looks `_call_impl` up on the instance, so ours wins over the class. It reads
// the arguments, runs what torch would have run, and reads the result. Without hooks that is
// `forward` itself: cheaper than an uncaptured call, because the Python frame of torch's _call_impl
// disappears. Costs and alternatives: docs/design/torch-capture.md
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "capture/torch/extension.hpp"
#include "capture/torch/python_compat.hpp"
#include "capture/torch/session_object.hpp"

namespace assay::capture {

PyTypeObject* module_call_type = nullptr;

namespace {

struct ModuleCall {
  PyObject_HEAD PyObject* session;  // SessionObject
  PyObject* module;                 // weak reference: the module owns us
  PyObject* previous;  // another object that stood in the module's __dict__ before us, or nullptr
  PyObject* weakrefs;
  PyObject* attribute;  // we stand under: _call_impl, _compiled_call_impl of module.compile()
  uint32_t node;
  bool attached;       // false after removal while somebody still calls us: only passes on
  int running;         // activations on all threads
  Py_ssize_t holders;  // references when installed; more mean that the module's __dict__ was copied
};

struct ModuleHook {
  PyObject_HEAD PyObject* session;
  uint32_t node;
  bool before;
};

// Names and objects of torch that a call looks at, fetched once.
struct TorchNames {
  PyObject* forward = PyUnicode_InternFromString("forward");
  PyObject* call_impl = PyUnicode_InternFromString("_call_impl");
  PyObject* self = PyUnicode_InternFromString("self");
  PyObject* dict = PyUnicode_InternFromString("__dict__");
  std::array<PyObject*, 4> hooks = {PyUnicode_InternFromString("_backward_hooks"),
                                    PyUnicode_InternFromString("_backward_pre_hooks"),
                                    PyUnicode_InternFromString("_forward_hooks"),
                                    PyUnicode_InternFromString("_forward_pre_hooks")};
  std::array<PyObject*, 4> global_hooks = {};
  PyObject* trace_module = nullptr;  // __dict__ of torch.jit._trace
  PyObject* trace_map = PyUnicode_InternFromString("_trace_module_map");
  PyObject* bound_method = nullptr;  // types.MethodType
};
TorchNames* torch_names = nullptr;

bool load_torch_names() {
  if (torch_names != nullptr) return true;
  const Ref module(PyImport_ImportModule("torch.nn.modules.module"));
  const Ref trace(module ? PyImport_ImportModule("torch.jit._trace") : nullptr);
  Ref bound_method = trace ? imported("types", "MethodType") : Ref();
  if (!bound_method) return false;
  torch_names = new TorchNames;
  torch_names->bound_method = bound_method.release();
  const char* globals[] = {"_global_backward_hooks", "_global_backward_pre_hooks",
                           "_global_forward_hooks", "_global_forward_pre_hooks"};
  // A torch without one of them has no such hooks.
  for (size_t i = 0; i < torch_names->global_hooks.size(); ++i)
    torch_names->global_hooks[i] = attribute(module.get(), globals[i]).release();
  torch_names->trace_module = new_ref(PyModule_GetDict(trace.get()));
  return true;
}

// The __dict__ of an object, past a __getattr__ and the like; none without an exception.
Ref dict_of(PyObject* object) {
  Ref dict(object != nullptr ? PyObject_GenericGetAttr(object, torch_names->dict) : nullptr);
  if (!dict) PyErr_Clear();
  return dict;
}

bool is_empty_dict(PyObject* dict) {
  const Py_ssize_t size = dict != nullptr ? PyDict_Size(dict) : 0;
  if (size < 0) PyErr_Clear();  // no dict
  return size == 0;
}

// Whether torch would call `forward` directly: no hooks on the module or globally, no scopes to
// name.
bool runs_forward_directly(PyObject* module) {
  for (PyObject* dict : torch_names->global_hooks) {
    if (!is_empty_dict(dict)) return false;
  }
  const Ref dict = dict_of(module);
  if (!dict) return false;
  for (PyObject* name : torch_names->hooks) {
    PyObject* hooks = PyDict_GetItemWithError(dict.get(), name);
    if (hooks == nullptr || !is_empty_dict(hooks)) {
      PyErr_Clear();
      return false;
    }
  }
  // While torch.jit traces, _slow_forward names scopes; it does so only when this map exists, and
  // looking at it costs a tenth of asking torch._C for the tracing state.
  PyObject* map = PyDict_GetItemWithError(torch_names->trace_module, torch_names->trace_map);
  PyErr_Clear();
  return map == nullptr || map == Py_None;
}

// type(module)._call_impl, bound to the module
Ref class_method_of(PyObject* module) {
  const Ref function(
      PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(module)), torch_names->call_impl));
  return Ref(function ? PyObject_CallFunctionObjArgs(torch_names->bound_method, function.get(),
                                                     module, nullptr)
                      : nullptr);
}

PyObject* call_class_implementation(PyObject* module, PyObject* args, PyObject* kwargs) {
  const Ref bound = class_method_of(module);
  return bound ? PyObject_Call(bound.get(), args, kwargs) : nullptr;
}

PyObject* run_module(ModuleCall* self, PyObject* module, PyObject* args, PyObject* kwargs) {
  if (self->previous != nullptr) return PyObject_Call(self->previous, args, kwargs);
  if (!runs_forward_directly(module)) return call_class_implementation(module, args, kwargs);
  const Ref forward(PyObject_GetAttr(module, torch_names->forward));
  return forward ? PyObject_Call(forward.get(), args, kwargs) : nullptr;
}

// A shallow copy of the module (copy.copy, DataParallel replicas) shares our object through its
// copied __dict__, but must run its own forward. Copies hold references of their own, which is how
// they are noticed; whose call this is then stands in the local `self` of the calling frame.
// Returns the copy, or none.
Ref calling_copy(const ModuleCall* self, PyObject* module) {
  const Ref locals = attribute(reinterpret_cast<PyObject*>(PyEval_GetFrame()), "f_locals");
  Ref caller(locals ? PyObject_GetItem(locals.get(), torch_names->self) : nullptr);
  PyErr_Clear();
  const Ref dict = dict_of(caller.get());
  const bool is_copy = dict && caller.get() != module && Py_TYPE(caller.get()) == Py_TYPE(module) &&
                       PyDict_GetItemWithError(dict.get(), torch_names->call_impl) ==
                           reinterpret_cast<const PyObject*>(self);
  PyErr_Clear();
  return is_copy ? std::move(caller) : Ref();
}

// None with an exception set when it is gone.
Ref module_of(const ModuleCall* self) {
  Ref module(weakref_get(self->module));
  if (!module) PyErr_SetString(PyExc_ReferenceError, "the captured module is gone");
  return module;
}

PyObject* captured_call(ModuleCall* self, PyObject* module, PyObject* args, PyObject* kwargs) {
  Session& session = session_of(self->session);
  CallFrame frame;
  if (!self->attached || !session.begin(self->node, args, kwargs, frame)) {
    return run_module(self, module, args, kwargs);
  }
  PyObject* result = run_module(self, module, args, kwargs);
  const ErrorAside aside;
  session.end(self->node, result, frame);
  return result;
}

PyObject* module_call_call(PyObject* object, PyObject* args, PyObject* kwargs) {
  auto* self = reinterpret_cast<ModuleCall*>(object);
  const Ref module = module_of(self);
  if (!module) return nullptr;
  ++self->running;
  Ref copy;
  if (Py_REFCNT(object) > self->holders + self->running) copy = calling_copy(self, module.get());
  PyObject* result = copy ? call_class_implementation(copy.get(), args, kwargs)
                          : captured_call(self, module.get(), args, kwargs);
  --self->running;
  return result;
}

// copy.deepcopy and pickle of a captured model: the copy gets its own class's method, never our
// object.
PyObject* module_call_deepcopy(PyObject* object, PyObject* memo) {
  const Ref module(weakref_get(reinterpret_cast<ModuleCall*>(object)->module));
  if (!module) return new_ref(Py_None);
  const Ref key(PyLong_FromVoidPtr(module.get()));
  // KeyError: our object is copied without its module, which nobody does.
  const Ref copy(key ? PyObject_GetItem(memo, key.get()) : nullptr);
  return copy ? class_method_of(copy.get()).release() : nullptr;
}

PyObject* module_call_reduce(PyObject* object, PyObject*) {
  const Ref module = module_of(reinterpret_cast<ModuleCall*>(object));
  Ref getattr(module ? PyMapping_GetItemString(PyEval_GetBuiltins(), "getattr") : nullptr);
  return getattr ? Py_BuildValue("N(OO)", getattr.release(), module.get(), torch_names->call_impl)
                 : nullptr;
}

bool is_method_of(PyObject* object, PyObject* module) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == torch_names->bound_method &&
         attribute(object, "__self__").get() == module;
}

// Called by assay.torch.capture: puts the object into the module's __dict__ under the given name.
PyObject* module_call_install(PyObject* object, PyObject* attribute) {
  if (!PyUnicode_Check(attribute)) {
    PyErr_SetString(PyExc_TypeError, "install() takes the attribute's name");
    return nullptr;
  }
  auto* self = reinterpret_cast<ModuleCall*>(object);
  const Ref module(weakref_get(self->module));
  const Ref dict = dict_of(module.get());
  if (!dict) {
    PyErr_SetString(PyExc_TypeError, "the module has no __dict__");
    return nullptr;
  }
  replace(self->attribute, new_ref(attribute));
  PyObject* present = PyDict_GetItemWithError(dict.get(), attribute);
  // The bound class method is what deepcopy leaves behind (above): the same as nothing.
  if (present != nullptr && !is_method_of(present, module.get()))
    replace(self->previous, new_ref(present));
  if (PyDict_SetItem(dict.get(), attribute, object) != 0) return nullptr;
  self->attached = true;
  Py_RETURN_NONE;
}

// What stood in the __dict__ before this object and is still in use: removed captures in between
// are skipped.
PyObject* previous_in_use(const ModuleCall* self) {
  PyObject* previous = self->previous;
  while (previous != nullptr && Py_IS_TYPE(previous, module_call_type) &&
         !reinterpret_cast<ModuleCall*>(previous)->attached) {
    previous = reinterpret_cast<ModuleCall*>(previous)->previous;
  }
  return previous;
}

// Takes the object out again, or turns it into a pass-through when another one was put in front of
// it since.
PyObject* module_call_remove(PyObject* object, PyObject*) {
  auto* self = reinterpret_cast<ModuleCall*>(object);
  self->attached = false;
  const Ref module(weakref_get(self->module));
  const Ref dict = dict_of(module.get());
  if (dict && self->attribute != nullptr &&
      PyDict_GetItemWithError(dict.get(), self->attribute) == object) {
    PyObject* previous = previous_in_use(self);
    const int status = previous != nullptr ? PyDict_SetItem(dict.get(), self->attribute, previous)
                                           : PyDict_DelItem(dict.get(), self->attribute);
    if (status != 0) return nullptr;
  }
  Py_RETURN_NONE;
}

// Counts the references that exist now; a later call with more of them has met a copy of the
// module's __dict__. The caller's own two (its variable, and the one that this method call holds)
// do not count.
PyObject* module_call_settle(PyObject* object, PyObject*) {
  reinterpret_cast<ModuleCall*>(object)->holders = Py_REFCNT(object) - 2;
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
  Py_CLEAR(self->session);
  Py_CLEAR(self->module);
  Py_CLEAR(self->previous);
  Py_CLEAR(self->attribute);
  return 0;
}

void module_call_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  if (reinterpret_cast<ModuleCall*>(object)->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  (void)module_call_clear(object);
  free_object(object);
}

PyMethodDef module_call_methods[] = {
    {"__deepcopy__", module_call_deepcopy, METH_O, nullptr},
    {"__reduce__", module_call_reduce, METH_NOARGS, nullptr},
    {"install", module_call_install, METH_O,
     "install(attribute): puts the object into the module's __dict__."},
    {"remove", module_call_remove, METH_NOARGS, "Takes the object out of the module; idempotent."},
    {"settle", module_call_settle, METH_NOARGS, "Counts the references kept by the capture."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef module_call_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ModuleCall, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot module_call_slots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                                   {Py_tp_call, reinterpret_cast<void*>(module_call_call)},
                                   {Py_tp_traverse, reinterpret_cast<void*>(module_call_traverse)},
                                   {Py_tp_clear, reinterpret_cast<void*>(module_call_clear)},
                                   {Py_tp_dealloc, reinterpret_cast<void*>(module_call_dealloc)},
                                   {Py_tp_methods, module_call_methods},
                                   {Py_tp_members, module_call_members},
                                   {0, nullptr}};
PyType_Spec module_call_spec = {"assay._capture.ModuleCall", sizeof(ModuleCall), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, module_call_slots};

// --- ordinary hooks, where `_call_impl` cannot be used -------------------------------------------

struct HookFrame {
  Session* session;
  uint32_t node;
  CallFrame frame;
  const void* handled;  // the exception being handled when the call began
};

std::vector<HookFrame>& hook_frames() {
  thread_local std::vector<HookFrame> frames;
  return frames;
}

// (module, args, kwargs) before, (module, args, kwargs, output) after the call; the latter also
// when it raised.
PyObject* module_hook_call(PyObject* object, PyObject* args, PyObject*) {
  auto* self = reinterpret_cast<ModuleHook*>(object);
  Session& session = session_of(self->session);
  const Py_ssize_t count = PyTuple_Size(args);
  if (self->before && count >= 3) {
    HookFrame entry{&session, self->node, {}, handled_exception()};
    if (session.begin(self->node, PyTuple_GetItem(args, 1), PyTuple_GetItem(args, 2),
                      entry.frame)) {
      hook_frames().push_back(std::move(entry));
    }
  } else if (!self->before && count >= 4) {
    auto& frames = hook_frames();
    size_t at = frames.size();
    while (at > 0 && !(frames[at - 1].session == &session && frames[at - 1].node == self->node))
      --at;
    // What lies above it was left by an exception that skipped the hooks.
    while (frames.size() > at && at > 0) {
      session.end(frames.back().node, nullptr, frames.back().frame);
      frames.pop_back();
    }
    if (at > 0) {
      HookFrame entry = std::move(frames.back());
      frames.pop_back();
      const void* handled = handled_exception();
      const bool raised = handled != nullptr && handled != entry.handled;
      session.end(self->node, raised ? nullptr : PyTuple_GetItem(args, 3), entry.frame);
    }
  }
  Py_RETURN_NONE;
}

int module_hook_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(reinterpret_cast<ModuleHook*>(object)->session);
  return 0;
}
int module_hook_clear(PyObject* object) {
  Py_CLEAR(reinterpret_cast<ModuleHook*>(object)->session);
  return 0;
}
void module_hook_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  (void)module_hook_clear(object);
  free_object(object);
}

PyType_Slot module_hook_slots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                                   {Py_tp_call, reinterpret_cast<void*>(module_hook_call)},
                                   {Py_tp_traverse, reinterpret_cast<void*>(module_hook_traverse)},
                                   {Py_tp_clear, reinterpret_cast<void*>(module_hook_clear)},
                                   {Py_tp_dealloc, reinterpret_cast<void*>(module_hook_dealloc)},
                                   {0, nullptr}};
PyType_Spec module_hook_spec = {"assay._capture.ModuleHook", sizeof(ModuleHook), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, module_hook_slots};
PyTypeObject* module_hook_type = nullptr;

PyObject* new_hook(PyObject* session, uint32_t node, bool before) {
  auto* hook = new_object<ModuleHook>(module_hook_type);
  if (hook == nullptr) return nullptr;
  hook->session = new_ref(session);
  hook->node = node;
  hook->before = before;
  return reinterpret_cast<PyObject*>(hook);
}

const ExtensionPart module_call_part([](PyObject* module) {
  module_call_type = make_type(&module_call_spec, module);
  module_hook_type = make_type(&module_hook_spec);
  return module_call_type != nullptr && module_hook_type != nullptr ? 0 : -1;
});

bool valid_node(PyObject* self, unsigned node) {
  if (node < session_of(self).nodes().size()) return true;
  PyErr_SetString(PyExc_IndexError, "no such node");
  return false;
}

}  // namespace

PyObject* session_module_call(PyObject* self, PyObject* args) {
  PyObject* module = nullptr;
  unsigned node = 0;
  if (!load_torch_names() || !PyArg_ParseTuple(args, "OI", &module, &node) ||
      !valid_node(self, node))
    return nullptr;
  Ref weak(PyWeakref_NewRef(module, nullptr));
  auto* call = weak ? new_object<ModuleCall>(module_call_type) : nullptr;
  if (call == nullptr) return nullptr;
  call->session = new_ref(self);
  call->module = weak.release();
  call->node = node;
  return reinterpret_cast<PyObject*>(call);
}

PyObject* session_module_hooks(PyObject* self, PyObject* args) {
  unsigned node = 0;
  if (!PyArg_ParseTuple(args, "I", &node) || !valid_node(self, node)) return nullptr;
  const Ref before(new_hook(self, node, true));
  const Ref after(before ? new_hook(self, node, false) : nullptr);
  return after ? Py_BuildValue("OO", before.get(), after.get()) : nullptr;
}

}  // namespace assay::capture

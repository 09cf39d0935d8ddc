// SPDX-License-Identifier: Apache-2.0
// Python's view of the strict hook dump: assay._capture.StrictDumper and the two callables it makes
// for each module. torch calls them as ordinary forward hooks; they return None and never change
// what flows through the model.
#include "capture/torch/extension.hpp"
#include "capture/torch/python_compat.hpp"
#include "capture/torch/strict_session.hpp"

namespace assay::capture {
namespace {

using DumperObject = Holder<StrictSession>;

// A forward pre-hook or forward hook of one module.
struct HookObject {
  VectorCallable callable;
  DumperObject* dumper;  // owned; keeps `module` alive
  StrictModule* module;
};

PyObject* none_if_done(int status) { return status == 0 ? new_ref(Py_None) : nullptr; }

// ---- hooks

PyObject* enter_hook(PyObject* self, PyObject* const*, size_t, PyObject*) {
  auto* hook = reinterpret_cast<HookObject*>(self);
  hook->dumper->held->enter(*hook->module);
  return new_ref(Py_None);
}

PyObject* leave_hook(PyObject* self, PyObject* const* arguments, size_t flagged_count, PyObject*) {
  if (argument_count(flagged_count) < 3) {
    PyErr_SetString(PyExc_TypeError, "a forward hook takes (module, args, output)");
    return nullptr;
  }
  auto* hook = reinterpret_cast<HookObject*>(self);
  return none_if_done(
      hook->dumper->held->leave(*hook->module, arguments[0], arguments[1], arguments[2]));
}

void free_hook(PyObject* self) {
  Py_XDECREF(reinterpret_cast<PyObject*>(reinterpret_cast<HookObject*>(self)->dumper));
  free_object(self);
}

// A copy of a hooked model goes on dumping under the same names, as it does with hooks that are
// functions.
PyObject* hook_deepcopy(PyObject* self, PyObject*) { return new_ref(self); }

// A pickled model comes back with hooks that do nothing, also where Assay is not installed: the
// dump belongs to this process. Python's own function that takes anything and returns None.
PyObject* hook_reduce(PyObject*, PyObject*) {
  const Ref make = imported("contextlib", "nullcontext");
  const Ref context(make ? PyObject_CallObject(make.get(), nullptr) : nullptr);
  Ref getattr(context ? PyMapping_GetItemString(PyEval_GetBuiltins(), "getattr") : nullptr);
  return getattr ? Py_BuildValue("N(Os)", getattr.release(), context.get(), "__exit__") : nullptr;
}

PyMethodDef hook_methods[] = {{"__deepcopy__", hook_deepcopy, METH_O, nullptr},
                              {"__reduce__", hook_reduce, METH_NOARGS, nullptr},
                              {nullptr, nullptr, 0, nullptr}};

PyType_Slot hook_slots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(free_hook)},
                            {Py_tp_call, reinterpret_cast<void*>(call_with_tuple)},
                            {Py_tp_members, vector_call_members},
                            {Py_tp_methods, hook_methods},
                            {0, nullptr}};
PyType_Spec hook_spec = {"assay._capture.StrictHook", sizeof(HookObject), 0,
                         Py_TPFLAGS_DEFAULT | kImmutableType | kHasVectorCall, hook_slots};
PyTypeObject* hook_type = nullptr;

PyObject* new_strict_hook(DumperObject* dumper, StrictModule* module, VectorCall call) {
  auto* hook = new_object<HookObject>(hook_type);
  if (hook == nullptr) return nullptr;
  Py_INCREF(reinterpret_cast<PyObject*>(dumper));
  hook->callable.call = call;
  hook->dumper = dumper;
  hook->module = module;
  return reinterpret_cast<PyObject*>(hook);
}

// ---- dumper

StrictSession& strict_session_of(PyObject* self) { return held_by<StrictSession>(self); }

bool read_tokens(PyObject* list, StrictOptions* options) {
  const Ref sequence(PySequence_Fast(list, "token_range must be a sequence"));
  if (!sequence) return false;
  for (Py_ssize_t i = 0; i < size_of(sequence.get()); ++i) {
    const long long token = PyLong_AsLongLong(item_of(sequence.get(), i));
    if (token == -1 && PyErr_Occurred() != nullptr) PyErr_Clear();  // no such token will ever come
    options->tokens.insert(token);
  }
  return true;
}

PyObject* new_dumper(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"dump_dir",    "dump_dir_text",   "analyze_path", "token_range",
                                   "tensor_part", "statistics_mode", "dump_modules", "dump_apis",
                                   "last_logits", "host_threads",    "module_list",  "to_dense",
                                   "warn_once",   "after_fork",      nullptr};
  StrictOptions options;
  PyObject* tokens = nullptr;
  int tensor_part = 2, statistics_mode = 0;
  StrictCallbacks callbacks;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "$O&O&O&OiiO&O&O&iO!OOO", const_cast<char**>(keywords), path_argument,
          &options.dump_dir, path_argument, &options.dump_dir_text, path_argument,
          &options.analyze_path, &tokens, &tensor_part, &statistics_mode, flag_argument,
          &options.dump_modules, flag_argument, &options.dump_apis, flag_argument,
          &options.last_logits, &options.host_threads, &PyTuple_Type, &callbacks.module_list,
          &callbacks.to_dense, &callbacks.warn_once, &callbacks.after_fork)) {
    return nullptr;
  }
  if (tensor_part < 0 || tensor_part > 2 || statistics_mode < 0 || statistics_mode > 2) {
    PyErr_SetString(PyExc_ValueError, "tensor_part and statistics_mode are 0, 1 or 2");
    return nullptr;
  }
  options.tensor_part = static_cast<TensorPart>(tensor_part);
  options.statistics = static_cast<StatisticsMode>(statistics_mode);
  if (!read_tokens(tokens, &options)) return nullptr;
  auto session = StrictSession::create(std::move(options), callbacks);
  if (session == nullptr) return nullptr;
  auto* self = new_object<DumperObject>(type);
  if (self != nullptr) self->held = session.release();
  return reinterpret_cast<PyObject*>(self);
}

PyObject* module_hooks(PyObject* self, PyObject* args) {
  const char *name = nullptr, *type = nullptr;
  int selected = 1, is_root = 0;
  if (!PyArg_ParseTuple(args, "sspp", &name, &type, &selected, &is_root)) return nullptr;
  auto* dumper = reinterpret_cast<DumperObject*>(self);
  StrictModule* module =
      strict_session_of(self).add_module(name, type, selected != 0, is_root != 0);
  const Ref enter(new_strict_hook(dumper, module, enter_hook));
  const Ref leave(new_strict_hook(dumper, module, leave_hook));
  return enter && leave ? Py_BuildValue("(OO)", enter.get(), leave.get()) : nullptr;
}

PyObject* wants_apis(PyObject* self, PyObject*) {
  return PyBool_FromLong(strict_session_of(self).wants_apis());
}

PyObject* current_module(PyObject* self, PyObject*) {
  const std::string& name = strict_session_of(self).current_module();
  return PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "replace");
}

PyObject* dump_api(PyObject* self, PyObject* args) {
  const char *folder = nullptr, *type = nullptr;
  PyObject *arguments = nullptr, *result = nullptr;
  if (!PyArg_ParseTuple(args, "ssO!O", &folder, &type, &PyTuple_Type, &arguments, &result))
    return nullptr;
  return none_if_done(strict_session_of(self).dump_api(folder, type, arguments, result));
}

PyObject* write_pth(PyObject* self, PyObject* args) {
  std::string path;
  PyObject* tensor = nullptr;
  if (!PyArg_ParseTuple(args, "O&O", path_argument, &path, &tensor)) return nullptr;
  return none_if_done(strict_session_of(self).write_pth(path, tensor));
}

PyObject* counters(PyObject* self, PyObject*) {
  const writer::WriterCounters counts = strict_session_of(self).counters();
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:d,s:N}", "tensors",
                       static_cast<unsigned long long>(strict_session_of(self).tensor_count()),
                       "visits", static_cast<unsigned long long>(counts.jobs_done), "failed",
                       static_cast<unsigned long long>(counts.jobs_failed), "bytes",
                       static_cast<unsigned long long>(counts.bytes_done), "own_bytes",
                       static_cast<unsigned long long>(strict_session_of(self).own_bytes()),
                       "waited_ms", counts.waited_ms, "first_error",
                       message_text(counts.first_error ? counts.first_error->describe() : ""));
}

PyObject* get_token_id(PyObject* self, void*) {
  return PyLong_FromLongLong(strict_session_of(self).token_id);
}
int set_token_id(PyObject* self, PyObject* value, void*) {
  const long long token = value != nullptr ? PyLong_AsLongLong(value) : 0;
  if (token == -1 && PyErr_Occurred() != nullptr) return -1;
  strict_session_of(self).token_id = token;
  return 0;
}
PyObject* get_dump_flag(PyObject* self, void*) {
  return PyBool_FromLong(strict_session_of(self).dump_flag);
}
int set_dump_flag(PyObject* self, PyObject* value, void*) {
  const int flag = value != nullptr ? PyObject_IsTrue(value) : 0;
  if (flag < 0) return -1;
  strict_session_of(self).dump_flag = flag != 0;
  return 0;
}
PyObject* get_module_ids(PyObject* self, void*) {
  return new_ref(strict_session_of(self).module_numbers());
}
PyObject* get_last_logits(PyObject* self, void*) {
  StrictSession& session = strict_session_of(self);
  if (session.last_outputs() == nullptr || session.last_module() == nullptr)
    return new_ref(Py_None);
  return Py_BuildValue("(sO)", session.last_module()->name->c_str(), session.last_outputs());
}

PyMethodDef dumper_methods[] = {
    {"module_hooks", module_hooks, METH_VARARGS,
     "module_hooks(name, type, selected, is_root) -> (forward pre-hook, forward hook) of one "
     "module."},
    {"wants_apis", wants_apis, METH_NOARGS,
     "Whether a function called now on this thread is dumped."},
    {"current_module", current_module, METH_NOARGS, "Name of the module that runs on this thread."},
    {"dump_api", dump_api, METH_VARARGS, "dump_api(folder, type, args, result)"},
    {"write_pth", write_pth, METH_VARARGS, "write_pth(path, tensor): on disk after flush()."},
    {"flush", call_held<StrictSession, &StrictSession::flush>, METH_NOARGS,
     "Waits until everything dumped so far is on disk."},
    {"close", call_held<StrictSession, &StrictSession::close>, METH_NOARGS,
     "flush(), then ends the dump; hooks that are still called do nothing."},
    {"counters", counters, METH_NOARGS, "What the writer did, as a dict."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef dumper_members[] = {
    {"token_id", get_token_id, set_token_id, "Id of the latest root call.", nullptr},
    {"dump_flag", get_dump_flag, set_dump_flag, "Whether that call is dumped.", nullptr},
    {"module_ids", get_module_ids, nullptr,
     "Module name -> number of its first call during token 0.", nullptr},
    {"last_logits", get_last_logits, nullptr,
     "(name, outputs) of the last module that returned a tensor, or None.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

// torch_tree_name(name, suffix_bytes): as TorchTree names its folders and files
PyObject* torch_tree_name_python(PyObject*, PyObject* args) {
  const char* name = nullptr;
  Py_ssize_t size = 0, suffix_bytes = 0;
  if (!PyArg_ParseTuple(args, "s#|n", &name, &size, &suffix_bytes)) return nullptr;
  return message_text(writer::torch_tree_name({name, static_cast<size_t>(size)},
                                              static_cast<size_t>(suffix_bytes)));
}

PyMethodDef strict_functions[] = {
    {"torch_tree_name", torch_tree_name_python, METH_VARARGS,
     "torch_tree_name(name, suffix_bytes=0) -> str: as a dump of the old "
     "API names a folder or file."},
    {nullptr, nullptr, 0, nullptr}};

const ExtensionPart strict_part([](PyObject* module) {
  hook_type = make_type(&hook_spec);
  if (hook_type == nullptr || PyModule_AddFunctions(module, strict_functions) != 0) return -1;
  return make_holder_type<StrictSession>(module, "assay._capture.StrictDumper", new_dumper,
                                         dumper_methods, dumper_members) != nullptr
             ? 0
             : -1;
});

}  // namespace
}  // namespace assay::capture

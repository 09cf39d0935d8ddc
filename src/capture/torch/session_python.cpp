// SPDX-License-Identifier: Apache-2.0
// assay._capture.Session: arguments in, results out; the work is in session.cpp.
#include <cstring>

#include "base/atomic_file.hpp"
#include "capture/intake/host_threads.hpp"
#include "capture/torch/extension.hpp"
#include "capture/torch/operator_mode.hpp"
#include "capture/torch/python_compat.hpp"
#include "capture/torch/session_object.hpp"
#include "tensor/node.hpp"

namespace assay::capture {

PyTypeObject* session_type = nullptr;

namespace {

void wait_without_gil(void (*wait)(void* data), void* data) {
  const GilReleased released;
  wait(data);
}

// Raises assay.errors.Error(code, message, path, offset).
PyObject* raise_error(const Error& error) {
  const Ref make = imported("assay.errors", "make_error");
  if (!make) return nullptr;
  const std::string code(errc_name(error.code));
  PyObject* path =
      error.path.empty() ? new_ref(Py_None) : PyUnicode_DecodeFSDefault(error.path.c_str());
  const Ref exception(
      PyObject_CallFunction(make.get(), "sNN", code.c_str(), message_text(error.message), path));
  if (exception)
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
  return nullptr;
}

PyObject* none_or_raise(const Status& status) {
  return status ? new_ref(Py_None) : raise_error(status.error());
}

// List of make(node), by node number.
template <typename Make>
PyObject* list_of_nodes(Session& session, Make make) {
  Ref list(PyList_New(0));
  for (const SessionNode& node : session.nodes()) {
    const Ref item(list ? make(node) : nullptr);
    if (!item || PyList_Append(list.get(), item.get()) != 0) return nullptr;
  }
  return list.release();
}

PyObject* session_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"folder",      "data",   "inputs",     "outputs", "caches",
                                   "digest",      "verify", "wanted",     "device",  "force_device",
                                   "queue_bytes", "drop",   "disk_limit", "threads", "outermost",
                                   "operators",   "run_id", nullptr};
  SessionOptions options;
  writer::NativeRunOptions run_options;
  const char* data = "full";
  const char* run_id = "";
  bool drop = false;
  int threads = 1;
  unsigned long long queue_bytes = 64ull << 20;
  PyObject *wanted = Py_None, *device = Py_None, *disk_limit = Py_None;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O&|$sO&O&O&O&O&OOO&KO&OiO&O&s", const_cast<char**>(keywords),
          path_argument, &run_options.folder, &data, flag_argument, &options.inputs, flag_argument,
          &options.outputs, flag_argument, &options.caches, flag_argument, &options.digest,
          flag_argument, &options.verify, &wanted, &device, flag_argument, &options.force_device,
          &queue_bytes, flag_argument, &drop, &disk_limit, &threads, flag_argument,
          &options.outermost, flag_argument, &options.operators, &run_id)) {
    return nullptr;
  }
  TensorAccess* access = TensorAccess::get();
  if (access == nullptr) return nullptr;
  options.data = std::strcmp(data, "full") == 0    ? DataLevel::Full
                 : std::strcmp(data, "stats") == 0 ? DataLevel::Stats
                                                   : DataLevel::None;
  options.wanted = wanted != Py_None ? wanted : nullptr;
  options.device = device != Py_None ? device : nullptr;
  if (options.operators && !StorageTable::works(*access))
    return raise_error(
        {Errc::Unsupported, "", std::nullopt,
         "level \"operator\" needs a torch that keeps one object for each storage (2.1)"});
  Ref mode(options.operators ? new_operator_mode() : nullptr);
  if (options.operators && !mode) return nullptr;
  options.mode = mode.get();

  run_options.run_id = run_id;
  run_options.arena_bytes = options.data == DataLevel::Full ? queue_bytes : 0;
  run_options.on_full = drop ? writer::FullPolicy::Drop : writer::FullPolicy::Wait;
  if (disk_limit != Py_None) {
    const unsigned long long limit = PyLong_AsUnsignedLongLong(disk_limit);
    if (PyErr_Occurred() != nullptr) return nullptr;
    run_options.disk.limit_bytes = limit;
  }
  if (const Status made = make_directories(run_options.folder); !made)
    return raise_error(made.error());
  auto run = writer::NativeRun::create(std::move(run_options), wait_without_gil);
  if (!run) return raise_error(run.error());
  use_host_threads(threads);
  auto* self = new_object<SessionObject>(type);
  if (self == nullptr) return nullptr;
  self->wanted = options.wanted != nullptr ? new_ref(options.wanted) : nullptr;
  self->device = options.device != nullptr ? new_ref(options.device) : nullptr;
  self->session = new Session(options, *access, std::move(*run));
  if (mode) set_mode_session(mode.get(), self->session);
  self->mode = mode.release();
  return reinterpret_cast<PyObject*>(self);
}

int session_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<SessionObject*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->wanted);
  Py_VISIT(self->device);
  return 0;
}

int session_clear(PyObject* object) {
  auto* self = reinterpret_cast<SessionObject*>(object);
  if (self->session != nullptr) {
    self->session->options().wanted = nullptr;
    self->session->options().device = nullptr;
  }
  Py_CLEAR(self->wanted);
  Py_CLEAR(self->device);
  return 0;
}

void session_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  auto* self = reinterpret_cast<SessionObject*>(object);
  // A mode that somebody keeps passes operators on from here.
  if (self->mode != nullptr) set_mode_session(self->mode, nullptr);
  if (self->session != nullptr) {
    self->session->close();
    delete self->session;
    self->session = nullptr;
  }
  Py_CLEAR(self->mode);
  (void)session_clear(object);
  free_object(object);
}

PyObject* session_add_node(PyObject* self, PyObject* args) {
  const char* name = nullptr;
  const char* type = nullptr;
  int is_root = 0, wanted = 1, opaque = 0;
  if (!PyArg_ParseTuple(args, "sspp|p", &name, &type, &is_root, &wanted, &opaque)) return nullptr;
  return PyLong_FromUnsignedLong(
      session_of(self).add_node(name, type, is_root != 0, wanted != 0, opaque != 0));
}

PyObject* session_add_leaf(PyObject* self, PyObject* args) {
  const char* name = nullptr;
  PyObject* tensor = nullptr;
  if (!PyArg_ParseTuple(args, "sO", &name, &tensor)) return nullptr;
  session_of(self).add_leaf(tensor, name);
  Py_RETURN_NONE;
}

// weights(list of (node, slot, tensor, is_buffer))
PyObject* session_weights(PyObject* self, PyObject* list) {
  if (!PyList_Check(list)) {
    PyErr_SetString(PyExc_TypeError, "weights() takes a list");
    return nullptr;
  }
  Session& session = session_of(self);
  session.begin_weights(static_cast<uint64_t>(PyList_Size(list)));
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i) {
    unsigned node = 0;
    const char* slot = nullptr;
    PyObject* tensor = nullptr;
    int is_buffer = 0;
    if (!PyArg_ParseTuple(PyList_GetItem(list, i), "IsOp", &node, &slot, &tensor, &is_buffer))
      return nullptr;
    if (node >= session.nodes().size()) {
      PyErr_SetString(PyExc_IndexError, "no such node");
      return nullptr;
    }
    session.record_weight(node, tensor, slot, is_buffer != 0 ? Role::Buffer : Role::Weight);
  }
  session.end_weights();
  Py_RETURN_NONE;
}

PyObject* session_flush(PyObject* self, PyObject*) {
  session_of(self).flush();
  Py_RETURN_NONE;
}

PyObject* session_wait_for_collectives(PyObject* self, PyObject*) {
  session_of(self).wait_for_collectives();
  Py_RETURN_NONE;
}

PyObject* session_close(PyObject* self, PyObject*) {
  session_of(self).close();
  Py_RETURN_NONE;
}

PyObject* session_stats(PyObject* self, PyObject*) {
  Session& session = session_of(self);
  const writer::NativeRunCounters counters = session.run().counters();
  const std::string stopped =
      session.failure().empty() ? session.run().stop_reason() : session.failure();
  return Py_BuildValue("{s:L,s:K,s:K,s:K,s:K,s:K,s:d,s:K,s:N}", "steps",
                       static_cast<long long>(session.steps_started()), "records",
                       static_cast<unsigned long long>(counters.records), "bytes",
                       static_cast<unsigned long long>(counters.payload_bytes), "shared",
                       static_cast<unsigned long long>(session.shared_count()), "dropped",
                       static_cast<unsigned long long>(counters.dropped), "dropped_bytes",
                       static_cast<unsigned long long>(counters.dropped_bytes), "waited_ms",
                       counters.waited_ms, "queue_bytes",
                       static_cast<unsigned long long>(session.run().arena_bytes()), "stopped",
                       message_text(stopped));
}

PyObject* session_executed(PyObject* self, PyObject*) {
  return list_of_nodes(session_of(self), [](const SessionNode& node) {
    return PyLong_FromUnsignedLongLong(node.executed);
  });
}

PyObject* session_tallies(PyObject* self, PyObject*) {
  return list_of_nodes(session_of(self), [](const SessionNode& node) {
    return Py_BuildValue("LK", static_cast<long long>(node.steps),
                         static_cast<unsigned long long>(node.tensors));
  });
}

// unread() -> dict of reason -> number of tensors whose values could not be read
PyObject* session_unread(PyObject* self, PyObject*) {
  std::map<std::string, uint64_t> counts;
  for (const SessionNode& node : session_of(self).nodes()) {
    for (const auto& [reason, count] : node.unread) counts[reason] += count;
  }
  Ref dict(PyDict_New());
  for (const auto& [reason, count] : counts) {
    const Ref number(PyLong_FromUnsignedLongLong(count));
    if (!dict || !number || PyDict_SetItemString(dict.get(), reason.c_str(), number.get()) != 0)
      return nullptr;
  }
  return dict.release();
}

PyObject* session_watched_by(PyObject* self, PyObject* functions) {
  Watchers& watchers = session_of(self).watchers();
  if (functions == Py_True) watchers.look_around_functions();
  return PyUnicode_FromString(watchers.text().c_str());
}

PyObject* session_live(PyObject* self, void*) { return PyBool_FromLong(session_of(self).live()); }

PyMethodDef session_methods[] = {
    {"add_node", session_add_node, METH_VARARGS,
     "add_node(name, type, is_root, wanted, opaque) -> int"},
    {"add_leaf", session_add_leaf, METH_VARARGS,
     "add_leaf(name, tensor): a parameter or buffer, for operator-level captures"},
    {"module_call", session_module_call, METH_VARARGS,
     "module_call(module, node) -> ModuleCall, not yet installed"},
    {"weights", session_weights, METH_O,
     "weights(list of (node, slot, tensor, is_buffer)): records them as step -1"},
    {"add_graph_operator", session_add_graph_operator, METH_VARARGS,
     "add_graph_operator(node, inputs, outputs, left-out inputs, left-out outputs, constants) -> "
     "int"},
    {"graph_run", session_graph_run, METH_VARARGS,
     "graph_run(node of the graph, step) -> GraphRun: until its end() operators are recorded"},
    {"flush", session_flush, METH_NOARGS, "Waits until everything recorded so far is on disk."},
    {"wait_for_collectives", session_wait_for_collectives, METH_NOARGS,
     "Waits for collectives whose results the program still holds."},
    {"close", session_close, METH_NOARGS, "Ends the capture and waits for the writer. Idempotent."},
    {"stats", session_stats, METH_NOARGS, "stats() -> dict of counters"},
    {"executed", session_executed, METH_NOARGS, "executed() -> list of int, by node number"},
    {"tallies", session_tallies, METH_NOARGS,
     "tallies() -> list of (steps, tensors), by node number"},
    {"unread", session_unread, METH_NOARGS,
     "unread() -> dict: reason -> tensors whose values could not be read"},
    {"watched_by", session_watched_by, METH_O,
     "watched_by(functions) -> what the program uses that sees the capture, with commas. True: "
     "functions of ours are at work, so tracers of calls are asked for"},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef session_properties[] = {
    {"live", session_live, nullptr, "False when nothing more is recorded.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot session_slots[] = {{Py_tp_new, reinterpret_cast<void*>(session_new)},
                               {Py_tp_traverse, reinterpret_cast<void*>(session_traverse)},
                               {Py_tp_clear, reinterpret_cast<void*>(session_clear)},
                               {Py_tp_dealloc, reinterpret_cast<void*>(session_dealloc)},
                               {Py_tp_methods, session_methods},
                               {Py_tp_getset, session_properties},
                               {0, nullptr}};
PyType_Spec session_spec = {"assay._capture.Session", sizeof(SessionObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, session_slots};

// claim_run(path of the folder's manifest, tool, host_json, config_json, id of the job or "") ->
// (id, whether this process is the first)
PyObject* claim_run_python(PyObject*, PyObject* args) {
  std::string path;
  const char *tool = nullptr, *host = nullptr, *config = nullptr, *job_id = nullptr;
  if (!PyArg_ParseTuple(args, "O&ssss", path_argument, &path, &tool, &host, &config, &job_id))
    return nullptr;
  native::Manifest manifest;
  manifest.tool = tool;
  manifest.host_json = host;
  manifest.config_json = config;
  manifest.started = writer::utc_now();
  const Result<writer::RunClaim> claim = writer::claim_run(path, std::move(manifest), job_id);
  if (!claim) return raise_error(claim.error());
  return Py_BuildValue("(sN)", claim->id.c_str(), PyBool_FromLong(claim->is_first));
}

// write_manifest(session, path, id, tool, host_json, config_json, started, finished or None,
// planned, captured, list of (node, reason, count), stopped)
PyObject* write_manifest_python(PyObject*, PyObject* args) {
  PyObject *self = nullptr, *missed = nullptr;
  std::string path;
  const char *id = nullptr, *tool = nullptr, *host = nullptr, *config = nullptr;
  const char *started = nullptr, *finished = nullptr, *stopped = nullptr;
  unsigned long long planned = 0, captured = 0;
  if (!PyArg_ParseTuple(args, "O!O&sssssz(KK)O!s", session_type, &self, path_argument, &path, &id,
                        &tool, &host, &config, &started, &finished, &planned, &captured,
                        &PyList_Type, &missed, &stopped)) {
    return nullptr;
  }
  const Session& session = session_of(self);
  native::Manifest manifest;
  manifest.id = id;
  manifest.tool = tool;
  manifest.host_json = host;
  manifest.config_json = config;
  manifest.started = started;
  manifest.steps = session.steps();
  if (finished != nullptr) {
    manifest.finished = finished;
    manifest.files = session.run().files();
  }
  manifest.planned = planned;
  manifest.captured = captured;
  session.run().describe_buffer(&manifest);
  manifest.stopped = stopped;
  for (Py_ssize_t i = 0; i < PyList_Size(missed); ++i) {
    const char *node = nullptr, *reason = nullptr;
    unsigned long long count = 0;
    if (!PyArg_ParseTuple(PyList_GetItem(missed, i), "ssK", &node, &reason, &count)) return nullptr;
    manifest.missed.push_back({node, reason, count});
  }
  return none_or_raise(writer::write_manifest(path, manifest));
}

// write_file(path, text)
PyObject* write_file_python(PyObject*, PyObject* args) {
  std::string path;
  const char* text = nullptr;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTuple(args, "O&s#", path_argument, &path, &text, &size)) return nullptr;
  const std::string_view content(text, static_cast<size_t>(size));
  return none_or_raise(write_file_atomically(path, as_bytes(content)));
}

PyObject* utc_now_python(PyObject*, PyObject*) {
  return PyUnicode_FromString(writer::utc_now().c_str());
}

PyObject* host_threads_python(PyObject*, PyObject* ignore) {
  const int truth = PyObject_IsTrue(ignore);
  if (truth < 0) return nullptr;
  ignore_load_average(truth != 0);
  return PyBool_FromLong(host_threads_available());
}

PyMethodDef session_functions[] = {
    {"write_manifest", write_manifest_python, METH_VARARGS,
     "Writes manifest.json atomically; docs/formats/native.md."},
    {"claim_run", claim_run_python, METH_VARARGS,
     "claim_run(path, tool, host_json, config_json, job_id) -> (id, is_first): which run a capture "
     "beside that manifest is of."},
    {"write_file", write_file_python, METH_VARARGS,
     "write_file(path, text): by way of a temporary file; FileError when it cannot be written."},
    {"utc_now", utc_now_python, METH_NOARGS, "utc_now() -> '2026-01-01T00:00:00Z'"},
    {"host_threads", host_threads_python, METH_O,
     "host_threads(ignore_load) -> bool: whether torch's OpenMP threads are used; True ignores the "
     "load average."},
    {nullptr, nullptr, 0, nullptr}};

const ExtensionPart session_part([](PyObject* module) {
  session_type = make_type(&session_spec, module);
  return session_type != nullptr ? PyModule_AddFunctions(module, session_functions) : -1;
});

}  // namespace
}  // namespace assay::capture

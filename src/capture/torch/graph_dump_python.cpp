// SPDX-License-Identifier: Apache-2.0
// assay._capture.GraphDump: arguments in, results out; the work is in graph_dump.cpp.
#include <cstddef>
#include <exception>

#include "capture/intake/host_threads.hpp"
#include "capture/torch/extension.hpp"
#include "capture/torch/graph_dump.hpp"
#include "capture/torch/python_compat.hpp"

namespace assay::capture {
namespace {

struct GraphDumpObject {
  PyObject_HEAD GraphDump* dump;
};

GraphDump& dump_of(PyObject* self) { return *reinterpret_cast<GraphDumpObject*>(self)->dump; }

/// Owns a new reference.
class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {}
  ~Owned() { Py_XDECREF(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  [[nodiscard]] PyObject* get() const { return object_; }

 private:
  PyObject* object_;
};

// Every function below returns false with a Python exception set.

bool read_text(PyObject* object, const char* what, std::string* out) {
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
  if (utf8 == nullptr) {
    if (PyErr_Occurred() == nullptr) PyErr_Format(PyExc_TypeError, "%s must be a str", what);
    return false;
  }
  out->assign(utf8, static_cast<size_t>(size));
  return true;
}

/// An absolute path without null bytes; names that are no UTF-8 keep their bytes.
bool read_path(PyObject* object, std::string* out) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(object, &bytes) == 0) return false;
  const Owned owned(bytes);
  out->assign(PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes)));
  if (!out->starts_with('/')) {
    PyErr_SetString(PyExc_ValueError, "paths are absolute");
    return false;
  }
  return true;
}

bool read_attributes(PyObject* sequence, std::vector<formats::CannAttribute>* out) {
  const Owned items(PySequence_Fast(sequence, "attributes must be a sequence of (name, value)"));
  if (items.get() == nullptr) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) {
      PyErr_SetString(PyExc_TypeError, "attributes must be pairs (name, value)");
      return false;
    }
    formats::CannAttribute attribute;
    if (!read_text(PyTuple_GET_ITEM(item, 0), "an attribute's name", &attribute.name) ||
        !read_text(PyTuple_GET_ITEM(item, 1), "an attribute's value", &attribute.value)) {
      return false;
    }
    out->push_back(std::move(attribute));
  }
  return true;
}

bool read_statistics(PyObject* sequence, GraphOperator* op) {
  if (sequence == Py_None) return true;
  op->statistics.emplace();
  const Owned names(PySequence_Fast(sequence, "statistics must be a sequence of names or None"));
  if (names.get() == nullptr) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(names.get()); ++i) {
    std::string name;
    if (!read_text(PySequence_Fast_GET_ITEM(names.get(), i), "a statistic", &name)) return false;
    const auto known = formats::cann_statistic(name);
    if (!known) {
      PyErr_Format(PyExc_ValueError,
                   "unknown statistic '%s'; known are Max, Min, Avg, Nan, Negative Inf, Positive "
                   "Inf, L2norm",
                   name.c_str());
      return false;
    }
    op->statistics->push_back(*known);
  }
  return true;
}

using LeftOut = std::vector<std::pair<bool, uint32_t>>;  // is an input, index

bool read_left_out(PyObject* sequence, LeftOut* out) {
  const Owned items(PySequence_Fast(sequence, "left_out must be a sequence"));
  if (items.get() == nullptr) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    std::string kind;
    unsigned index = 0;
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2 ||
        !read_text(PyTuple_GET_ITEM(item, 0), "left_out's kind", &kind) ||
        (kind != "input" && kind != "output")) {
      if (PyErr_Occurred() == nullptr)
        PyErr_SetString(PyExc_ValueError, "left_out has pairs such as ('input', 0)");
      return false;
    }
    index = static_cast<unsigned>(PyLong_AsUnsignedLong(PyTuple_GET_ITEM(item, 1)));
    if (PyErr_Occurred() != nullptr) return false;
    out->emplace_back(kind == "input", index);
  }
  return true;
}

/// (name, output index, data type in run-time numbering) of the tensor before fusion.
bool read_origin(PyObject* item, std::optional<formats::CannOrigin>* out) {
  if (item == Py_None) return true;
  const char* name = nullptr;
  long long output_index = 0;
  int data_type = 0;
  if (!PyTuple_Check(item)) {
    PyErr_SetString(PyExc_TypeError, "origins has tuples (name, output index, data type) and None");
    return false;
  }
  if (!PyArg_ParseTuple(item, "sLi", &name, &output_index, &data_type)) return false;
  *out = formats::CannOrigin{.name = name,
                             .output_index = output_index,
                             .data_type = data_type,
                             .format = formats::kCannFormatNd};
  return true;
}

bool read_operands(TensorAccess& access, PyObject* sequence, bool is_input, PyObject* origins,
                   const LeftOut& left_out, GraphOperator* op) {
  const Py_ssize_t origin_count = origins != nullptr ? PySequence_Fast_GET_SIZE(origins) : 0;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    PyObject* tensor = PySequence_Fast_GET_ITEM(sequence, i);
    GraphOperand operand;
    operand.tensor = tensor;
    operand.is_input = is_input;
    operand.index = static_cast<uint32_t>(i);
    bool absent = tensor == Py_None;
    for (const auto& [of_input, index] : left_out)
      absent = absent || (of_input == is_input && index == operand.index);
    if (absent) {
      op->left_out = true;
      continue;
    }
    if (!access.is_tensor(tensor)) {
      PyErr_Format(PyExc_TypeError, "%s %zd is a %s, not a torch.Tensor or None",
                   is_input ? "input" : "output", i, Py_TYPE(tensor)->tp_name);
      return false;
    }
    if (i < origin_count && !read_origin(PySequence_Fast_GET_ITEM(origins, i), &operand.origin)) {
      return false;
    }
    op->operands.push_back(std::move(operand));
  }
  return true;
}

PyObject* path_object(const std::string& path) {
  return PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size()));
}

PyObject* write_operator(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"folder",  "op_type",    "op_name",    "task_id",  "stream_id",
                                   "inputs",  "outputs",    "origins",    "left_out", "statistics",
                                   "message", "attributes", "extra_name", nullptr};
  PyObject *folder = nullptr, *op_type = nullptr, *op_name = nullptr;
  PyObject *inputs = nullptr, *outputs = nullptr, *origins = nullptr, *left_out = nullptr;
  PyObject *statistics = Py_None, *message = nullptr, *attributes = nullptr, *extra_name = nullptr;
  long long task_id = 0, stream_id = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOLLOO|$OOOOOO", const_cast<char**>(keywords),
                                   &folder, &op_type, &op_name, &task_id, &stream_id, &inputs,
                                   &outputs, &origins, &left_out, &statistics, &message,
                                   &attributes, &extra_name)) {
    return nullptr;
  }
  TensorAccess* access = TensorAccess::get();
  if (access == nullptr) return nullptr;
  GraphOperator op;
  op.task_id = task_id;
  op.stream_id = stream_id;
  LeftOut absent;
  if (!read_path(folder, &op.folder) || !read_text(op_type, "op_type", &op.op_type) ||
      !read_text(op_name, "op_name", &op.op_name) ||
      (message != nullptr && !read_text(message, "message", &op.message)) ||
      (extra_name != nullptr && !read_text(extra_name, "extra_name", &op.file_op_name)) ||
      (attributes != nullptr && !read_attributes(attributes, &op.attributes)) ||
      (left_out != nullptr && !read_left_out(left_out, &absent)) ||
      !read_statistics(statistics, &op)) {
    return nullptr;
  }
  // The sequences keep the tensors alive, whatever another thread does to a list of the caller.
  const Owned input_list(PySequence_Tuple(inputs));
  const Owned output_list(input_list.get() != nullptr ? PySequence_Tuple(outputs) : nullptr);
  const Owned origin_list(
      output_list.get() != nullptr && origins != nullptr ? PySequence_Tuple(origins) : nullptr);
  if (PyErr_Occurred() != nullptr ||
      !read_operands(*access, input_list.get(), true, nullptr, absent, &op) ||
      !read_operands(*access, output_list.get(), false, origin_list.get(), absent, &op)) {
    return nullptr;
  }
  return path_object(dump_of(self).write_operator(op));
}

PyObject* none_or_error(const Status& status) {
  if (status) return new_ref(Py_None);
  PyErr_SetString(PyExc_ValueError, status.error().describe().c_str());
  return nullptr;
}

PyObject* write_array(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"path", "tensor", "widen_bfloat16", nullptr};
  PyObject *path_argument = nullptr, *tensor = nullptr;
  int widen = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$p", const_cast<char**>(keywords),
                                   &path_argument, &tensor, &widen)) {
    return nullptr;
  }
  TensorAccess* access = TensorAccess::get();
  std::string path;
  if (access == nullptr || !read_path(path_argument, &path)) return nullptr;
  if (!access->is_tensor(tensor)) {
    PyErr_Format(PyExc_TypeError, "write_array() takes a torch.Tensor, not a %s",
                 Py_TYPE(tensor)->tp_name);
    return nullptr;
  }
  return none_or_error(dump_of(self).write_array(path, tensor, widen != 0));
}

PyObject* write_bytes(PyObject* self, PyObject* args) {
  PyObject* path_argument = nullptr;
  Py_buffer data{};
  if (!PyArg_ParseTuple(args, "Oy*", &path_argument, &data)) return nullptr;
  std::string path;
  PyObject* result = nullptr;
  if (read_path(path_argument, &path)) {
    result = none_or_error(dump_of(self).write_bytes(
        path, {static_cast<const char*>(data.buf), static_cast<size_t>(data.len)}));
  }
  PyBuffer_Release(&data);
  return result;
}

PyObject* take_missed(PyObject* self, PyObject*) {
  const std::vector<GraphMiss> missed = dump_of(self).take_missed();
  PyObject* list = PyList_New(0);
  for (const GraphMiss& miss : missed) {
    const Owned item(Py_BuildValue("(NssK)", path_object(miss.folder), miss.op_name.c_str(),
                                   miss.reason.c_str(),
                                   static_cast<unsigned long long>(miss.count)));
    if (list == nullptr || item.get() == nullptr || PyList_Append(list, item.get()) != 0) {
      Py_XDECREF(list);
      return nullptr;
    }
  }
  return list;
}

PyObject* flush(PyObject* self, PyObject*) {
  dump_of(self).flush();
  return new_ref(Py_None);
}

PyObject* close(PyObject* self, PyObject*) {
  dump_of(self).close();
  return new_ref(Py_None);
}

PyObject* stats_of(PyObject* self, PyObject*) {
  const GraphDump& dump = dump_of(self);
  const writer::WriterCounters counts = dump.counters();
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:N,s:d}", "files",
                       static_cast<unsigned long long>(dump.tree().files()), "bytes",
                       static_cast<unsigned long long>(dump.tree().bytes()), "dropped",
                       static_cast<unsigned long long>(counts.dropped), "failed",
                       static_cast<unsigned long long>(counts.jobs_failed), "first_error",
                       message_text(counts.first_error ? counts.first_error->describe() : ""),
                       "waited_ms", counts.waited_ms);
}

PyObject* get_live(PyObject* self, void*) { return PyBool_FromLong(dump_of(self).live()); }

// No C++ exception leaves into the interpreter.
template <PyObject* (*function)(PyObject*, PyObject*)>
PyObject* guarded(PyObject* self, PyObject* args) noexcept {
  try {
    return function(self, args);
  } catch (const std::exception& exception) {
    PyErr_SetString(PyExc_RuntimeError, exception.what());
    return nullptr;
  }
}
template <PyObject* (*function)(PyObject*, PyObject*, PyObject*)>
PyObject* guarded(PyObject* self, PyObject* args, PyObject* kwargs) noexcept {
  try {
    return function(self, args, kwargs);
  } catch (const std::exception& exception) {
    PyErr_SetString(PyExc_RuntimeError, exception.what());
    return nullptr;
  }
}

PyObject* new_graph_dump(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"queue_bytes", "drop", "threads", nullptr};
  unsigned long long queue_bytes = 256ull << 20;
  int drop = 0, threads = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$Kpi", const_cast<char**>(keywords),
                                   &queue_bytes, &drop, &threads)) {
    return nullptr;
  }
  TensorAccess* access = TensorAccess::get();
  if (access == nullptr) return nullptr;
  if (threads > 0) use_host_threads(threads);
  auto* self = reinterpret_cast<GraphDumpObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  try {
    self->dump = new GraphDump(
        *access, {.queue_bytes = queue_bytes,
                  .on_full = drop != 0 ? writer::FullPolicy::Drop : writer::FullPolicy::Wait,
                  .thread_name = "assay-graph"});
  } catch (const std::exception& exception) {
    PyErr_SetString(PyExc_RuntimeError, exception.what());
    Py_DECREF(self);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(self);
}

void free_graph_dump(PyObject* self) {
  delete reinterpret_cast<GraphDumpObject*>(self)->dump;
  Py_TYPE(self)->tp_free(self);
}

PyMethodDef methods[] = {
    {"write_operator",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(guarded<write_operator>)),
     METH_VARARGS | METH_KEYWORDS,
     "write_operator(folder, op_type, op_name, task_id, stream_id, inputs, outputs, *, ...) -> "
     "path"},
    {"write_array", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(guarded<write_array>)),
     METH_VARARGS | METH_KEYWORDS, "write_array(path, tensor, *, widen_bfloat16=False)"},
    {"write_bytes", guarded<write_bytes>, METH_VARARGS, "write_bytes(path, data)"},
    {"take_missed", guarded<take_missed>, METH_NOARGS,
     "take_missed() -> list of (folder, node, reason, count) since the last call"},
    {"flush", flush, METH_NOARGS, "Waits until everything handed over so far is on disk."},
    {"close", close, METH_NOARGS, "flush(), then ends the writer. Idempotent."},
    {"stats", guarded<stats_of>, METH_NOARGS,
     "stats() -> dict: files, bytes, dropped, failed, first_error, waited_ms"},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef members[] = {
    {"live", get_live, nullptr, "False when nothing more is written.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject graph_dump_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int add_graph_dump(PyObject* module) {
  graph_dump_type.tp_name = "assay._capture.GraphDump";
  graph_dump_type.tp_basicsize = sizeof(GraphDumpObject);
  graph_dump_type.tp_flags = Py_TPFLAGS_DEFAULT;
  graph_dump_type.tp_new = new_graph_dump;
  graph_dump_type.tp_dealloc = free_graph_dump;
  graph_dump_type.tp_methods = methods;
  graph_dump_type.tp_getset = members;
  if (PyType_Ready(&graph_dump_type) != 0) return -1;
  Py_INCREF(reinterpret_cast<PyObject*>(&graph_dump_type));
  if (PyModule_AddObject(module, "GraphDump", reinterpret_cast<PyObject*>(&graph_dump_type)) != 0) {
    Py_DECREF(reinterpret_cast<PyObject*>(&graph_dump_type));
    return -1;
  }
  return 0;
}

const ExtensionPart part(add_graph_dump);

}  // namespace
}  // namespace assay::capture

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

GraphDump& dump_of(PyObject* self) { return held_by<GraphDump>(self); }

// Every function below returns false with a Python exception set.

bool read_text(PyObject* object, const char* what, std::string* out) {
  if (!PyUnicode_Check(object)) {
    PyErr_Format(PyExc_TypeError, "%s must be a str", what);
    return false;
  }
  const Utf8 text(object);
  out->assign(text.view());
  return static_cast<bool>(text);
}

/// An absolute path without null bytes; names that are no UTF-8 keep their bytes.
bool read_path(PyObject* object, std::string* out) {
  if (path_argument(object, out) == 0) return false;
  if (out->starts_with('/')) return true;
  PyErr_SetString(PyExc_ValueError, "paths are absolute");
  return false;
}

// read(item) for each of a sequence.
template <typename Read>
bool read_each(PyObject* sequence, const char* not_one, Read read) {
  const Ref items(PySequence_Fast(sequence, not_one));
  if (!items) return false;
  for (Py_ssize_t i = 0; i < size_of(items.get()); ++i) {
    if (!read(item_of(items.get(), i))) return false;
  }
  return true;
}

bool is_pair(PyObject* item) { return PyTuple_Check(item) && PyTuple_Size(item) == 2; }

bool read_attributes(PyObject* sequence, std::vector<formats::CannAttribute>* out) {
  const char* not_one = "attributes must be a sequence of (name, value)";
  return read_each(sequence, not_one, [out](PyObject* item) {
    if (!is_pair(item)) {
      PyErr_SetString(PyExc_TypeError, "attributes must be pairs (name, value)");
      return false;
    }
    formats::CannAttribute& attribute = out->emplace_back();
    return read_text(PyTuple_GetItem(item, 0), "an attribute's name", &attribute.name) &&
           read_text(PyTuple_GetItem(item, 1), "an attribute's value", &attribute.value);
  });
}

bool read_statistics(PyObject* sequence, DumpedOperator* op) {
  if (sequence == Py_None) return true;
  op->statistics.emplace();
  const char* not_one = "statistics must be a sequence of names or None";
  return read_each(sequence, not_one, [op](PyObject* item) {
    std::string name;
    if (!read_text(item, "a statistic", &name)) return false;
    const auto known = formats::cann_statistic(name);
    if (known) {
      op->statistics->push_back(*known);
      return true;
    }
    PyErr_Format(PyExc_ValueError,
                 "unknown statistic '%s'; known are Max, Min, Avg, Nan, Negative Inf, Positive "
                 "Inf, L2norm",
                 name.c_str());
    return false;
  });
}

using LeftOut = std::vector<std::pair<bool, uint32_t>>;  // is an input, index

bool read_left_out(PyObject* sequence, LeftOut* out) {
  return read_each(sequence, "left_out must be a sequence", [out](PyObject* item) {
    std::string kind;
    if (!is_pair(item) || !read_text(PyTuple_GetItem(item, 0), "left_out's kind", &kind) ||
        (kind != "input" && kind != "output")) {
      if (PyErr_Occurred() == nullptr)
        PyErr_SetString(PyExc_ValueError, "left_out has pairs such as ('input', 0)");
      return false;
    }
    const unsigned long index = PyLong_AsUnsignedLong(PyTuple_GetItem(item, 1));
    out->emplace_back(kind == "input", static_cast<uint32_t>(index));
    return PyErr_Occurred() == nullptr;
  });
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
                   const LeftOut& left_out, DumpedOperator* op) {
  const Py_ssize_t origin_count = origins != nullptr ? size_of(origins) : 0;
  for (Py_ssize_t i = 0; i < size_of(sequence); ++i) {
    PyObject* tensor = item_of(sequence, i);
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
                   is_input ? "input" : "output", i, type_text(tensor).c_str());
      return false;
    }
    if (i < origin_count && !read_origin(item_of(origins, i), &operand.origin)) {
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
  DumpedOperator op;
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
  const Ref input_list(PySequence_Tuple(inputs));
  const Ref output_list(input_list ? PySequence_Tuple(outputs) : nullptr);
  const Ref origin_list(output_list && origins != nullptr ? PySequence_Tuple(origins) : nullptr);
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
  PyObject *where = nullptr, *tensor = nullptr;
  int widen = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$p", const_cast<char**>(keywords), &where,
                                   &tensor, &widen)) {
    return nullptr;
  }
  TensorAccess* access = TensorAccess::get();
  std::string path;
  if (access == nullptr || !read_path(where, &path)) return nullptr;
  if (!access->is_tensor(tensor)) {
    PyErr_Format(PyExc_TypeError, "write_array() takes a torch.Tensor, not a %s",
                 type_text(tensor).c_str());
    return nullptr;
  }
  return none_or_error(dump_of(self).write_array(path, tensor, widen != 0));
}

// The bytes of an object that has a buffer, as bytes; none with an exception set.
Ref bytes_of(PyObject* object) {
  if (PyBytes_Check(object)) return Ref(new_ref(object));
  const Ref view(PyMemoryView_FromObject(object));
  if (!view) {
    PyErr_Format(PyExc_TypeError, "a bytes-like object is required, not '%s'",
                 type_text(object).c_str());
    return {};
  }
  const Ref contiguous = attribute(view.get(), "c_contiguous");
  if (contiguous.get() == Py_True) return Ref(PyBytes_FromObject(view.get()));
  PyErr_SetString(PyExc_BufferError, "memoryview: underlying buffer is not C-contiguous");
  return {};
}

PyObject* write_bytes(PyObject* self, PyObject* args) {
  PyObject *where = nullptr, *data = nullptr;
  if (!PyArg_ParseTuple(args, "OO", &where, &data)) return nullptr;
  const Ref bytes = bytes_of(data);
  std::string path;
  if (!bytes || !read_path(where, &path)) return nullptr;
  return none_or_error(dump_of(self).write_bytes(
      path, {PyBytes_AsString(bytes.get()), static_cast<size_t>(PyBytes_Size(bytes.get()))}));
}

PyObject* take_missed(PyObject* self, PyObject*) {
  const std::vector<GraphMiss> missed = dump_of(self).take_missed();
  Ref list(PyList_New(0));
  for (const GraphMiss& miss : missed) {
    const Ref item(Py_BuildValue("(NssK)", path_object(miss.folder), miss.op_name.c_str(),
                                 miss.reason.c_str(), static_cast<unsigned long long>(miss.count)));
    if (!list || !item || PyList_Append(list.get(), item.get()) != 0) return nullptr;
  }
  return list.release();
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
template <auto function, typename... Arguments>
PyObject* guarded(Arguments... arguments) noexcept {
  try {
    return function(arguments...);
  } catch (const std::exception& exception) {
    PyErr_SetString(PyExc_RuntimeError, exception.what());
    return nullptr;
  }
}
template <PyObject* (*function)(PyObject*, PyObject*, PyObject*)>
PyCFunction with_keywords() {
  PyObject* (*called)(PyObject*, PyObject*, PyObject*) = guarded<function>;
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(called));
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
  auto* self = new_object<Holder<GraphDump>>(type);
  if (self == nullptr) return nullptr;
  try {
    self->held = new GraphDump(
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

PyMethodDef methods[] = {
    {"write_operator", with_keywords<write_operator>(), METH_VARARGS | METH_KEYWORDS,
     "write_operator(folder, op_type, op_name, task_id, stream_id, inputs, outputs, *, ...) -> "
     "path"},
    {"write_array", with_keywords<write_array>(), METH_VARARGS | METH_KEYWORDS,
     "write_array(path, tensor, *, widen_bfloat16=False)"},
    {"write_bytes", guarded<write_bytes>, METH_VARARGS, "write_bytes(path, data)"},
    {"take_missed", guarded<take_missed>, METH_NOARGS,
     "take_missed() -> list of (folder, node, reason, count) since the last call"},
    {"flush", call_held<GraphDump, &GraphDump::flush>, METH_NOARGS,
     "Waits until everything handed over so far is on disk."},
    {"close", call_held<GraphDump, &GraphDump::close>, METH_NOARGS,
     "flush(), then ends the writer. Idempotent."},
    {"stats", guarded<stats_of>, METH_NOARGS,
     "stats() -> dict: files, bytes, dropped, failed, first_error, waited_ms"},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef members[] = {
    {"live", get_live, nullptr, "False when nothing more is written.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

const ExtensionPart graph_dump_part([](PyObject* module) {
  return make_holder_type<GraphDump>(module, "assay._capture.GraphDump", new_graph_dump, methods,
                                     members) != nullptr
             ? 0
             : -1;
});

}  // namespace
}  // namespace assay::capture

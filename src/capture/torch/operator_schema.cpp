// SPDX-License-Identifier: Apache-2.0
// Reads the schema of an operator once, and writes the arguments of a call as JSON.
#include "capture/torch/operator_schema.hpp"

#include <charconv>
#include <cmath>

#include "base/text.hpp"
#include "capture/torch/python_compat.hpp"
#include "capture/torch/tensor_access.hpp"

namespace assay::capture {
namespace {

// A line of records.jsonl is at most 1 MiB for its readers.
constexpr size_t kMaxArgumentsBytes = 512u << 10;
constexpr Py_ssize_t kMaxListItems = 16384;
constexpr size_t kMaxTextBytes = 4096;
constexpr int kMaxListDepth = 4;

[[nodiscard]] bool true_attribute(PyObject* object, const char* name) {
  const Ref value = attribute(object, name);
  const int truth = value ? PyObject_IsTrue(value.get()) : 0;
  if (truth < 0) PyErr_Clear();
  return truth > 0;
}

void append_integer(std::string& out, long long value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

void append_double(std::string& out, double value) {
  if (std::isfinite(value)) {
    out += python_repr(value);
  } else {
    out += std::isnan(value) ? R"({"float":"nan"})"
           : value > 0       ? R"({"float":"inf"})"
                             : R"({"float":"-inf"})";
  }
}

void append_object(std::string& out, std::string_view kind, std::string_view text) {
  out += "{\"";
  out += kind;
  out += "\":";
  out += json_quote(text);
  out += '}';
}

// Writes the arguments of one call.
class ArgumentsWriter {
 public:
  ArgumentsWriter(const OperatorSchema& schema, TensorAccess& access, std::string& json,
                  std::vector<BoundTensor>& tensors)
      : schema_(schema), access_(access), json_(json), tensors_(tensors) {}

  void begin() { json_ += '{'; }
  void end() { json_ += '}'; }

  void argument(uint32_t number, PyObject* value) {
    if (json_.back() != '{') json_ += ',';
    if (number < schema_.arguments.size()) {
      json_ += schema_.arguments[number].json_key;
    } else {  // more than the schema knows: a higher-order operator
      json_ += '"';
      append_integer(json_, number);
      json_ += "\":";
    }
    write(value, number, -1, 0);
  }

  // A keyword argument that the schema does not name.
  void foreign(PyObject* key, PyObject* value) {
    if (json_.back() != '{') json_ += ',';
    json_ += json_quote(text_of(key));
    json_ += ':';
    write(value, static_cast<uint32_t>(schema_.arguments.size()), -1, 0);
  }

 private:
  void write(PyObject* value, uint32_t argument, int32_t index, int depth) {
    if (access_.is_tensor(value)) return tensor(value, argument, index);
    const unsigned long flags = PyType_GetFlags(Py_TYPE(value));
    if (value == Py_None) {
      json_ += "null";
    } else if (PyBool_Check(value)) {
      json_ += value == Py_True ? "true" : "false";
    } else if ((flags & Py_TPFLAGS_LONG_SUBCLASS) != 0) {
      integer(value);
    } else if ((flags & Py_TPFLAGS_UNICODE_SUBCLASS) != 0) {
      text(value);
    } else if ((flags & (Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS)) != 0) {
      list(value, argument, depth);
    } else if (PyFloat_Check(value)) {
      append_double(json_, PyFloat_AsDouble(value));
    } else if (PyComplex_Check(value)) {
      json_ += R"({"complex":[)";
      append_double(json_, PyComplex_RealAsDouble(value));
      json_ += ',';
      append_double(json_, PyComplex_ImagAsDouble(value));
      json_ += "]}";
    } else {
      foreign_type(value);
    }
  }

  void tensor(PyObject* value, uint32_t argument, int32_t index) {
    tensors_.push_back({value, argument, index});
    json_ += R"({"tensor":")";
    if (argument < schema_.arguments.size()) {
      json_ += schema_.arguments[argument].text;
    } else {
      append_integer(json_, argument);
    }
    if (index >= 0) {
      json_ += '.';
      append_integer(json_, index);
    }
    json_ += "\"}";
  }

  void integer(PyObject* value) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) {
      append_integer(json_, number);
    } else {
      json_ += text_of(value);
    }
  }

  void text(PyObject* value) {
    const Utf8 utf8(value);
    if (!utf8 || utf8.view().size() > kMaxTextBytes) {
      PyErr_Clear();
      append_object(json_, "other", "long text");
    } else {
      json_ += json_quote(utf8.view());
    }
  }

  // Tensors keep their place among all items; below the first list they have none of their own in
  // the schema.
  void list(PyObject* value, uint32_t argument, int depth) {
    const Py_ssize_t size = size_of(value);
    if (size > kMaxListItems || depth >= kMaxListDepth || json_.size() > kMaxArgumentsBytes) {
      append_object(json_, "other", "list of " + std::to_string(size));
      return;
    }
    json_ += '[';
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (i != 0) json_ += ',';
      write(item_of(value, i), argument, static_cast<int32_t>(i), depth + 1);
    }
    json_ += ']';
  }

  void foreign_type(PyObject* value) {
    const std::string_view kind = access_.torch_kind(Py_TYPE(value));
    if (!kind.empty()) {
      const std::string name = text_of(value);
      append_object(json_, kind, name.starts_with("torch.") ? name.substr(6) : name);
      return;
    }
    // Not asked for its own text: that would run foreign code.
    append_object(json_, "other", class_name(Py_TYPE(value)));
  }

  const OperatorSchema& schema_;
  TensorAccess& access_;
  std::string& json_;
  std::vector<BoundTensor>& tensors_;
};

}  // namespace

OperatorSchema::~OperatorSchema() {
  Py_CLEAR(function);
  Py_CLEAR(target);
  for (OperatorArgument& argument : arguments) Py_CLEAR(argument.name);
}

const OperatorSchema& OperatorSchemas::of(PyObject* function) {
  const auto found = known_.find(function);
  if (found != known_.end()) return *found->second;
  std::unique_ptr<OperatorSchema> fresh = read(function);
  // Reading runs torch's code, and with it perhaps another thread that was faster.
  const auto [place, first] = known_.try_emplace(function, std::move(fresh));
  if (first) place->second->number = static_cast<uint32_t>(known_.size() - 1);
  return *place->second;
}

std::unique_ptr<OperatorSchema> OperatorSchemas::read(PyObject* function) {
  auto schema = std::make_unique<OperatorSchema>();
  schema->function = new_ref(function);
  schema->name = run_.intern(text_of(function));
  const bool is_functional =
      schema->name->starts_with("_c10d_functional") || schema->name->starts_with("c10d_functional");
  const auto is_called = [&](std::string_view part) {
    return is_functional && schema->name->find(part) != std::string::npos;
  };
  schema->takes_what_is_written = is_called(".wait_tensor") || is_called("._wrap_tensor_autograd");
  schema->starts_collective =
      (is_functional && !is_called(".wait_tensor")) || schema->name->starts_with("c10d.") ||
      schema->name->starts_with("fsdp.all_gather_copy_in");  // returns the buffers of one
  const Ref description = attribute(function, "_schema");
  Ref target = description ? attribute(function, "_op") : Ref();
  schema->target = target ? target.release() : new_ref(function);
  schema->is_view = description && true_attribute(function, "is_view");
  schema->is_mutable = true_attribute(description.get(), "is_mutable");
  const Ref arguments = attribute(description.get(), "arguments");
  const Py_ssize_t count =
      arguments && PyList_Check(arguments.get()) ? PyList_Size(arguments.get()) : 0;
  std::string writes;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyList_GetItem(arguments.get(), i);
    OperatorArgument& argument = schema->arguments.emplace_back();
    argument.text = text_of(attribute(item, "name").get());
    argument.name = PyUnicode_InternFromString(argument.text.c_str());
    argument.slot = run_.intern(argument.text);
    argument.json_key = json_quote(argument.text) + ":";
    const Ref alias = attribute(item, "alias_info");
    argument.written = alias.get() != Py_None && true_attribute(alias.get(), "is_write");
    if (argument.written) writes += (writes.empty() ? "[" : ",") + json_quote(argument.text);
  }
  if (!writes.empty()) schema->writes = run_.intern(writes + "]");
  return schema;
}

void bind_arguments(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                    TensorAccess& access, std::string& json, std::vector<BoundTensor>& tensors) {
  ArgumentsWriter writer(schema, access, json, tensors);
  writer.begin();
  const Py_ssize_t positional = PyTuple_Check(args) ? PyTuple_Size(args) : 0;
  for (Py_ssize_t i = 0; i < positional; ++i)
    writer.argument(static_cast<uint32_t>(i), PyTuple_GetItem(args, i));
  if (kwargs != nullptr && PyDict_Check(kwargs) && PyDict_Size(kwargs) != 0) {
    for (size_t i = static_cast<size_t>(positional); i < schema.arguments.size(); ++i) {
      PyObject* value = PyDict_GetItemWithError(kwargs, schema.arguments[i].name);
      if (value != nullptr) writer.argument(static_cast<uint32_t>(i), value);
      PyErr_Clear();
    }
    if (schema.arguments.empty()) {
      Py_ssize_t position = 0;
      PyObject *key = nullptr, *value = nullptr;
      while (PyDict_Next(kwargs, &position, &key, &value)) writer.foreign(key, value);
    }
  }
  writer.end();
}

}  // namespace assay::capture

// SPDX-License-Identifier: Apache-2.0
// What is known of an operator once: its name, the names of its arguments, which of them it writes.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "writer/layouts/native_run.hpp"

namespace assay::capture {

struct OperatorArgument {
  PyObject* name = nullptr;  // interned; owned
  std::string text;
  const std::string* slot = nullptr;  // the same, as records keep it
  std::string json_key;               // with quotes and colon
  bool written = false;               // marked (a!) in the schema
};

struct OperatorSchema {
  OperatorSchema() = default;
  ~OperatorSchema();  // needs the GIL
  OperatorSchema(const OperatorSchema&) = delete;
  OperatorSchema& operator=(const OperatorSchema&) = delete;

  PyObject* function = nullptr;  // torch's object; owned, so that its address stays its own
  PyObject* target = nullptr;    // what runs it: function._op, which saves a Python frame; owned
  uint32_t number = 0;           // from 0, in order of first sight
  const std::string* name = nullptr;        // "aten.mul.Tensor"
  std::vector<OperatorArgument> arguments;  // in schema order
  bool is_view = false;
  bool is_mutable = false;
  /// Of a collective: its tensors are written when it has been waited for, not when it returns.
  bool starts_collective = false;
  /// Is given what one may still write: waits for it, or wraps it.
  bool takes_what_is_written = false;
  // JSON list of the written arguments, nullptr when there is none.
  const std::string* writes = nullptr;
};

/// Needs the GIL and nothing else; leaves no exception set.
class OperatorSchemas {
 public:
  /// run   keeps the texts; outlives this
  explicit OperatorSchemas(writer::NativeRun& run) : run_(run) {}
  /// An OpOverload or a higher-order operator; of the latter the arguments have no names but their
  /// numbers.
  [[nodiscard]] const OperatorSchema& of(PyObject* function);

 private:
  [[nodiscard]] std::unique_ptr<OperatorSchema> read(PyObject* function);

  writer::NativeRun& run_;
  std::unordered_map<PyObject*, std::unique_ptr<OperatorSchema>> known_;
};

/// A tensor among the arguments of a call. Borrowed from the arguments.
struct BoundTensor {
  PyObject* tensor = nullptr;
  uint32_t argument = 0;  // number in the schema
  int32_t index = -1;     // place in a list; -1: the argument is the tensor itself
};

class TensorAccess;

/// Binds the arguments of a call to the names of its schema.
/// json      receives the object of docs/formats/native.md, key `args`
/// tensors   receives the tensors in schema order
/// Needs the GIL; runs no foreign code; leaves no exception set.
void bind_arguments(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                    TensorAccess& access, std::string& json, std::vector<BoundTensor>& tensors);

}  // namespace assay::capture

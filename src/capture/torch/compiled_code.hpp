// SPDX-License-Identifier: Apache-2.0
// Whether an operator is called by code that torch.compile made. Such code runs its own kernels on
// storages that it hands from one value to the next, and calls operators only for what it has no
// kernel for: a part of a program that cannot be understood without the rest.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <unordered_map>

namespace assay::capture {

/// Needs the GIL; leaves no exception set.
class CompiledCode {
 public:
  enum class Caller : unsigned char { Other, Inductor, PassesOn };

  CompiledCode() = default;
  ~CompiledCode();
  CompiledCode(const CompiledCode&) = delete;
  CompiledCode& operator=(const CompiledCode&) = delete;

  /// Whether the innermost Python function of this thread is one that Inductor wrote. Code from its
  /// C++ wrapper has no function of its own and is not recognised.
  [[nodiscard]] bool is_calling();

 private:
  [[nodiscard]] Caller caller_of(PyObject* frame);

  bool may_exist_ = false;
  std::unordered_map<PyObject*, Caller> known_;  // by code object; references are owned
};

}  // namespace assay::capture

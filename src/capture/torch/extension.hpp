// SPDX-License-Identifier: Apache-2.0
// How the parts of assay._capture put their types and functions into the module: each .cpp that has
// some defines one static ExtensionPart; module.cpp runs them all when Python imports the module.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace assay::capture {

class ExtensionPart {
 public:
  /// add    returns 0, or -1 with a Python exception set
  explicit ExtensionPart(int (*add)(PyObject* module)) : add_(add), next_(first()) {
    first() = this;
  }
  ExtensionPart(const ExtensionPart&) = delete;
  ExtensionPart& operator=(const ExtensionPart&) = delete;

  [[nodiscard]] static int add_all(PyObject* module) {
    for (const ExtensionPart* part = first(); part != nullptr; part = part->next_) {
      if (part->add_(module) != 0) return -1;
    }
    return 0;
  }

 private:
  [[nodiscard]] static ExtensionPart*& first() {
    static ExtensionPart* head = nullptr;
    return head;
  }
  int (*add_)(PyObject* module);
  ExtensionPart* next_;
};

}  // namespace assay::capture

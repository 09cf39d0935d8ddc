// SPDX-License-Identifier: Apache-2.0
// From the arguments or the result of a module to its tensors: tuples, lists, dicts, ModelOutput,
// named tuples, dataclasses, to a depth of 8. No Python frame is entered except for properties of
// dataclasses.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>
#include <string_view>
#include <vector>

#include "capture/torch/tensor_access.hpp"

namespace assay::capture {

inline constexpr int kMaxWalkDepth = 8;
inline constexpr size_t kMaxWalkContainers = 4096;

/// Receives the leaves in order. `slot` is the dotted path ("0", "1.0", "kwargs.mask", "logits"; ""
/// for the root value itself), valid during the call. Objects are alive during the call.
class LeafVisitor {
 public:
  virtual void tensor(PyObject* tensor, std::string_view slot) = 0;
  /// None, bool, int, float, complex, str, torch.dtype, torch.device.
  virtual void value(PyObject* value, std::string_view slot) = 0;

 protected:
  ~LeafVisitor() = default;
};

/// Needs the GIL; leaves no exception set. One object a session; not reentrant.
class Walker {
 public:
  explicit Walker(TensorAccess& access) : access_(access) {}
  ~Walker();
  Walker(const Walker&) = delete;
  Walker& operator=(const Walker&) = delete;

  /// Arguments of a call: slots "0", "1" ... for positional ones, "kwargs.name" for keyword ones
  /// (kwargs may be null).
  void walk_arguments(PyObject* args_tuple, PyObject* kwargs, LeafVisitor& visitor);
  /// Any value; its own slot is `slot`.
  void walk_value(PyObject* value, std::string_view slot, LeafVisitor& visitor);

  /// Key/value caches (DynamicCache ...) are left out by default: they are growing tensors seen by
  /// every layer.
  void set_caches(bool walk_caches) { walk_caches_ = walk_caches; }

 private:
  struct Kind;
  void walk(PyObject* value, int depth, LeafVisitor& visitor);
  void walk_sequence(PyObject* sequence, int depth, LeafVisitor& visitor);
  void walk_dict(PyObject* dict, int depth, LeafVisitor& visitor);
  void walk_fields(PyObject* object, PyObject* names, int depth, LeafVisitor& visitor);
  void walk_cache(PyObject* cache, int depth, LeafVisitor& visitor);
  [[nodiscard]] bool enter(PyObject* container);
  [[nodiscard]] const Kind& kind_of(PyTypeObject* type);
  [[nodiscard]] const std::string* text_of_key(PyObject* key);
  /// An item of a container, by its name or number.
  template <typename Part>
  void walk_below(Part part, PyObject* item, int depth, LeafVisitor& visitor) {
    const size_t before = push(part);
    walk(item, depth + 1, visitor);
    pop(before);
  }
  size_t push(std::string_view part);
  size_t push(Py_ssize_t index);
  void pop(size_t size) { path_.resize(size); }

  enum class Shape : uint8_t { Unknown, Tensor, Sequence, Dict, Dataclass, Cache, Scalar, Other };
  struct Kind {
    PyTypeObject* type = nullptr;  // a strong reference
    Shape shape = Shape::Unknown;
    PyObject* fields = nullptr;  // tuple of field names of a dataclass
  };
  struct Key {
    PyObject* object = nullptr;  // a str; a strong reference
    std::string text;
  };
  [[nodiscard]] Kind classify(PyTypeObject* type);

  static constexpr size_t kCacheSize = 64;
  TensorAccess& access_;
  bool walk_caches_ = false;
  Kind kinds_[kCacheSize];
  Key keys_[kCacheSize];
  std::string path_;
  std::vector<PyObject*> visited_;
};

}  // namespace assay::capture

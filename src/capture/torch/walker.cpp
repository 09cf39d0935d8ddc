// SPDX-License-Identifier: Apache-2.0
#include "capture/torch/walker.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "capture/torch/python_compat.hpp"

namespace assay::capture {
namespace {

bool type_name_is(PyTypeObject* type, const char* name) {
  const char* dot = std::strrchr(type->tp_name, '.');
  return std::strcmp(dot != nullptr ? dot + 1 : type->tp_name, name) == 0;
}

bool is_scalar_type(PyTypeObject* type) {
  return type == Py_TYPE(Py_None) || PyType_FastSubclass(type, Py_TPFLAGS_LONG_SUBCLASS) ||
         PyType_FastSubclass(type, Py_TPFLAGS_UNICODE_SUBCLASS) ||
         PyType_IsSubtype(type, &PyFloat_Type) != 0 ||
         PyType_IsSubtype(type, &PyComplex_Type) != 0 ||
         std::strcmp(type->tp_name, "torch.dtype") == 0 ||
         std::strcmp(type->tp_name, "torch.device") == 0;
}

// transformers' caches: DynamicCache, StaticCache, EncoderDecoderCache ... all end in "Cache" and
// hold `layers` (4.56 and later) or `key_cache`.
bool is_cache_type(PyTypeObject* type) {
  for (PyTypeObject* base = type; base != nullptr; base = base->tp_base) {
    if (type_name_is(base, "Cache")) return true;
  }
  return false;
}

}  // namespace

Walker::Kind Walker::classify(PyTypeObject* type) {
  Kind kind;
  kind.type = type;
  if (is_scalar_type(type)) {
    kind.shape = Shape::Scalar;
  } else if (PyType_FastSubclass(type, Py_TPFLAGS_TUPLE_SUBCLASS) ||
             PyType_FastSubclass(type, Py_TPFLAGS_LIST_SUBCLASS)) {
    kind.shape = Shape::Sequence;
  } else if (PyType_FastSubclass(type, Py_TPFLAGS_DICT_SUBCLASS)) {
    kind.shape = Shape::Dict;
  } else if (is_cache_type(type)) {
    kind.shape = Shape::Cache;
  } else {
    kind.shape = Shape::Other;
    PyObject* fields =
        PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dataclass_fields__");
    if (fields != nullptr && PyDict_Check(fields)) {
      PyObject* names = PyDict_Keys(fields);
      kind.fields = names != nullptr ? PyList_AsTuple(names) : nullptr;
      Py_XDECREF(names);
      if (kind.fields != nullptr) kind.shape = Shape::Dataclass;
    }
    Py_XDECREF(fields);
    PyErr_Clear();
  }
  return kind;
}

const Walker::Kind& Walker::kind_of(PyTypeObject* type) {
  Kind& kind = kinds_[(reinterpret_cast<uintptr_t>(type) >> 4) % kCacheSize];
  if (kind.type == type) return kind;
  Py_INCREF(type);
  Py_XDECREF(reinterpret_cast<PyObject*>(kind.type));
  Py_XDECREF(kind.fields);
  kind = classify(type);
  return kind;
}

size_t Walker::push(std::string_view part) {
  const size_t before = path_.size();
  if (before != 0) path_ += '.';
  path_ += part;
  return before;
}

size_t Walker::push(Py_ssize_t index) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), index).ptr;
  return push(std::string_view(digits, static_cast<size_t>(end - digits)));
}

// False for a container seen before in this walk: cycles, and lists that occur many times.
bool Walker::enter(PyObject* container) {
  if (visited_.size() >= kMaxWalkContainers) return false;
  if (std::find(visited_.begin(), visited_.end(), container) != visited_.end()) return false;
  visited_.push_back(container);
  return true;
}

void Walker::walk_sequence(PyObject* sequence, int depth, LeafVisitor& visitor) {
  // The size is read again each time and the item is kept: a visitor may let other threads run.
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    PyObject* item = new_ref(PySequence_Fast_GET_ITEM(sequence, i));
    const size_t before = push(i);
    walk(item, depth + 1, visitor);
    pop(before);
    Py_DECREF(item);
  }
}

void Walker::walk_dict(PyObject* dict, int depth, LeafVisitor& visitor) {
  Py_ssize_t position = 0;
  Py_ssize_t index = 0;
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  while (PyDict_Next(dict, &position, &key, &item)) {
    Py_INCREF(item);
    Py_ssize_t length = 0;
    const char* text = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &length) : nullptr;
    size_t before = 0;
    if (text != nullptr) {
      before = push(std::string_view(text, static_cast<size_t>(length)));
    } else {
      PyErr_Clear();
      int overflow = 0;
      const long long number =
          PyLong_Check(key) ? PyLong_AsLongLongAndOverflow(key, &overflow) : index;
      before = push(static_cast<Py_ssize_t>(overflow != 0 ? index : number));
    }
    walk(item, depth + 1, visitor);
    pop(before);
    Py_DECREF(item);
    ++index;
  }
}

void Walker::walk_fields(PyObject* object, PyObject* names, int depth, LeafVisitor& visitor) {
  Py_INCREF(names);  // the type cache may be overwritten by a walk below
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    Py_ssize_t length = 0;
    const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &length) : nullptr;
    PyObject* item = text != nullptr ? PyObject_GetAttr(object, name) : nullptr;
    if (item == nullptr) {
      PyErr_Clear();
      continue;
    }
    const size_t before = push(std::string_view(text, static_cast<size_t>(length)));
    walk(item, depth + 1, visitor);
    pop(before);
    Py_DECREF(item);
  }
  Py_DECREF(names);
}

// layers[i].keys / .values, or key_cache[i] / value_cache[i] in older versions.
void Walker::walk_cache(PyObject* cache, int depth, LeafVisitor& visitor) {
  const auto walk_attribute = [&](PyObject* owner, const char* name) {
    PyObject* item = PyObject_GetAttrString(owner, name);
    if (item == nullptr) {
      PyErr_Clear();
      return false;
    }
    const size_t before = push(name);
    walk(item, depth + 1, visitor);
    pop(before);
    Py_DECREF(item);
    return true;
  };
  PyObject* layers = PyObject_GetAttrString(cache, "layers");
  if (layers == nullptr || !PyList_Check(layers)) {
    PyErr_Clear();
    Py_XDECREF(layers);
    walk_attribute(cache, "key_cache");
    walk_attribute(cache, "value_cache");
    return;
  }
  const size_t before_layers = push("layers");
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(layers); ++i) {
    PyObject* layer = new_ref(PyList_GET_ITEM(layers, i));
    const size_t before = push(i);
    walk_attribute(layer, "keys");
    walk_attribute(layer, "values");
    pop(before);
    Py_DECREF(layer);
  }
  pop(before_layers);
  Py_DECREF(layers);
}

void Walker::walk(PyObject* value, int depth, LeafVisitor& visitor) {
  if (access_.is_tensor(value)) {
    visitor.tensor(value, path_);
    return;
  }
  const Kind& kind = kind_of(Py_TYPE(value));
  if (kind.shape == Shape::Scalar) {
    visitor.value(value, path_);
    return;
  }
  if (kind.shape == Shape::Other || depth >= kMaxWalkDepth || !enter(value)) return;
  switch (kind.shape) {
    case Shape::Sequence:
      walk_sequence(value, depth, visitor);
      break;
    case Shape::Dict:
      walk_dict(value, depth, visitor);
      break;
    case Shape::Dataclass:
      walk_fields(value, kind.fields, depth, visitor);
      break;
    case Shape::Cache:
      if (walk_caches_) walk_cache(value, depth, visitor);
      break;
    default:
      break;
  }
}

void Walker::walk_arguments(PyObject* args_tuple, PyObject* kwargs, LeafVisitor& visitor) {
  path_.clear();
  visited_.clear();
  if (args_tuple != nullptr) walk_sequence(args_tuple, 0, visitor);
  if (kwargs != nullptr && PyDict_Check(kwargs) && PyDict_GET_SIZE(kwargs) != 0) {
    const size_t before = push("kwargs");
    walk_dict(kwargs, 0, visitor);
    pop(before);
  }
}

void Walker::walk_value(PyObject* value, std::string_view slot, LeafVisitor& visitor) {
  path_.assign(slot);
  visited_.clear();
  walk(value, 0, visitor);
  path_.clear();
}

}  // namespace assay::capture

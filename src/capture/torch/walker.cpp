// SPDX-License-Identifier: Apache-2.0
// Containers to a depth of 8; types are classified once.
#include "capture/torch/walker.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "capture/torch/python_compat.hpp"

namespace assay::capture {
namespace {

bool is_scalar_type(PyTypeObject* type, unsigned long flags, std::string_view torch_kind) {
  return type == Py_TYPE(Py_None) ||
         (flags & (Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS)) != 0 ||
         PyType_IsSubtype(type, &PyFloat_Type) != 0 ||
         PyType_IsSubtype(type, &PyComplex_Type) != 0 || torch_kind == "dtype" ||
         torch_kind == "device";
}

// transformers' caches: DynamicCache, StaticCache, EncoderDecoderCache ... all end in "Cache" and
// hold `layers` (4.56 and later) or `key_cache`.
bool is_cache_type(PyTypeObject* type) {
  Ref base(new_ref(reinterpret_cast<PyObject*>(type)));
  while (base && PyType_Check(base.get())) {
    if (class_name(reinterpret_cast<PyTypeObject*>(base.get())) == "Cache") return true;
    base = attribute(base.get(), "__base__");
  }
  return false;
}

}  // namespace

Walker::~Walker() {
  for (Kind& kind : kinds_) {
    Py_XDECREF(reinterpret_cast<PyObject*>(kind.type));
    Py_XDECREF(kind.fields);
  }
  for (Key& key : keys_) Py_XDECREF(key.object);
}

Walker::Kind Walker::classify(PyTypeObject* type) {
  Kind kind;
  kind.type = type;
  const unsigned long flags = PyType_GetFlags(type);
  if (is_scalar_type(type, flags, access_.torch_kind(type))) {
    kind.shape = Shape::Scalar;
  } else if ((flags & (Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS)) != 0) {
    kind.shape = Shape::Sequence;
  } else if ((flags & Py_TPFLAGS_DICT_SUBCLASS) != 0) {
    kind.shape = Shape::Dict;
  } else if (is_cache_type(type)) {
    kind.shape = Shape::Cache;
  } else {
    kind.shape = Shape::Other;
    const Ref fields = attribute(reinterpret_cast<PyObject*>(type), "__dataclass_fields__");
    if (fields && PyDict_Check(fields.get())) {
      const Ref names(PyDict_Keys(fields.get()));
      kind.fields = names ? PyList_AsTuple(names.get()) : nullptr;
      if (kind.fields != nullptr) kind.shape = Shape::Dataclass;
      PyErr_Clear();
    }
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

// The names of arguments are the same objects from call to call. nullptr for what is no text;
// valid until the next call.
const std::string* Walker::text_of_key(PyObject* key) {
  Key& known = keys_[(reinterpret_cast<uintptr_t>(key) >> 4) % kCacheSize];
  if (known.object == key) return &known.text;
  if (!PyUnicode_Check(key)) return nullptr;
  const Utf8 text(key);
  if (!text) {
    PyErr_Clear();
    return nullptr;
  }
  known.text = text.view();
  replace(known.object, new_ref(key));
  return &known.text;
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
  for (Py_ssize_t i = 0; i < size_of(sequence); ++i) {
    const Ref item(new_ref(item_of(sequence, i)));
    walk_below(i, item.get(), depth, visitor);
  }
}

void Walker::walk_dict(PyObject* dict, int depth, LeafVisitor& visitor) {
  Py_ssize_t position = 0;
  Py_ssize_t index = 0;
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  while (PyDict_Next(dict, &position, &key, &item)) {
    const Ref kept(new_ref(item));
    if (const std::string* text = text_of_key(key)) {
      walk_below(std::string_view(*text), item, depth, visitor);
    } else {
      int overflow = 0;
      const long long number =
          PyLong_Check(key) ? PyLong_AsLongLongAndOverflow(key, &overflow) : index;
      walk_below(static_cast<Py_ssize_t>(overflow != 0 ? index : number), item, depth, visitor);
    }
    ++index;
  }
}

void Walker::walk_fields(PyObject* object, PyObject* names, int depth, LeafVisitor& visitor) {
  const Ref kept(new_ref(names));  // the type cache may be overwritten by a walk below
  for (Py_ssize_t i = 0; i < PyTuple_Size(names); ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    const Ref item(PyUnicode_Check(name) ? PyObject_GetAttr(object, name) : nullptr);
    PyErr_Clear();
    const std::string* text = item ? text_of_key(name) : nullptr;
    if (text != nullptr) walk_below(std::string_view(*text), item.get(), depth, visitor);
  }
}

// layers[i].keys / .values, or key_cache[i] / value_cache[i] in older versions.
void Walker::walk_cache(PyObject* cache, int depth, LeafVisitor& visitor) {
  const auto walk_attribute = [&](PyObject* owner, const char* name) {
    const Ref item = attribute(owner, name);
    if (item) walk_below(std::string_view(name), item.get(), depth, visitor);
  };
  const Ref layers = attribute(cache, "layers");
  if (!layers || !PyList_Check(layers.get())) {
    walk_attribute(cache, "key_cache");
    walk_attribute(cache, "value_cache");
    return;
  }
  const size_t before_layers = push("layers");
  for (Py_ssize_t i = 0; i < PyList_Size(layers.get()); ++i) {
    const Ref layer(new_ref(PyList_GetItem(layers.get(), i)));
    const size_t before = push(i);
    walk_attribute(layer.get(), "keys");
    walk_attribute(layer.get(), "values");
    pop(before);
  }
  pop(before_layers);
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
  if (kwargs != nullptr && PyDict_Check(kwargs) && PyDict_Size(kwargs) != 0) {
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

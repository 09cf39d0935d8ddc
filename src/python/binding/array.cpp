// SPDX-License-Identifier: Apache-2.0
// The structures of NumPy's array interface (its manual, "The array interface protocol") and of
// DLPack (its manual, "C API").
#include "python/binding/array.hpp"

#include <algorithm>
#include <memory>

namespace assay::binding {
namespace {

/// What the capsule in __array_struct__ points to.
struct ArrayInterface {
  int two = 2;  // the version
  int dimensions = 0;
  char kind = 0;
  int item_bytes = 0;
  int flags = 0;
  Py_intptr_t* shape = nullptr;
  Py_intptr_t* strides = nullptr;  // in bytes
  void* data = nullptr;
  PyObject* description = nullptr;
};
constexpr int kAligned = 0x100;
constexpr int kNativeByteOrder = 0x200;

/// The part of a managed tensor that comes first in its capsule.
struct DlTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t dimensions;
  ElementType type;
  int64_t* shape;
  int64_t* strides;  // in elements; null: C order
  uint64_t byte_offset;
};
constexpr int32_t kDlCpu = 1;

constexpr std::pair<char, ElementType::Code> kKinds[] = {{'i', ElementType::Int},
                                                         {'u', ElementType::UInt},
                                                         {'f', ElementType::Float},
                                                         {'c', ElementType::Complex},
                                                         {'b', ElementType::Bool}};

/// False: this is no array of numbers that lies as we read them.
bool load_interface(const Object& capsule, ReadOnlyArray* stored) {
  if (PyCapsule_IsValid(capsule.ptr(), nullptr) == 0) return false;
  const auto* found =
      static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  const ElementType::Code* code = nullptr;
  for (const auto& [kind, known] : kKinds)
    if (kind == found->kind) code = &known;
  if (found->two != 2 || code == nullptr || (found->flags & kNativeByteOrder) == 0 ||
      found->item_bytes > 16)
    return false;
  stored->type = {*code, static_cast<uint8_t>(found->item_bytes * 8), 1};
  stored->data = static_cast<const std::byte*>(found->data);
  const auto dimensions = static_cast<size_t>(found->dimensions);
  stored->shape = Dims(std::span<const int64_t>(found->shape, dimensions));
  stored->strides = Dims(std::span<const int64_t>(found->strides, dimensions));
  for (size_t i = 0; i < dimensions; ++i) {
    if (stored->strides[i] % found->item_bytes != 0) return false;
    stored->strides[i] /= found->item_bytes;
  }
  return true;
}

bool load_dlpack(const Object& capsule, ReadOnlyArray* stored) {
  // Not renamed, so the capsule stays the owner, and its destructor frees the tensor.
  const char* const name = "dltensor";
  if (PyCapsule_IsValid(capsule.ptr(), name) == 0) return false;
  const auto* found = static_cast<const DlTensor*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (found->device_type != kDlCpu || found->type.bits * found->type.lanes % 8 != 0) return false;
  const auto dimensions = static_cast<size_t>(found->dimensions);
  stored->type = found->type;
  stored->data = static_cast<const std::byte*>(found->data);
  if (stored->data != nullptr) stored->data += found->byte_offset;
  stored->shape = Dims(std::span<const int64_t>(found->shape, dimensions));
  stored->strides = stored->shape;
  int64_t stride = 1;
  for (size_t i = dimensions; i-- > 0;) {
    stored->strides[i] = found->strides != nullptr ? found->strides[i] : stride;
    stride *= stored->shape[i];
  }
  stored->owner = capsule;
  return true;
}

/// Nothing instead of an exception other than KeyboardInterrupt and the like.
Object unless_exception(PyObject* owned) {
  if (owned == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw PythonError();
    PyErr_Clear();
  }
  return Object::steal(owned);
}

/// The capsule of NumPy's arrays; nothing of other objects.
Object array_struct_of(Handle source) {
  static PyObject* const name = PyUnicode_InternFromString("__array_struct__");
  return unless_exception(PyObject_GetAttr(source.ptr(), name));
}

/// A function of numpy, imported once and kept as long as the process.
Handle numpy_asarray() {
  // Not initialised in its declaration: the import may let another thread have the GIL, which would
  // then wait here for this one.
  static PyObject* function = nullptr;
  if (function == nullptr) {
    Object found = import_module("numpy").attr("asarray");
    if (function == nullptr) function = found.release();
  }
  return function;
}

/// Memory that NumPy is going to look at. Does not move once Python has it.
struct LentMemory {
  Dims shape;
  Dims strides;  // in bytes
  Object owner;
  ArrayInterface interface = {};
  Handle self = {};  // the object of Python that this is in
};

/// A capsule that keeps the memory.
Object interface_of(const LentMemory& memory) {
  Object capsule = checked(PyCapsule_New(
      const_cast<ArrayInterface*>(&memory.interface), nullptr,
      [](PyObject* self) { Py_DecRef(static_cast<PyObject*>(PyCapsule_GetContext(self))); }));
  check(PyCapsule_SetContext(capsule.ptr(), Object::borrow(memory.self).release()));
  return capsule;
}

}  // namespace

bool load_numpy_array(Handle source, ReadOnlyArray* stored) {
  const Object capsule = array_struct_of(source);
  if (!capsule || !load_interface(capsule, stored)) return false;
  stored->owner = Object::borrow(source);
  return true;
}

Fit Converter<ReadOnlyArray>::load(Handle source, ReadOnlyArray* stored) {
  const auto fit = [](bool loaded) { return loaded ? Fit::Yes : Fit::OtherType; };
  if (const Object capsule = array_struct_of(source)) {
    stored->owner = Object::borrow(source);
    return fit(load_interface(capsule, stored));
  }
  if (const Object exporter =
          unless_exception(PyObject_GetAttrString(source.ptr(), "__dlpack__"))) {
    const Object capsule = unless_exception(PyObject_CallObject(exporter.ptr(), nullptr));
    return fit(capsule && load_dlpack(capsule, stored));
  }
  const Object buffer = unless_exception(PyMemoryView_FromObject(source.ptr()));
  if (!buffer) return Fit::OtherType;
  return fit(load_numpy_array(numpy_asarray()(buffer), stored));
}

Object lend_to_numpy(const std::byte* data, ElementType type, std::span<const int64_t> shape,
                     std::span<const int64_t> strides, Object owner) {
  static const std::byte kNothing[16] = {};
  // NumPy takes no null pointer even for arrays without elements.
  if (data == nullptr || std::ranges::find(shape, 0) != shape.end()) data = kNothing;
  const Object object = cast(LentMemory{Dims(shape), Dims(strides), std::move(owner)});
  auto& memory = object_of<LentMemory>(object);
  memory.self = object;
  ArrayInterface& interface = memory.interface;
  for (const auto& [kind, code] : kKinds)
    if (code == type.code) interface.kind = kind;
  interface.item_bytes = type.bits / 8;
  interface.dimensions = static_cast<int>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) memory.strides[i] *= interface.item_bytes;
  interface.shape = memory.shape.data();
  interface.strides = memory.strides.data();
  interface.flags = kNativeByteOrder | kAligned;  // not writable; NumPy looks at addresses itself
  interface.data = const_cast<std::byte*>(data);
  return checked(PyObject_CallFunctionObjArgs(numpy_asarray().ptr(), object.ptr(), nullptr));
}

void bind_lent_memory(Module& module) {
  Class<LentMemory>(module, "_LentMemory", "Memory of a tensor, as NumPy asks for it.")
      .property("__array_struct__", &interface_of);
}

}  // namespace assay::binding

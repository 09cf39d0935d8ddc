// SPDX-License-Identifier: Apache-2.0
#include "capture/torch/tensor_access.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "capture/torch/python_compat.hpp"

namespace assay::capture {
namespace {

// The parts of DLPack 1.3 that we touch, with the offsets of docs/design/torch-capture.md.
struct DlTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
static_assert(offsetof(DlTensor, ndim) == 16 && offsetof(DlTensor, code) == 20 &&
              offsetof(DlTensor, shape) == 24 && offsetof(DlTensor, byte_offset) == 40 &&
              sizeof(DlTensor) == 48);

struct DlpackExchangeApi {
  uint32_t major;
  uint32_t minor;
  const DlpackExchangeApi* prev_api;
  void* managed_tensor_allocator;
  void* managed_tensor_from_py_object_no_sync;
  void* managed_tensor_to_py_object_no_sync;
  int (*dltensor_from_py_object_no_sync)(void* py_object, DlTensor* out);
  void* current_work_stream;
};
static_assert(offsetof(DlpackExchangeApi, dltensor_from_py_object_no_sync) == 40);

constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kMps = 8, kRocm = 10, kRocmHost = 11,
                  kXpu = 14, kPrivateUse = 12;
constexpr uint8_t kCodeInt = 0, kCodeUInt = 1;

// A view of a storage without memory lies at its offset in bytes, which looks like an address. Where memory is mapped no
// such number is met: below it the storage itself is asked.
constexpr uintptr_t kHigherThanOffsets = uintptr_t{1} << 40;

// Puts the error indicator back as it was, whatever the calls in between did.
class ErrorIndicatorKept {
 public:
  ErrorIndicatorKept() {
    if (PyErr_Occurred() != nullptr) PyErr_Fetch(&type_, &value_, &traceback_);
  }
  ~ErrorIndicatorKept() {
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    if (type_ != nullptr) PyErr_Restore(type_, value_, traceback_);
  }
  ErrorIndicatorKept(const ErrorIndicatorKept&) = delete;
  ErrorIndicatorKept& operator=(const ErrorIndicatorKept&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

// A symbolic number would be made a constant of the host's trace by asking for its value.
std::optional<int64_t> plain_integer(PyObject* value) {
  if (!PyLong_Check(value)) return std::nullopt;
  const int64_t number = PyLong_AsLongLong(value);
  if (number != -1 || PyErr_Occurred() == nullptr) return number;
  PyErr_Clear();
  return std::nullopt;
}

// One attribute getter or argument-less method of torch._C.TensorBase, called without the attribute
// look-up.
class CachedMember {
 public:
  void bind(PyObject* tensor_type, const char* name) {
    name_ = PyUnicode_InternFromString(name);
    PyObject* descriptor = PyObject_GetAttr(tensor_type, name_);
    if (descriptor == nullptr) {
      PyErr_Clear();
      return;
    }
    // The descriptors are immortal members of a static type; we keep our reference.
    if (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
      getset_ = reinterpret_cast<PyGetSetDescrObject*>(descriptor)->d_getset;
    } else if (Py_IS_TYPE(descriptor, &PyMethodDescr_Type)) {
      PyMethodDef* method = reinterpret_cast<PyMethodDescrObject*>(descriptor)->d_method;
      if (method->ml_flags == METH_NOARGS) method_ = method->ml_meth;
      is_method_ = true;
    } else {
      is_method_ = true;
    }
  }
  /// New reference, or nullptr with an exception set.
  [[nodiscard]] PyObject* get(PyObject* object) const {
    if (getset_ != nullptr && getset_->get != nullptr)
      return getset_->get(object, getset_->closure);
    if (method_ != nullptr) return method_(object, nullptr);
    return is_method_ ? PyObject_CallMethodObjArgs(object, name_, nullptr)
                      : PyObject_GetAttr(object, name_);
  }
  /// The integer result, `otherwise` when the call fails; clears the exception.
  [[nodiscard]] int64_t integer(PyObject* object, int64_t otherwise) const {
    PyObject* value = get(object);
    if (value == nullptr) {
      PyErr_Clear();
      return otherwise;
    }
    const std::optional<int64_t> result = plain_integer(value);
    Py_DECREF(value);
    return result.value_or(otherwise);
  }
  [[nodiscard]] bool truth(PyObject* object, bool otherwise) const {
    PyObject* value = get(object);
    if (value == nullptr) {
      PyErr_Clear();
      return otherwise;
    }
    const int result = PyObject_IsTrue(value);
    Py_DECREF(value);
    if (result < 0) PyErr_Clear();
    return result < 0 ? otherwise : result != 0;
  }

 private:
  PyObject* name_ = nullptr;
  PyGetSetDef* getset_ = nullptr;
  PyCFunction method_ = nullptr;
  bool is_method_ = false;
};

// Pairs of (dtype object, its name). Names are leaked: records keep pointers to them.
struct NamedDType {
  PyObject* object;
  const char* name;
  std::optional<DType> dtype;
};

struct Refusal {
  PyObject* dtype;
  PyObject* layout;
  const char* reason;
};

constexpr size_t kTypeCacheSize = 64;
struct TypeCacheEntry {
  PyTypeObject* type =
      nullptr;  // a strong reference, so that the address cannot come back as another type
  bool is_tensor = false;
};

}  // namespace

struct TensorAccess::Impl {
  PyTypeObject* tensor_type = nullptr;
  PyTypeObject* parameter_type = nullptr;
  const DlpackExchangeApi* table = nullptr;
  bool use_table = false;
  PyObject* strided = nullptr;  // torch.strided
  CachedMember version, is_inference, is_conj, is_neg, data_ptr, shape, stride, dtype, device,
      layout, is_nested, storage_offset, untyped_storage, storage_nbytes, storage_data_ptr;
  PyTypeObject* storage_type = nullptr;  // whose members these are; a strong reference
  PyObject* functions_off = nullptr;     // torch._C.DisableTorchFunctionSubclass
  PyObject* wrapper_parts = nullptr;     // assay.torch._wrappers.parts_of
  std::array<TypeCacheEntry, kTypeCacheSize> types{};
  std::vector<NamedDType> dtypes;
  // dtypes and layouts that the exchange table refuses with a C++ exception of some microseconds:
  // not asked again.
  std::vector<Refusal> refusals;
  std::set<std::string> reasons;  // that name a class or a layout; records keep pointers to them

  [[nodiscard]] bool is_plain(PyObject* object) const {
    return Py_TYPE(object) == tensor_type || Py_TYPE(object) == parameter_type;
  }

  const char* reason_with(const char* text, std::string_view detail) {
    return reasons.insert(text + std::string(detail)).first->c_str();
  }

  // torch has one type for untyped storages; its methods are found with the first of them.
  void bind_storage(PyObject* storage) {
    if (Py_TYPE(storage) == storage_type) return;
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(storage));
    Py_XSETREF(storage_type, reinterpret_cast<PyTypeObject*>(new_ref(type)));
    storage_nbytes = storage_data_ptr = CachedMember();
    storage_nbytes.bind(type, "nbytes");
    storage_data_ptr.bind(type, "data_ptr");
  }

  // Wrapper classes have a storage of the right size at address null, and so have functional and freed tensors.
  [[nodiscard]] bool has_memory(PyObject* object, const TensorLook& look) {
    if (look.element_count == 0) return true;
    if (look.data == nullptr) return false;
    if (is_plain(object) && reinterpret_cast<uintptr_t>(look.data) >= kHigherThanOffsets)
      return true;
    PyObject* storage = untyped_storage.get(object);
    if (storage == nullptr) return false;
    bind_storage(storage);
    const int64_t address = storage_data_ptr.integer(storage, 0);
    Py_DECREF(storage);
    return address != 0;
  }

  // torch warns when somebody looks for the address of one.
  [[nodiscard]] bool is_fake(PyObject* object) const {
    if (is_plain(object)) return false;
    for (const PyTypeObject* type = Py_TYPE(object); type != tensor_type && type != nullptr;
         type = type->tp_base) {
      if (std::strcmp(class_name(type), "FakeTensor") == 0) return true;
    }
    return false;
  }

  [[nodiscard]] const char* no_memory_reason(PyObject* object) {
    if (is_plain(object)) return "no storage (functional or freed tensor)";
    return reason_with("no storage of its own: ", class_name(Py_TYPE(object)));
  }

  const NamedDType& named_dtype(PyObject* object) {
    for (const NamedDType& known : dtypes) {
      if (known.object == object) return known;
    }
    PyObject* text = PyObject_Str(object);
    const char* utf8 = text != nullptr ? PyUnicode_AsUTF8(text) : nullptr;
    std::string name = utf8 != nullptr ? utf8 : "unknown";
    if (utf8 == nullptr) PyErr_Clear();
    Py_XDECREF(text);
    if (name.starts_with("torch.")) name.erase(0, 6);
    Py_INCREF(object);
    auto known = dtype_from_name(name);
    // torch stores int1..int7 and uint1..uint7 one to a byte, unlike the packed types of the same
    // names elsewhere.
    if (name.size() == 4 && name.starts_with("int") && name[3] < '8') known = DType::Int8;
    if (name.size() == 5 && name.starts_with("uint") && name[4] < '8') known = DType::UInt8;
    dtypes.push_back({object, strdup(name.c_str()), known});
    return dtypes.back();
  }

  /// Why tensors of its dtype and layout were refused before; nullptr when they were not.
  [[nodiscard]] const char* refusal_of(PyObject* object) {
    PyObject* dtype_object = dtype.get(object);
    PyObject* layout_object = layout.get(object);
    const char* reason = nullptr;
    for (const Refusal& refusal : refusals) {
      if (refusal.dtype == dtype_object && refusal.layout == layout_object) reason = refusal.reason;
    }
    Py_XDECREF(dtype_object);
    Py_XDECREF(layout_object);
    PyErr_Clear();
    return reason;
  }

  void fill_dtype(PyObject* object, TensorLook& look) {
    PyObject* value = dtype.get(object);
    if (value == nullptr) {
      PyErr_Clear();
      return;
    }
    const NamedDType& named = named_dtype(value);
    Py_DECREF(value);
    look.dtype_name = named.name;
    look.dtype = named.dtype.value_or(DType::UInt8);
  }

  static bool read_int_tuple(PyObject* sequence, int64_t* out, int* count) {
    if (sequence == nullptr || !PyTuple_Check(sequence) ||
        PyTuple_GET_SIZE(sequence) > kMaxTensorDims)
      return false;
    *count = static_cast<int>(PyTuple_GET_SIZE(sequence));
    for (int i = 0; i < *count; ++i) {
      const std::optional<int64_t> size = plain_integer(PyTuple_GET_ITEM(sequence, i));
      if (!size) return false;
      out[i] = *size;
    }
    return true;
  }

  bool fill_shape(PyObject* object, TensorLook& look) {
    PyObject* sizes = shape.get(object);
    const bool known = read_int_tuple(sizes, look.own_shape, &look.ndim);
    Py_XDECREF(sizes);
    PyErr_Clear();
    if (!known) {
      look.ndim = 0;
      return false;
    }
    look.shape = look.own_shape;
    look.has_shape = true;
    look.element_count =
        element_count(std::span<const int64_t>(look.shape, static_cast<size_t>(look.ndim)))
            .value_or(-1);
    return look.element_count >= 0;
  }

  void fill_device(PyObject* object, TensorLook& look) {
    PyObject* value = device.get(object);
    PyObject* text = value != nullptr ? PyObject_Str(value) : nullptr;
    const char* utf8 = text != nullptr ? PyUnicode_AsUTF8(text) : nullptr;
    look.device_type = kPrivateUse;
    if (utf8 != nullptr) {
      const char* colon = std::strchr(utf8, ':');
      look.device_index = colon != nullptr ? std::atoi(colon + 1) : 0;
      if (std::strncmp(utf8, "cpu", 3) == 0) look.device_type = kCpu;
      if (std::strncmp(utf8, "cuda", 4) == 0) look.device_type = kCuda;
      if (std::strncmp(utf8, "mps", 3) == 0) look.device_type = kMps;
      if (std::strncmp(utf8, "xpu", 3) == 0) look.device_type = kXpu;
    }
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(value);
  }

  // After a refusal of the table: which of the known reasons it was. dtype and shape are filled as
  // far as torch tells them, because the record of a skipped tensor names them.
  void explain_refusal(PyObject* object, TensorLook& look) {
    look.readable = Readable::Nothing;
    look.data = nullptr;
    look.shape = look.strides = nullptr;
    look.has_shape = false;
    look.ndim = 0;
    fill_dtype(object, look);
    (void)fill_shape(object, look);
    PyObject* layout_object = layout.get(object);
    PyErr_Clear();
    PyObject* device_object = device.get(object);
    PyObject* device_string = device_object != nullptr ? PyObject_Str(device_object) : nullptr;
    const char* device_utf8 = device_string != nullptr ? PyUnicode_AsUTF8(device_string) : nullptr;
    PyErr_Clear();
    const std::string_view name = look.dtype_name != nullptr ? look.dtype_name : "";
    bool remember = false;
    if (device_utf8 != nullptr && std::strncmp(device_utf8, "meta", 4) == 0) {
      look.reason = "meta tensor";
    } else if (layout_object != nullptr && layout_object != strided) {
      look.reason = is_nested.truth(object, false) ? "nested tensor" : layout_reason(layout_object);
      remember = true;
    } else if (is_nested.truth(object, false)) {
      look.reason = "nested tensor";
    } else if (name.starts_with("q")) {
      look.reason = "quantised tensor";
      remember = true;
    } else if (name.starts_with("bits")) {
      look.reason = "bits dtype";
      remember = true;
    } else {
      look.reason = "torch refuses access (functorch or a wrapper)";
    }
    if (remember) {
      PyObject* dtype_object = dtype.get(object);
      if (dtype_object != nullptr && layout_object != nullptr) {
        refusals.push_back({dtype_object, layout_object, look.reason});
        Py_INCREF(layout_object);
      } else {
        Py_XDECREF(dtype_object);
      }
      PyErr_Clear();
    }
    Py_XDECREF(layout_object);
    Py_XDECREF(device_string);
    Py_XDECREF(device_object);
  }

  const char* layout_reason(PyObject* layout_object) {
    PyObject* text = PyObject_Str(layout_object);
    const char* utf8 = text != nullptr ? PyUnicode_AsUTF8(text) : nullptr;
    const char* reason = reason_with("sparse or opaque layout ", utf8 != nullptr ? utf8 : "");
    PyErr_Clear();
    Py_XDECREF(text);
    return reason;
  }

  bool look_through_table(PyObject* object, TensorLook& look) {
    DlTensor view;
    if (table->dltensor_from_py_object_no_sync(object, &view) != 0) {
      PyErr_Clear();
      return false;
    }
    look.data =
        static_cast<const std::byte*>(view.data) + (view.data != nullptr ? view.byte_offset : 0);
    look.device_type = view.device_type;
    look.device_index = view.device_id;
    look.ndim = view.ndim;
    look.has_shape = true;
    look.shape = view.shape;
    look.strides = view.strides;
    int64_t count = 1;
    for (int i = 0; i < view.ndim; ++i) count *= view.shape[i];
    look.element_count = count;
    if (const auto known = dtype_from_dlpack(view.code, view.bits, view.lanes)) {
      look.dtype = *known;
      look.dtype_name =
          name(*known).data();  // string literals of the table in dtype.cpp: null-terminated
      // int1..int7 are reported as 8-bit; only the dtype object tells.
      if (view.bits == 8 && (view.code == kCodeInt || view.code == kCodeUInt))
        fill_dtype(object, look);
    } else {
      fill_dtype(object, look);
    }
    return true;
  }

  bool look_through_attributes(PyObject* object, TensorLook& look) {
    fill_dtype(object, look);
    fill_device(object, look);
    PyObject* layout_object = layout.get(object);
    const bool dense = layout_object == strided && !is_nested.truth(object, false);
    Py_XDECREF(layout_object);
    PyErr_Clear();
    const bool has_arithmetic = look.dtype_name != nullptr && look.dtype_name[0] != 'q' &&
                                std::strncmp(look.dtype_name, "bits", 4) != 0;
    if (!dense || !has_arithmetic || !fill_shape(object, look)) return false;
    PyObject* steps = stride.get(object);
    int count = 0;
    const bool known = read_int_tuple(steps, look.own_strides, &count) && count == look.ndim;
    Py_XDECREF(steps);
    PyErr_Clear();
    if (!known) return false;
    look.strides = look.own_strides;
    const int64_t address = data_ptr.integer(object, -1);
    if (address == -1) return false;
    look.data = reinterpret_cast<const void*>(static_cast<uintptr_t>(address));
    return true;
  }
};

namespace {

// The functions of a subclass stay out of our looking: they may count, print, raise, or compute.
class SubclassFunctionsOff {
 public:
  SubclassFunctionsOff(const TensorAccess::Impl& impl, PyObject* tensor) {
    if (impl.is_plain(tensor) || impl.functions_off == nullptr) return;
    guard_ = PyObject_CallNoArgs(impl.functions_off);
    PyObject* entered =
        guard_ != nullptr ? PyObject_CallMethod(guard_, "__enter__", nullptr) : nullptr;
    if (entered == nullptr) Py_CLEAR(guard_);
    Py_XDECREF(entered);
    PyErr_Clear();
  }
  ~SubclassFunctionsOff() {
    if (guard_ == nullptr) return;
    PyErr_Clear();
    Py_XDECREF(PyObject_CallMethod(guard_, "__exit__", "OOO", Py_None, Py_None, Py_None));
    PyErr_Clear();
    Py_DECREF(guard_);
  }
  SubclassFunctionsOff(const SubclassFunctionsOff&) = delete;
  SubclassFunctionsOff& operator=(const SubclassFunctionsOff&) = delete;

 private:
  PyObject* guard_ = nullptr;
};

}  // namespace

const char* class_name(const PyTypeObject* type) {
  const char* dot = std::strrchr(type->tp_name, '.');
  return dot != nullptr ? dot + 1 : type->tp_name;
}

TensorAccess* TensorAccess::get() {
  static TensorAccess* instance = nullptr;  // guarded by the GIL, leaked on purpose
  if (instance != nullptr) return instance;
  PyObject* torch = PyImport_ImportModule("torch");
  if (torch == nullptr) return nullptr;
  PyObject* tensor = PyObject_GetAttrString(torch, "Tensor");
  PyObject* nn = PyObject_GetAttrString(torch, "nn");
  PyObject* parameter = nn != nullptr ? PyObject_GetAttrString(nn, "Parameter") : nullptr;
  PyObject* strided = PyObject_GetAttrString(torch, "strided");
  Py_XDECREF(nn);
  Py_DECREF(torch);
  if (tensor == nullptr || parameter == nullptr || strided == nullptr || !PyType_Check(tensor) ||
      !PyType_Check(parameter)) {
    if (PyErr_Occurred() == nullptr)
      PyErr_SetString(PyExc_ImportError, "torch.Tensor is not a type");
    Py_XDECREF(tensor);
    Py_XDECREF(parameter);
    Py_XDECREF(strided);
    return nullptr;
  }
  auto* impl = new Impl;
  impl->tensor_type = reinterpret_cast<PyTypeObject*>(tensor);
  impl->parameter_type = reinterpret_cast<PyTypeObject*>(parameter);
  impl->strided = strided;
  const auto bind = [tensor](CachedMember& member, const char* name) { member.bind(tensor, name); };
  bind(impl->version, "_version");
  bind(impl->is_inference, "is_inference");
  bind(impl->is_conj, "is_conj");
  bind(impl->is_neg, "is_neg");
  bind(impl->data_ptr, "data_ptr");
  bind(impl->shape, "shape");
  bind(impl->stride, "stride");
  bind(impl->dtype, "dtype");
  bind(impl->device, "device");
  bind(impl->layout, "layout");
  bind(impl->is_nested, "is_nested");
  bind(impl->storage_offset, "storage_offset");
  bind(impl->untyped_storage, "untyped_storage");
  // A torch without it has no such switch: its subclasses are asked.
  PyObject* native = PyImport_ImportModule("torch._C");
  if (native != nullptr)
    impl->functions_off = PyObject_GetAttrString(native, "DisableTorchFunctionSubclass");
  Py_XDECREF(native);
  PyErr_Clear();
  PyObject* capsule = PyObject_GetAttrString(tensor, "__dlpack_c_exchange_api__");
  if (capsule != nullptr && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    const auto* table =
        static_cast<const DlpackExchangeApi*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    if (table->major == 1 && table->dltensor_from_py_object_no_sync != nullptr) impl->table = table;
  }
  Py_XDECREF(capsule);
  PyErr_Clear();
  impl->use_table = impl->table != nullptr;
  instance = new TensorAccess;
  instance->impl_ = impl;
  return instance;
}

bool TensorAccess::is_tensor(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == impl_->tensor_type || type == impl_->parameter_type) return true;
  TypeCacheEntry& entry = impl_->types[(reinterpret_cast<uintptr_t>(type) >> 4) % kTypeCacheSize];
  if (entry.type != type) {
    Py_INCREF(type);
    Py_XDECREF(reinterpret_cast<PyObject*>(entry.type));
    entry.type = type;
    entry.is_tensor = PyType_IsSubtype(type, impl_->tensor_type) != 0;
  }
  return entry.is_tensor;
}

void TensorAccess::look(PyObject* object, TensorLook& look, bool ask_negative) {
  const ErrorIndicatorKept kept;
  look.readable = Readable::Nothing;
  look.reason = "";
  look.data = nullptr;
  look.dtype_name = nullptr;
  look.device_type = kCpu;
  look.device_index = 0;
  look.ndim = 0;
  look.has_shape = false;
  look.conjugate = look.negative = false;
  look.shape = look.strides = nullptr;
  look.element_count = 0;
  const SubclassFunctionsOff functions_off(*impl_, object);
  if (const char* reason = impl_->refusals.empty() ? nullptr : impl_->refusal_of(object)) {
    impl_->fill_dtype(object, look);
    (void)impl_->fill_shape(object, look);
    look.reason = reason;
    return;
  }
  if (impl_->is_fake(object)) {
    impl_->fill_dtype(object, look);
    (void)impl_->fill_shape(object, look);
    look.reason = impl_->no_memory_reason(object);
    return;
  }
  const bool seen = impl_->use_table ? impl_->look_through_table(object, look)
                                     : impl_->look_through_attributes(object, look);
  if (!seen) {
    impl_->explain_refusal(object, look);
    return;
  }
  if (look.dtype_name == nullptr || !impl_->has_memory(object, look)) {
    look.reason = impl_->no_memory_reason(object);
    look.data = nullptr;
    return;
  }
  const bool host =
      look.device_type == kCpu || look.device_type == kCudaHost || look.device_type == kRocmHost;
  look.readable = host ? Readable::Memory : Readable::Device;
  if (is_complex(look.dtype)) look.conjugate = impl_->is_conj.truth(object, false);
  if (ask_negative) look.negative = impl_->is_neg.truth(object, false);
}

void TensorAccess::look_for_negative(PyObject* object, TensorLook& look) {
  const ErrorIndicatorKept kept;
  const SubclassFunctionsOff functions_off(*impl_, object);
  look.negative = look.readable != Readable::Nothing && impl_->is_neg.truth(object, false);
}

int64_t TensorAccess::version(PyObject* object) {
  const ErrorIndicatorKept kept;
  const SubclassFunctionsOff functions_off(*impl_, object);
  return impl_->version.integer(object, -1);
}
bool TensorAccess::is_inference(PyObject* object) {
  const ErrorIndicatorKept kept;
  const SubclassFunctionsOff functions_off(*impl_, object);
  return impl_->is_inference.truth(object, true);
}
bool TensorAccess::is_parameter(PyObject* object) {
  return PyObject_TypeCheck(object, impl_->parameter_type) != 0;
}
bool TensorAccess::is_plain(PyObject* object) const { return impl_->is_plain(object); }

bool TensorAccess::storage_covers(PyObject* object, const TensorLook& look) {
  const ErrorIndicatorKept kept;
  const SubclassFunctionsOff functions_off(*impl_, object);
  if (look.element_count == 0) return true;
  PyObject* storage = impl_->untyped_storage.get(object);
  if (storage == nullptr) return false;
  const int64_t size_bytes = storage_size_bytes(storage);
  Py_DECREF(storage);
  return fits_storage(look, impl_->storage_offset.integer(object, -1), size_bytes);
}

int64_t TensorAccess::storage_size_bytes(PyObject* storage_object) {
  const ErrorIndicatorKept kept;
  impl_->bind_storage(storage_object);
  return impl_->storage_nbytes.integer(storage_object, -1);
}

bool fits_storage(const TensorLook& look, int64_t storage_offset, int64_t size_bytes) {
  int64_t last = storage_offset;
  if (last < 0 || size_bytes < 0) return false;
  for (int i = 0; i < look.ndim; ++i) {
    int64_t reach = 0;
    if (mul_overflows(look.shape[i] - 1, look.strides[i], &reach) ||
        add_overflows(last, reach, &last))
      return false;
  }
  const auto needed = storage_bytes(look.dtype, static_cast<uint64_t>(last) + 1);
  return needed && *needed <= static_cast<uint64_t>(size_bytes);
}

PyObject* TensorAccess::storage_object(PyObject* object) {
  const ErrorIndicatorKept kept;
  const SubclassFunctionsOff functions_off(*impl_, object);
  return impl_->untyped_storage.get(object);
}
int64_t TensorAccess::storage_offset(PyObject* object) {
  const ErrorIndicatorKept kept;
  const SubclassFunctionsOff functions_off(*impl_, object);
  return impl_->storage_offset.integer(object, 0);
}

PyObject* TensorAccess::wrapper_parts(PyObject* object) {
  const ErrorIndicatorKept kept;
  if (impl_->wrapper_parts == nullptr) {
    PyObject* module = PyImport_ImportModule("assay.torch._wrappers");
    if (module != nullptr) impl_->wrapper_parts = PyObject_GetAttrString(module, "parts_of");
    Py_XDECREF(module);
  }
  return impl_->wrapper_parts != nullptr
             ? PyObject_CallFunctionObjArgs(impl_->wrapper_parts, object, nullptr)
             : nullptr;
}

void TensorAccess::use_exchange_table(bool use) {
  impl_->use_table = use && impl_->table != nullptr;
}
bool TensorAccess::has_exchange_table() const { return impl_->table != nullptr; }

uint64_t payload_bytes(const TensorLook& look) {
  return storage_bytes(look.dtype, static_cast<uint64_t>(look.element_count)).value_or(0);
}

TensorView view_of(const TensorLook& look) {
  TensorView view;
  view.dtype = look.dtype;
  view.shape = Dims(std::span<const int64_t>(look.shape, static_cast<size_t>(look.ndim)));
  view.strides = look.strides != nullptr
                     ? Dims(std::span<const int64_t>(look.strides, static_cast<size_t>(look.ndim)))
                     : contiguous_strides(view.shape);
  view.conjugate = look.conjugate;
  view.negative = look.negative;
  if (look.element_count > 0) {
    int64_t last = 0;
    for (size_t i = 0; i < view.shape.size(); ++i) last += (view.shape[i] - 1) * view.strides[i];
    view.storage = ByteSpan(static_cast<const std::byte*>(look.data),
                            storage_bytes(look.dtype, static_cast<uint64_t>(last) + 1).value_or(0));
  }
  return view;
}

const char* device_text(const TensorLook& look) {
  const char* kind = "device";
  switch (look.device_type) {
    case kCpu:
    case kCudaHost:
    case kRocmHost:
      return "cpu";
    case kCuda:
    case kRocm:
      kind = "cuda";
      break;  // torch calls both cuda
    case kMps:
      kind = "mps";
      break;
    case kXpu:
      kind = "xpu";
      break;
    default:
      break;
  }
  thread_local char text[32];
  std::snprintf(text, sizeof(text), "%s:%d", kind, static_cast<int>(look.device_index));
  return text;
}

}  // namespace assay::capture

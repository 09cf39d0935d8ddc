// SPDX-License-Identifier: Apache-2.0
// Looks through torch's exchange table or through attributes, and says why a tensor cannot be read.
#include "capture/torch/tensor_access.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <utility>
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

// A view of a storage without memory lies at its offset in bytes, which looks like an address.
// Where memory is mapped no such number is met: below it the storage itself is asked.
constexpr uintptr_t kHigherThanOffsets = uintptr_t{1} << 40;

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
  void bind(PyObject* type, const char* name) {
    name_ = PyUnicode_InternFromString(name);
    const Ref descriptor(PyObject_GetAttr(type, name_));
    PyErr_Clear();
    if (!descriptor) return;
    const std::string kind = class_name(Py_TYPE(descriptor.get()));
    is_method_ = kind != "getset_descriptor";
    // What a subclass wrote in Python is of other kinds.
    if (kind == "getset_descriptor") {
      getset_ = entry_of<PyGetSetDef>(descriptor.get(), Py_tp_getset, &PyGetSetDef::name);
    } else if (kind == "method_descriptor") {
      const auto* method =
          entry_of<PyMethodDef>(descriptor.get(), Py_tp_methods, &PyMethodDef::ml_name);
      if (method != nullptr && method->ml_flags == METH_NOARGS) method_ = method->ml_meth;
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
    const Ref value(get(object));
    if (value) return plain_integer(value.get()).value_or(otherwise);
    PyErr_Clear();
    return otherwise;
  }
  [[nodiscard]] bool truth(PyObject* object, bool otherwise) const {
    const Ref value(get(object));
    const int result = value ? PyObject_IsTrue(value.get()) : -1;
    if (result < 0) PyErr_Clear();
    return result < 0 ? otherwise : result != 0;
  }

 private:
  // Such a descriptor in CPython 3.9, which gets no changes any more.
  struct Descriptor {
    PyObject_HEAD PyObject* owner;
    PyObject* name;
    PyObject* qualified_name;
    const void* entry;
  };

  // What the descriptor was made of: its entry in the table of the type that it belongs to, which
  // ends with one without a name. 3.9 does not hand out the tables of static types, and has the
  // entry in the descriptor. nullptr where neither is so: then the attribute is looked up.
  template <typename Entry>
  [[nodiscard]] const Entry* entry_of(PyObject* descriptor, int table,
                                      const char* Entry::* name_of) const {
    const Ref owner = attribute(descriptor, "__objclass__");
    const Utf8 name(name_);
    if (!owner || !PyType_Check(owner.get()) || !name) return nullptr;
    const auto* entry = static_cast<const Entry*>(
        PyType_GetSlot(reinterpret_cast<PyTypeObject*>(owner.get()), table));
    PyErr_Clear();
    if (entry == nullptr && std::strncmp(Py_GetVersion(), "3.9.", 4) == 0) {
      const auto* parts = reinterpret_cast<const Descriptor*>(descriptor);
      return parts->owner == owner.get() ? static_cast<const Entry*>(parts->entry) : nullptr;
    }
    while (entry != nullptr && entry->*name_of != nullptr) {
      if (entry->*name_of == name.view()) return entry;
      ++entry;
    }
    return nullptr;
  }

  PyObject* name_ = nullptr;
  const PyGetSetDef* getset_ = nullptr;
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
  // A strong reference, so that the address cannot come back as another type.
  PyTypeObject* type = nullptr;
  bool is_tensor = false;
  bool is_fake = false;  // a FakeTensor of torch: it warns when somebody looks for its address
};

struct TorchKind {
  const PyTypeObject* type;
  const char* name;
};

}  // namespace

struct TensorAccess::Impl {
  PyTypeObject* tensor_type = nullptr;
  PyTypeObject* parameter_type = nullptr;
  const DlpackExchangeApi* table = nullptr;
  bool use_table = false;
  PyObject* strided = nullptr;  // torch.strided
  PyObject* cpu = nullptr;      // torch.device("cpu")
  CachedMember version, is_inference, is_conj, is_neg, data_ptr, shape, stride, dtype, device,
      layout, is_nested, storage_offset, untyped_storage, storage_nbytes, storage_data_ptr;
  PyTypeObject* storage_type = nullptr;  // whose members these are; a strong reference
  PyObject* functions_off = nullptr;     // torch._C.DisableTorchFunctionSubclass
  PyObject* modes_off = nullptr;         // torch._C.DisableTorchFunction
  PyObject* count_modes = nullptr;       // torch._C._len_torch_function_stack
  PyObject* wrapper_parts = nullptr;     // assay.torch._wrappers.parts_of
  std::array<TypeCacheEntry, kTypeCacheSize> types{};
  std::vector<TorchKind> kinds;
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
    Py_XDECREF(reinterpret_cast<PyObject*>(storage_type));
    storage_type = reinterpret_cast<PyTypeObject*>(new_ref(type));
    storage_nbytes = storage_data_ptr = CachedMember();
    storage_nbytes.bind(type, "nbytes");
    storage_data_ptr.bind(type, "data_ptr");
  }

  // Wrapper classes have a storage of the right size at address null, and so have functional and
  // freed tensors.
  [[nodiscard]] bool has_memory(PyObject* object, const TensorLook& look) {
    if (look.element_count == 0) return true;
    if (look.data == nullptr) return false;
    if (is_plain(object) && reinterpret_cast<uintptr_t>(look.data) >= kHigherThanOffsets)
      return true;
    const Ref storage(untyped_storage.get(object));
    if (!storage) return false;
    bind_storage(storage.get());
    return storage_data_ptr.integer(storage.get(), 0) != 0;
  }

  [[nodiscard]] const TypeCacheEntry& entry_of(PyTypeObject* type) {
    TypeCacheEntry& entry = types[(reinterpret_cast<uintptr_t>(type) >> 4) % kTypeCacheSize];
    if (entry.type != type) classify(type, &entry);
    return entry;
  }

  // Apart from the look-up, which is asked about every argument of every operator.
  [[gnu::noinline]] void classify(PyTypeObject* type, TypeCacheEntry* entry) {
    Py_INCREF(reinterpret_cast<PyObject*>(type));
    Py_XDECREF(reinterpret_cast<PyObject*>(std::exchange(entry->type, type)));
    entry->is_tensor = PyType_IsSubtype(type, tensor_type) != 0;
    entry->is_fake = entry->is_tensor && has_fake_base(type);
  }

  [[nodiscard]] bool has_fake_base(PyTypeObject* type) const {
    Ref base(new_ref(reinterpret_cast<PyObject*>(type)));
    while (base && base.get() != reinterpret_cast<PyObject*>(tensor_type) &&
           PyType_Check(base.get())) {
      if (class_name(reinterpret_cast<PyTypeObject*>(base.get())) == "FakeTensor") return true;
      base = attribute(base.get(), "__base__");
    }
    return false;
  }

  [[nodiscard]] bool is_fake(PyObject* object) {
    return !is_plain(object) && entry_of(Py_TYPE(object)).is_fake;
  }

  [[nodiscard]] const char* no_memory_reason(PyObject* object) {
    if (is_plain(object)) return "no storage (functional or freed tensor)";
    return reason_with("no storage of its own: ", class_name(Py_TYPE(object)));
  }

  const NamedDType& named_dtype(PyObject* object) {
    for (const NamedDType& known : dtypes) {
      if (known.object == object) return known;
    }
    std::string name = text_of(object, "unknown");
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
    const Ref of_dtype(dtype.get(object));
    const Ref of_layout(layout.get(object));
    PyErr_Clear();
    for (const Refusal& refusal : refusals) {
      if (refusal.dtype == of_dtype.get() && refusal.layout == of_layout.get())
        return refusal.reason;
    }
    return nullptr;
  }

  void fill_dtype(PyObject* object, TensorLook& look) {
    const Ref value(dtype.get(object));
    if (!value) return PyErr_Clear();
    const NamedDType& named = named_dtype(value.get());
    look.dtype_name = named.name;
    look.dtype = named.dtype.value_or(DType::UInt8);
  }

  static bool read_int_tuple(PyObject* sequence, int64_t* out, int* count) {
    if (sequence == nullptr || !PyTuple_Check(sequence) || PyTuple_Size(sequence) > kMaxTensorDims)
      return false;
    *count = static_cast<int>(PyTuple_Size(sequence));
    for (int i = 0; i < *count; ++i) {
      const std::optional<int64_t> size = plain_integer(PyTuple_GetItem(sequence, i));
      if (!size) return false;
      out[i] = *size;
    }
    return true;
  }

  bool fill_shape(PyObject* object, TensorLook& look) {
    const Ref sizes(shape.get(object));
    const bool known = read_int_tuple(sizes.get(), look.own_shape, &look.ndim);
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
    const Ref value(device.get(object));
    // Making a text of it takes longer than all the rest of a look.
    if (value && PyObject_RichCompareBool(value.get(), cpu, Py_EQ) > 0) return;
    const std::string text = text_of(value.get());
    const size_t colon = text.find(':');
    look.device_index = colon != std::string::npos ? std::atoi(text.c_str() + colon + 1) : 0;
    look.device_type = text.starts_with("cpu")    ? kCpu
                       : text.starts_with("cuda") ? kCuda
                       : text.starts_with("mps")  ? kMps
                       : text.starts_with("xpu")  ? kXpu
                                                  : kPrivateUse;
  }

  [[nodiscard]] std::string device_name(PyObject* object) {
    const Ref value(device.get(object));
    return text_of(value.get());
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
    const Ref of_layout(layout.get(object));
    PyErr_Clear();
    const std::string_view name = look.dtype_name != nullptr ? look.dtype_name : "";
    bool remember = true;
    if (device_name(object).starts_with("meta")) {
      look.reason = "meta tensor";
      remember = false;
    } else if (is_nested.truth(object, false)) {
      look.reason = "nested tensor";
      remember = of_layout && of_layout.get() != strided;
    } else if (of_layout && of_layout.get() != strided) {
      look.reason = reason_with("sparse or opaque layout ", text_of(of_layout.get()));
    } else if (name.starts_with("q")) {
      look.reason = "quantised tensor";
    } else if (name.starts_with("bits")) {
      look.reason = "bits dtype";
    } else {
      look.reason = "torch refuses access (functorch or a wrapper)";
      remember = false;
    }
    Ref of_dtype(remember ? dtype.get(object) : nullptr);
    if (of_dtype && of_layout)
      refusals.push_back({of_dtype.release(), new_ref(of_layout.get()), look.reason});
    PyErr_Clear();
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
      // String literals of the table in dtype.cpp: null-terminated.
      look.dtype_name = name(*known).data();
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
    const Ref of_layout(layout.get(object));
    const bool dense = of_layout.get() == strided && !is_nested.truth(object, false);
    PyErr_Clear();
    const bool has_arithmetic = look.dtype_name != nullptr && look.dtype_name[0] != 'q' &&
                                std::strncmp(look.dtype_name, "bits", 4) != 0;
    if (!dense || !has_arithmetic || !fill_shape(object, look)) return false;
    const Ref steps(stride.get(object));
    int count = 0;
    const bool known = read_int_tuple(steps.get(), look.own_strides, &count) && count == look.ndim;
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

// An object of one of torch's switches, entered; nullptr without an exception where there is none.
PyObject* entered(PyObject* type) {
  PyObject* guard = type != nullptr ? PyObject_CallObject(type, nullptr) : nullptr;
  if (guard != nullptr && !Ref(PyObject_CallMethod(guard, "__enter__", nullptr)))
    replace(guard, nullptr);
  PyErr_Clear();
  return guard;
}

void leave(PyObject* entered_guard) {
  const Ref guard(entered_guard);
  if (!guard) return;
  PyErr_Clear();
  (void)Ref(PyObject_CallMethod(guard.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
  PyErr_Clear();
}

// The functions of a subclass stay out of our looking: they may count, print, raise, or compute.
class SubclassFunctionsOff {
 public:
  SubclassFunctionsOff(const TensorAccess::Impl& impl, PyObject* tensor)
      : guard_(impl.is_plain(tensor) ? nullptr : entered(impl.functions_off)) {}
  ~SubclassFunctionsOff() { leave(guard_); }
  SubclassFunctionsOff(const SubclassFunctionsOff&) = delete;
  SubclassFunctionsOff& operator=(const SubclassFunctionsOff&) = delete;

 private:
  PyObject* guard_;
};

}  // namespace

FunctionModesOff::FunctionModesOff(const TensorAccess& access) {
  const TensorAccess::Impl& impl = *access.impl_;
  if (impl.count_modes == nullptr) return;
  const ErrorAside aside;
  const Ref count(PyObject_CallObject(impl.count_modes, nullptr));
  if (count && PyLong_AsLong(count.get()) > 0) guard_ = entered(impl.modes_off);
  PyErr_Clear();
}

FunctionModesOff::~FunctionModesOff() {
  if (guard_ == nullptr) return;
  const ErrorAside aside;
  leave(guard_);
}

TensorAccess* TensorAccess::get() {
  static TensorAccess* instance = nullptr;  // guarded by the GIL, leaked on purpose
  if (instance != nullptr) return instance;
  Ref tensor = imported("torch", "Tensor");
  Ref parameter = tensor ? imported("torch.nn", "Parameter") : Ref();
  Ref strided = parameter ? imported("torch", "strided") : Ref();
  const Ref device = strided ? imported("torch", "device") : Ref();
  Ref cpu(device ? PyObject_CallFunction(device.get(), "s", "cpu") : nullptr);
  if (!cpu || !PyType_Check(tensor.get()) || !PyType_Check(parameter.get())) {
    if (PyErr_Occurred() == nullptr)
      PyErr_SetString(PyExc_ImportError, "torch.Tensor is not a type");
    return nullptr;
  }
  auto* impl = new Impl;
  impl->tensor_type = reinterpret_cast<PyTypeObject*>(tensor.get());
  impl->parameter_type = reinterpret_cast<PyTypeObject*>(parameter.release());
  impl->strided = strided.release();
  impl->cpu = cpu.release();
  const std::pair<CachedMember*, const char*> members[] = {
      {&impl->version, "_version"},
      {&impl->is_inference, "is_inference"},
      {&impl->is_conj, "is_conj"},
      {&impl->is_neg, "is_neg"},
      {&impl->data_ptr, "data_ptr"},
      {&impl->shape, "shape"},
      {&impl->stride, "stride"},
      {&impl->dtype, "dtype"},
      {&impl->device, "device"},
      {&impl->layout, "layout"},
      {&impl->is_nested, "is_nested"},
      {&impl->storage_offset, "storage_offset"},
      {&impl->untyped_storage, "untyped_storage"}};
  for (const auto& [member, name] : members) member->bind(tensor.get(), name);
  for (const char* kind : {"dtype", "device", "layout", "memory_format"}) {
    Ref type = imported("torch", kind);
    if (type && PyType_Check(type.get()))
      impl->kinds.push_back({reinterpret_cast<PyTypeObject*>(type.release()), kind});
    PyErr_Clear();
  }
  // A torch without it has no such switch: its subclasses are asked.
  impl->functions_off = imported("torch._C", "DisableTorchFunctionSubclass").release();
  PyErr_Clear();
  impl->modes_off = imported("torch._C", "DisableTorchFunction").release();
  PyErr_Clear();
  impl->count_modes = imported("torch._C", "_len_torch_function_stack").release();
  PyErr_Clear();
  const Ref capsule = attribute(tensor.release(), "__dlpack_c_exchange_api__");
  if (capsule && PyCapsule_IsValid(capsule.get(), "dlpack_exchange_api")) {
    const auto* table = static_cast<const DlpackExchangeApi*>(
        PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"));
    if (table->major == 1 && table->dltensor_from_py_object_no_sync != nullptr) impl->table = table;
  }
  PyErr_Clear();
  impl->use_table = impl->table != nullptr;
  instance = new TensorAccess;
  instance->impl_ = impl;
  return instance;
}

bool TensorAccess::is_tensor(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == impl_->tensor_type || type == impl_->parameter_type) return true;
  return impl_->entry_of(type).is_tensor;
}

std::string_view TensorAccess::torch_kind(const PyTypeObject* type) const {
  for (const TorchKind& kind : impl_->kinds) {
    if (kind.type == type) return kind.name;
  }
  return "";
}

void TensorAccess::look(PyObject* object, TensorLook& look, bool ask_negative) {
  const ErrorAside aside;
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
  const ErrorAside aside;
  const SubclassFunctionsOff functions_off(*impl_, object);
  look.negative = look.readable != Readable::Nothing && impl_->is_neg.truth(object, false);
}

int64_t TensorAccess::version(PyObject* object) {
  const ErrorAside aside;
  const SubclassFunctionsOff functions_off(*impl_, object);
  return impl_->version.integer(object, -1);
}
bool TensorAccess::is_inference(PyObject* object) {
  const ErrorAside aside;
  const SubclassFunctionsOff functions_off(*impl_, object);
  return impl_->is_inference.truth(object, true);
}
bool TensorAccess::is_parameter(PyObject* object) {
  return PyObject_TypeCheck(object, impl_->parameter_type) != 0;
}
bool TensorAccess::is_plain(PyObject* object) const { return impl_->is_plain(object); }

bool TensorAccess::storage_covers(PyObject* object, const TensorLook& look) {
  const ErrorAside aside;
  const SubclassFunctionsOff functions_off(*impl_, object);
  if (look.element_count == 0) return true;
  const Ref storage(impl_->untyped_storage.get(object));
  if (!storage) return false;
  const int64_t size_bytes = storage_size_bytes(storage.get());
  return fits_storage(look, impl_->storage_offset.integer(object, -1), size_bytes);
}

int64_t TensorAccess::storage_size_bytes(PyObject* storage_object) {
  const ErrorAside aside;
  impl_->bind_storage(storage_object);
  return impl_->storage_nbytes.integer(storage_object, -1);
}

const std::byte* TensorAccess::storage_data(PyObject* storage_object) {
  const ErrorAside aside;
  impl_->bind_storage(storage_object);
  const int64_t address = impl_->storage_data_ptr.integer(storage_object, 0);
  return reinterpret_cast<const std::byte*>(static_cast<uintptr_t>(address));
}

PyObject* TensorAccess::storage_object(PyObject* object) {
  const ErrorAside aside;
  const SubclassFunctionsOff functions_off(*impl_, object);
  return impl_->untyped_storage.get(object);
}
int64_t TensorAccess::storage_offset(PyObject* object) {
  const ErrorAside aside;
  const SubclassFunctionsOff functions_off(*impl_, object);
  return impl_->storage_offset.integer(object, 0);
}

PyObject* TensorAccess::wrapper_parts(PyObject* object, bool may_wait, PyObject* since,
                                      PyObject* waited) {
  const ErrorAside aside;
  if (impl_->wrapper_parts == nullptr)
    impl_->wrapper_parts = imported("assay.torch._wrappers", "parts_of").release();
  return impl_->wrapper_parts != nullptr
             ? PyObject_CallFunctionObjArgs(impl_->wrapper_parts, object,
                                            may_wait ? Py_True : Py_False,
                                            since != nullptr ? since : Py_None,
                                            waited != nullptr ? waited : Py_None, nullptr)
             : nullptr;
}

void TensorAccess::use_exchange_table(bool use) {
  impl_->use_table = use && impl_->table != nullptr;
}
bool TensorAccess::has_exchange_table() const { return impl_->table != nullptr; }

bool is_cuda(const TensorLook& look) { return look.device_type == kCuda; }

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

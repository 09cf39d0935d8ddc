// SPDX-License-Identifier: Apache-2.0
// Looking at torch tensors without linking torch: pointer, shape, strides, dtype and device in
// about 40 ns.
//
// torch 2.10 and later: a table of C functions in the capsule
// torch.Tensor.__dlpack_c_exchange_api__. Older: the tensor's attributes. Layouts, costs and traps:
// docs/design/torch-capture.md
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <string_view>

#include "capture/intake/look.hpp"

namespace assay::capture {

/// "cpu", "cuda:0" ... into a static or thread-local buffer.
[[nodiscard]] const char* device_text(const TensorLook& look);
/// On a device of CUDA; one of ROCm, which torch calls so as well, is none.
[[nodiscard]] bool is_cuda(const TensorLook& look);

/// Access to the tensors of the torch that this interpreter has imported. One object a process,
/// created with the first use and leaked. Every member needs the GIL, leaves the error indicator as
/// found and raises nothing.
class TensorAccess {
 public:
  /// Imports torch. nullptr with a Python exception set when there is none.
  [[nodiscard]] static TensorAccess* get();

  /// True for torch.Tensor and its subclasses (one cached test of the type).
  [[nodiscard]] bool is_tensor(PyObject* object);

  /// Fills `look`. `object` must be a tensor (is_tensor). Never runs an operator; a wrapper
  /// subclass may run Python.
  void look(PyObject* object, TensorLook& look) { this->look(object, look, true); }
  /// The same; without `ask_negative` the caller has to call look_for_negative() before it relies
  /// on look.negative: torch gives the GIL away and takes it back for that one bit, 100 ns.
  void look(PyObject* object, TensorLook& look, bool ask_negative);
  void look_for_negative(PyObject* object, TensorLook& look);

  /// The version counter, -1 when there is none (inference tensors) or torch refuses. 26 ns.
  [[nodiscard]] int64_t version(PyObject* object);
  [[nodiscard]] bool is_inference(PyObject* object);
  /// Whether its type is torch.Tensor or torch.nn.Parameter itself, no subclass.
  [[nodiscard]] bool is_plain(PyObject* object) const;
  /// True for torch.nn.Parameter.
  [[nodiscard]] bool is_parameter(PyObject* object);
  /// False when the storage is smaller than shape and strides claim (resized under a view). About
  /// 200 ns: ask once for each distinct tensor before its bytes are read.
  [[nodiscard]] bool storage_covers(PyObject* object, const TensorLook& look);

  /// torch's Python object for the storage, new reference; nullptr when the tensor has none. 40 ns.
  [[nodiscard]] PyObject* storage_object(PyObject* object);
  /// Bytes of such an object; -1 when torch refuses.
  [[nodiscard]] int64_t storage_size_bytes(PyObject* storage_object);
  /// The memory of such an object; nullptr when it has none.
  [[nodiscard]] const std::byte* storage_data(PyObject* storage_object);
  /// Elements between the start of the storage and the first element; 0 when torch refuses.
  [[nodiscard]] int64_t storage_offset(PyObject* object);

  /// Which of torch's own values a type has: "dtype", "device", "layout", "memory_format"; "" for
  /// all others.
  [[nodiscard]] std::string_view torch_kind(const PyTypeObject* type) const;

  /// What assay.torch._wrappers.parts_of() answers, new reference; nullptr when it raised.
  /// since    write counters of before, or nullptr
  /// waited   what the program has just waited for, or nullptr
  [[nodiscard]] PyObject* wrapper_parts(PyObject* object, bool may_wait, PyObject* since,
                                        PyObject* waited);

  /// False: every look goes through attributes. For tests of the fall-back; true needs torch 2.10.
  void use_exchange_table(bool use);
  [[nodiscard]] bool has_exchange_table() const;

  struct Impl;

 private:
  friend class FunctionModesOff;
  TensorAccess() = default;
  Impl* impl_ = nullptr;
};

/// While it lives no TorchFunctionMode of the program sees what is asked of tensors. 40 ns where
/// there is none. An exception that is set stays so.
class FunctionModesOff {
 public:
  explicit FunctionModesOff(const TensorAccess& access);
  ~FunctionModesOff();
  FunctionModesOff(const FunctionModesOff&) = delete;
  FunctionModesOff& operator=(const FunctionModesOff&) = delete;

 private:
  PyObject* guard_ = nullptr;
};

}  // namespace assay::capture

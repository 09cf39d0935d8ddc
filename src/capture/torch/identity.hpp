// SPDX-License-Identifier: Apache-2.0
// Which tensors have been seen already: a consumer's input is its producer's output, and is read and stored once.
//
// A pointer is no identity (the allocator hands the same address to the next tensor), nor is pointer plus version. The
// rule that holds: same pointer, element count and element size, AND the Python object first seen there is still alive
// (so its storage was never freed in between), AND both have the version counter of then (so nobody wrote in place).
// Writes that bump no version (x.data, numpy(), custom kernels) are not seen: capture(verify=True) reads every time.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "capture/torch/tensor_access.hpp"
#include "formats/native/record_lines.hpp"
#include "stats/digest.hpp"
#include "stats/tensor_stats.hpp"

namespace assay::capture {

/// What is known about bytes that were read once.
struct SeenTensor {
  const void* data = nullptr;
  int64_t element_count = 0;
  int64_t version = 0;
  PyObject* weakref = nullptr;  // to the object first seen; owned by the table
  DType dtype = DType::Float32;
  bool is_parameter = false;
  bool contiguous = false;
  bool dense =
      false;  // some order of the dimensions has no gaps: the bytes do not depend on shape and strides
  bool conjugate = false;
  bool negative = false;
  Dims shape;
  Dims strides;
  uint64_t record_number = 0;
  /// Place in the list of what is on its way from a device; -1: the bytes were read, and the number is known.
  int64_t place = -1;
  std::optional<native::PayloadLocation> payload;
  std::optional<stats::TensorStats> stats;
  std::optional<stats::Digest> digest;

  /// Whether the payload (elements in C order) of `look` is the same sequence of bytes.
  [[nodiscard]] bool same_payload(const TensorLook& look, bool look_contiguous) const;
};

/// Needs the GIL. Entries are cleared at the end of a step, except those of parameters.
class IdentityTable {
 public:
  explicit IdentityTable(TensorAccess& access) : access_(access) {}
  ~IdentityTable();
  IdentityTable(const IdentityTable&) = delete;
  IdentityTable& operator=(const IdentityTable&) = delete;

  /// The entry whose bytes `tensor` shares unchanged, or nullptr. `version` is access.version(tensor), not -1.
  /// A hit on a tensor that is not dense needs equal shape and strides.
  [[nodiscard]] const SeenTensor* find(PyObject* tensor, const TensorLook& look, int64_t version,
                                       bool look_dense);
  /// Remembers `tensor`; makes the weak reference. Tensors that cannot be referenced weakly are not remembered.
  void insert(PyObject* tensor, SeenTensor seen);
  void clear_step();
  void clear();
  [[nodiscard]] size_t size() const { return entries_.size(); }

 private:
  void rebuild(size_t slot_count);
  void place(uint32_t entry);

  TensorAccess& access_;
  std::vector<SeenTensor> entries_;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(4096, 0);  // entry number + 1; 0 is empty
};

/// No gaps between the elements in some order of the dimensions: every transpose of a contiguous tensor.
[[nodiscard]] bool is_dense(const TensorLook& look);
[[nodiscard]] bool is_contiguous(const TensorLook& look);

}  // namespace assay::capture

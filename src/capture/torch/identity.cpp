// SPDX-License-Identifier: Apache-2.0
#include "capture/torch/identity.hpp"

#include <algorithm>

#include "capture/torch/python_compat.hpp"

namespace assay::capture {
namespace {

size_t hash_pointer(const void* pointer) {
  // Allocations are 64-byte aligned; a multiplication spreads what is left over the upper bits.
  return static_cast<size_t>((reinterpret_cast<uintptr_t>(pointer) >> 4) * 0x9E3779B97F4A7C15ull >>
                             20);
}

bool equal(const Dims& known, const int64_t* values, int count) {
  return known.size() == static_cast<size_t>(count) &&
         std::equal(known.begin(), known.end(), values);
}

}  // namespace

bool is_contiguous(const TensorLook& look) {
  if (look.strides == nullptr || look.element_count == 0) return true;
  int64_t expected = 1;
  for (int i = look.ndim - 1; i >= 0; --i) {
    if (look.shape[i] == 1) continue;
    if (look.strides[i] != expected) return false;
    expected *= look.shape[i];
  }
  return true;
}

bool is_dense(const TensorLook& look) {
  if (is_contiguous(look)) return true;
  // Sorted by stride, each dimension must begin where the one below ends.
  struct Dim {
    int64_t stride;
    int64_t size;
  };
  Dim dims[kMaxTensorDims];
  int count = 0;
  for (int i = 0; i < look.ndim && count < kMaxTensorDims; ++i) {
    if (look.shape[i] != 1) dims[count++] = {look.strides[i], look.shape[i]};
  }
  std::sort(dims, dims + count, [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  int64_t expected = 1;
  for (int i = 0; i < count; ++i) {
    if (dims[i].stride != expected) return false;
    expected *= dims[i].size;
  }
  return true;
}

bool SeenTensor::same_payload(const TensorLook& look, bool look_contiguous) const {
  if (contiguous && look_contiguous) return true;
  return equal(shape, look.shape, look.ndim) && look.strides != nullptr &&
         equal(strides, look.strides, look.ndim);
}

IdentityTable::~IdentityTable() { clear(); }

const SeenTensor* IdentityTable::find(PyObject* tensor, const TensorLook& look, int64_t version,
                                      bool look_dense) {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash_pointer(look.data) & mask; slots_[at] != 0; at = (at + 1) & mask) {
    const SeenTensor& seen = entries_[slots_[at] - 1];
    if (seen.data != look.data || seen.element_count != look.element_count ||
        seen.dtype != look.dtype || seen.version != version || seen.conjugate != look.conjugate ||
        seen.negative != look.negative) {
      continue;
    }
    if (!(seen.dense && look_dense) &&
        !(look.strides != nullptr && equal(seen.shape, look.shape, look.ndim) &&
          equal(seen.strides, look.strides, look.ndim))) {
      continue;
    }
    PyObject* first = weakref_get(seen.weakref);
    if (first == nullptr) continue;  // the storage may have been freed and handed out again
    const bool unchanged = first == tensor || access_.version(first) == version;
    Py_DECREF(first);
    if (unchanged) return &seen;
  }
  return nullptr;
}

void IdentityTable::insert(PyObject* tensor, SeenTensor seen) {
  seen.weakref = PyWeakref_NewRef(tensor, nullptr);
  if (seen.weakref == nullptr) {
    PyErr_Clear();
    return;
  }
  seen.is_parameter = access_.is_parameter(tensor);
  if ((entries_.size() + 1) * 2 > slots_.size()) rebuild(slots_.size() * 2);
  entries_.push_back(std::move(seen));
  place(static_cast<uint32_t>(entries_.size()));
}

void IdentityTable::place(uint32_t entry) {
  const size_t mask = slots_.size() - 1;
  size_t at = hash_pointer(entries_[entry - 1].data) & mask;
  while (slots_[at] != 0) at = (at + 1) & mask;
  slots_[at] = entry;
}

void IdentityTable::rebuild(size_t slot_count) {
  slots_.assign(slot_count, 0);
  for (uint32_t entry = 1; entry <= entries_.size(); ++entry) place(entry);
}

void IdentityTable::clear_step() {
  size_t kept = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].is_parameter) {
      if (kept != i) std::swap(entries_[kept], entries_[i]);
      ++kept;
    } else {
      Py_CLEAR(entries_[i].weakref);
    }
  }
  entries_.resize(kept);
  rebuild(slots_.size());
}

void IdentityTable::clear() {
  for (SeenTensor& seen : entries_) Py_CLEAR(seen.weakref);
  entries_.clear();
  rebuild(slots_.size());
}

}  // namespace assay::capture

// SPDX-License-Identifier: Apache-2.0
// Tensors already seen in this token, so that the output of one module that is the input of the next is read and
// written once. Identity rule and its evidence: docs/design/torch-capture.md
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "capture/torch/python_compat.hpp"
#include "capture/torch/tensor_access.hpp"
#include "stats/tensor_stats.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::capture {

/// What is known about a tensor that was seen before.
struct StrictSeen {
  std::optional<stats::TensorStats> statistics;
  std::shared_ptr<const std::string> folder;  // where its file is, nullptr when it has none
  std::string stem;
};

/// Invariant: an entry answers only while the object it was made for is alive and neither it nor the asking tensor
/// was written to since; then both show the same bytes. The GIL is held in every member.
/// Not seen: writes through `.data`, numpy() or a custom kernel, which no version counter tells.
class StrictIdentity {
 public:
  ~StrictIdentity() { clear(); }

  /// What is known of `tensor`, or nothing. Inference tensors have no versions and are never known.
  [[nodiscard]] std::optional<StrictSeen> find(TensorAccess& access, PyObject* tensor,
                                               const TensorView& view) {
    const auto found = entries_.find(view.storage.data());
    if (found == entries_.end() || access.is_inference(tensor)) return std::nullopt;
    // The look-ups below may run Python code that changes the table: work on copies.
    const Entry& entry = *found->second;
    if (entry.dtype != view.dtype || entry.shape != view.shape || entry.strides != view.strides)
      return std::nullopt;
    const int64_t version = entry.version;
    StrictSeen known = entry.seen;
    PyObject* first = weakref_get(entry.weakref);
    if (first == nullptr) return std::nullopt;
    const bool same =
        access.version(tensor) == version && (first == tensor || access.version(first) == version);
    Py_DECREF(first);
    return same ? std::optional<StrictSeen>(std::move(known)) : std::nullopt;
  }

  void insert(TensorAccess& access, PyObject* tensor, const TensorView& view, StrictSeen seen) {
    if (view.storage.empty() || access.is_inference(tensor)) return;
    const int64_t version = access.version(tensor);
    PyObject* weakref = version >= 0 ? PyWeakref_NewRef(tensor, nullptr) : nullptr;
    if (weakref == nullptr) {
      PyErr_Clear();
      return;
    }
    auto entry = std::make_unique<Entry>();
    entry->dtype = view.dtype;
    entry->shape = view.shape;
    entry->strides = view.strides;
    entry->version = version;
    entry->weakref = weakref;
    entry->seen = std::move(seen);
    std::swap(entries_[view.storage.data()], entry);
  }

  /// Files in `folder` are about to be replaced: they are no source of links any more.
  void forget_folder(const std::string& folder) {
    for (auto& [data, entry] : entries_) {
      if (entry->seen.folder != nullptr && *entry->seen.folder == folder)
        entry->seen.folder = nullptr;
    }
  }

  void clear() {
    auto old = std::move(entries_);
    entries_.clear();
    old.clear();
  }

 private:
  struct Entry {
    DType dtype = DType::Float32;
    Dims shape;
    Dims strides;
    int64_t version = -1;
    PyObject* weakref = nullptr;
    StrictSeen seen;

    ~Entry() { Py_XDECREF(weakref); }
  };

  std::unordered_map<const std::byte*, std::unique_ptr<Entry>> entries_;
};

}  // namespace assay::capture

// SPDX-License-Identifier: Apache-2.0
// Records of device tensors: they wait, in order, until the statistics and bytes of all come in one
// synchronisation.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "capture/torch/cuda_path.hpp"
#include "capture/torch/record_ref.hpp"
#include "capture/torch/tensor_access.hpp"
#include "writer/layouts/native_run.hpp"

namespace assay::capture {

struct SessionOptions;
struct StepProgress;

/// A record that waits for its statistics or bytes, or only keeps its place behind such.
struct WaitingRecord {
  native::Record record;
  Dims shape;
  Dims strides;
  std::shared_ptr<StepProgress> step;
  std::string text;           // of records that only keep their place, and of skipped ones
  CudaTicket cuda;            // of what the CUDA path has of it; otherwise DevicePath has it
  RecordRef producer;         // of its value, when that waits, too
  RecordRef shares;           // whose bytes it has; none: its own
  bool is_whole = false;      // nothing comes for it
  bool drops_sketch = false;  // it shares the values of another one, in another order
};

/// Needs the GIL; leaves no exception set.
class DeviceRecords {
 public:
  /// All outlive this.
  DeviceRecords(const SessionOptions& options, TensorAccess& access, writer::NativeRun& run)
      : options_(options), access_(access), run_(run), cuda_(options, access) {}

  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  /// "cuda:0" ..., as long as the run lives.
  [[nodiscard]] const char* name_of(const TensorLook& look);
  /// The place of the next one.
  [[nodiscard]] RecordRef next() const { return RecordRef::waiting(waiting_.size()); }
  /// Asks the device for the tensor, which is as `look` says; false when it refuses, with the
  /// reason in `waiting`.
  [[nodiscard]] bool send(PyObject* tensor, const TensorLook& look, WaitingRecord* waiting);
  void add(WaitingRecord waiting) { waiting_.push_back(std::move(waiting)); }
  /// Too many bytes are on their way.
  [[nodiscard]] bool is_full() const;

  /// Gets what was sent and writes all records.
  void fetch();
  /// After fetch(), until clear().
  [[nodiscard]] const native::Record& at(RecordRef ref) const {
    return waiting_[ref.place()].record;
  }
  [[nodiscard]] RecordRef numbered(RecordRef ref) const {
    return ref.is_waiting() ? RecordRef::numbered(at(ref).number) : ref;
  }
  void clear();
  /// Gives the devices' memory back. Precondition: empty().
  void close() { cuda_.close(); }

 private:
  void take(PyObject* item, WaitingRecord& waiting);
  void take_from_cuda(WaitingRecord& waiting);
  void take_bytes(const TensorView& view, WaitingRecord& waiting);

  const SessionOptions& options_;
  TensorAccess& access_;
  writer::NativeRun& run_;
  std::vector<WaitingRecord> waiting_;
  CudaPath cuda_;
  const char* name_ = nullptr;  // of the device of the last tensor
  int32_t name_type_ = 0;
  int32_t name_index_ = 0;
  uint64_t bytes_in_flight_ = 0;  // in tensors of torch
};

}  // namespace assay::capture

// SPDX-License-Identifier: Apache-2.0
// Tensors on CUDA devices, without an operator of torch and without a wait for each: one launch of
// our own kernel in the model's stream (device_statistics.cu) and one copy into staging memory of
// the device, which a stream of ours moves to pinned memory of the host.
//
//   model's stream   ... op | sums of its blocks | copy | next op ...
//   our stream                                      '--> pinned memory, a batch of 8 MiB at a time
//   fetch()          waits for the streams; all tensors' blocks are joined in one launch
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "capture/torch/python_compat.hpp"
#include "capture/torch/tensor_access.hpp"
#include "stats/tensor_stats.hpp"

namespace assay::capture {

struct SessionOptions;

/// Of copies that wait for their end.
inline constexpr uint64_t kMaxBytesInFlight = 256ull << 20;

/// Where what was asked of one tensor will be after fetch().
struct CudaTicket {
  int device = -1;            // -1: nothing was sent here
  int64_t row = -1;           // of its sums; -1: an empty tensor, or nobody wants them
  int64_t element_count = 0;  // distinct ones
  int64_t times = 1;          // how often each occurs
  bool row_major = true;
  const std::byte* bytes = nullptr;  // in C order; nullptr: nobody wants them

  [[nodiscard]] bool is_sent() const { return device >= 0; }
};

/// Needs the GIL; leaves no exception set.
class CudaPath {
 public:
  enum class Answer : uint8_t {
    Sent,
    Elsewhere,  // no kernel for such a tensor: torch's operators have to do it
    Refused,
  };

  /// Both outlive this.
  CudaPath(const SessionOptions& options, TensorAccess& access);
  ~CudaPath();

  /// Starts what is wanted of `tensor`, which is as `look` says; nothing of it is kept alive.
  /// why   of a refusal: a text that stays
  [[nodiscard]] Answer send(PyObject* tensor, const TensorLook& look, CudaTicket* ticket,
                            const char** why);
  /// Too much is on its way.
  [[nodiscard]] bool is_full() const;

  /// Waits for everything that was sent, without the GIL.
  void fetch();
  /// After fetch(), until clear(); nothing when the device failed.
  [[nodiscard]] std::optional<stats::TensorStats> statistics(const CudaTicket& ticket,
                                                             DType dtype) const;
  [[nodiscard]] bool is_lost(const CudaTicket& ticket) const;
  void clear();
  /// Gives all memory back. Precondition: fetch() since the last send().
  void close();

 private:
  class Device;

  [[nodiscard]] Device* device_of(int index);
  [[nodiscard]] bool packed(PyObject* tensor, bool in_order, Ref* answer, TensorLook* look,
                            CudaTicket* ticket);

  const SessionOptions& options_;
  TensorAccess& access_;
  std::vector<std::unique_ptr<Device>> devices_;  // by index; a refused one is not usable
};

}  // namespace assay::capture

// SPDX-License-Identifier: Apache-2.0
// The tensors of a process in the native layout: one growing file and a line for each tensor, in
// place of a file for each.   docs/formats/native.md, "ATB"
//
//   {root}/tensors/{device}_{pid}/manifest.json  records.jsonl  step-000000.safetensors ...
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/result.hpp"
#include "capture/atb/tensor_arguments.hpp"
#include "formats/native/record_lines.hpp"
#include "writer/async_writer.hpp"

namespace assay::capture::atb {

struct NativeTensorsOptions {
  std::string folder;  // {root}/tensors; made when it is needed
  std::string program;
  uint64_t arena_bytes = 0;  // 0: no data is wanted
  writer::FullPolicy on_full = writer::FullPolicy::Wait;
  /// Everything is on its way to the disk when a call returns.
  bool synchronous = false;
  /// Told on the writer's thread of lines that are on disk, and their bytes before them.
  std::function<void(const native::RecordBatch&)> written = {};
};

/// What of a tensor is recorded.
struct WantedContent {
  bool data = false;
  bool statistics = false;
  bool digest = false;
};

enum class Taken : uint8_t {
  Here,
  Dropped,    // no room, and the host must not wait
  Elsewhere,  // this layout cannot have it: it is to be a file of its own
};

/// Any thread. In a forked child nothing may be called.
/// What the library could not have named, what says two things of its size, values that statistics
/// cannot be exact of, and whatever comes after finish() or a failed write is left to files.
class NativeTensors {
 public:
  explicit NativeTensors(NativeTensorsOptions options);
  ~NativeTensors();
  NativeTensors(const NativeTensors&) = delete;
  NativeTensors& operator=(const NativeTensors&) = delete;

  /// path   below tensors/, as atb_relative_path() gives it. Its bytes are copied, or known, when
  ///        this returns.
  [[nodiscard]] Taken take(const TensorArguments& tensor, std::string_view path,
                           WantedContent wanted);
  /// Parameters of the operation whose op_param.json has this path.
  /// param   taken when it is a JSON object on one line
  [[nodiscard]] Taken take_param(std::string_view path, std::string_view param);

  /// The manifests say that the capture is whole, or no longer, when what was taken so far is on
  /// disk. Waits for nothing.
  void conclude(bool is_whole);
  /// Writes what waits and says in the manifests that the capture is whole.
  void finish();

  [[nodiscard]] double waited_ms() const;
  /// After finish(): why not everything that was taken is on disk; empty when it is.
  [[nodiscard]] std::string first_error() const;
  /// Why there is no native run of a process, whose tensors are files; empty when all have one.
  [[nodiscard]] std::string refusal() const;

 private:
  class Process;
  struct Tensor;

  /// Of a thread of ours: when the host pauses, and now and then while it does not, what was taken
  /// goes to the disk. The library does not tell when a run is over, and servers are killed.
  void watch();
  void start_watching();
  void note_taken(Process& process);
  [[nodiscard]] std::optional<Tensor> understood(const TensorArguments& tensor,
                                                 std::string_view path) const;
  [[nodiscard]] Process* process_of(std::string_view name);
  [[nodiscard]] static stats::TensorStats statistics(const Tensor& tensor);

  const NativeTensorsOptions options_;
  mutable std::mutex mutex_;  // of all below; not held while a tensor is read for its sums
  std::map<std::string, std::unique_ptr<Process>, std::less<>> processes_;
  std::thread watcher_;
  std::condition_variable changed_;
  uint64_t taken_ = 0;       // tensors and parameters
  bool is_pending_ = false;  // some of them may not be on their way to the disk
  bool finished_ = false;
  std::string first_error_;
  std::string refusal_;
};

}  // namespace assay::capture::atb

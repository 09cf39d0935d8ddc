// SPDX-License-Identifier: Apache-2.0
// One process's capture: checks what the library hands over, copies it, and has it written behind
// the host's back. Counts everything on a page that outlives the process.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.hpp"
#include "capture/atb/native_tensors.hpp"
#include "capture/atb/selection.hpp"
#include "capture/atb/tensor_arguments.hpp"
#include "capture/intake/buffer_pool.hpp"
#include "formats/probe_status.hpp"
#include "writer/async_writer.hpp"
#include "writer/disk_budget.hpp"
#include "writer/layouts/atb_tree.hpp"

namespace assay::capture::atb {

/// What a process calls itself and where it writes.
struct SessionOptions {
  std::string root;  // absolute dump root; "" when nothing but overflows is captured
  int64_t pid = 0;
  std::string program;
  std::string overflow_file;  // "" for none
  /// Another way to write files, for tests.
  std::function<Status(const std::string& path, ByteSpan content, unsigned mode)> write_file = {};
};

/// All functions may be called from any thread at any time, also after finish(): then they write
/// before they return. None keeps a pointer of its caller. They may throw what allocation throws.
/// Lives until the process ends: a session is never destroyed, since threads of the host may be
/// inside it. In a forked child it is dead: nothing of it may be called.
class AtbSession {
 public:
  /// Creates the dump root and the status page.
  /// errors  of make_directories()
  [[nodiscard]] static Result<AtbSession*> open(const Settings& settings, SessionOptions options);

  void save_tensor(const Settings& settings, const TensorArguments& tensor);
  void save_tiling(const Settings& settings, const void* data, uint64_t size_bytes,
                   std::string_view path);
  void save_param(const Settings& settings, std::string_view param, std::string_view path);
  void report_layer(const Settings& settings, std::string_view name, std::string_view report);
  [[nodiscard]] bool wants_model(std::string_view name);
  void report_model(const Settings& settings, std::string_view name, std::string_view report);
  void report_operation(const Settings& settings, writer::AtbRow row);
  void report_kernel(const Settings& settings, writer::AtbRow row);
  void report_setup(const Settings& settings, uint64_t count, std::string_view name,
                    std::string_view text);
  void report_execute(const Settings& settings, uint64_t count, std::string_view name,
                      std::string_view text);
  void report_overflow(std::string_view kernel);

  /// Writes everything that waits, then the summary in place of the status page.
  void finish();

  [[nodiscard]] formats::ProbeCounters& counters() { return page_->counters; }
  void count(uint64_t formats::ProbeCounters::* counter, uint64_t amount = 1);
  void add_note(std::string_view sentence);
  /// Remembers the first operations that were not wanted, as long as none was: a note names them at
  /// the end.
  void see_unwanted(std::span<const int64_t> ids, std::string_view op_type);
  /// An operation has come to this run. Behind the last that was asked for the dump is concluded:
  /// how the host ends no longer matters. When it is called for one that is wanted, after all (of
  /// another model, whose runs are counted by themselves), the dump goes on.
  void see_run(uint64_t execute_count, bool wanted);
  [[nodiscard]] uint32_t generation() const { return generation_; }

 private:
  enum class Admission : uint8_t { Queue, Direct, Dropped };
  struct TensorJob;

  AtbSession(const Settings& settings, SessionOptions options);

  [[nodiscard]] Status open_page();
  [[nodiscard]] std::string summary_path() const;
  void write_summary();

  [[nodiscard]] Admission admit(uint64_t size_bytes);
  void dispatch(Admission admission, uint64_t size_bytes, std::function<void()> job);
  /// For everything that is no tensor: small, and never dropped.
  /// written   counts what `write` wrote
  void post(uint64_t size_bytes, uint64_t formats::ProbeCounters::* written,
            std::function<Status()> write);
  void run_direct(const std::function<void()>& job);
  void run_job(const std::function<void()>& job);

  [[nodiscard]] bool disk_has(uint64_t size_bytes);
  /// The tensor's path below tensors/; nothing, and counted, when it is not wanted or not usable.
  [[nodiscard]] std::optional<std::string> wanted_path(const Settings& settings,
                                                       const TensorArguments& tensor,
                                                       uint64_t payload_bytes);
  /// False: the tensor is to be a file of its own.
  [[nodiscard]] bool take_native(const Settings& settings, const TensorArguments& tensor,
                                 const std::string& path, bool with_data);
  /// Lines of the native layout that are on disk.
  void count_written(const native::RecordBatch& lines);
  void queue_tensor(const std::string& path, const TensorArguments& tensor,
                    const std::string& header, uint64_t payload_bytes, bool may_link);
  void store_tensor(TensorJob& job);
  /// False: there was one before.
  bool note_error(const std::string& text);
  void fail_with(const Error& error);
  void note_unwanted();
  void note_unreached();
  void conclude(bool is_over);
  void skip(uint64_t formats::ProbeCounters::* counter, std::string_view sentence);
  void see_device(std::string_view path);
  [[nodiscard]] bool process_device_matches(const Settings& settings);
  void look_for_replay(std::string_view key, uint64_t count);

  const SessionOptions options_;
  const uint32_t generation_;
  const bool drop_when_full_;
  const uint64_t disk_reserve_bytes_;
  const RunRange range_;  // nothing where a configuration file may change it
  const uint64_t last_run_;
  std::atomic<uint64_t> runs_{0};  // of the operation that has run most often
  std::atomic<bool> concluded_{false};
  formats::ProbeStatus* page_ = nullptr;  // shared with the status file, or private memory
  std::string page_path_;                 // "" when private
  BufferPool buffers_;
  std::unique_ptr<writer::AsyncWriter> writer_;  // null: everything is written by the caller
  std::unique_ptr<NativeTensors> native_;        // null: each tensor is a file
  std::atomic<bool> finished_{false};
  std::atomic<uint64_t> held_bytes_{0};
  std::atomic<int64_t> device_{-1};  // last seen in a path
  std::atomic<uint64_t> statistic_reports_{0};
  std::atomic<uint64_t> zero_reports_{0};  // of these, with nothing but zeros

  std::mutex tree_mutex_;
  writer::AtbTree tree_;

  std::mutex small_mutex_;  // of all below
  std::optional<writer::DiskBudget> disk_;
  std::set<std::string, std::less<>> reported_models_;
  std::vector<uint64_t formats::ProbeCounters::*> told_skips_;
  bool told_error_ = false;
  std::vector<std::string> unwanted_types_;
  std::vector<std::string> unwanted_ids_;
  std::unordered_map<std::string, uint64_t> replay_marks_;
};

}  // namespace assay::capture::atb

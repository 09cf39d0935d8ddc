// SPDX-License-Identifier: Apache-2.0
// One process's capture of ggml graphs: the folder of its rank, the sink, and what outlives one
// compute call.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "capture/ggml/engine.hpp"
#include "capture/ggml/graph_lines.hpp"
#include "capture/ggml/settings.hpp"
#include "writer/layouts/native_run.hpp"
#include "writer/run_claim.hpp"

namespace assay::capture::ggml {

/// A capture of one compute call that has lines which were not pushed.
class LineHolder {
 public:
  virtual ~LineHolder() = default;
  /// With the session's lock.
  virtual void push_lines() = 0;
};

/// Calls with `lock` come under lock(); the others from any thread. Never destroyed. In a forked
/// child it is dead: only generation() may be called.
class GgmlSession {
 public:
  /// Makes the rank's folder and the sink.
  /// errors   of the operating system
  [[nodiscard]] static Result<GgmlSession*> open(const Settings& settings);

  [[nodiscard]] uint32_t generation() const { return generation_; }
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  [[nodiscard]] bool finished() const { return finished_.load(std::memory_order_relaxed); }

  // With the lock.
  [[nodiscard]] writer::NativeRun& run() { return *run_; }
  [[nodiscard]] const native::RecordNode* node(const std::string& name);
  /// "src0" ... for an input, "" for kResultSlot.
  static constexpr size_t kResultSlot = kMaxSources;
  [[nodiscard]] const std::string* slot(size_t index) const { return slots_[index]; }
  /// `"ne":[256,2,1,1]`, and the blocks of a type that has them: what a line says beside the common
  /// keys.
  [[nodiscard]] const std::string* sizes_text(const Four& ne, const TypeInfo& type);
  /// The first of `count` numbers that nobody else gets.
  [[nodiscard]] int64_t next_values(int64_t count);
  [[nodiscard]] int64_t next_storages(int64_t count);
  /// The storage of a leaf that lives longer than a compute call.
  [[nodiscard]] LeafStorage& leaf_storage(const void* data, const std::string* name);
  /// A graph was planned that writes to it.
  void note_written(LeafStorage& leaf);
  /// How many leaves were noted: with each, plans that took it for constant are wrong.
  [[nodiscard]] uint64_t written_leaves() const {
    return written_leaves_.load(std::memory_order_relaxed);
  }
  /// Lines of all captures under way: before a file ends whose header is to name their tensors.
  void push_all_lines();
  /// A weight as a record of step -1, in weights.safetensors when its bytes are wanted: `node`,
  /// slot, dtype and sizes of `record` are set. Returns what further lines say of it.
  [[nodiscard]] std::string record_weight(const TensorView& view, native::Record record,
                                          const Dims& shape, const Dims& strides);
  /// After the last of the weights that were found together.
  void end_weights();
  /// Something that was asked for and is not there, for the manifest.
  void note_missed(std::string node, std::string reason);
  /// Whether that scheduler ("" or "sched1/") has no topology yet.
  [[nodiscard]] bool wants_topology(const std::string& prefix) const;
  void write_topology(const std::string& prefix, std::string_view json);
  void note_engine(const Engine* engine);
  void begin_step(LineHolder* capture, uint64_t step, uint64_t expected_entries);
  void end_step(LineHolder* capture, const native::ManifestStep& step, uint64_t planned,
                uint64_t captured, uint64_t not_computed);
  void abandon_step(LineHolder* capture);
  /// Where every step that was asked for has ended the capture has: the last manifest is written
  /// behind them, and how the host ends no longer matters.
  void conclude();

  /// Writes everything that waits, the final manifest and the report. Takes the lock; later calls
  /// do nothing.
  void finish();
  /// Step of a graph that the host threw away. Takes the lock.
  void note_warm_up(int64_t step);
  /// Compute calls that were seen and not captured, for the report.
  void count_passed() { passed_.fetch_add(1, std::memory_order_relaxed); }

 private:
  explicit GgmlSession(const Settings& settings) : settings_(settings) {}
  [[nodiscard]] Status make_folder();
  [[nodiscard]] bool has_all_steps() const;
  /// What it says of the host and of the engines.
  void describe_host();
  /// How much was captured, and that it came to its end.
  [[nodiscard]] native::Manifest last_manifest();
  [[nodiscard]] Status write_manifest(const native::Manifest& manifest) const;
  [[nodiscard]] std::string engines_json() const;
  [[nodiscard]] std::string report(const std::string& message) const;

  const Settings settings_;
  uint32_t generation_ = 0;
  std::string folder_;             // of the rank
  std::string top_manifest_path_;  // empty: another process has it
  std::mutex mutex_;
  std::atomic<bool> finished_{false};
  std::unique_ptr<writer::NativeRun> run_;
  native::Manifest manifest_;
  std::vector<const Engine*> engines_;
  std::vector<std::string> topologies_;  // prefixes of schedulers
  std::set<std::string> models_;         // files, absolute
  std::set<int64_t> warm_ups_;           // steps
  std::string working_folder_;           // when the capture began
  std::unordered_map<std::string, const native::RecordNode*> nodes_;
  std::array<const std::string*, kMaxSources + 1> slots_{};
  struct Sizes {
    Four ne;
    const TypeInfo* type;
    friend bool operator==(const Sizes&, const Sizes&) = default;
  };
  struct SizesHash {
    size_t operator()(const Sizes& sizes) const noexcept;
  };
  std::unordered_map<Sizes, const std::string*, SizesHash> sizes_texts_;
  std::unordered_map<const void*, std::unordered_map<const std::string*, LeafStorage>> leaves_;
  int64_t next_value_ = 0;
  int64_t next_storage_ = 0;
  std::vector<LineHolder*> active_;  // captures under way
  std::string step_stem_;            // of the file of their tensors
  bool in_weights_ = false;
  bool is_concluded_ = false;  // the last manifest is written, or on its way
  std::atomic<uint64_t> written_leaves_{0};
  uint64_t captured_nodes_ = 0;
  uint64_t not_computed_ = 0;
  std::atomic<uint64_t> passed_{0};
};

/// What the dump command reads about this process: `report_folder`/ggml_<pid>.json.
void write_report_file(const std::string& report_folder, const std::string& json);
[[nodiscard]] std::string report_json(const std::string& output, uint64_t steps, uint64_t passed,
                                      uint64_t nodes, uint64_t bytes, const std::string& message,
                                      const std::set<int64_t>& warm_ups = {});

}  // namespace assay::capture::ggml

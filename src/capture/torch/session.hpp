// SPDX-License-Identifier: Apache-2.0
// One capture of one or several models: steps, records, what is shared, and the sink. Driven by
// ModuleCall objects (module_call.cpp) and by assay.torch.capture.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "capture/torch/collectives.hpp"
#include "capture/torch/compiled_code.hpp"
#include "capture/torch/device_records.hpp"
#include "capture/torch/graph_run.hpp"
#include "capture/torch/operator_schema.hpp"
#include "capture/torch/sightings.hpp"
#include "capture/torch/storage_table.hpp"
#include "capture/torch/tensor_access.hpp"
#include "capture/torch/walker.hpp"
#include "capture/torch/watchers.hpp"
#include "tensor/node.hpp"
#include "writer/layouts/native_run.hpp"
#include "writer/run_claim.hpp"

namespace assay::capture {

enum class DataLevel : uint8_t { None, Stats, Full };

struct SessionOptions {
  DataLevel data = DataLevel::Full;
  bool inputs = true;
  bool outputs = true;
  bool caches = false;
  bool digest = false;        // of the bytes, also where these are not kept
  bool verify = false;        // never trust identity: read every sight, share bytes by digest
  bool force_device = false;  // tests: treat host tensors as device tensors
  /// Every call outside any other is a step, whichever node it is of, and step n holds the n-th
  /// such call of each node: the rule for scripts that do not say which module is the model.
  bool outermost = false;
  bool operators = false;  // record every dispatched operator, too
  // Owned by the Python object.
  PyObject* wanted = nullptr;  // callable step -> bool, or nullptr for every step
  PyObject* device = nullptr;  // assay.torch._device.DevicePath, or nullptr
  PyObject* mode = nullptr;    // with `operators`: the dispatch mode

  /// Elements are read, and not only shapes.
  [[nodiscard]] bool reads_elements() const { return data != DataLevel::None || digest; }
};

/// What one step has produced so far.
struct StepProgress {
  int64_t step = 0;
  bool wanted = false;
  uint64_t order = 0;
  std::vector<uint32_t> calls;  // by node number
  /// Of a finished step that another model may go on with: shared with the step before it where
  /// they are the same, as those of a decoding loop are.
  std::shared_ptr<const std::vector<uint32_t>> kept_calls;
  native::ManifestStep counts;
  int64_t added_ns = 0;
  bool finished = false;  // listed among the finished steps

  /// A record that is about to be pushed.
  void count(const native::Record& record) {
    ++counts.records;
    if (record.kind == native::RecordKind::Tensor) ++counts.tensors;
    if (record.first_copy) counts.bytes += record.payload->size_bytes;
  }
};

/// One execution of one node between begin() and end().
struct CallFrame {
  std::shared_ptr<StepProgress> step;  // null: nothing is recorded
  uint64_t order = 0;
  uint32_t call = 0;
  bool counts_step = false;  // the outermost root call of this thread
  bool entered = false;      // stands on the thread's stack of module calls (operator level)
  int64_t begin_ns = 0;
};

/// One operator between begin_operator() and end_operator().
struct OperatorFrame {
  std::shared_ptr<StepProgress> step;  // null: not recorded, only its writes are noted
  uint32_t node = 0;
  uint32_t call = 0;   // of the node
  uint32_t index = 0;  // how many times it was called before within that call
  uint64_t order = 0;
};

struct SessionNode;

/// A tensor that a collective is still writing. It gets its record when the program has waited for
/// it: we never do.
struct Promise {
  // What the program has: an AsyncCollectiveTensor, a DTensor of one, or a plain tensor.
  Ref tensor;
  Ref counters;                // of writes to it and to what it wraps, when it was promised
  std::shared_ptr<Work> work;  // of a plain tensor
  SessionNode* node = nullptr;
  std::shared_ptr<StepProgress> step;
  uint64_t order = 0;
  uint32_t call = 0;
  Role role = Role::Output;
  const std::string* slot = nullptr;
  const std::string* operation = nullptr;
  uint32_t operation_index = 0;
  bool is_view = false;
  bool mutates = false;
};

struct SessionNode {
  const native::RecordNode* text = nullptr;
  bool is_root = false;
  bool wanted = true;   // false: a root that only counts steps
  bool opaque = false;  // compiled: torch must not meet a dispatch mode inside
  uint64_t executed = 0;
  int64_t steps = 0;                       // calls that began a step
  uint64_t tensors = 0;                    // recorded
  std::map<std::string, uint64_t> unread;  // tensors whose values cannot be read, by the reason
};

class Session;

/// Whether this thread is inside a root call of any session, or inside code of ours.
[[nodiscard]] bool inside_root_call() noexcept;
[[nodiscard]] bool inside_our_code() noexcept;

/// All members need the GIL; none leaves a Python exception behind or throws. Recording is
/// serialised by a lock that is only ever waited for without the GIL.
class Session {
 public:
  Session(SessionOptions options, TensorAccess& access, std::unique_ptr<writer::NativeRun> run);
  ~Session();

  [[nodiscard]] uint32_t add_node(std::string name, std::string type, bool is_root, bool wanted,
                                  bool opaque);

  /// Called before and after a module runs. begin() is false when the call is none of our business:
  /// then end() must not be called. `result` is nullptr when the call raised.
  [[nodiscard]] bool begin(uint32_t node, PyObject* args, PyObject* kwargs,
                           CallFrame& frame) noexcept;
  void end(uint32_t node, PyObject* result, CallFrame& frame) noexcept;

  /// What is known of an operator of torch; nullptr when even that failed. Holds as long as the
  /// session.
  [[nodiscard]] const OperatorSchema* schema_of(PyObject* function) noexcept;
  /// Called by the dispatch mode before and after every operator; begin_operator() is false when
  /// the operator is none of our business: then end_operator() must not be called. `result` is
  /// nullptr when it raised.
  [[nodiscard]] bool begin_operator(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                                    OperatorFrame& frame) noexcept;
  void end_operator(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                    PyObject* result, OperatorFrame& frame) noexcept;

  /// Graph mode: the instrumented code of a compiled graph tells of its operators.
  [[nodiscard]] uint32_t add_graph_operator(GraphOperator op);
  [[nodiscard]] size_t graph_operator_count() const { return graph_operators_.size(); }
  /// graph   number of the graph's node; step   which step the run belongs to
  void begin_graph_run(uint32_t graph, int64_t step, GraphRun& run) noexcept;
  void end_graph_run(GraphRun& run) noexcept;
  /// The tensor of a placeholder or a constant.
  void record_graph_input(GraphRun& run, uint32_t number, PyObject* value) noexcept;
  /// Before an operator that overwrites some of them; None: there is none.
  void record_graph_inputs(GraphRun& run, uint32_t number,
                           std::span<PyObject* const> inputs) noexcept;
  /// After it ran. result   a tensor, or a list or tuple of results
  void record_graph_operator(GraphRun& run, uint32_t number, PyObject* result,
                             std::span<PyObject* const> inputs) noexcept;
  /// An operator has written them, whether it is recorded or not.
  void note_graph_writes(std::span<PyObject* const> tensors) noexcept;

  /// Names the storage of a parameter or buffer.
  void add_leaf(PyObject* tensor, std::string_view name) noexcept;

  /// One relaxed test: false when capture is off for good (disk full, closed, forked child).
  [[nodiscard]] bool live() const noexcept;

  /// Records one parameter or buffer with step -1; between begin_weights() and end_weights().
  void begin_weights(uint64_t expected_count) noexcept;
  void record_weight(uint32_t node, PyObject* tensor, std::string_view slot, Role role) noexcept;
  void end_weights() noexcept;

  void flush() noexcept;
  /// The program has waited for this result of a collective, or, nullptr, for a Work.
  void collective_ended(PyObject* tensor) noexcept;
  /// Waits for collectives whose results the program still holds, and so is going to wait for.
  void wait_for_collectives() noexcept;
  void close() noexcept;

  [[nodiscard]] std::vector<native::ManifestStep> steps() const;
  [[nodiscard]] const std::deque<SessionNode>& nodes() const { return nodes_; }
  [[nodiscard]] const writer::NativeRun& run() const { return *run_; }
  [[nodiscard]] int64_t steps_started() const { return steps_started_; }
  [[nodiscard]] uint64_t shared_count() const { return shared_; }
  SessionOptions& options() { return options_; }
  /// What the program uses that sees the capture.
  Watchers& watchers() { return watchers_; }
  /// Why capture was switched off by a failure of our own; empty when it was not.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  class Lock;
  class Recorder;

  template <typename Body>
  void guarded(Body body) noexcept;
  [[nodiscard]] bool asks_for(int64_t step);
  [[nodiscard]] std::shared_ptr<StepProgress> new_step(int64_t step);
  [[nodiscard]] std::shared_ptr<StepProgress> next_step(SessionNode& node);
  [[nodiscard]] std::shared_ptr<StepProgress> step_of_this_thread();
  void open_step_file(int64_t step);
  void enter_module(uint32_t node, const std::shared_ptr<StepProgress>& step, CallFrame& frame);
  void leave_module(CallFrame& frame) noexcept;
  template <typename Body>
  void each_written(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                    const Body& body);
  void wrote_tensors(PyObject* value, int depth);
  void record_tensors(PyObject* value, const std::string& slot, bool in_flight, int depth,
                      Recorder& recorder);
  void record_operator(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                       const OperatorFrame& frame);
  [[nodiscard]] const std::string* number_slot(size_t index);
  void record_graph_inputs_now(GraphRun& run, uint32_t number, std::span<PyObject* const> inputs);
  void record_graph_operand(Recorder& recorder, PyObject* tensor, size_t index, bool left_out);
  void keep_little_of(StepProgress& step);
  void finish_step(const std::shared_ptr<StepProgress>& step);
  void fetch_device_results();
  void settle(StoredValue& value);
  void keep_promises(bool may_wait = false, PyObject* waited = nullptr);
  void give_up_promises(bool also_held);
  void begin_root_call(SessionNode& node, CallFrame& frame);
  void end_root_call(const CallFrame& frame);
  void fail_for_good(const char* what) noexcept;

  SessionOptions options_;
  TensorAccess& access_;
  Walker walker_;
  Sightings<TakenBytes> sightings_;
  StorageTable storages_;  // of what has a storage, in place of sightings_ at operator level
  std::unique_ptr<writer::NativeRun> run_;
  DeviceRecords device_;
  std::vector<Promise> promises_;
  OperatorSchemas operators_;
  CompiledCode compiled_code_;
  Watchers watchers_;
  const std::string* no_slot_;              // ""
  const std::string* slot_0_;               // "0", that of most arguments of modules
  std::string arguments_json_;              // of the operator being recorded
  std::vector<BoundTensor> bound_tensors_;  // the same
  std::deque<GraphOperator> graph_operators_;
  std::vector<const std::string*> number_slots_;
  uint32_t generation_;
  bool recording_ = false;  // somebody has the Lock; guarded by the GIL, like the next
  int waiting_ = 0;         // for the Lock
  std::mutex mutex_;
  std::condition_variable recorded_;
  std::deque<SessionNode> nodes_;  // stays in place: models may be added while others run

  int64_t steps_started_ = 0;
  int roots_active_ = 0;
  int64_t file_step_ = -2;
  std::shared_ptr<StepProgress> latest_;                 // of the last root call that began
  std::shared_ptr<StepProgress> pending_;                // for calls before the next root call
  std::vector<std::shared_ptr<StepProgress>> finished_;  // somebody may still count in them
  std::vector<native::ManifestStep> settled_;            // nobody will
  std::shared_ptr<const std::vector<uint32_t>> last_calls_;
  // Wanted steps, with `outermost`; of graphs the last ones.
  std::map<int64_t, std::shared_ptr<StepProgress>> by_number_;
  uint64_t shared_ = 0;
  bool off_ = false;
  std::string failure_;
};

}  // namespace assay::capture

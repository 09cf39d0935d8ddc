// SPDX-License-Identifier: Apache-2.0
// One compute call being recorded: asked before each node, told after each wanted one.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "capture/ggml/graph_plan.hpp"

namespace assay::capture::ggml {

/// The plans of a scheduler's last graphs: hosts take turns with few, and copies between back ends
/// take turns with memory.
class Plans {
 public:
  [[nodiscard]] std::shared_ptr<GraphPlan> plan_for(GgmlSession* session, const Settings* settings,
                                                    const Engine* engine, EngineGraph* graph,
                                                    const std::string& prefix);

 private:
  static constexpr size_t kMost = 4;
  std::vector<std::shared_ptr<GraphPlan>> plans_;  // the last used first
};

/// Processor ticks, or nanoseconds where there are none: a clock that costs little beside a small
/// tensor.
[[nodiscard]] uint64_t ticks();

/// One thread. Borrows the session, the settings and the engine, which live until the process ends.
class GraphCapture final : public LineHolder {
 public:
  struct Request {
    GgmlSession* session;
    const Settings* settings;
    const Engine* engine;
    EngineGraph* graph;
    Plans* plans;
    std::string prefix;
    uint64_t step;
    bool may_be_warm_up;
  };
  explicit GraphCapture(Request request);
  /// A capture that did not finish leaves what it pushed.
  ~GraphCapture() override;
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

  /// Before the node is computed: whether the engine is to stop after it. Inputs that the host has
  /// filled are read here, since the engine may use their memory for results later.
  [[nodiscard]] bool ask(const EngineTensor* tensor);
  /// When the engine has stopped: all nodes that were asked for are computed, and what they left in
  /// memory is taken.
  void deliver();
  /// After the last node.
  void finish();
  void push_lines() override;

  [[nodiscard]] GgmlSession& session() const { return *request_.session; }

 private:
  void begin();
  [[nodiscard]] const PlannedNode* node_of(const EngineTensor* tensor);
  void lose_order();
  void take(uint32_t slot);
  void store(const TensorView& view, const PlannedSlot& planned, StepContent::Slot* content);
  void update_leaves();
  [[nodiscard]] int64_t number_of(int32_t line) const;

  const Request request_;
  // From the first node on: before, the scheduler may change the graph.
  std::shared_ptr<GraphPlan> plan_;
  std::shared_ptr<StepContent> content_;
  std::vector<uint8_t> delivered_;  // by node
  std::vector<uint32_t> waiting_;   // nodes that were asked for, not yet taken
  size_t next_ = 0;                 // the node expected to be asked for
  size_t seen_ = 0;                 // nodes before it are over
  size_t pushed_ = 0;               // nodes before it have their lines on the way
  struct Pushed {
    StepLines::Range range;
    uint64_t first_number;
  };
  std::vector<Pushed> numbers_;  // of all ranges of lines that were pushed
  uint64_t waiting_bytes_ = 0;   // stored since lines were pushed
  std::chrono::steady_clock::time_point started_;
  uint64_t started_ticks_ = 0;
  uint64_t spent_ticks_ = 0;
  native::ManifestStep counts_;
  uint64_t captured_ = 0;
  bool under_way_ = false;  // between begin_step() and end_step() of the session
};

}  // namespace assay::capture::ggml

// SPDX-License-Identifier: Apache-2.0
// One compute call: what is read when a node is asked for, and when the engine has stopped.
#include "capture/ggml/graph_capture.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "capture/ggml/positions.hpp"
#include "capture/intake/take.hpp"

namespace assay::capture::ggml {
namespace {

using Clock = std::chrono::steady_clock;

/// Lines go on their way at the latest after so many bytes: a host that is killed leaves what it
/// computed.
constexpr uint64_t kMostWaitingBytes = writer::kBlockBytes;

/// Adds the time of its life to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(uint64_t* sum) : sum_(sum), start_(ticks()) {}
  ~Stopwatch() { *sum_ += ticks() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  uint64_t* sum_;
  uint64_t start_;
};

}  // namespace

uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return static_cast<uint64_t>(Clock::now().time_since_epoch().count());
#endif
}

std::shared_ptr<GraphPlan> Plans::plan_for(GgmlSession* session, const Settings* settings,
                                           const Engine* engine, EngineGraph* graph,
                                           const std::string& prefix) {
  const auto known = std::find_if(plans_.begin(), plans_.end(), [&](const auto& plan) {
    return plan->session == session && plan->settings == settings && plan->engine == engine &&
           plan->still_holds(graph);
  });
  if (known != plans_.end()) {
    std::rotate(plans_.begin(), known, known + 1);
    return plans_.front();
  }
  if (plans_.size() == kMost) plans_.pop_back();
  plans_.insert(plans_.begin(), plan_graph(session, settings, engine, graph, prefix));
  return plans_.front();
}

GraphCapture::GraphCapture(Request request)
    : request_(std::move(request)), started_(Clock::now()), started_ticks_(ticks()) {
  counts_.step = static_cast<int64_t>(request_.step);
}

GraphCapture::~GraphCapture() {
  if (!under_way_) return;
  const auto held = session().lock();
  session().abandon_step(this);
}

// At the first node: only now the scheduler has given all tensors their memory.
void GraphCapture::begin() {
  plan_ = request_.plans->plan_for(request_.session, request_.settings, request_.engine,
                                   request_.graph, request_.prefix);
  const GraphLines& lines = *plan_->lines;
  content_ = std::make_shared<StepContent>();
  content_->lines = plan_->lines;
  content_->step = counts_.step;
  content_->slots.resize(lines.slots.size());
  delivered_.resize(plan_->nodes.size());
  const auto held = session().lock();
  content_->first_value = session().next_values(lines.value_count);
  content_->first_storage = session().next_storages(lines.storage_count);
  // A text begins: the host may have cleared the caches, which no node tells.
  const std::optional<Positions> positions =
      lines.leaves.empty() ? std::nullopt : positions_of(*request_.engine, request_.graph);
  if (positions && positions->first == 0) {
    for (const PlannedLeaf& leaf : lines.leaves) {
      if (leaf.storage->values.empty()) continue;
      ++leaf.storage->version;
      leaf.storage->values.clear();
    }
  }
  content_->leaf_versions.reserve(lines.leaves.size());
  for (const PlannedLeaf& leaf : lines.leaves)
    content_->leaf_versions.push_back(leaf.storage->version);
  content_->entering.reserve(lines.entering.size());
  for (const EnteringValue& entering : lines.entering) {
    std::vector<LeafValue>& values = lines.leaves[entering.leaf].storage->values;
    auto known = std::find_if(values.begin(), values.end(), [&](const LeafValue& value) {
      return value.place == entering.place;
    });
    if (known == values.end())
      known = values.insert(values.end(), {entering.place, session().next_values(1), -1});
    content_->entering.push_back({known->id, known->producer});
  }
  session().note_engine(request_.engine);
  session().begin_step(this, request_.step, plan_->wanted);
  under_way_ = true;
}

const PlannedNode* GraphCapture::node_of(const EngineTensor* tensor) {
  if (next_ < plan_->nodes.size() && plan_->nodes[next_].tensor == tensor)
    return &plan_->nodes[next_];
  const auto found = plan_->index.find(tensor);
  return found == plan_->index.end() ? nullptr : &plan_->nodes[found->second];
}

bool GraphCapture::ask(const EngineTensor* tensor) {
  if (plan_ == nullptr) {
    const Stopwatch watch(&spent_ticks_);
    begin();
  }
  const PlannedNode* node = node_of(tensor);
  if (node == nullptr) return false;
  const auto index = static_cast<size_t>(node - plan_->nodes.data());
  if (index < next_) lose_order();
  next_ = index + 1;
  if (!node->wanted) return false;
  if (node->first_read != node->read_end) {
    const Stopwatch watch(&spent_ticks_);
    for (uint32_t i = node->first_read; i < node->read_end; ++i) take(plan_->reads[i]);
  }
  // Aliases have no data to wait for: their lines are written with those of the next node that has.
  if (node->alias) return false;
  waiting_.push_back(static_cast<uint32_t>(index));
  return node->is_stop || plan_->order != GraphPlan::Order::OfGraph ||
         request_.settings->synchronous;
}

// Graphs whose nodes change places: what was left in memory may have been overwritten.
void GraphCapture::lose_order() {
  plan_->order = GraphPlan::Order::Another;
  if (waiting_.empty()) return;
  const auto held = session().lock();
  for (const uint32_t index : waiting_) {
    session().note_missed(
        std::string(plan_->engine->fields(plan_->nodes[index].tensor).name()),
        "the engine computed the nodes of the graph in another order than before");
  }
  waiting_.clear();
}

void GraphCapture::deliver() {
  const Stopwatch watch(&spent_ticks_);
  for (const uint32_t index : waiting_) {
    const PlannedNode& node = plan_->nodes[index];
    for (uint32_t i = node.first_late; i < node.late_end; ++i) take(plan_->late_reads[i]);
    if (node.slot >= 0) take(static_cast<uint32_t>(node.slot));
    const auto held = session().lock();
    delivered_[index] = 1;
    seen_ = std::max<size_t>(seen_, index + 1);
  }
  waiting_.clear();
}

void GraphCapture::take(uint32_t slot) {
  const PlannedSlot& planned = plan_->lines->slots[slot];
  StepContent::Slot& content = content_->slots[slot];
  TensorView view = planned.view;
  std::vector<std::byte> copied;
  if (!planned.on_host && planned.span_bytes != 0) {
    copied.resize(planned.span_bytes);
    plan_->engine->functions().ggml_backend_tensor_get(planned.tensor, copied.data(), 0,
                                                       planned.span_bytes);
    view.storage = copied;
  }
  if (planned.with_statistics) {
    content.stats = statistics_of(view);
    content.has_statistics = true;
  }
  if (planned.with_digest) content.digest = stats::digest(view);
  if (request_.settings->full) store(view, planned, &content);
}

void GraphCapture::store(const TensorView& view, const PlannedSlot& planned,
                         StepContent::Slot* content) {
  const auto held = session().lock();
  if (session().finished()) return;
  writer::NativeRun& run = session().run();
  const auto bytes =
      static_cast<uint64_t>(view.element_count()) * info(view.dtype).element_bits / 8u;
  // The header of a file that ends here names what these lines store.
  if (!run.fits_open_file(bytes, planned.record)) {
    session().push_all_lines();
  } else if (waiting_bytes_ >= kMostWaitingBytes) {
    push_lines();
  }
  native::Record record = planned.record;
  append_elements(run, view, record);
  if (!record.payload) return;
  content->payload = *record.payload;
  content->has_payload = true;
  waiting_bytes_ += bytes;
  counts_.bytes += bytes;
}

void GraphCapture::push_lines() {
  if (plan_ == nullptr || session().finished()) return;
  std::vector<StepLines::Range> ranges;
  for (size_t i = pushed_; i < seen_; ++i) {
    const PlannedNode& node = plan_->nodes[i];
    if (!node.wanted || !(node.alias || delivered_[i] != 0)) continue;
    ++captured_;
    if (!ranges.empty() && ranges.back().end == node.first_line) {
      ranges.back().end = node.line_end;
    } else {
      ranges.push_back({node.first_line, node.line_end});
    }
  }
  pushed_ = std::max(pushed_, seen_);
  waiting_bytes_ = 0;
  if (ranges.empty()) return;
  auto lines = std::make_shared<StepLines>(content_, ranges);
  counts_.records += lines->line_count();
  uint64_t number = session().run().push_lines(std::move(lines));
  for (const StepLines::Range& range : ranges) {
    numbers_.push_back({range, number});
    number += range.end - range.begin;
  }
}

int64_t GraphCapture::number_of(int32_t line) const {
  const auto wanted = static_cast<uint32_t>(line);
  for (const Pushed& pushed : numbers_) {
    if (line >= 0 && wanted >= pushed.range.begin && wanted < pushed.range.end)
      return static_cast<int64_t>(pushed.first_number + (wanted - pushed.range.begin));
  }
  return -1;
}

void GraphCapture::update_leaves() {
  for (const PlannedLeaf& leaf : plan_->lines->leaves) {
    if (leaf.writes == 0) continue;
    LeafStorage& storage = *leaf.storage;
    storage.version += leaf.writes;
    storage.values.clear();
    for (const PlannedLeaf::Value& value : leaf.values) {
      storage.values.push_back(
          {value.place, content_->first_value + value.value, number_of(value.producer)});
    }
  }
}

void GraphCapture::finish() {
  if (plan_ == nullptr) return;  // a graph without nodes
  const uint64_t begin_ticks = ticks();
  const auto held = session().lock();
  if (session().finished()) return;
  seen_ = plan_->nodes.size();
  push_lines();
  if (captured_ == plan_->wanted && plan_->order == GraphPlan::Order::Unknown)
    plan_->order = GraphPlan::Order::OfGraph;
  update_leaves();
  counts_.tensors = counts_.records - captured_;  // one line of each node is the operator's
  counts_.wall_ms = std::chrono::duration<double, std::milli>(Clock::now() - started_).count();
  const uint64_t end_ticks = ticks();
  spent_ticks_ += end_ticks - begin_ticks;
  counts_.added_ms = end_ticks == started_ticks_
                         ? 0
                         : counts_.wall_ms * static_cast<double>(spent_ticks_) /
                               static_cast<double>(end_ticks - started_ticks_);
  under_way_ = false;
  session().end_step(this, counts_, plan_->wanted + plan_->not_computed, captured_,
                     plan_->not_computed);
  if (!request_.may_be_warm_up) session().conclude();
}

}  // namespace assay::capture::ggml

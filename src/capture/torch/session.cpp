// SPDX-License-Identifier: Apache-2.0
// The steps of a capture and the module calls in them: which are recorded, and where a step begins
// and ends.
#include "capture/torch/session.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "capture/intake/host_threads.hpp"
#include "capture/torch/recorder.hpp"
#include "capture/torch/session_guards.hpp"
#include "formats/native/step_header.hpp"
#include "tensor/node.hpp"
#include "writer/fork_guard.hpp"

namespace assay::capture {
namespace {

void add_up(const native::ManifestStep& more, native::ManifestStep& step) {
  step.records += more.records;
  step.tensors += more.tensors;
  step.bytes += more.bytes;
  step.wall_ms += more.wall_ms;
  step.added_ms += more.added_ms;
}

}  // namespace

bool inside_root_call() noexcept {
  const ThreadState& thread = this_thread();
  return thread.inside || !thread.roots.empty();
}

bool inside_our_code() noexcept { return this_thread().inside; }

Session::Session(SessionOptions options, TensorAccess& access,
                 std::unique_ptr<writer::NativeRun> run)
    : options_(options),
      access_(access),
      walker_(access),
      sightings_(access),
      storages_(access),
      run_(std::move(run)),
      device_(options_, access, *run_),
      operators_(*run_),
      no_slot_(run_->intern("")),
      slot_0_(run_->intern("0")),
      generation_(writer::fork_generation()) {
  walker_.set_caches(options.caches);
  watch_works(this);
}

Session::~Session() {
  unwatch_waits(this);
  unwatch_works(this);
}

uint32_t Session::add_node(std::string name, std::string type, bool is_root, bool wanted,
                           bool opaque) {
  const Lock lock(*this);
  nodes_.push_back(
      {run_->add_node(std::move(name), std::move(type)), is_root, wanted, opaque, 0, 0, 0});
  return static_cast<uint32_t>(nodes_.size() - 1);
}

bool Session::live() const noexcept {
  return !off_ && generation_ == writer::fork_generation() && !run_->stopped();
}

bool Session::asks_for(int64_t step) {
  if (options_.wanted == nullptr) return true;
  const InsideOurCode guard;
  const Ref number(PyLong_FromLongLong(step));
  const Ref answer(number ? PyObject_CallFunctionObjArgs(options_.wanted, number.get(), nullptr)
                          : nullptr);
  const int wanted = answer ? PyObject_IsTrue(answer.get()) : -1;
  if (wanted < 0) {
    // The predicate is the user's; its failure must not reach the model.
    PyErr_WriteUnraisable(options_.wanted);
    fail_for_good("the steps predicate raised");
  }
  return wanted > 0;
}

std::shared_ptr<StepProgress> Session::new_step(int64_t number) {
  auto step = std::make_shared<StepProgress>();
  step->step = number;
  step->counts.step = number;
  step->wanted = asks_for(number);
  return step;
}

// The step that a root call begins.
std::shared_ptr<StepProgress> Session::next_step(SessionNode& node) {
  const int64_t of_node = node.steps++;
  if (!options_.outermost) {
    return pending_ != nullptr ? std::move(pending_) : new_step(steps_started_);
  }
  const auto known = by_number_.find(of_node);
  if (known != by_number_.end()) return known->second;
  auto step = new_step(of_node);
  if (step->wanted) by_number_.emplace(of_node, step);
  return step;
}

// The step a call belongs to: the root call of this thread; else a root call that runs on another
// thread (which has handed out work); else the next root call (encoders that generate() calls
// before the model itself).
std::shared_ptr<StepProgress> Session::step_of_this_thread() {
  for (const auto& root : this_thread().roots) {
    if (root.session == this) return root.step;
  }
  if (roots_active_ > 0) return latest_;
  if (pending_ == nullptr) pending_ = new_step(steps_started_);
  return pending_;
}

void Session::open_step_file(int64_t step) {
  if (options_.data != DataLevel::Full || file_step_ == step) return;
  if (roots_active_ > 1)
    return;  // another thread's step is open: its file takes these payloads too
  run_->begin_file(native::step_file_stem(step), nodes_.size() * 2);
  file_step_ = step;
}

bool Session::begin(uint32_t number, PyObject* args, PyObject* kwargs, CallFrame& frame) noexcept {
  ThreadState& thread = this_thread();
  if (thread.inside || !live()) return false;
  bool is_recorded = false;
  guarded([&] {
    SessionNode& node = nodes_[number];
    if (node.is_root || (options_.outermost && roots_active_ == 0)) begin_root_call(node, frame);
    const std::shared_ptr<StepProgress> step = step_of_this_thread();
    if (!step->wanted || !(node.wanted || options_.operators)) return;
    const AddedTime added(*step, frame.counts_step ? frame.begin_ns : now_ns());
    const Lock lock(*this, thread);
    if (step->kept_calls != nullptr) step->calls = *std::exchange(step->kept_calls, nullptr);
    if (step->calls.size() < nodes_.size()) step->calls.resize(nodes_.size(), 0);
    frame.call = step->calls[number]++;
    keep_promises();
    if (options_.operators) {
      if (frame.counts_step) storages_.begin_step(step->step);
      enter_module(number, step, frame);
    }
    is_recorded = true;
    if (!node.wanted) return;
    frame.step = step;
    frame.order = step->order++;
    ++node.executed;
    open_step_file(step->step);
    if (!options_.inputs) return;
    Recorder recorder(*this, node, step, frame.order, frame.call, Role::Input);
    walker_.walk_arguments(args, kwargs, recorder);
  });
  return is_recorded || frame.counts_step;
}

// Nothing happens when this thread is in one already.
void Session::begin_root_call(SessionNode& node, CallFrame& frame) {
  ThreadState& thread = this_thread();
  for (const auto& root : thread.roots) {
    if (root.session == this) return;
  }
  auto step = next_step(node);
  // Servers create the capture on one thread and run the model on another.
  if (steps_started_ == 0) claim_host_threads();
  ++steps_started_;
  ++roots_active_;
  latest_ = step;
  thread.roots.push_back({this, std::move(step)});
  frame.counts_step = true;
  frame.begin_ns = now_ns();
}

void Session::end(uint32_t number, PyObject* result, CallFrame& frame) noexcept {
  guarded([&] {
    if (frame.entered) leave_module(frame);
    if (frame.step != nullptr && live()) {
      const AddedTime added(*frame.step);
      const Lock lock(*this);
      keep_promises();
      Recorder recorder(*this, nodes_[number], frame.step, frame.order, frame.call, Role::Output);
      if (result == nullptr) {
        recorder.call_raised();
      } else if (options_.outputs) {
        walker_.walk_value(result, "", recorder);
      }
    }
    if (frame.counts_step) end_root_call(frame);
  });
}

void Session::end_root_call(const CallFrame& frame) {
  auto& roots = this_thread().roots;
  const auto last = std::find_if(roots.rbegin(), roots.rend(),
                                 [this](const auto& root) { return root.session == this; });
  if (last == roots.rend()) return;
  const std::shared_ptr<StepProgress> step = last->step;
  roots.erase(std::prev(last.base()), roots.end());
  --roots_active_;
  if (!step->wanted) return;
  step->counts.wall_ms += milliseconds(now_ns() - frame.begin_ns);
  if (live()) finish_step(step);
}

void Session::finish_step(const std::shared_ptr<StepProgress>& step) {
  {
    const AddedTime added(*step);
    const Lock lock(*this);
    keep_promises();
    give_up_promises(false);
    fetch_device_results();
    if (roots_active_ == 0) {
      run_->end_file();
      file_step_ = -2;
      sightings_.keep_parameters();
      if (options_.operators) storages_.end_step();
    }
  }
  step->counts.added_ms = milliseconds(step->added_ns);
  if (!step->finished) finished_.push_back(step);
  step->finished = true;
  if (roots_active_ == 0) keep_little_of(*step);
}

// A capture of millions of steps holds some 50 bytes of each.
void Session::keep_little_of(StepProgress& step) {
  if (options_.outermost) {  // another model may go on with any of them
    if (last_calls_ == nullptr || *last_calls_ != step.calls)
      last_calls_ = std::make_shared<const std::vector<uint32_t>>(std::move(step.calls));
    step.kept_calls = last_calls_;
    step.calls = std::vector<uint32_t>();
    return;
  }
  std::erase_if(finished_, [this](const std::shared_ptr<StepProgress>& finished) {
    if (finished.use_count() > 1) return false;
    settled_.push_back(finished->counts);
    return true;
  });
}

// Records what the program has waited for by now. Precondition: locked, as the next.
void Session::keep_promises(bool may_wait, PyObject* waited) {
  if (promises_.empty()) return;
  // Recording may not make promises, but Python runs meanwhile.
  std::vector<Promise> open = std::exchange(promises_, {});
  std::erase_if(open, [this, may_wait, waited](const Promise& promise) {
    open_step_file(promise.step->step);
    const bool is_held = Py_REFCNT(promise.tensor.get()) > 1;
    return Recorder(*this, promise).keep(promise, may_wait && is_held, waited);
  });
  promises_.insert(promises_.begin(), std::make_move_iterator(open.begin()),
                   std::make_move_iterator(open.end()));
  if (promises_.empty()) unwatch_waits(this);
}

// Of those that nobody else has, and so will not be waited for, or of all.
void Session::give_up_promises(bool also_held) {
  std::erase_if(promises_, [this, also_held](const Promise& promise) {
    if (!also_held && Py_REFCNT(promise.tensor.get()) > 1) return false;
    Recorder(*this, promise).still_written(nullptr, promise.slot);
    return true;
  });
}

// One synchronisation for everything that is on its way from the device.
void Session::fetch_device_results() {
  if (device_.empty()) return;
  device_.fetch();
  storages_.each_value([this](StoredValue& value) { settle(value); });
  device_.clear();
  sightings_.keep_contents();  // the others name places in the list that is gone
}

// What was on its way has come, or was lost.
void Session::settle(StoredValue& value) {
  value.producer = device_.numbered(value.producer);
  if (value.bytes == nullptr || !value.bytes->record.is_waiting()) return;
  const native::Record& record = device_.at(value.bytes->record);
  if (record.kind != native::RecordKind::Tensor) {
    value.bytes.reset();
  } else {
    *value.bytes = {value.bytes->version, RecordRef::numbered(record.number),
                    record.payload,       record.stats,
                    record.digest,        record.is_view};
  }
}

void Session::begin_weights(uint64_t expected_count) noexcept {
  const Lock lock(*this);
  if (options_.data == DataLevel::Full) run_->begin_file("weights", expected_count);
}

void Session::record_weight(uint32_t node, PyObject* tensor, std::string_view slot,
                            Role role) noexcept {
  if (!live() || !access_.is_tensor(tensor)) return;
  guarded([&] {
    const Lock lock(*this);
    const auto step = std::make_shared<StepProgress>();
    step->step = -1;
    Recorder(*this, nodes_[node], step, 0, 0, role).tensor(tensor, slot);
  });
}

void Session::end_weights() noexcept {
  if (!live()) return;
  const Lock lock(*this);
  fetch_device_results();
  run_->end_file();
  sightings_.keep_parameters();
}

void Session::flush() noexcept {
  if (generation_ != writer::fork_generation()) return;
  const Lock lock(*this);
  fetch_device_results();
  run_->flush();
}

void Session::collective_ended(PyObject* tensor) noexcept {
  ThreadState& thread = this_thread();
  if (thread.inside || !live()) return;
  guarded([&] {
    const Lock lock(*this, thread);
    keep_promises(false, tensor);
  });
}

void Session::wait_for_collectives() noexcept {
  if (!live()) return;
  guarded([this] {
    const Lock lock(*this);
    keep_promises(true);
  });
}

void Session::close() noexcept {
  if (generation_ != writer::fork_generation()) return;
  const Lock lock(*this);
  if (roots_active_ > 0 && latest_ != nullptr && latest_->wanted && live())
    failure_ = "the capture ended inside step " + std::to_string(latest_->step);
  if (live()) {
    keep_promises();
    give_up_promises(true);
  }
  promises_.clear();
  unwatch_waits(this);
  unwatch_works(this);
  off_ = true;
  fetch_device_results();
  device_.close();
  run_->close();
  if (pending_ != nullptr && pending_->counts.records != 0) {
    pending_->counts.added_ms = milliseconds(pending_->added_ns);
    finished_.push_back(std::move(pending_));
  }
  sightings_.clear();
}

std::vector<native::ManifestStep> Session::steps() const {
  std::vector<native::ManifestStep> result = settled_;
  for (const auto& step : finished_) result.push_back(step->counts);
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  // A graph that is compiled late begins at step 0 again.
  size_t kept = 0;
  for (const native::ManifestStep& step : result) {
    if (kept > 0 && result[kept - 1].step == step.step)
      add_up(step, result[kept - 1]);
    else
      result[kept++] = step;
  }
  result.resize(kept);
  return result;
}

void Session::fail_for_good(const char* what) noexcept {
  if (off_) return;
  off_ = true;
  try {
    failure_ = what;
    log_line(LogLevel::Error, std::string("capture off: ") + what + "; the run continues");
  } catch (const std::bad_alloc&) {
    log_line(LogLevel::Error, "capture off: out of memory; the run continues");
  }
}

}  // namespace assay::capture

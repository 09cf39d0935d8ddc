// SPDX-License-Identifier: Apache-2.0
// The operators of a wanted step, as the dispatch mode tells of them, and where that mode stands on
// a thread's stack.
#include <algorithm>

#include "capture/torch/collectives.hpp"
#include "capture/torch/operator_mode.hpp"
#include "capture/torch/recorder.hpp"
#include "capture/torch/session_guards.hpp"
#include "tensor/node.hpp"

namespace assay::capture {
namespace {

constexpr int kMaxListDepth = 3;  // all_gather takes lists of lists

// "self", "tensors.0"
const std::string* slot_of(const OperatorSchema& schema, const BoundTensor& bound,
                           writer::NativeRun& run) {
  const bool named = bound.argument < schema.arguments.size();
  if (named && bound.index < 0) return schema.arguments[bound.argument].slot;
  std::string slot = named ? schema.arguments[bound.argument].text : std::to_string(bound.argument);
  if (bound.index >= 0) slot += '.' + std::to_string(bound.index);
  return run.intern(slot);
}

}  // namespace

// Puts the dispatch mode on this thread's stack when the call is the first one that wants it there,
// and takes it away for the time of a call that torch compiles.
void Session::enter_module(uint32_t number, const std::shared_ptr<StepProgress>& step,
                           CallFrame& frame) {
  ThreadState& thread = this_thread();
  const auto* around = thread.innermost(this);
  const SessionNode& node = nodes_[number];
  ThreadState::Call call{this, number, frame.call, node.wanted, !node.opaque, false, 0, step, {}};
  const bool was_on = around != nullptr && around->mode_is_on;
  if (was_on) call.modes_below = around->modes_below;
  if (call.mode_is_on && !was_on) {
    watchers_.look_around_functions();
    call.modes_below = dispatch_stack_size();
    call.changed_mode = push_dispatch_mode(options_.mode);
    call.mode_is_on = call.changed_mode;
  } else if (!call.mode_is_on && was_on) {
    call.changed_mode = pop_dispatch_mode(options_.mode);
  }
  thread.calls.push_back(std::move(call));
  frame.entered = true;
}

void Session::leave_module(CallFrame& frame) noexcept {
  frame.entered = false;
  ThreadState& thread = this_thread();
  for (size_t i = thread.calls.size(); i-- > 0;) {
    if (thread.calls[i].session != this) continue;
    const bool changed = thread.calls[i].changed_mode;
    const bool was_on = thread.calls[i].mode_is_on;
    if (!was_on) storages_.distrust();
    thread.calls.erase(thread.calls.begin() + static_cast<std::ptrdiff_t>(i));
    if (!changed) return;
    const bool done = was_on ? pop_dispatch_mode(options_.mode) : push_dispatch_mode(options_.mode);
    if (!done && !was_on) fail_for_good("the dispatch mode could not be put back");
    return;
  }
}

const OperatorSchema* Session::schema_of(PyObject* function) noexcept {
  const OperatorSchema* schema = nullptr;
  // Without the lock: a mode of functions may run operators while we look at a tensor.
  guarded([&] { schema = &operators_.of(function); });
  return schema;
}

bool Session::begin_operator(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                             OperatorFrame& frame) noexcept {
  ThreadState& thread = this_thread();
  if (thread.inside || !live()) return false;
  ThreadState::Call* call = thread.innermost(this);
  // A mode that stands below ours and was not there before is a tracer's: nothing is computed.
  if (call == nullptr || !call->mode_is_on || dispatch_stack_size() != call->modes_below)
    return false;
  bool is_ours = false;
  guarded([&] {
    if (compiled_code_.is_calling()) {
      // Kernels around this operator write where nobody sees it.
      const Lock lock(*this, thread);
      storages_.distrust();
      return;
    }
    is_ours = call->recorded || schema.is_mutable || schema.starts_collective;
    if (!call->recorded) return;
    const AddedTime added(*call->step);
    watchers_.look_around_operator();
    const Lock lock(*this, thread);
    if (call->operator_calls.size() <= schema.number)
      call->operator_calls.resize(schema.number + 1, 0);
    frame.step = call->step;
    frame.node = call->node;
    frame.call = call->call;
    frame.index = call->operator_calls[schema.number]++;
    frame.order = call->step->order++;
    keep_promises();
    open_step_file(call->step->step);
    record_operator(schema, args, kwargs, frame);
    keep_promises();  // some are operands, which the operator may overwrite
  });
  return is_ours;
}

// The operator's line and its inputs.
void Session::record_operator(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                              const OperatorFrame& frame) {
  arguments_json_.clear();
  bound_tensors_.clear();
  bind_arguments(schema, args, kwargs, access_, arguments_json_, bound_tensors_);
  if (schema.starts_collective) {
    const std::string members = collective_members(args);
    if (!members.empty()) arguments_json_.insert(arguments_json_.size() - 1, ',' + members);
  }
  Recorder recorder(*this, nodes_[frame.node], frame.step, frame.order, frame.call, Role::Input);
  recorder.set_operator(schema.name, frame.index, schema.is_view, schema.is_mutable);
  recorder.begin_operator(arguments_json_, schema.writes);
  if (!options_.inputs) return;
  for (const BoundTensor& bound : bound_tensors_) {
    const std::string* slot = slot_of(schema, bound, *run_);
    if (schema.takes_what_is_written)
      recorder.still_written(bound.tensor, slot);
    else
      recorder.tensor(bound.tensor, slot);
  }
}

// Also what a collective was given or returns, which may be written until it has been waited for.
void Session::wrote_tensors(PyObject* value, int depth) {
  if (access_.is_tensor(value)) {
    Storage* storage = storages_.see(value, false).storage;
    if (storage != nullptr) storages_.wrote(*storage);
    return;
  }
  if (depth == 0 || !(PyList_Check(value) || PyTuple_Check(value))) return;
  for (Py_ssize_t i = 0; i < size_of(value); ++i) wrote_tensors(item_of(value, i), depth - 1);
}

// What an operator gives back besides a single tensor: a collective of c10d writes the tensors of
// its first argument, and one of no result those that its schema names.
//
// in_flight   they are still written
void Session::record_tensors(PyObject* value, const std::string& slot, bool in_flight, int depth,
                             Recorder& recorder) {
  if (access_.is_tensor(value)) {
    if (in_flight)
      recorder.still_written(value, run_->intern(slot));
    else
      recorder.tensor(value, run_->intern(slot));
    return;
  }
  if (depth == 0 || !(PyList_Check(value) || PyTuple_Check(value))) return;
  for (Py_ssize_t i = 0; i < size_of(value); ++i)
    record_tensors(item_of(value, i), (slot.empty() ? "" : slot + '.') + std::to_string(i),
                   in_flight, depth - 1, recorder);
}

// What the operator was given for each argument that it writes.
template <typename Body>
void Session::each_written(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                           const Body& body) {
  for (size_t i = 0; i < schema.arguments.size(); ++i) {
    if (!schema.arguments[i].written) continue;
    PyObject* value = static_cast<Py_ssize_t>(i) < PyTuple_Size(args)
                          ? PyTuple_GetItem(args, static_cast<Py_ssize_t>(i))
                      : kwargs != nullptr && PyDict_Check(kwargs)
                          ? PyDict_GetItemWithError(kwargs, schema.arguments[i].name)
                          : nullptr;
    if (value != nullptr) body(value);
  }
}

void Session::end_operator(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                           PyObject* result, OperatorFrame& frame) noexcept {
  if (!live()) return;
  guarded([&] {
    const int64_t begin_ns = now_ns();
    const Lock lock(*this);
    // Also when it raised: it may have come as far as writing.
    if (schema.is_mutable)
      each_written(schema, args, kwargs, [this](PyObject* value) { wrote_tensors(value, 1); });
    if (schema.starts_collective && !schema.takes_what_is_written) {
      wrote_tensors(args, kMaxListDepth);
      if (result != nullptr) wrote_tensors(result, kMaxListDepth);
    }
    keep_promises();
    if (frame.step == nullptr) return;
    const AddedTime added(*frame.step, begin_ns);
    Recorder recorder(*this, nodes_[frame.node], frame.step, frame.order, frame.call, Role::Output);
    recorder.set_operator(schema.name, frame.index, schema.is_view, schema.is_mutable);
    if (result == nullptr) {
      recorder.call_raised();
    } else if (schema.starts_collective) {
      const bool is_functional = !schema.name->starts_with("c10d.") || PyTuple_Size(args) < 1;
      PyObject* written = is_functional ? result : PyTuple_GetItem(args, 0);
      if (options_.outputs) record_tensors(written, "", true, kMaxListDepth, recorder);
    } else if (options_.outputs && result == Py_None && schema.is_mutable) {
      const bool is_one =
          std::ranges::count(schema.arguments, true, &OperatorArgument::written) == 1;
      size_t number = 0;
      each_written(schema, args, kwargs, [&](PyObject* value) {
        record_tensors(value, is_one ? "" : std::to_string(number++), false, 1, recorder);
      });
    } else if (options_.outputs && access_.is_tensor(result)) {
      recorder.tensor(result, no_slot_);
    } else if (options_.outputs) {
      walker_.walk_value(result, "", recorder);
    }
  });
}

void Session::add_leaf(PyObject* tensor, std::string_view name) noexcept {
  if (!access_.is_tensor(tensor)) return;
  guarded([&] {
    const Lock lock(*this);
    storages_.add_leaf(tensor, run_->intern(name));
  });
}

}  // namespace assay::capture

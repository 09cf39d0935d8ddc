// SPDX-License-Identifier: Apache-2.0
// The operators of compiled graphs, as their instrumented code tells of them.
//   python/assay/torch/graph/_native.py
#include <algorithm>
#include <utility>
#include <vector>

#include "capture/intake/host_threads.hpp"
#include "capture/torch/recorder.hpp"
#include "capture/torch/session_guards.hpp"
#include "tensor/node.hpp"

namespace assay::capture {
namespace {

// Steps that other graphs may still go on with: prefill and decode, and all graphs of one token.
constexpr int64_t kStepsKept = 64;

bool is_left_out(const std::vector<bool>& list, size_t index) {
  return index < list.size() && list[index];
}

}  // namespace

uint32_t Session::add_graph_operator(GraphOperator op) {
  const Lock lock(*this);
  graph_operators_.push_back(std::move(op));
  return static_cast<uint32_t>(graph_operators_.size() - 1);
}

void Session::begin_graph_run(uint32_t graph, int64_t number, GraphRun& run) noexcept {
  ThreadState& thread = this_thread();
  if (thread.inside || !live()) return;
  guarded([&] {
    const Lock lock(*this, thread);
    std::shared_ptr<StepProgress>& step = by_number_[number];
    if (step == nullptr) step = new_step(number);
    if (steps_started_ == 0) claim_host_threads();
    ++steps_started_;
    ++roots_active_;
    latest_ = step;
    if (step->calls.size() <= graph) step->calls.resize(graph + 1, 0);
    run.call = step->calls[graph]++;
    run.begin_ns = now_ns();
    storages_.begin_step(number);
    open_step_file(number);
    run.step = step;
    std::erase_if(by_number_, [&](const auto& one) { return one.first < number - kStepsKept; });
  });
}

void Session::end_graph_run(GraphRun& run) noexcept {
  const std::shared_ptr<StepProgress> step = std::exchange(run.step, nullptr);
  if (step == nullptr) return;
  guarded([&] {
    --roots_active_;
    step->counts.wall_ms += milliseconds(now_ns() - run.begin_ns);
    if (live()) finish_step(step);
  });
}

// Places of operands as slots: "0", "1" ...
const std::string* Session::number_slot(size_t index) {
  while (number_slots_.size() <= index)
    number_slots_.push_back(run_->intern(std::to_string(number_slots_.size())));
  return number_slots_[index];
}

void Session::record_graph_inputs(GraphRun& run, uint32_t number,
                                  std::span<PyObject* const> inputs) noexcept {
  ThreadState& thread = this_thread();
  if (run.step == nullptr || thread.inside || !live()) return;
  guarded([&] {
    const AddedTime added(*run.step);
    const Lock lock(*this, thread);
    run.opened = number;
    run.order = run.step->order++;
    record_graph_inputs_now(run, number, inputs);
  });
}

void Session::record_graph_inputs_now(GraphRun& run, uint32_t number,
                                      std::span<PyObject* const> inputs) {
  const GraphOperator& op = graph_operators_[number];
  Recorder recorder(*this, nodes_[op.node], run.step, run.order, run.call, Role::Input);
  for (size_t i = 0; i < inputs.size(); ++i) {
    PyObject* tensor = inputs[i];
    if (tensor == Py_None) {
      for (const auto& [place, constant] : op.constants) {
        if (place == i) tensor = constant.get();
      }
    }
    record_graph_operand(recorder, tensor, i, is_left_out(op.left_out_inputs, i));
  }
}

void Session::record_graph_operand(Recorder& recorder, PyObject* tensor, size_t index,
                                   bool left_out) {
  if (!left_out && access_.is_tensor(tensor)) recorder.tensor(tensor, number_slot(index));
}

void Session::record_graph_operator(GraphRun& run, uint32_t number, PyObject* result,
                                    std::span<PyObject* const> inputs) noexcept {
  ThreadState& thread = this_thread();
  if (run.step == nullptr || thread.inside || !live()) return;
  guarded([&] {
    const GraphOperator& op = graph_operators_[number];
    PyObject* value = !op.inputs && !op.constants.empty() ? op.constants[0].second.get() : result;
    std::span<PyObject* const> outputs(&value, op.outputs ? 1 : 0);
    std::vector<PyObject*> items;  // borrowed
    if (op.outputs && (PyTuple_Check(value) || PyList_Check(value))) {
      for (Py_ssize_t i = 0; i < size_of(value); ++i) items.push_back(item_of(value, i));
      outputs = items;
    }
    const bool is_open = std::exchange(run.opened, UINT32_MAX) == number;
    // Operators that compute with sizes alone have no operands.
    const auto is_wanted = [this](std::span<PyObject* const> list, const std::vector<bool>& out) {
      for (size_t i = 0; i < list.size(); ++i) {
        if (!is_left_out(out, i) && access_.is_tensor(list[i])) return true;
      }
      return false;
    };
    const bool has_constants = op.inputs && !op.constants.empty();
    if (!is_open && !has_constants && !is_wanted(outputs, op.left_out_outputs) &&
        !is_wanted(inputs, op.left_out_inputs))
      return;
    const AddedTime added(*run.step);
    const Lock lock(*this, thread);
    if (!is_open) run.order = run.step->order++;
    ++nodes_[op.node].executed;
    if (op.inputs && !is_open) record_graph_inputs_now(run, number, inputs);
    Recorder recorder(*this, nodes_[op.node], run.step, run.order, run.call, Role::Output);
    for (size_t i = 0; i < outputs.size(); ++i)
      record_graph_operand(recorder, outputs[i], i, is_left_out(op.left_out_outputs, i));
  });
}

// What a graph is given. A parameter keeps its values from step to step.
void Session::record_graph_input(GraphRun& run, uint32_t number, PyObject* value) noexcept {
  if (run.step == nullptr || this_thread().inside || !live()) return;
  if (access_.is_tensor(value) && access_.is_parameter(value)) {
    guarded([&] {
      const Lock lock(*this);
      const Storage* storage = storages_.see(value, true).storage;
      if (storage == nullptr || !storage->leaves.empty()) return;
      storages_.add_leaf(value, &nodes_[graph_operators_[number].node].text->name);
    });
  }
  record_graph_operator(run, number, value, {});
}

void Session::note_graph_writes(std::span<PyObject* const> tensors) noexcept {
  if (this_thread().inside || !live()) return;
  guarded([&] {
    const Lock lock(*this);
    for (PyObject* tensor : tensors) {
      Storage* storage = access_.is_tensor(tensor) ? storages_.see(tensor, false).storage : nullptr;
      if (storage != nullptr) storages_.wrote(*storage);
    }
  });
}

}  // namespace assay::capture

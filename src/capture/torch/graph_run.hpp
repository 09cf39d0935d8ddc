// SPDX-License-Identifier: Apache-2.0
// What a session records of a compiled graph: its operators, known before they run, and its runs.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "capture/torch/python_compat.hpp"

namespace assay::capture {

struct StepProgress;

/// One operator of a compiled graph. Operands are numbered among its inputs or outputs.
struct GraphOperator {
  uint32_t node = 0;
  bool inputs = false;  // are recorded
  bool outputs = false;
  std::vector<bool> left_out_inputs;   // asked not to be recorded; shorter: the others are
  std::vector<bool> left_out_outputs;  // the same
  /// Numbers in the place of tensors, which no run makes, by their place among the inputs.
  std::vector<std::pair<size_t, Ref>> constants;
};

/// One run of a graph between begin_graph_run() and end_graph_run(), on one thread.
struct GraphRun {
  std::shared_ptr<StepProgress> step;  // null: nothing is recorded
  uint32_t call = 0;                   // how often the graph ran before within the step
  int64_t begin_ns = 0;
  /// The operator whose inputs were recorded before it ran, and its place in the order.
  uint32_t opened = UINT32_MAX;
  uint64_t order = 0;
};

}  // namespace assay::capture

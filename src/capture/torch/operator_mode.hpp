// SPDX-License-Identifier: Apache-2.0
// OperatorMode: the C object that torch asks about every operator while it stands on a thread's
// dispatch stack.
//
// torch accepts any object whose `__torch_dispatch__` is a bound method of it. It takes the object
// off the stack while the method runs, so calling on does not come back. A Python mode costs a
// frame more for each operator, and enters itself in flags that make torch.compile give up; this
// one does neither.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

#include "capture/torch/session.hpp"

namespace assay::capture {

/// New reference, or nullptr with an exception set (a torch without dispatch modes). The object
/// passes operators on until it gets a session.
[[nodiscard]] PyObject* new_operator_mode();
/// session   not owned; nullptr: operators are passed on
void set_mode_session(PyObject* mode, Session* session) noexcept;

/// Modes on the calling thread's stack, -1 when torch does not tell. Needs the GIL, as the ones
/// below.
[[nodiscard]] int64_t dispatch_stack_size() noexcept;
/// False when torch refuses; no exception is left.
[[nodiscard]] bool push_dispatch_mode(PyObject* mode) noexcept;
/// Takes the mode off the stack, also from below others that somebody left there. False when it was
/// not on it.
[[nodiscard]] bool pop_dispatch_mode(PyObject* mode) noexcept;

}  // namespace assay::capture

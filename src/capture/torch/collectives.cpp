// SPDX-License-Identifier: Apache-2.0
// Collectives start in methods of torch's ProcessGroup, and end in Work.wait() or in the operator
// wait_tensor, whoever calls them. Our C functions stand in front of those: of an operator where
// Python keeps what calls its __call__, of a built-in method where Python keeps what it calls.
#include "capture/torch/collectives.hpp"

#include <algorithm>
#include <array>
#include <ranges>
#include <string>

#include "capture/torch/call_hook.hpp"
#include "capture/torch/session.hpp"

namespace assay::capture {
namespace {

std::vector<Session*>& waiting_sessions() {
  static auto* sessions = new std::vector<Session*>;
  return *sessions;
}
bool is_in(const std::vector<Session*>& sessions, const Session* session) {
  return std::ranges::find(sessions, session) != sessions.end();
}

// tensor   that the program has waited for; nullptr: see the works
void tell_sessions(PyObject* tensor) {
  // They take themselves out, and any may go while another one runs Python.
  const std::vector<Session*> sessions = waiting_sessions();
  for (Session* session : sessions) {
    if (is_in(waiting_sessions(), session)) session->collective_ended(tensor);
  }
}

// --- the operator wait_tensor ----------------------------------------------------------------------

// Of torch.ops, while sessions wait to be told: the packet of overloads and its only overload.
struct WaitOperator {
  PyObject* object = nullptr;
  CallHook hook = {};
};
WaitOperator wait_packet, wait_overload;

PyObject* call_wait(WaitOperator& one, PyObject* function, PyObject* const* arguments,
                    size_t flagged_count, PyObject* names) {
  PyObject* result = one.hook.original(function, arguments, flagged_count, names);
  // An argument that is given by name stands behind those without.
  const size_t count = argument_count(flagged_count) +
                       static_cast<size_t>(names != nullptr ? PyTuple_Size(names) : 0);
  if (count >= 2 && arguments[0] == one.object && result != nullptr) tell_sessions(arguments[1]);
  return result;
}
PyObject* call_packet(PyObject* function, PyObject* const* arguments, size_t flagged_count,
                      PyObject* names) {
  return call_wait(wait_packet, function, arguments, flagged_count, names);
}
PyObject* call_overload(PyObject* function, PyObject* const* arguments, size_t flagged_count,
                        PyObject* names) {
  return call_wait(wait_overload, function, arguments, flagged_count, names);
}

void put_hook(WaitOperator& one, Ref object, VectorCall ours) {
  if (one.object == nullptr) one.object = object.release();
  if (one.object != nullptr && one.hook.function == nullptr)
    (void)one.hook.put(attribute(reinterpret_cast<PyObject*>(Py_TYPE(one.object)), "__call__"),
                       ours);
}

// --- works -----------------------------------------------------------------------------------------

uint64_t seen_so_far = 0;
std::vector<const void*>& watching_sessions() {
  static auto* sessions = new std::vector<const void*>;
  return *sessions;
}
std::vector<std::shared_ptr<Work>>& works() {
  static auto* list = new std::vector<std::shared_ptr<Work>>;
  return *list;
}

constexpr int kFastCall = 0x80;  // METH_FASTCALL, the same since 3.7; this limited API has no name
using FastCall = PyObject* (*)(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                               PyObject* names);
using TupleCall = PyObject* (*)(PyObject* self, PyObject* arguments, PyObject* names);

// A method of a class of C++, and what it calls without us. pybind11 calls all of them through one
// C function and tells them apart by `self`, an object of its own.
enum class Class : uint8_t { Group, Work, Future };
struct MethodHook {
  const char* name;
  Class of = Class::Group;
  PyObject* self = nullptr;
  PyMethodDef* method = nullptr;  // while ours is in it
  PyCFunction original = nullptr;
};
// Of ProcessGroup, from torch 1.13 to 2.13; none has all of them. All write the tensors of their
// first argument. Behind them what waits, of Work and of the Future that some give in its place.
std::array<MethodHook, 24> method_hooks{{{"allreduce"},
                                         {"allreduce_coalesced"},
                                         {"broadcast"},
                                         {"reduce"},
                                         {"allgather"},
                                         {"_allgather_base"},
                                         {"allgather_coalesced"},
                                         {"allgather_into_tensor_coalesced"},
                                         {"all_gather_single"},
                                         {"all_gather_single_coalesced"},
                                         {"gather"},
                                         {"scatter"},
                                         {"reduce_scatter"},
                                         {"_reduce_scatter_base"},
                                         {"reduce_scatter_tensor_coalesced"},
                                         {"reduce_scatter_single"},
                                         {"reduce_scatter_single_coalesced"},
                                         {"alltoall"},
                                         {"alltoall_base"},
                                         {"all_to_all_single"},
                                         {"recv"},
                                         {"recv_anysource"},
                                         {"wait", Class::Work},
                                         {"wait", Class::Future}}};

const MethodHook* hook_of(PyObject* self) {
  const auto found = std::ranges::find(method_hooks, self, &MethodHook::self);
  return found == method_hooks.end() ? nullptr : &*found;
}

// Tensors may stand in lists of lists.
void add_ranges(PyObject* value, int depth, TensorAccess& access, Work& work) {
  if (access.is_tensor(value)) {
    TensorLook look;
    access.look(value, look);
    if (look.readable == Readable::Nothing || look.element_count == 0) return;
    work.is_in_memory = work.is_in_memory && look.readable == Readable::Memory;
    const ByteSpan bytes = memory_of(look);
    work.ranges.emplace_back(bytes.data(), bytes.data() + bytes.size());
    return;
  }
  if (depth == 0 || !(PyList_Check(value) || PyTuple_Check(value))) return;
  for (Py_ssize_t i = 0; i < size_of(value); ++i)
    add_ranges(item_of(value, i), depth - 1, access, work);
}

void began(PyObject* written, PyObject* result) {
  ++seen_so_far;
  std::erase_if(works(), [](const auto& work) { return work->has_ended(); });
  TensorAccess* access = TensorAccess::get();
  if (access == nullptr) return;
  auto work = std::make_shared<Work>(Ref(new_ref(result)));
  add_ranges(written, 2, *access, *work);
  if (!work->ranges.empty()) works().push_back(std::move(work));
}

void was_waited_for(PyObject* object) {
  ++seen_so_far;
  std::erase_if(works(), [object](const auto& work) {
    if (work->object.get() != object) return false;
    work->was_waited_for = true;
    return true;
  });
  tell_sessions(nullptr);
}

// first, second   arguments of the call, borrowed, or nullptr
PyObject* seen(const MethodHook& hook, PyObject* first, PyObject* second, PyObject* result) {
  if (result == nullptr || inside_our_code()) return result;
  const ErrorAside aside;
  try {
    if (hook.of != Class::Group)
      was_waited_for(first);
    else if (second != nullptr && result != Py_None)
      began(second, result);
  } catch (...) {
    // Without memory the collective is one that nobody saw.
  }
  return result;
}

// The options of the method that this thread is in, borrowed: its last argument.
thread_local PyObject* options_of_method = nullptr;

PyObject* call_fast(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const MethodHook* hook = hook_of(self);
  const Py_ssize_t all = count + (names != nullptr ? PyTuple_Size(names) : 0);
  PyObject* around = std::exchange(options_of_method, all > 0 ? arguments[all - 1] : nullptr);
  PyObject* result = reinterpret_cast<FastCall>(reinterpret_cast<void (*)()>(hook->original))(
      self, arguments, count, names);
  options_of_method = around;
  return seen(*hook, all > 0 ? arguments[0] : nullptr, all > 1 ? arguments[1] : nullptr, result);
}

PyObject* call_with_tuple(PyObject* self, PyObject* arguments, PyObject* names) {
  const MethodHook* hook = hook_of(self);
  const Py_ssize_t count = PyTuple_Size(arguments);
  PyObject* around =
      std::exchange(options_of_method, count > 0 ? PyTuple_GetItem(arguments, count - 1) : nullptr);
  PyObject* result = reinterpret_cast<TupleCall>(reinterpret_cast<void (*)()>(hook->original))(
      self, arguments, names);
  options_of_method = around;
  return seen(*hook, count > 0 ? PyTuple_GetItem(arguments, 0) : nullptr,
              count > 1 ? PyTuple_GetItem(arguments, 1) : nullptr, result);
}

// Where a built-in function keeps its method's definition: its first member, which the limited API
// has no name for. Nullptr where it is not there.
PyMethodDef* definition_of(PyObject* function) {
  if (!PyCFunction_Check(function)) return nullptr;
  PyMethodDef* method = nullptr;
  std::memcpy(&method, reinterpret_cast<const char*>(function) + sizeof(PyObject), sizeof(method));
  const bool is_it = method != nullptr && method->ml_meth == PyCFunction_GetFunction(function) &&
                     method->ml_flags == PyCFunction_GetFlags(function);
  return is_it ? method : nullptr;
}

void put_hook(MethodHook& hook) {
  const Ref type = hook.of == Class::Future
                       ? imported("torch._C", "Future")
                       : imported("torch._C._distributed_c10d",
                                  hook.of == Class::Work ? "Work" : "ProcessGroup");
  // Some classes give what they were made of, others the function in it.
  Ref function = attribute(type.get(), hook.name);
  if (Ref inner = attribute(function.get(), "__func__")) function = std::move(inner);
  PyMethodDef* method = function ? definition_of(function.get()) : nullptr;
  if (method == nullptr) return;
  const bool is_fast = method->ml_flags == (kFastCall | METH_KEYWORDS);
  if (!is_fast && method->ml_flags != (METH_VARARGS | METH_KEYWORDS)) return;
  hook.self = PyCFunction_GetSelf(function.get());
  hook.method = method;
  hook.original = method->ml_meth;
  method->ml_meth =
      reinterpret_cast<PyCFunction>(is_fast ? reinterpret_cast<void (*)()>(call_fast)
                                            : reinterpret_cast<void (*)()>(call_with_tuple));
}

bool answers_yes(PyObject* object, const char* method) {
  const Ref answer(PyObject_CallMethod(object, method, nullptr));
  PyErr_Clear();
  return answer.get() == Py_True;
}

}  // namespace

bool Work::has_ended() const {
  if (was_waited_for) return true;
  if (answers_yes(object.get(), "is_completed")) return true;
  // gloo completes the Future first, and somebody may wait for that one. On a device it is done
  // when the work is in a stream.
  if (!is_in_memory) return false;
  const Ref future(PyObject_CallMethod(object.get(), "get_future", nullptr));
  PyErr_Clear();
  return future && answers_yes(future.get(), "done");
}

std::string collective_members(PyObject* arguments) {
  const Ref function = imported("assay.torch._wrappers", "collective_members");
  const Ref members(function
                        ? PyObject_CallFunctionObjArgs(
                              function.get(), arguments,
                              options_of_method != nullptr ? options_of_method : Py_None, nullptr)
                        : nullptr);
  PyErr_Clear();
  return members ? text_of(members.get()) : std::string();
}

uint64_t works_seen() { return seen_so_far; }

void watch_works(const void* session) {
  watching_sessions().push_back(session);
  const ErrorAside aside;
  for (MethodHook& hook : method_hooks) {
    if (hook.method == nullptr) put_hook(hook);
  }
}

// What was put in the method stays known: calls of other threads may be inside of it.
void unwatch_works(const void* session) noexcept {
  std::erase(watching_sessions(), session);
  if (!watching_sessions().empty()) return;
  for (MethodHook& hook : method_hooks) {
    if (hook.method != nullptr) std::exchange(hook.method, nullptr)->ml_meth = hook.original;
  }
  works().clear();
}

std::shared_ptr<Work> work_writing(const TensorLook& look) {
  if (works().empty() || look.element_count == 0) return nullptr;
  const ByteSpan bytes = memory_of(look);
  const auto overlaps = [&](const auto& range) {
    return range.first < bytes.data() + bytes.size() && bytes.data() < range.second;
  };
  // The latest decides: it waits for those before.
  for (const auto& work : works() | std::views::reverse) {
    if (std::ranges::any_of(work->ranges, overlaps)) return work->has_ended() ? nullptr : work;
  }
  return nullptr;
}

void watch_waits(Session* session) {
  if (is_in(waiting_sessions(), session)) return;
  waiting_sessions().push_back(session);
  const Ref operators = imported("torch", "ops");
  const Ref packet = attribute(attribute(operators.get(), "_c10d_functional").get(), "wait_tensor");
  put_hook(wait_overload, attribute(packet.get(), "default"), call_overload);
  put_hook(wait_packet, Ref(packet ? new_ref(packet.get()) : nullptr), call_packet);
  PyErr_Clear();
}

void unwatch_waits(Session* session) noexcept {
  std::erase(waiting_sessions(), session);
  if (!waiting_sessions().empty()) return;
  for (WaitOperator* one : {&wait_packet, &wait_overload}) {
    if (one->hook.function != nullptr) one->hook.take();
  }
}

}  // namespace assay::capture

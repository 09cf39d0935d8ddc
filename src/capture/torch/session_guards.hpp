// SPDX-License-Identifier: Apache-2.0
// What protects a Session's members: from calls of ours that come back to us, from other threads,
// from exceptions.
#pragma once
#include <time.h>

#include "capture/torch/session.hpp"

namespace assay::capture {

inline int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000ll + time.tv_nsec;
}

inline double milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// What this thread is doing: in which root call of which session, and whether it is inside our own
// code (attribute reads under a function mode, properties of dataclasses may call modules).
struct ThreadState {
  struct Root {
    const Session* session;
    std::shared_ptr<StepProgress> step;
  };
  // A module call below a wanted step, at operator level.
  struct Call {
    const Session* session;
    uint32_t node;
    uint32_t call;
    bool recorded;        // its operators are wanted
    bool mode_is_on;      // the dispatch mode stands on this thread's stack during this call
    bool changed_mode;    // and this call put it there, or took it away
    int64_t modes_below;  // on the stack when it was put there
    std::shared_ptr<StepProgress> step;
    std::vector<uint32_t> operator_calls;  // so far, by number of the schema
  };
  bool inside = false;
  std::vector<Root> roots;
  std::vector<Call> calls;

  [[nodiscard]] Call* innermost(const Session* session) {
    for (size_t i = calls.size(); i-- > 0;) {
      if (calls[i].session == session) return &calls[i];
    }
    return nullptr;
  }
};

[[nodiscard]] inline ThreadState& this_thread() {
  thread_local ThreadState state;
  return state;
}

class InsideOurCode {
 public:
  explicit InsideOurCode(ThreadState& thread = this_thread()) : thread_(thread) {
    thread_.inside = true;
  }
  ~InsideOurCode() { thread_.inside = false; }
  InsideOurCode(const InsideOurCode&) = delete;
  InsideOurCode& operator=(const InsideOurCode&) = delete;

 private:
  ThreadState& thread_;
};

// Taken around recording. Whoever holds it may wait for the GIL, so it is never waited for with the
// GIL held. The GIL also guards the flag: an atomic operation for each operator would wait for all
// the stores before it.
class Session::Lock {
 public:
  explicit Lock(Session& session, ThreadState& thread = this_thread())
      : inside_(thread), modes_off_(session.access_), session_(session) {
    while (session_.recording_) wait();
    session_.recording_ = true;
  }
  ~Lock() {
    session_.recording_ = false;
    if (session_.waiting_ == 0) return;
    const std::lock_guard lock(session_.mutex_);
    session_.recorded_.notify_all();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  // The mutex is taken with the GIL and left without it, so the notification cannot come before the
  // wait; whoever holds the mutex does not wait for the GIL.
  void wait() {
    ++session_.waiting_;
    {
      std::unique_lock lock(session_.mutex_);
      const GilReleased released;
      session_.recorded_.wait(lock);
      lock.unlock();
    }
    --session_.waiting_;
  }

  const InsideOurCode inside_;
  const FunctionModesOff modes_off_;
  Session& session_;
};

// Adds the time of its life to what a step cost its host.
class AddedTime {
 public:
  explicit AddedTime(StepProgress& step, int64_t begin_ns = now_ns())
      : step_(step), begin_ns_(begin_ns) {}
  ~AddedTime() { step_.added_ns += now_ns() - begin_ns_; }
  AddedTime(const AddedTime&) = delete;
  AddedTime& operator=(const AddedTime&) = delete;

 private:
  StepProgress& step_;
  int64_t begin_ns_;
};

// The model never meets what goes wrong in here.
template <typename Body>
void Session::guarded(Body body) noexcept {
  try {
    body();
  } catch (const std::exception& exception) {
    fail_for_good(exception.what());
  }
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
}

}  // namespace assay::capture

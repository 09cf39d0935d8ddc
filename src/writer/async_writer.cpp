// SPDX-License-Identifier: Apache-2.0
// A mutex guards the queue and the count of admitted bytes, which are given back when the job and
// all that it owns are gone. What fails, memory included, becomes a count and a sentence: no
// exception reaches the host.
#include "writer/async_writer.hpp"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "base/log.hpp"
#include "base/signals_blocked.hpp"
#include "writer/fork_guard.hpp"

namespace assay::writer {
namespace {

struct QueuedJob {
  uint64_t size_bytes;
  AsyncWriter::Job job;
};

// Takes the memory that a thread and its first exception need while there is some: for the
// thread-local data of this library and of the C++ runtime. glibc ends the process when there is
// none for them later.
void have_thread_locals() noexcept {
  [[maybe_unused]] thread_local volatile char of_this_library = 0;
  of_this_library = 1;
  try {
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

struct AsyncWriter::State {
  AsyncWriterOptions options;
  mutable std::mutex mutex;
  std::condition_variable work;  // a job came, or closing
  std::condition_variable room;  // a job was finished
  std::deque<QueuedJob> jobs;
  uint64_t held_bytes = 0;  // admitted and not yet finished
  uint64_t submitted = 0;   // jobs, ever
  uint64_t finished = 0;
  bool closing = false;
  bool started = false;  // the thread has all that it needs
  WriterCounters counters;
  /// Made while there is memory, for the failure to have some.
  std::optional<Error> no_memory = Error{Errc::Internal, {}, {}, "out of memory in the writer"};
  std::thread thread;

  [[nodiscard]] bool has_room(uint64_t size_bytes) const {
    return held_bytes == 0 ||
           (size_bytes <= options.queue_bytes && held_bytes <= options.queue_bytes - size_bytes);
  }

  void note_failure(Error error) noexcept {
    ++counters.jobs_failed;
    if (counters.first_error) return;
    try {
      const std::string line = error.describe() + "; the run continues, its capture is incomplete";
      counters.first_error = std::move(error);
      log_line(LogLevel::Error, line);
    } catch (const std::exception&) {
      note_no_memory();
    }
  }
  void note_no_thread(const char* why) noexcept {
    try {
      note_failure(Error{Errc::Internal, {}, {}, std::string("no writer thread: ") + why});
    } catch (const std::exception&) {
      note_no_memory();
    }
  }
  void note_no_memory() noexcept {
    if (counters.first_error) return;
    counters.first_error.swap(no_memory);
    log_line(LogLevel::Error,
             "out of memory in the writer; the run continues, its capture is incomplete");
  }

  void run_job(const AsyncWriter::Job& job) noexcept {
    try {
      Status status = [&]() -> Status {
        try {
          return job();
        } catch (const std::bad_alloc&) {
          throw;
        } catch (const std::exception& exception) {
          return fail(Errc::Internal, std::string("exception in the writer: ") + exception.what());
        }
      }();
      if (status) return;
      const std::lock_guard lock(mutex);
      note_failure(std::move(status).error());
    } catch (...) {  // there is no memory for a text, or what was thrown is none of ours
      const std::lock_guard lock(mutex);
      ++counters.jobs_failed;
      note_no_memory();
    }
  }

  void run() noexcept {
    have_thread_locals();
    if (options.niceness != 0) {
      // On Linux the priority of a "process" id is that of the one thread with this id.
      setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), options.niceness);
    }
    pthread_setname_np(pthread_self(), options.thread_name);
    std::unique_lock lock(mutex);
    started = true;
    room.notify_all();
    while (true) {
      work.wait(lock, [this] { return closing || !jobs.empty(); });
      if (jobs.empty()) return;
      QueuedJob next = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      run_job(next.job);
      next.job = nullptr;  // frees the bytes it owns before they count as free
      lock.lock();
      held_bytes -= next.size_bytes;
      ++finished;
      ++counters.jobs_done;
      counters.bytes_done += next.size_bytes;
      room.notify_all();
    }
  }
};

AsyncWriter::AsyncWriter(AsyncWriterOptions options)
    : state_(new State{}), generation_(fork_generation()) {
  state_->options = options;
  const AllSignalsBlocked blocked;
  try {
    state_->thread = std::thread([state = state_] { state->run(); });
    std::unique_lock lock(state_->mutex);
    state_->room.wait(lock, [this] { return state_->started; });
  } catch (const std::exception& exception) {
    state_->closing = true;
    state_->note_no_thread(exception.what());
  }
}

AsyncWriter::~AsyncWriter() {
  if (!alive())
    return;  // a forked child: the thread object has no thread and must not be destroyed
  close();
  delete state_;
}

bool AsyncWriter::alive() const noexcept { return generation_ == fork_generation(); }

bool AsyncWriter::would_wait(uint64_t size_bytes) const noexcept {
  if (!alive()) return false;
  const std::lock_guard lock(state_->mutex);
  return state_->options.on_full == FullPolicy::Wait && !state_->closing &&
         !state_->has_room(size_bytes);
}

uint64_t AsyncWriter::held_bytes() const noexcept {
  if (!alive()) return 0;
  const std::lock_guard lock(state_->mutex);
  return state_->held_bytes;
}

bool AsyncWriter::admit(uint64_t size_bytes) noexcept {
  if (!alive()) return false;
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  if (!s.has_room(size_bytes) && !s.closing) {
    if (s.options.on_full == FullPolicy::Drop) {
      ++s.counters.dropped;
      s.counters.dropped_bytes += size_bytes;
      return false;
    }
    const auto start = std::chrono::steady_clock::now();
    s.room.wait(lock, [&] { return s.closing || s.has_room(size_bytes); });
    s.counters.waited_ms +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  if (s.closing) return false;
  s.held_bytes += size_bytes;
  return true;
}

void AsyncWriter::release(uint64_t size_bytes) noexcept {
  if (!alive()) return;
  const std::lock_guard lock(state_->mutex);
  state_->held_bytes -= size_bytes;
  state_->room.notify_all();
}

bool AsyncWriter::submit(uint64_t size_bytes, Job job) noexcept {
  if (!alive()) return false;
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    try {
      if (!s.closing) s.jobs.push_back({size_bytes, std::move(job)});
    } catch (const std::exception&) {
      s.held_bytes -= size_bytes;
      ++s.counters.jobs_failed;
      s.note_no_memory();
      s.room.notify_all();
      return false;
    }
    if (s.closing) {
      s.held_bytes -= size_bytes;
      return false;
    }
    ++s.submitted;
  }
  s.work.notify_one();
  return true;
}

void AsyncWriter::flush() noexcept {
  if (!alive()) return;
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  const uint64_t target = s.submitted;
  s.room.wait(lock, [&] { return s.finished >= target; });
}

void AsyncWriter::close() noexcept {
  if (!alive()) return;
  std::thread finished_thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
    finished_thread.swap(state_->thread);  // only one of several concurrent callers joins
  }
  state_->work.notify_one();
  state_->room.notify_all();
  if (finished_thread.joinable()) finished_thread.join();
}

WriterCounters AsyncWriter::counters() const {
  if (!alive()) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->counters;
}

}  // namespace assay::writer

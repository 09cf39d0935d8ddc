// SPDX-License-Identifier: Apache-2.0
// One background thread that runs jobs in order, behind a queue bounded in bytes.
//
//   host thread     if (writer.admit(size)) { copy the tensor; writer.submit(size, job); }   the job owns the copy
//   writer thread   job();   then the size is free again
//
// admit() comes before the copy, so memory stays within the bound whatever the host does.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace assay::writer {

enum class FullPolicy : uint8_t {
  Wait,  // the caller waits for room: a dump without holes (default)
  Drop,  // admit() says no at once and the loss is counted
};

struct AsyncWriterOptions {
  uint64_t queue_bytes = 256ull << 20;
  FullPolicy on_full = FullPolicy::Wait;
  int niceness = 10;  // of the thread alone; 0 leaves it at the host's priority
  const char* thread_name = "assay-writer";  // 15 characters at most
};

struct WriterCounters {
  uint64_t jobs_done = 0;
  uint64_t jobs_failed = 0;
  uint64_t bytes_done = 0;  // sum of the sizes of finished jobs
  uint64_t dropped = 0;     // calls of admit() that said no because the queue was full
  uint64_t dropped_bytes = 0;
  double waited_ms = 0;  // time callers spent in admit()
  std::optional<Error> first_error;
};

/// Invariants: jobs run one at a time in the order of submit(); the admitted bytes never exceed
/// queue_bytes, except for a single job larger than the whole queue, which is admitted when the
/// queue is empty. All members may be called from any thread. None throws. In a forked child every
/// call returns at once and does nothing (alive() is false); the child never touches the parent's
/// files. Objects that live until the end of the process are leaked on purpose (never static): the
/// host's exit handlers call flush() or close(), destructors of the host's libraries never run into
/// us.
class AsyncWriter {
 public:
  /// Returns what went wrong; the first failure is printed once on stderr and kept, later ones are
  /// counted. An exception inside a job is caught and counted as Internal.
  using Job = std::function<Status()>;

  explicit AsyncWriter(AsyncWriterOptions options = {});
  /// close(); in a forked child the state is leaked instead.
  ~AsyncWriter();
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  /// True when admit(size_bytes) would wait now. A Python caller then releases the GIL around
  /// admit(); without that test the release would cost more than the admission.
  [[nodiscard]] bool would_wait(uint64_t size_bytes) const noexcept;
  /// Takes `size_bytes` of the bound; waits for room, or says no (FullPolicy::Drop, closed, forked
  /// child). The caller must hold no lock that a job needs, and no GIL when would_wait().
  [[nodiscard]] bool admit(uint64_t size_bytes) noexcept;
  /// Bytes admitted and not yet given back; 0 in a forked child.
  [[nodiscard]] uint64_t held_bytes() const noexcept;
  /// Gives admitted bytes back without a job.
  void release(uint64_t size_bytes) noexcept;
  /// Queues a job that holds `size_bytes` admitted bytes until it has run; 0 for small jobs (close
  /// a file, write a header), which need no admission. Never waits. False when closed or in a
  /// forked child: the job is destroyed.
  bool submit(uint64_t size_bytes, Job job) noexcept;

  /// Waits until every job submitted before this call has run. Not from inside a job.
  void flush() noexcept;
  /// flush(), then ends the thread. Idempotent.
  void close() noexcept;

  [[nodiscard]] bool alive() const noexcept;
  [[nodiscard]] WriterCounters counters() const;

 private:
  struct State;
  State* state_;
  uint32_t generation_;
};

}  // namespace assay::writer

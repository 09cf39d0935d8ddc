// SPDX-License-Identifier: Apache-2.0
// The sink of the native layout: step files and records.jsonl of one rank.   docs/formats/native.md
//
//   host thread                                     writer thread (low priority)
//   payload -> arena (image of the file region) --> full 4096-aligned blocks of 4 MiB, O_DIRECT
//   record  -> open batch ------------------------> lines of records.jsonl, after the blocks with their bytes
//   end of step ----------------------------------> buffered tail, header region, remaining lines, close
//
// The arena is the bound on memory: when it is full the host waits (or the tensor is dropped and
// counted).
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/hosted_descriptor.hpp"
#include "base/result.hpp"
#include "formats/native/record_lines.hpp"
#include "stats/tensor_stats.hpp"
#include "tensor/tensor_view.hpp"
#include "writer/async_writer.hpp"
#include "writer/disk_budget.hpp"
#include "writer/io_functions.hpp"
#include "writer/run_claim.hpp"

namespace assay::writer {

class StepFile;

/// A direct write; of 4 MiB it costs the writer a fifth less CPU time than two of 2 MiB.
inline constexpr uint64_t kBlockBytes = 4ull << 20;

struct NativeRunOptions {
  std::string folder;       // of the rank; exists
  std::string run_id = {};  // written into every file; new_run_id()
  /// 0: no payloads; otherwise rounded up to at least two blocks.
  uint64_t arena_bytes = 64ull << 20;
  FullPolicy on_full = FullPolicy::Wait;
  uint64_t max_file_bytes = 16ull << 30;    // then the step goes on in `-1`, `-2` ...
  uint64_t max_header_bytes = 16ull << 20;  // of one step file's header region
  DiskBudgetOptions disk = {};
  int niceness = 10;
  const char* thread_name = "assay-writer";  // 15 characters at most
  /// Told on the writer's thread of lines that are on disk, and their payloads before them.
  std::function<void(const native::RecordBatch&)> written = {};
  IoFunctions io = {};
};

struct NativeRunCounters {
  uint64_t records = 0;
  uint64_t payload_bytes = 0;  // stored, each payload once
  double waited_ms = 0;
  uint64_t dropped = 0;
  uint64_t dropped_bytes = 0;
};

/// Calls of one object come from one thread at a time (the capture session's lock). In a forked
/// child nothing works and nothing is touched: alive() is false.
class NativeRun {
 public:
  /// How to wait without blocking the host: must call wait(data) exactly once, for Python with the
  /// GIL released.
  using WaitFunction = void (*)(void (*wait)(void* data), void* data);

  /// Creates records.jsonl and maps the arena (touching it once, so that copies meet no page
  /// faults). errors  of the operating system, with the path
  [[nodiscard]] static Result<std::unique_ptr<NativeRun>> create(NativeRunOptions options,
                                                                 WaitFunction wait);
  ~NativeRun();
  NativeRun(const NativeRun&) = delete;
  NativeRun& operator=(const NativeRun&) = delete;

  /// Texts that records point at; stable until the object dies.
  [[nodiscard]] const native::RecordNode* add_node(std::string name, std::string type);
  [[nodiscard]] const std::string* intern(std::string_view text);

  /// Payloads from here on go to `<stem>.safetensors` (`<stem>-1` ... when that exists); a file
  /// that is still open is finished first. The file is created with its first payload.
  /// expected_entries   how many payloads to reserve header space for; the region grows with
  ///                    experience
  void begin_file(std::string stem, uint64_t expected_entries);
  /// Finishes the open file: everything appended so far is on its way to disk.
  void end_file();

  /// Copies the elements of `view` in C order to the next multiple of 64 and describes where they
  /// will be. Lazy conj and neg bits are left as they are. `record` must have node, slot and dims
  /// (for the header's bound).
  /// runner   for large contiguous tensors: the host's threads, or nullptr
  /// returns  nothing when dropped, stopped, or when the run has no payloads
  [[nodiscard]] std::optional<native::PayloadLocation> append_payload(const TensorView& view,
                                                                      const native::Record& record,
                                                                      stats::BlockRunner runner);
  /// Numbers the record and queues it with its sizes, strides (empty: unknown) and text (the value
  /// as JSON, or the reason). Returns its number.
  uint64_t push_record(const native::Record& record, std::span<const int64_t> shape,
                       std::span<const int64_t> strides, std::string_view text = {});

  /// Queues lines whose text is made later and numbers them. Returns the number of the first.
  uint64_t push_lines(std::shared_ptr<native::PreparedLines> lines);
  /// Whether a payload of that size would go to the file that is open: if not, it ends before, and
  /// with it the lines that are to be in its header.
  [[nodiscard]] bool fits_open_file(uint64_t size_bytes, const native::Record& record) const;

  /// Ends the open file and waits until everything is on disk.
  void flush();
  /// Sends everything on its way to the disk; the open file goes on. For hosts that may end at any
  /// time: what is not a whole block yet is written twice.
  void write_out();
  /// Waits until everything that was sent is on disk.
  void wait_until_written();
  /// Calls `then` on the writer's thread when everything that was sent before is on disk; never
  /// where it could not be written. Waits for nothing.
  void when_written(std::function<Status()> then);
  /// end_file(), flush(), closes the thread. Idempotent.
  void close();

  /// True once nothing more is written (disk budget, failed write). One relaxed load.
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
  /// Why not everything is on disk, also when that was found at the end; empty while all is well.
  [[nodiscard]] std::string stop_reason() const;
  [[nodiscard]] bool alive() const noexcept;
  [[nodiscard]] NativeRunCounters counters() const;
  /// Fills in what the manifest says of the buffer: its bytes, waiting, what was dropped.
  void describe_buffer(native::Manifest* manifest) const;
  [[nodiscard]] uint64_t arena_bytes() const { return options_.arena_bytes; }
  /// What was written: the step files that are finished, and records.jsonl as far as it goes.
  [[nodiscard]] std::vector<native::ManifestFile> files() const;

 private:
  struct OpenFile;
  explicit NativeRun(NativeRunOptions options, WaitFunction wait);
  [[nodiscard]] Status map_arena();
  void stop(std::string reason);
  [[nodiscard]] Status noted(Status status);
  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool within_budget(uint64_t size_bytes);
  [[nodiscard]] OpenFile* file_for(uint64_t size_bytes, const native::Record& record);
  [[nodiscard]] bool has_room(uint64_t end) const;
  void wait_for_room(uint64_t end);
  [[nodiscard]] bool copy_into_arena(const TensorView& view, uint64_t begin, uint64_t size_bytes,
                                     stats::BlockRunner runner);
  void advance_head(uint64_t head);
  void submit_block(uint64_t begin, uint64_t end);
  void submit_lines();
  [[nodiscard]] Status check_place();
  [[nodiscard]] Status write_lines(const native::RecordBatch& batch, OpenFile* file);
  [[nodiscard]] Status write_text(std::string_view text);
  [[nodiscard]] Status finish_file(OpenFile& file, uint64_t size_bytes);
  [[nodiscard]] std::unique_ptr<native::RecordBatch> spare_batch();
  void keep_spare(native::RecordBatch& batch);
  void free_arena(uint64_t tail);

  NativeRunOptions options_;
  WaitFunction wait_;
  std::unique_ptr<AsyncWriter> writer_;
  DiskBudget budget_;
  std::byte* arena_ = nullptr;

  // Positions count bytes of the whole run; position modulo arena_bytes is the place in the arena.
  uint64_t head_ = 0;              // end of what was copied
  uint64_t submitted_ = 0;         // begin of the block not yet handed to the writer
  uint64_t written_out_ = 0;       // end of what write_out() has handed over before its block
  std::atomic<uint64_t> tail_{0};  // end of what the writer has written

  std::string stem_;
  std::map<std::string, int> parts_;  // files made so far, by stem: a name is never used twice
  uint64_t expected_entries_ = 0;
  uint64_t header_need_ = 0;  // most header bytes a file has needed so far
  std::shared_ptr<OpenFile> open_;
  std::unique_ptr<native::RecordBatch> batch_;
  uint64_t next_number_ = 0;
  NativeRunCounters counters_;

  std::deque<native::RecordNode> nodes_;
  std::deque<std::string> texts_;
  struct TextIndex;
  std::unique_ptr<TextIndex> text_index_;

  HostedDescriptor records_;  // writer thread
  std::string records_path_;
  native::RecordLines lines_;           // writer thread's
  stats::DigestStream records_digest_;  // writer thread's

  std::atomic<bool> stopped_{false};  // the host appends nothing more
  std::atomic<bool> broken_{false};   // the writer writes nothing more
  mutable std::mutex mutex_;          // files_, stop_reason_, spare_batches_ and the wait for room
  std::condition_variable room_;
  std::string stop_reason_;
  std::vector<native::ManifestFile> files_;  // step files that are finished
  native::ManifestFile records_file_;
  std::vector<native::RecordBatch> spare_batches_;  // written, their memory is used again
};

}  // namespace assay::writer

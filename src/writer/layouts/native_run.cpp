// SPDX-License-Identifier: Apache-2.0
// Positions count the bytes of the whole run, and the arena is a ring over them: the host copies
// payloads to its head, the writer's thread writes blocks and moves its tail on. Lines go out after
// the bytes that they name.   docs/formats/native.md
#include "writer/layouts/native_run.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <unordered_map>

#include "base/atomic_file.hpp"
#include "base/json_text.hpp"
#include "base/log.hpp"
#include "formats/native/step_header.hpp"
#include "tensor/convert.hpp"
#include "writer/fork_guard.hpp"
#include "writer/layouts/step_file.hpp"

namespace assay::writer {
namespace {

constexpr uint64_t kPayloadAlignment = 64;
constexpr uint64_t kSmallestHeader = 8 << 10;
constexpr uint64_t kCopyPieceBytes = 256u << 10;  // of one thread in a parallel copy
constexpr uint64_t kLineQueueBytes = 64ull << 20;
constexpr uint64_t kTypicalLineBytes = 400;
constexpr size_t kMostSpareBatches = 3;
constexpr size_t kMostSpareRecords = 16384;
// Lines go out at the latest after so many records, so that a statistics-only step of any length
// stays bounded.
constexpr size_t kMostBatchedRecords = 4096;
// With an open file they wait for their bytes, which go out in whole blocks. So many small or
// shared tensors end the file early, and the step goes on in the next.
constexpr size_t kMostWaitingRecords = 32768;

// A copy of contiguous bytes in pieces, for stats::BlockRunner.
struct CopyPieces {
  std::byte* target;
  const std::byte* source;
  uint64_t size_bytes;

  static void copy_piece(void* data, size_t index) {
    const auto& copy = *static_cast<const CopyPieces*>(data);
    const uint64_t begin = index * kCopyPieceBytes;
    std::memcpy(copy.target + begin, copy.source + begin,
                std::min(kCopyPieceBytes, copy.size_bytes - begin));
  }
};

// Between two records the host reads more than the cache holds, so the next one would wait for its
// memory.
void prefetch_next(const std::vector<native::Record>& records) {
  if (records.size() == records.capacity()) return;
  const auto* next = reinterpret_cast<const char*>(records.data() + records.size());
  for (size_t at = 0; at < sizeof(native::Record); at += 64) __builtin_prefetch(next + at, 1);
}

void copy_bytes(std::byte* target, const std::byte* source, uint64_t size_bytes,
                stats::BlockRunner runner) {
  if (runner == nullptr || size_bytes < 2 * kCopyPieceBytes) {
    std::memcpy(target, source, size_bytes);
    return;
  }
  CopyPieces copy{target, source, size_bytes};
  runner(CopyPieces::copy_piece, &copy, (size_bytes + kCopyPieceBytes - 1) / kCopyPieceBytes);
}

}  // namespace

struct NativeRun::TextIndex {
  std::unordered_map<std::string_view, const std::string*> known;
};

// One step file, seen from both sides.
struct NativeRun::OpenFile {
  OpenFile(const std::string& path, const std::string* file_name, uint64_t header_bytes,
           uint64_t position, IoFunctions io)
      : name(file_name), data_position(position), file(path, header_bytes, io) {}

  const std::string* name;
  uint64_t data_position;  // of the first payload byte in the run; header_bytes in the file
  uint64_t header_used = native::StepHeader::kMetadataBytes;  // host: upper bound so far
  StepFile file;                                              // writer from here on
  native::StepHeader header;

  [[nodiscard]] uint64_t offset_of(uint64_t position) const {
    return file.header_bytes() + (position - data_position);
  }
  void add_entry(const native::RecordBatch& batch, const native::Record& record) {
    if (record.payload->file != name) return;
    header.add(batch, record, record.payload->offset - file.header_bytes());
  }
  [[nodiscard]] std::string header_text(const std::string& run_id, uint64_t end) {
    return header.text({run_id, *name, stats::digest_text(file.payload_digest())}, end);
  }
};

NativeRun::NativeRun(NativeRunOptions options, WaitFunction wait)
    : options_(std::move(options)),
      wait_(wait),
      budget_(options_.folder, options_.disk),
      batch_(std::make_unique<native::RecordBatch>()),
      text_index_(std::make_unique<TextIndex>()),
      records_path_(options_.folder + "/" + std::string(native::kRecordsFile)),
      records_file_{.name = std::string(native::kRecordsFile), .digest = records_digest_.finish()} {
}

Result<std::unique_ptr<NativeRun>> NativeRun::create(NativeRunOptions options, WaitFunction wait) {
  std::unique_ptr<NativeRun> run(new NativeRun(std::move(options), wait));
  run->records_ = HostedDescriptor(::open(
      run->records_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (!run->records_.is_open()) return fail(errno_error(errno, "create", run->records_path_));
  ASSAY_TRY_STATUS(run->map_arena());
  run->writer_ =
      std::make_unique<AsyncWriter>(AsyncWriterOptions{.queue_bytes = kLineQueueBytes,
                                                       .niceness = run->options_.niceness,
                                                       .thread_name = run->options_.thread_name});
  return run;
}

NativeRun::~NativeRun() {
  if (!alive()) {
    // A forked child: the thread and the mutexes belong to the parent. Leaked on purpose.
    (void)writer_.release();
    return;
  }
  close();
  if (arena_ != nullptr) ::munmap(arena_, options_.arena_bytes);
}

Status NativeRun::map_arena() {
  if (options_.arena_bytes == 0) return {};
  options_.arena_bytes = std::max(align_up(options_.arena_bytes, kBlockBytes), 2 * kBlockBytes);
  void* mapped = ::mmap(nullptr, options_.arena_bytes + kBlockBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    return fail(errno_error(errno, "map the capture buffer of", options_.folder));
  // Aligned to a huge page by hand; what stands over is given back.
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = align_up(address, kBlockBytes);
  if (aligned != address) ::munmap(mapped, aligned - address);
  ::munmap(reinterpret_cast<void*>(aligned + options_.arena_bytes),
           address + kBlockBytes - aligned);
  arena_ = reinterpret_cast<std::byte*>(aligned);
  ::madvise(arena_, options_.arena_bytes, MADV_HUGEPAGE);
  // A forked child never reads it, so a fork need not share 64 MiB of pages that are rewritten all
  // the time.
  ::madvise(arena_, options_.arena_bytes, MADV_DONTFORK);
  for (uint64_t page = 0; page < options_.arena_bytes; page += kDirectAlignment)
    arena_[page] = std::byte{0};
  return {};
}

bool NativeRun::alive() const noexcept { return writer_ != nullptr && writer_->alive(); }

const native::RecordNode* NativeRun::add_node(std::string name, std::string type) {
  return &nodes_.emplace_back(native::RecordNode{std::move(name), std::move(type)});
}

const std::string* NativeRun::intern(std::string_view text) {
  const auto found = text_index_->known.find(text);
  if (found != text_index_->known.end()) return found->second;
  const std::string* stored = &texts_.emplace_back(text);
  text_index_->known.emplace(*stored, stored);
  return stored;
}

void NativeRun::stop(std::string reason) {
  const std::lock_guard lock(mutex_);
  if (!stop_reason_.empty()) return;
  stop_reason_ = std::move(reason);
  stopped_.store(true, std::memory_order_relaxed);
}

// After a failed write nothing more is written: what is on disk stays right, and later lines could
// not be trusted.
Status NativeRun::noted(Status status) {
  if (!status) {
    broken_.store(true, std::memory_order_relaxed);
    stop(status.error().describe());
  }
  return status;
}

bool NativeRun::within_budget(uint64_t size_bytes) {
  if (budget_.admit(size_bytes)) return true;
  if (!stopped()) {
    stop(budget_.stop_reason());
    log_line(LogLevel::Warning,
             "capture stopped: " + budget_.stop_reason() + "; the run continues");
  }
  return false;
}

std::string NativeRun::stop_reason() const {
  if (!alive()) return {};
  {
    const std::lock_guard lock(mutex_);
    if (!stop_reason_.empty()) return stop_reason_;
  }
  const std::optional<Error> error = writer_->counters().first_error;
  return error ? error->describe() : "";
}

// ---- files --------------------------------------------------------------------------------------

void NativeRun::begin_file(std::string stem, uint64_t expected_entries) {
  if (!alive()) return;
  end_file();
  stem_ = std::move(stem);
  expected_entries_ = expected_entries;
}

void NativeRun::end_file() {
  if (!alive()) return;
  if (open_ == nullptr) {
    submit_lines();
    return;
  }
  if (head_ != submitted_) {
    writer_->submit(0, [this, file = open_, begin = submitted_, end = head_]() -> Status {
      if (broken()) return {};
      const ByteSpan bytes(arena_ + begin % options_.arena_bytes, end - begin);
      return noted(file->file.write_tail(file->offset_of(begin), bytes));
    });
  }
  const uint64_t size_bytes = open_->offset_of(head_);
  head_ = submitted_ = align_up(head_, kDirectAlignment);
  // Lines and header entries of the same records are made in one go, so the lines come first: a
  // reader that looks between the two finds every payload, because all bytes are there.
  submit_lines();
  writer_->submit(0, [this, file = open_, size_bytes, tail = head_]() -> Status {
    free_arena(tail);
    if (broken()) return {};
    return finish_file(*file, size_bytes);
  });
  header_need_ = std::max(header_need_, open_->header_used);
  open_.reset();
}

// Writer's thread.
Status NativeRun::finish_file(OpenFile& file, uint64_t size_bytes) {
  const std::string header =
      file.header_text(options_.run_id, size_bytes - file.file.header_bytes());
  ASSAY_TRY_STATUS(noted(file.file.finish(header, size_bytes)));
  const std::lock_guard lock(mutex_);
  files_.push_back({*file.name, size_bytes, file.header.size(), file.file.payload_digest()});
  return {};
}

std::vector<native::ManifestFile> NativeRun::files() const {
  if (!alive()) return {};
  const std::lock_guard lock(mutex_);
  std::vector<native::ManifestFile> files = files_;
  files.push_back(records_file_);
  return files;
}

bool NativeRun::fits_open_file(uint64_t size_bytes, const native::Record& record) const {
  if (open_ == nullptr) return true;
  const uint64_t header_bytes = open_->header_used + native::StepHeader::bound(record);
  if (header_bytes > open_->file.header_bytes() - 16) return false;
  const uint64_t used = head_ - open_->data_position;
  return used == 0 || used + size_bytes <= options_.max_file_bytes;
}

NativeRun::OpenFile* NativeRun::file_for(uint64_t size_bytes, const native::Record& record) {
  const uint64_t header_bound = native::StepHeader::bound(record);
  if (open_ != nullptr) {
    if (!fits_open_file(size_bytes, record)) end_file();
  }
  if (open_ == nullptr) {
    constexpr uint64_t kTypicalEntryBytes = 256;
    const uint64_t wanted = header_need_ != 0 ? header_need_ + header_need_ / 4
                                              : expected_entries_ * kTypicalEntryBytes;
    const uint64_t header_bytes =
        align_up(std::clamp(wanted, kSmallestHeader, options_.max_header_bytes) + header_bound +
                     native::StepHeader::kMetadataBytes,
                 kDirectAlignment);
    const int part = parts_[stem_]++;
    const std::string file_name = stem_ + (part == 0 ? "" : "-" + std::to_string(part)) +
                                  std::string(native::kStepFileSuffix);
    open_ = std::make_shared<OpenFile>(options_.folder + "/" + file_name, intern(file_name),
                                       header_bytes, head_, options_.io);
  }
  open_->header_used += header_bound;
  return open_.get();
}

// ---- arena --------------------------------------------------------------------------------------

bool NativeRun::has_room(uint64_t end) const {
  return end - tail_.load(std::memory_order_acquire) <= options_.arena_bytes;
}

void NativeRun::wait_for_room(uint64_t end) {
  if (has_room(end)) return;
  struct Wait {
    NativeRun* run;
    uint64_t end;
  } request{this, end};
  const auto start = std::chrono::steady_clock::now();
  wait_(
      [](void* data) {
        const auto* wait = static_cast<const Wait*>(data);
        std::unique_lock lock(wait->run->mutex_);
        wait->run->room_.wait(lock, [wait] { return wait->run->has_room(wait->end); });
      },
      &request);
  counters_.waited_ms +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void NativeRun::free_arena(uint64_t tail) {
  {
    const std::lock_guard lock(mutex_);
    tail_.store(tail, std::memory_order_release);
  }
  room_.notify_all();
}

void NativeRun::submit_block(uint64_t begin, uint64_t end) {
  const bool is_taken = writer_->submit(0, [this, file = open_, begin, end]() -> Status {
    Status status;
    if (!broken()) {
      const ByteSpan block(arena_ + begin % options_.arena_bytes, end - begin);
      status = noted(file->file.write_block(file->offset_of(begin), block));
    }
    free_arena(end);
    return status;
  });
  if (is_taken) return;
  // Nobody will write it, which the writer has noted; the host must not wait for its room.
  writer_->flush();
  free_arena(end);
}

void NativeRun::advance_head(uint64_t head) {
  head_ = head;
  // Blocks end at multiples of the block size in the arena, so none wraps around; the first one of
  // a file may be shorter.
  bool submitted_any = false;
  while (head_ / kBlockBytes > submitted_ / kBlockBytes) {
    const uint64_t end = (submitted_ / kBlockBytes + 1) * kBlockBytes;
    submit_block(submitted_, end);
    submitted_ = end;
    submitted_any = true;
  }
  // Every record pushed so far ends before the payload being copied, hence inside the blocks just
  // handed over.
  if (submitted_any) submit_lines();
}

bool NativeRun::copy_into_arena(const TensorView& view, uint64_t begin, uint64_t size_bytes,
                                stats::BlockRunner runner) {
  const bool contiguous = view.is_contiguous();
  const std::byte* source = contiguous ? view.contiguous_bytes().data() : nullptr;
  const uint64_t element_bytes = info(view.dtype).element_bits / 8u;
  const uint64_t end = begin + size_bytes;
  for (uint64_t position = begin; position < end;) {
    const uint64_t until_wrap = options_.arena_bytes - position % options_.arena_bytes;
    uint64_t chunk = std::min(end - position, until_wrap);
    if (!has_room(position + chunk)) {
      const uint64_t until_block_end = kBlockBytes - position % kBlockBytes;
      chunk = std::min(chunk, until_block_end);
      wait_for_room(position + chunk);
    }
    std::byte* target = arena_ + position % options_.arena_bytes;
    const uint64_t done = position - begin;
    if (contiguous) {
      copy_bytes(target, source + done, chunk, runner);
    } else {
      gather_bytes(view, static_cast<int64_t>(done / element_bytes),
                   static_cast<int64_t>(chunk / element_bytes), {target, chunk});
    }
    position += chunk;
    advance_head(position);
    if (broken()) return false;
  }
  return true;
}

std::optional<native::PayloadLocation> NativeRun::append_payload(const TensorView& view,
                                                                 const native::Record& record,
                                                                 stats::BlockRunner runner) {
  if (!alive() || stopped() || arena_ == nullptr) return std::nullopt;
  const uint64_t size_bytes =
      storage_bytes(view.dtype, static_cast<uint64_t>(view.element_count())).value_or(0);
  if (options_.on_full == FullPolicy::Drop &&
      !has_room(align_up(head_, kDirectAlignment) + size_bytes)) {
    ++counters_.dropped;
    counters_.dropped_bytes += size_bytes;
    return std::nullopt;
  }
  if (!within_budget(size_bytes)) return std::nullopt;
  OpenFile* file = file_for(size_bytes, record);
  const uint64_t begin = align_up(head_, kPayloadAlignment);
  wait_for_room(begin);
  // The gap goes to disk too: zeros, not what an earlier tensor left in the arena.
  for (uint64_t p = head_; p < begin; ++p) arena_[p % options_.arena_bytes] = std::byte{0};
  advance_head(begin);
  native::PayloadLocation location{file->name, file->offset_of(begin), size_bytes};
  if (!copy_into_arena(view, begin, size_bytes, runner)) return std::nullopt;
  counters_.payload_bytes += size_bytes;
  return location;
}

// ---- records ------------------------------------------------------------------------------------

uint64_t NativeRun::push_record(const native::Record& given, std::span<const int64_t> shape,
                                std::span<const int64_t> strides, std::string_view text) {
  (void)within_budget(kTypicalLineBytes);  // a no stops what comes after this record
  native::Record& record = batch_->records.emplace_back(given);
  record.number = next_number_++;
  // Not earlier: appending the record's payload may have handed the batch before to the writer.
  if (record.has_shape) batch_->set_dims(record, shape, strides);
  if (!text.empty()) batch_->set_text(record, text);
  ++counters_.records;
  prefetch_next(batch_->records);
  // Only without an open file: then no line waits for bytes in a partial block.
  if (batch_->records.size() >= kMostBatchedRecords && open_ == nullptr) submit_lines();
  if (batch_->records.size() >= kMostWaitingRecords) end_file();
  return next_number_ - 1;
}

uint64_t NativeRun::push_lines(std::shared_ptr<native::PreparedLines> lines) {
  const uint64_t first = next_number_;
  const uint64_t count = lines->line_count();
  (void)within_budget(count * kTypicalLineBytes);
  next_number_ += count;
  counters_.records += count;
  batch_->prepared.push_back({batch_->records.size(), first, std::move(lines)});
  return first;
}

void NativeRun::submit_lines() {
  if (batch_->empty()) return;
  const std::shared_ptr<native::RecordBatch> batch = std::move(batch_);
  batch_ = spare_batch();
  const uint64_t size_bytes = batch->size_bytes();
  struct Admission {
    AsyncWriter* writer;
    uint64_t size_bytes;
    bool admitted;
  } admission{writer_.get(), size_bytes, false};
  const auto admit = [](void* data) {
    auto* request = static_cast<Admission*>(data);
    request->admitted = request->writer->admit(request->size_bytes);
  };
  if (writer_->would_wait(size_bytes)) {
    wait_(admit, &admission);
  } else {
    admit(&admission);
  }
  if (!admission.admitted) return;  // closed: the run is over
  writer_->submit(size_bytes, [this, batch, file = open_]() -> Status {
    if (broken()) return {};
    if (file != nullptr) {
      for (const native::Record& record : batch->records) {
        if (record.first_copy) file->add_entry(*batch, record);
      }
    }
    const Status status = write_lines(*batch, file.get());
    if (status && options_.written) options_.written(*batch);
    keep_spare(*batch);
    return status;
  });
}

// A batch of a step of decoding has a megabyte: fresh memory for each would cost the host its page
// faults.
std::unique_ptr<native::RecordBatch> NativeRun::spare_batch() {
  const std::lock_guard lock(mutex_);
  if (spare_batches_.empty()) return std::make_unique<native::RecordBatch>();
  auto batch = std::make_unique<native::RecordBatch>(std::move(spare_batches_.back()));
  spare_batches_.pop_back();
  return batch;
}

void NativeRun::keep_spare(native::RecordBatch& batch) {
  const std::lock_guard lock(mutex_);
  if (spare_batches_.size() >= kMostSpareBatches || batch.records.capacity() > kMostSpareRecords)
    return;
  batch.clear();
  spare_batches_.push_back(std::move(batch));
}

Status NativeRun::write_lines(const native::RecordBatch& batch, OpenFile* file) {
  constexpr auto kAddEntry = [](void* data, const native::RecordBatch& sizes,
                                const native::Record& record) {
    if (data != nullptr) static_cast<OpenFile*>(data)->add_entry(sizes, record);
  };
  lines_.begin(batch);
  auto prepared = batch.prepared.begin();
  for (size_t i = 0; i <= batch.records.size(); ++i) {
    for (; prepared != batch.prepared.end() && prepared->after == i; ++prepared)
      lines_.append(*prepared, kAddEntry, file);
    if (i < batch.records.size()) lines_.append(i);
  }
  ASSAY_TRY_STATUS(noted(records_.check(records_path_)));
  std::string_view text = lines_.text();
  if (records_file_.bytes == 0 && !options_.run_id.empty() && !text.empty()) {
    JsonObject line;
    line.add(native::key::kRun, options_.run_id);
    ASSAY_TRY_STATUS(write_text(std::string(line.open_text()) + ","));
    text.remove_prefix(1);
  }
  return write_text(text);
}

// Writer's thread.
Status NativeRun::write_text(std::string_view text) {
  ByteSpan rest = as_bytes(text);
  while (!rest.empty()) {
    const ssize_t written = options_.io.write(records_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return noted(fail(errno_error(written < 0 ? errno : EIO, "write", records_path_)));
    }
    rest = rest.subspan(static_cast<size_t>(written));
  }
  records_digest_.update(as_bytes(text));
  const std::lock_guard lock(mutex_);
  records_file_.bytes += text.size();
  records_file_.entries += static_cast<uint64_t>(std::ranges::count(text, '\n'));
  records_file_.digest = records_digest_.finish();
  return {};
}

void NativeRun::flush() {
  end_file();
  wait_until_written();
}

void NativeRun::write_out() {
  if (!alive()) return;
  if (open_ != nullptr && head_ != std::max(submitted_, written_out_)) {
    // What came since the last call. Its block will write it once more; until then these bytes of
    // the arena stay as they are.
    const uint64_t from = std::max(submitted_, written_out_);
    writer_->submit(0, [this, file = open_, from, end = head_]() -> Status {
      if (broken()) return {};
      const ByteSpan bytes(arena_ + from % options_.arena_bytes, end - from);
      return noted(file->file.write_early(file->offset_of(from), bytes));
    });
    written_out_ = head_;
  }
  submit_lines();
}

void NativeRun::wait_until_written() {
  if (!alive()) return;
  wait_([](void* data) { static_cast<NativeRun*>(data)->writer_->flush(); }, this);
}

void NativeRun::when_written(std::function<Status()> then) {
  if (!alive()) return;
  end_file();
  writer_->submit(0, [this, then = std::move(then)] { return broken() ? Status() : then(); });
}

// A folder that was moved or removed takes with it what was written so far.
Status NativeRun::check_place() {
  return broken() ? Status{} : noted(records_.check_place(records_path_));
}

void NativeRun::close() {
  if (!alive()) return;
  end_file();
  writer_->submit(0, [this] { return check_place(); });
  wait_([](void* data) { static_cast<NativeRun*>(data)->writer_->close(); }, this);
}

NativeRunCounters NativeRun::counters() const {
  NativeRunCounters result = counters_;
  if (writer_ != nullptr) result.waited_ms += writer_->counters().waited_ms;
  return result;
}

void NativeRun::describe_buffer(native::Manifest* manifest) const {
  const NativeRunCounters counts = counters();
  manifest->queue_bytes = arena_bytes();
  manifest->waited_ms = counts.waited_ms;
  manifest->dropped = counts.dropped;
  manifest->dropped_bytes = counts.dropped_bytes;
}

}  // namespace assay::writer

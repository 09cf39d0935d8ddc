// SPDX-License-Identifier: Apache-2.0
// The way of one tensor of the library: filters, a place in the queue, the copy, the file.
#include "capture/atb/session.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <exception>
#include <new>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "capture/common/checked_copy.hpp"
#include "capture/common/host_guard.hpp"
#include "formats/atb_statistics.hpp"
#include "formats/atb_types.hpp"
#include "writer/fork_guard.hpp"

namespace assay::capture::atb {
namespace {

using formats::ProbeCounters;

constexpr uint64_t kMaxTensorBytes = 10ull << 30;  // the originals' limit
constexpr size_t kMaxHeaderValueBytes = 50;        // likewise
constexpr uint64_t kRecordBytes = 512;             // header, or a record without data
constexpr size_t kMaxReplayMarks = 10'000;

void add(uint64_t& counter, uint64_t amount) {
  std::atomic_ref(counter).fetch_add(amount, std::memory_order_relaxed);
}

void raise_to(uint64_t& counter, uint64_t value) {
  std::atomic_ref shared(counter);
  uint64_t before = shared.load(std::memory_order_relaxed);
  while (before < value &&
         !shared.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

bool fits_header(std::string_view value) {
  return value.size() <= kMaxHeaderValueBytes &&
         value.find_first_of(std::string_view("\n\r=\0", 4)) == std::string_view::npos;
}

// "0_39943/0/2_Layer/0_MatMulKernel": the last folder belongs to a kernel.
bool is_kernel_folder(std::string_view path) {
  const size_t file = path.rfind('/');
  if (file == std::string_view::npos) return false;
  const size_t when = path.rfind('/', file - 1);
  return when != std::string_view::npos && path.substr(0, when).ends_with("Kernel");
}

// Tiling of a kernel behind the first: "{k}_{name}" with k > 0 before the file.
bool is_later_kernel(std::string_view path) {
  const std::string_view folder = path.substr(0, path.rfind('/'));
  const std::string_view name = folder.substr(folder.rfind('/') + 1);
  const size_t digits = name.find('_');
  return digits != std::string_view::npos &&
         parse_number<int64_t>(name.substr(0, digits)).value_or(0) > 0;
}

bool all_zero(ByteSpan bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// "totalTime:0, runnerSetupTime:0": every number is 0.
bool all_numbers_zero(std::string_view text) {
  return text.find(':') != std::string_view::npos &&
         text.find_first_of("123456789") == std::string_view::npos;
}

std::unique_ptr<std::byte[]> allocate(uint64_t size_bytes) {
  return std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[size_bytes]);
}

// All threads of the host; std::hash of std::thread::id is no number of the thread for sure.
uint64_t this_thread() {
  static std::atomic<uint64_t> next{1};
  thread_local uint64_t number __attribute__((tls_model("initial-exec"))) = 0;
  if (number == 0) number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

// The record's text, with statistics of the data when they are wanted.
std::string header_of(const Settings& settings, const TensorArguments& tensor, bool with_data) {
  std::optional<formats::AtbStatisticsTexts> texts;
  if (settings.statistics) {
    const FloatingPointState host_state;
    texts = formats::atb_statistics(
        parse_number<int64_t>(tensor.dtype).value_or(formats::kAtbUndefined),
        ByteSpan(static_cast<const std::byte*>(tensor.data), tensor.size_bytes),
        settings.statistics_text == StatisticsText::Decimals ? formats::AtbStatisticsForm::Decimals
                                                             : formats::AtbStatisticsForm::Exact);
  }
  return formats::atb_record_header({tensor.format, tensor.dtype, tensor.dims}, texts,
                                    with_data ? std::optional(tensor.size_bytes) : std::nullopt);
}

int64_t unix_now() { return static_cast<int64_t>(::time(nullptr)); }

bool wants_data(const Settings& settings) {
  return settings.save_data && (!settings.statistics || settings.data_with_statistics);
}

writer::AtbTreeOptions tree_options(const Settings& settings, const SessionOptions& options) {
  writer::AtbTreeOptions tree;
  tree.root = options.root;
  tree.process = std::to_string(options.pid);
  tree.remember_files =
      settings.has(kTensor) && (settings.has(kOp) || settings.has(kKernel)) && !settings.native;
  if (!settings.subprocess_list.empty()) {
    tree.subprocess_list = settings.subprocess_list + "/subprocess_info.txt";
  }
  tree.overflow_file = options.overflow_file;
  tree.write_file = options.write_file;
  return tree;
}

std::string_view row_path(const writer::AtbRow& row) {
  for (const auto* tensors : {&row.inputs, &row.outputs}) {
    for (const formats::OpCsvTensor& tensor : *tensors) {
      if (tensor.file.find('/') != std::string::npos) return tensor.file;
    }
  }
  return {};
}

uint64_t row_bytes(const writer::AtbRow& row) {
  uint64_t size = sizeof(row) + row.op_name.size() + row.op_param.size();
  for (const auto* tensors : {&row.inputs, &row.outputs}) {
    for (const formats::OpCsvTensor& tensor : *tensors) {
      size += sizeof(tensor) + tensor.shape.size() + tensor.file.size();
    }
  }
  return size;
}

}  // namespace

/// A record on its way to the disk.
struct AtbSession::TensorJob {
  std::string path;
  std::string format;
  std::string dtype;
  std::string dims;
  BufferPool::Buffer file;  // header, then payload
  size_t header_bytes = 0;
  uint64_t payload_bytes = 0;
  bool hash = false;
  uint64_t thread = 0;
};

namespace {

/// Behind it nothing was asked for.
uint64_t last_of(const RunRange& range) {
  if (range.all || range.pairs.empty()) return UINT64_MAX;
  int64_t last = 0;
  for (const auto& pair : range.pairs) last = std::max(last, pair.second);
  return static_cast<uint64_t>(last);
}

}  // namespace

AtbSession::AtbSession(const Settings& settings, SessionOptions options)
    : options_(std::move(options)),
      generation_(writer::fork_generation()),
      drop_when_full_(settings.drop_when_full),
      disk_reserve_bytes_(settings.disk_reserve_bytes),
      range_(settings.config_path.empty() ? settings.range : RunRange()),
      last_run_(last_of(range_)),
      buffers_(settings.queue_bytes),
      tree_(tree_options(settings, options_)) {}

Result<AtbSession*> AtbSession::open(const Settings& settings, SessionOptions options) {
  const FileSizeSignalBlocked no_signal;
  if (!options.root.empty()) {
    ASSAY_TRY_STATUS(make_directories(options.root, formats::kAtbFolderMode));
  }
  auto session = std::unique_ptr<AtbSession>(new AtbSession(settings, std::move(options)));
  ASSAY_TRY_STATUS(session->open_page());
  if (!settings.write_in_caller && !session->options_.root.empty()) {
    session->page_->counters.queue_bound_bytes = settings.queue_bytes;
    session->writer_ = std::make_unique<writer::AsyncWriter>(writer::AsyncWriterOptions{
        .queue_bytes = settings.queue_bytes,
        .on_full = settings.drop_when_full ? writer::FullPolicy::Drop : writer::FullPolicy::Wait,
        // The host waits for this thread when the queue is full, so it must not come last.
        .niceness = 0,
        .thread_name = "assay-probe"});
  }
  if (settings.native && !session->options_.root.empty() && !session->options_.write_file) {
    NativeTensorsOptions native;
    native.folder = session->options_.root + "/tensors";
    native.program = session->options_.program;
    // A configuration file may ask for data later.
    if (wants_data(settings) || !settings.config_path.empty())
      native.arena_bytes = settings.queue_bytes;
    native.on_full = settings.drop_when_full ? writer::FullPolicy::Drop : writer::FullPolicy::Wait;
    native.synchronous = settings.write_in_caller;
    native.written = [shared = session.get()](const native::RecordBatch& lines) {
      shared->count_written(lines);
    };
    session->native_ = std::make_unique<NativeTensors>(std::move(native));
  }
  return session.release();
}

Status AtbSession::open_page() {
  constexpr size_t kBytes = sizeof(formats::ProbeStatus);
  void* memory = MAP_FAILED;
  if (!options_.root.empty()) {
    const std::string path = options_.root + "/probe_status_" + std::to_string(options_.pid);
    const int fd =
        ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, formats::kAtbFileMode);
    if (fd < 0) return fail(errno_error(errno, "create", path));
    // Blocks on the disk now: a page without them would raise SIGBUS on a full disk later.
    if (::posix_fallocate(fd, 0, kBytes) == 0) {
      memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    ::close(fd);
    if (memory != MAP_FAILED) {
      page_path_ = path;
    } else {
      ::unlink(path.c_str());
    }
  }
  if (memory == MAP_FAILED) {
    memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (memory == MAP_FAILED) return fail(errno_error(errno, "map the status page", options_.root));
  page_ = new (memory) formats::ProbeStatus{};
  page_->pid = options_.pid;
  page_->started = unix_now();
  formats::set_status_text(page_->tool, sizeof(page_->tool), "assay " ASSAY_VERSION);
  formats::set_status_text(page_->program, sizeof(page_->program), options_.program);
  return {};
}

void AtbSession::count(uint64_t ProbeCounters::* counter, uint64_t amount) {
  add(page_->counters.*counter, amount);
}

void AtbSession::add_note(std::string_view sentence) {
  const std::lock_guard lock(small_mutex_);
  for (auto& note : page_->notes) {
    if (std::string_view(note) == sentence.substr(0, sizeof(note) - 1)) return;
    if (note[0] != '\0') continue;
    formats::set_status_text(note, sizeof(note), sentence);
    return;
  }
}

void AtbSession::see_unwanted(std::span<const int64_t> ids, std::string_view op_type) {
  constexpr size_t kMost = 16;  // more than a note can hold
  if (std::atomic_ref(page_->counters.asked_need_save_yes).load(std::memory_order_relaxed) > 0)
    return;
  const auto remember = [](std::string text, std::vector<std::string>* list) {
    if (list->size() < kMost && std::ranges::find(*list, text) == list->end())
      list->push_back(std::move(text));
  };
  const std::lock_guard lock(small_mutex_);
  remember(std::string(op_type), &unwanted_types_);
  remember(joined_ids(ids), &unwanted_ids_);
}

void AtbSession::note_unwanted() {
  if (page_->counters.asked_need_save_yes > 0) return;
  std::string note;
  {
    const std::lock_guard lock(small_mutex_);
    if (unwanted_types_.empty()) return;
    constexpr size_t kTypesBytes = 160;  // of the 256 of a note; ids are short
    note = formats::kOperationsNote;
    for (const std::string& type : unwanted_types_) {
      if (note.size() + type.size() > kTypesBytes) break;
      note += (type == unwanted_types_.front() ? "" : ", ") + type;
    }
    note += formats::kOperationsNoteIds;
    for (const std::string& id : unwanted_ids_) {
      if (note.size() + id.size() + 2 >= sizeof(page_->notes[0])) break;
      note += (id == unwanted_ids_.front() ? "" : ", ") + id;
    }
  }
  add_note(note);
}

void AtbSession::see_run(uint64_t execute_count, bool wanted) {
  if (execute_count >= runs_.load(std::memory_order_relaxed))
    runs_.store(execute_count + 1, std::memory_order_relaxed);
  const bool is_over = !wanted && execute_count > last_run_ &&
                       std::atomic_ref(page_->counters.asked_in_range_yes).load() > 0;
  if ((wanted || is_over) && concluded_.exchange(is_over) != is_over) conclude(is_over);
}

void AtbSession::conclude(bool is_over) {
  if (finished_.load(std::memory_order_acquire)) return;
  std::atomic_ref(page_->concluded).store(0);
  if (native_ != nullptr) native_->conclude(is_over);
  if (!is_over) return;
  const auto say = [this]() -> Status {
    if (concluded_.load()) std::atomic_ref(page_->concluded).store(1);
    return {};
  };
  if (writer_ == nullptr || !writer_->submit(0, say)) (void)say();
}

void AtbSession::note_unreached() {
  const uint64_t runs = runs_.load(std::memory_order_relaxed);
  const std::string missing = unreached(range_, runs);
  // Where nothing at all was reached the command says so.
  if (missing.empty() || page_->counters.asked_in_range_yes == 0) return;
  add_note("the steps " + missing + " (-er) were not reached: the operations ran " +
           counted(runs, "time") + " at most");
}

bool AtbSession::note_error(const std::string& text) {
  const std::lock_guard lock(small_mutex_);
  if (std::exchange(told_error_, true)) return false;
  formats::set_status_text(page_->first_error, sizeof(page_->first_error), text);
  return true;
}

void AtbSession::fail_with(const Error& error) {
  if (!note_error(error.describe())) return;
  tell(LogLevel::Error, error.describe() + "; the run continues, its capture is incomplete");
}

void AtbSession::skip(uint64_t ProbeCounters::* counter, std::string_view sentence) {
  count(counter);
  if (sentence.empty()) return;
  {
    const std::lock_guard lock(small_mutex_);
    if (std::ranges::find(told_skips_, counter) != told_skips_.end()) return;
    told_skips_.push_back(counter);
  }
  add_note(sentence);
  tell(LogLevel::Warning, sentence);
}

// ---- writing ------------------------------------------------------------------------------------

AtbSession::Admission AtbSession::admit(uint64_t size_bytes) {
  if (writer_ == nullptr || finished_.load(std::memory_order_acquire)) return Admission::Direct;
  const bool waits = writer_->would_wait(size_bytes);
  const auto start = std::chrono::steady_clock::now();
  const bool admitted = writer_->admit(size_bytes);
  if (waits) {
    const auto waited = std::chrono::steady_clock::now() - start;
    count(&ProbeCounters::waited_us,
          static_cast<uint64_t>(
              std::chrono::duration_cast<std::chrono::microseconds>(waited).count()));
  }
  if (admitted) {
    raise_to(page_->counters.queue_peak_bytes, held_bytes_.fetch_add(size_bytes) + size_bytes);
    return Admission::Queue;
  }
  // Without a thread, or at the end of the process, nothing is lost either.
  if (drop_when_full_ && !finished_.load(std::memory_order_acquire)) return Admission::Dropped;
  return Admission::Direct;
}

void AtbSession::dispatch(Admission admission, uint64_t size_bytes, std::function<void()> job) {
  if (admission == Admission::Queue) {
    const bool queued = writer_->submit(size_bytes, [this, size_bytes, job]() -> Status {
      run_job(job);
      held_bytes_.fetch_sub(size_bytes);
      return {};
    });
    if (queued) return;
    held_bytes_.fetch_sub(size_bytes);
  }
  run_direct(job);
}

void AtbSession::post(uint64_t size_bytes, uint64_t ProbeCounters::* written,
                      std::function<Status()> write) {
  std::function<void()> job = [this, written, write = std::move(write)] {
    if (const Status status = write(); !status) return fail_with(status.error());
    count(written);
  };
  if (!drop_when_full_ || writer_ == nullptr || finished_.load(std::memory_order_acquire))
    return dispatch(admit(size_bytes), size_bytes, std::move(job));
  const bool queued = writer_->submit(0, [this, job]() -> Status {
    run_job(job);
    return {};
  });
  if (!queued) run_direct(job);
}

void AtbSession::run_direct(const std::function<void()>& job) {
  const FileSizeSignalBlocked no_signal;
  run_job(job);
  // A destructor of the host called us after the end: the summary must tell of it, too.
  if (finished_.load(std::memory_order_acquire)) write_summary();
}

void AtbSession::run_job(const std::function<void()>& job) {
  const std::lock_guard lock(tree_mutex_);
  try {
    job();
  } catch (const std::exception& exception) {
    fail_with(Error{Errc::Internal, {}, {}, std::string("exception: ") + exception.what()});
  }
}

std::string AtbSession::summary_path() const {
  return options_.root + "/probe_summary_" + std::to_string(options_.pid) + ".json";
}

void AtbSession::write_summary() {
  if (options_.root.empty()) return;
  const std::string json = formats::probe_summary_json(*page_, true, unix_now());
  if (const Status status =
          write_file_atomically(summary_path(), as_bytes(json), formats::kAtbFileMode);
      !status) {
    fail_with(status.error());
  }
}

void AtbSession::finish() {
  if (finished_.exchange(true)) return;
  const FileSizeSignalBlocked no_signal;
  if (native_ != nullptr) {
    native_->finish();
    count(&ProbeCounters::waited_us, static_cast<uint64_t>(native_->waited_ms() * 1e3));
    // The writer has said it already.
    if (const std::string error = native_->first_error(); !error.empty()) note_error(error);
    if (const std::string refusal = native_->refusal(); !refusal.empty())
      add_note("tensors were written as a file each, because of " + refusal);
  }
  if (writer_ != nullptr) writer_->close();
  {
    const std::lock_guard lock(tree_mutex_);
    if (const Status status = tree_.finish(); !status) fail_with(status.error());
  }
  if (zero_reports_ > 0 && zero_reports_ == statistic_reports_) {
    add_note(
        "the library resets its statistics before it reports them (since CANN 8.2): every number "
        "is 0");
  }
  note_unwanted();
  note_unreached();
  if (options_.root.empty()) return;
  write_summary();
  struct stat info{};
  if (!page_path_.empty() && ::stat(summary_path().c_str(), &info) == 0) {
    ::unlink(page_path_.c_str());
  }
}

// ---- what the library hands over ----------------------------------------------------------------

bool AtbSession::disk_has(uint64_t size_bytes) {
  const std::lock_guard lock(small_mutex_);
  if (!disk_) {
    // The whole reserve on small disks, too, as the originals had it.
    const auto space = [root = options_.root]() -> std::optional<writer::DiskSpace> {
      struct statvfs info{};
      if (::statvfs(root.c_str(), &info) != 0) return std::nullopt;
      return writer::DiskSpace{static_cast<uint64_t>(info.f_bavail) * info.f_frsize, UINT64_MAX};
    };
    disk_.emplace(
        space, writer::DiskBudgetOptions{.limit_bytes = {}, .reserve_bytes = disk_reserve_bytes_});
  }
  if (disk_->admit(size_bytes)) return true;
  // A refusal is for good; the next tensor may be smaller, or the disk have room again.
  disk_.reset();
  return false;
}

void AtbSession::see_device(std::string_view path) {
  const std::optional<int64_t> device = parse_number<int64_t>(path.substr(0, path.find('_')));
  if (device) device_.store(*device, std::memory_order_relaxed);
}

// The originals' order: a tensor with several faults counts under the first.
std::optional<std::string> AtbSession::wanted_path(const Settings& settings,
                                                   const TensorArguments& tensor,
                                                   uint64_t payload_bytes) {
  const auto skipped = [this](uint64_t ProbeCounters::* counter, std::string_view sentence = {}) {
    skip(counter, sentence);
    return std::nullopt;
  };
  if (!wants_part(settings, tensor.path)) return skipped(&ProbeCounters::skipped_part);
  if (tensor.size_bytes == 0 || tensor.size_bytes > kMaxTensorBytes) {
    return skipped(&ProbeCounters::skipped_size,
                   "a tensor has " + std::to_string(tensor.size_bytes) +
                       " bytes and was not saved; 1 byte to 10 GiB are");
  }
  Result<std::string> path = writer::atb_relative_path(tensor.path);
  if (!path) {
    return skipped(&ProbeCounters::skipped_name, "a tensor was not saved: " + path.error().message +
                                                     ": " +
                                                     std::string(tensor.path.substr(0, 100)));
  }
  see_device(tensor.path);
  if (!device_matches(settings, tensor.path)) return skipped(&ProbeCounters::skipped_device);
  if (!disk_has(payload_bytes + kRecordBytes)) {
    return skipped(&ProbeCounters::skipped_disk,
                   "a tensor was not saved: the disk is almost full, " +
                       human_bytes(settings.disk_reserve_bytes) +
                       " must stay free (ASSAY_PROBE_DISK_RESERVE)");
  }
  if (tensor.data == nullptr) return skipped(&ProbeCounters::skipped_null);
  if (!wants_time(settings, tensor.path)) return skipped(&ProbeCounters::skipped_time);
  if (!fits_header(tensor.format) || !fits_header(tensor.dtype) || !fits_header(tensor.dims)) {
    return skipped(&ProbeCounters::skipped_header,
                   "a tensor was not saved: its format, dtype or dims has more than 50 characters "
                   "or a line feed");
  }
  return *std::move(path);
}

void AtbSession::save_tensor(const Settings& settings, const TensorArguments& tensor) {
  count(&ProbeCounters::tensors_seen);
  if (!settings.config_path.empty() &&
      std::atomic_ref(page_->counters.asked_in_dir).load(std::memory_order_relaxed) == 0) {
    add_note(
        "this library does not ask about folders (it is older than CANN 8.3): ids, names and child "
        "of the configuration file have no effect");
  }
  const bool with_data =
      wants_data(settings) && !(settings.without_kernel_data && is_kernel_folder(tensor.path));
  const uint64_t payload_bytes = with_data ? tensor.size_bytes : 0;
  const std::optional<std::string> path = wanted_path(settings, tensor, payload_bytes);
  if (!path) return;

  // Only where size and shape contradict each other is the memory in doubt.
  TensorArguments readable = tensor;
  std::unique_ptr<std::byte[]> checked;
  if (described_bytes(tensor) != tensor.size_bytes && (with_data || settings.statistics)) {
    checked = allocate(tensor.size_bytes);
    if (checked == nullptr || !copy_checked(tensor.data, tensor.size_bytes, checked.get())) {
      return skip(&ProbeCounters::skipped_size,
                  "a tensor was not saved: its " + std::to_string(tensor.size_bytes) +
                      " bytes are not those of its shape, and cannot all be read");
    }
    readable.data = checked.get();
  }
  if (take_native(settings, readable, *path, with_data)) return;
  queue_tensor(*path, readable, header_of(settings, readable, with_data), payload_bytes,
               settings.link_identical && with_data);
}

bool AtbSession::take_native(const Settings& settings, const TensorArguments& tensor,
                             const std::string& path, bool with_data) {
  if (native_ == nullptr || !settings.native) return false;
  switch (native_->take(
      tensor, path,
      {.data = with_data, .statistics = settings.statistics, .digest = settings.digest})) {
    case Taken::Elsewhere:
      return false;
    case Taken::Dropped:
      count(&ProbeCounters::tensors_dropped);
      return true;
    case Taken::Here:
      break;
  }
  count(&ProbeCounters::tensors_accepted);
  return true;
}

void AtbSession::count_written(const native::RecordBatch& lines) {
  uint64_t written = 0;
  uint64_t linked = 0;
  uint64_t params = 0;
  uint64_t bytes = 0;
  for (const native::Record& record : lines.records) {
    if (record.kind == native::RecordKind::Operator) {
      ++params;
    } else if (record.payload && !record.first_copy) {
      ++linked;
    } else {
      ++written;
      if (record.payload) bytes += record.payload->size_bytes;
    }
  }
  count(&ProbeCounters::param_files, params);
  count(&ProbeCounters::payload_bytes, bytes);
  count(&ProbeCounters::tensors_linked, linked);
  count(&ProbeCounters::tensors_written, written);
}

void AtbSession::queue_tensor(const std::string& path, const TensorArguments& tensor,
                              const std::string& header, uint64_t payload_bytes, bool may_link) {
  const uint64_t size_bytes = header.size() + payload_bytes;
  const Admission admission = admit(size_bytes);
  if (admission == Admission::Dropped) return count(&ProbeCounters::tensors_dropped);
  count(&ProbeCounters::tensors_accepted);
  auto job = std::make_shared<TensorJob>();
  job->file = buffers_.take(size_bytes);
  if (job->file.bytes == nullptr) {
    if (admission == Admission::Queue) {
      held_bytes_.fetch_sub(size_bytes);
      writer_->release(size_bytes);
    }
    count(&ProbeCounters::tensors_failed);
    return fail_with(Error{Errc::Internal, path, {}, "no memory for a copy of the tensor"});
  }
  std::memcpy(job->file.span().data(), header.data(), header.size());
  if (payload_bytes > 0)
    std::memcpy(job->file.span().data() + header.size(), tensor.data, payload_bytes);
  job->path = path;
  job->header_bytes = header.size();
  job->payload_bytes = payload_bytes;
  job->thread = this_thread();
  job->hash = may_link;
  if (may_link) {
    job->format = tensor.format;
    job->dtype = tensor.dtype;
    job->dims = tensor.dims;
  }
  dispatch(admission, size_bytes, [this, job] { store_tensor(*job); });
}

void AtbSession::store_tensor(TensorJob& job) {
  if (const Status status = tree_.settle_kernel(job.thread, job.path); !status)
    fail_with(status.error());
  writer::AtbRecord record;
  record.path = job.path;
  record.file = job.file.span();
  if (job.hash) {
    const formats::AtbAttribute attributes[] = {
        {"format", job.format}, {"dtype", job.dtype}, {"dims", job.dims}};
    record.hash = writer::atb_record_hash(attributes, record.file.subspan(job.header_bytes));
  }
  const Result<writer::AtbTree::Stored> stored = tree_.write_record(record);
  job.file = {};
  if (!stored) {
    count(&ProbeCounters::tensors_failed);
    return fail_with(stored.error());
  }
  if (*stored == writer::AtbTree::Stored::Link) return count(&ProbeCounters::tensors_linked);
  count(&ProbeCounters::payload_bytes, job.payload_bytes);
  count(&ProbeCounters::tensors_written);
}

void AtbSession::save_tiling(const Settings& settings, const void* data, uint64_t size_bytes,
                             std::string_view path) {
  const Result<std::string> relative = writer::atb_relative_path(path);
  if (!relative || data == nullptr || size_bytes == 0 || size_bytes > kMaxTensorBytes) {
    return add_note("a tiling buffer was not saved: no data, no usable path, or too large");
  }
  see_device(path);
  if (!device_matches(settings, path)) return;
  if (!disk_has(size_bytes)) {
    return add_note("the disk is almost full: tiling was left out");
  }
  // The library adds the offset of later kernels twice, so the pointer may lead anywhere.
  std::shared_ptr<std::byte[]> copy = allocate(size_bytes);
  if (copy == nullptr || !copy_checked(data, size_bytes, copy.get())) {
    return add_note("a tiling buffer was not saved: its memory cannot be read");
  }
  if (is_later_kernel(path)) {
    add_note(
        "tiling of kernels behind the first of an operation is unreliable: the library passes a "
        "pointer with the offset added twice");
  }
  if (all_zero(ByteSpan(copy.get(), size_bytes))) {
    add_note(
        "tiling that is all zero was never filled: since CANN 8.1 the library launches kernels "
        "with "
        "a tiling buffer of their own");
  }
  look_for_replay(std::string(path),
                  std::atomic_ref(page_->counters.tensors_seen).load(std::memory_order_relaxed));
  post(size_bytes, &ProbeCounters::tiling_files, [this, copy, size_bytes, file = *relative] {
    return tree_.write_tiling(file, ByteSpan(copy.get(), size_bytes));
  });
}

// Tiling of the same kernel twice and no tensor in between, or a Setup that did not advance: a
// captured graph runs again, and of that the library tells nothing else.
void AtbSession::look_for_replay(std::string_view key, uint64_t mark) {
  bool is_replay = false;
  {
    const std::lock_guard lock(small_mutex_);
    if (replay_marks_.size() > kMaxReplayMarks) replay_marks_.clear();
    const auto [entry, is_new] = replay_marks_.try_emplace(std::string(key), mark);
    is_replay = !is_new && entry->second == mark;
    entry->second = mark;
  }
  if (is_replay) {
    add_note(
        "captured graphs were replayed: the library calls no probe then, so only the capturing run "
        "is here, and its tensors are from before the kernels ran");
  }
}

void AtbSession::save_param(const Settings& settings, std::string_view param,
                            std::string_view path) {
  const Result<std::string> relative = writer::atb_relative_path(path);
  if (!relative) return add_note("parameters were not saved: " + relative.error().message);
  see_device(path);
  if (!device_matches(settings, path)) return;
  if (!disk_has(param.size() + 1)) {
    return add_note("the disk is almost full: parameters were left out");
  }
  if (native_ != nullptr && settings.native && native_->take_param(*relative, param) == Taken::Here)
    return;
  post(param.size() + relative->size(), &ProbeCounters::param_files,
       [this, thread = this_thread(), file = *relative, text = std::string(param)]() -> Status {
         ASSAY_TRY_STATUS(tree_.settle_kernel(thread, file));
         return tree_.write_param(file, text);
       });
}

bool AtbSession::process_device_matches(const Settings& settings) {
  if (settings.devices.empty()) return true;
  int64_t device = device_.load(std::memory_order_relaxed);
  if (device < 0) {
    using GetDevice = int (*)(int32_t*);
    const auto get_device = reinterpret_cast<GetDevice>(::dlsym(RTLD_DEFAULT, "aclrtGetDevice"));
    int32_t current = -1;
    if (get_device == nullptr || get_device(&current) != 0) return true;
    device = current;
  }
  return device_matches(settings, std::to_string(device));
}

void AtbSession::report_layer(const Settings& settings, std::string_view name,
                              std::string_view report) {
  if (!process_device_matches(settings)) return;
  post(name.size() + report.size(), &ProbeCounters::layer_files,
       [this, layer = std::string(name), text = std::string(report)] {
         return in_file("topology of " + layer, tree_.write_layer(layer, text));
       });
}

bool AtbSession::wants_model(std::string_view name) {
  const std::lock_guard lock(small_mutex_);
  return !reported_models_.contains(name);
}

void AtbSession::report_model(const Settings& settings, std::string_view name,
                              std::string_view report) {
  {
    const std::lock_guard lock(small_mutex_);
    if (!reported_models_.emplace(name).second) return;
  }
  if (!process_device_matches(settings)) return;
  post(name.size() + report.size(), &ProbeCounters::model_files,
       [this, model = std::string(name), text = std::string(report)] {
         return in_file("topology of " + model, tree_.write_model(model, text));
       });
}

void AtbSession::report_operation(const Settings& settings, writer::AtbRow row) {
  const std::string_view path = row_path(row);
  if (!path.empty() && !device_matches(settings, path)) return;
  if (!row_matches(settings, row.execute_count, row.op_name)) return;
  const uint64_t size_bytes = row_bytes(row);
  post(size_bytes, &ProbeCounters::operation_rows,
       [this, thread = this_thread(),
        shared = std::make_shared<writer::AtbRow>(std::move(row))]() -> Status {
         ASSAY_TRY_STATUS(tree_.settle_kernel(thread, ""));
         return tree_.append_operation(std::move(*shared));
       });
}

void AtbSession::report_kernel(const Settings& settings, writer::AtbRow row) {
  const std::string_view path = row_path(row);
  if (!path.empty() && !device_matches(settings, path)) return;
  if (settings.filter_rows && !settings.range.contains(row.execute_count)) return;
  const uint64_t size_bytes = row_bytes(row);
  post(size_bytes, &ProbeCounters::kernel_rows,
       [this, thread = this_thread(), shared = std::make_shared<writer::AtbRow>(std::move(row))] {
         return tree_.append_kernel(thread, std::move(*shared));
       });
}

void AtbSession::report_setup(const Settings& settings, uint64_t count_of_runs,
                              std::string_view name, std::string_view text) {
  look_for_replay("setup of " + std::string(name), count_of_runs);
  report_execute(settings, count_of_runs, name, text);
}

void AtbSession::report_execute(const Settings& settings, uint64_t count_of_runs,
                                std::string_view name, std::string_view text) {
  if (!process_device_matches(settings)) return;
  ++statistic_reports_;
  if (all_numbers_zero(text)) ++zero_reports_;
  post(name.size() + text.size(), &ProbeCounters::statistic_lines,
       [this, count_of_runs, op = std::string(name), line = std::string(text)] {
         return tree_.append_statistic(count_of_runs, op, line);
       });
}

void AtbSession::report_overflow(std::string_view kernel) {
  count(&ProbeCounters::overflows);
  // At once: the host may be about to stop because of it.
  run_direct([this, name = std::string(kernel)] {
    const Status status = tree_.report_overflow(name);
    if (!status) fail_with(status.error());
  });
}

}  // namespace assay::capture::atb

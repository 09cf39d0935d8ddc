// SPDX-License-Identifier: Apache-2.0
// Each process folder of the dump is one Process: a session of the native layout with the lines of
// its records. Bytes that were seen in the last steps are not written again, only named
// (KnownValues).
#include "capture/atb/native_tensors.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/json_text.hpp"
#include "base/numbers.hpp"
#include "base/signals_blocked.hpp"
#include "base/text.hpp"
#include "capture/common/host_guard.hpp"
#include "capture/intake/take.hpp"
#include "formats/atb_bin.hpp"
#include "formats/atb_paths.hpp"
#include "formats/atb_statistics.hpp"
#include "formats/json_fields.hpp"
#include "formats/native/step_header.hpp"
#include "formats/plain_json.hpp"
#include "stats/digest.hpp"
#include "writer/layouts/native_run.hpp"
#include "writer/run_claim.hpp"

namespace assay::capture::atb {
namespace {

constexpr size_t kMostValues = size_t{1} << 16;              // of one age, see KnownValues
constexpr size_t kMaxParameterBytes = size_t{64} << 10;      // a line has at most 1 MiB
constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53: what a double can count to

constexpr std::chrono::milliseconds kPause(100);
constexpr int kMostBusyLooks = 10;

void wait_here(void (*wait)(void* data), void* data) { wait(data); }

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
};

/// Bytes that were seen: where they are stored, and their sums.
struct KnownValue {
  uint64_t number = 0;  // of the record that had them first
  std::optional<native::PayloadLocation> payload;
  std::optional<stats::TensorStats> stats;

  /// Whether the lines of `record` and of `number` say the same of the bytes.
  [[nodiscard]] bool has_all_of(const native::Record& record) const {
    return payload.has_value() == record.payload.has_value() &&
           stats.has_value() == record.stats.has_value();
  }
};

/// The values of the last steps, by their digests. What is seen again stays: weights are read in
/// every step, so they are written once however long the run is.
class KnownValues {
 public:
  struct Key {
    stats::Digest digest;
    uint64_t size_bytes = 0;
    DType dtype = DType::Float32;
    friend bool operator==(const Key&, const Key&) = default;
  };

  /// nullptr: not seen lately. Holds until the next call.
  [[nodiscard]] KnownValue* find(const Key& key) {
    const auto found = young_.find(key);
    if (found != young_.end()) return &found->second;
    const auto old = old_.find(key);
    if (old == old_.end()) return nullptr;
    KnownValue value = std::move(old->second);
    old_.erase(old);
    return &add(key, std::move(value));
  }
  KnownValue& add(const Key& key, KnownValue value) {
    if (young_.size() >= kMostValues) {
      old_ = std::move(young_);
      young_.clear();
    }
    return young_.insert_or_assign(key, std::move(value)).first->second;
  }

 private:
  struct Hash {
    size_t operator()(const Key& key) const noexcept {
      return key.digest.low ^ static_cast<size_t>(key.dtype);
    }
  };
  using Values = std::unordered_map<Key, KnownValue, Hash>;
  Values young_;
  Values old_;
};

}  // namespace

/// A tensor in the layout's terms.
struct NativeTensors::Tensor {
  formats::AtbTensorPath path;
  DType dtype = DType::Float32;
  Dims shape;
  int64_t format = formats::kAtbFormatNd;
  ByteSpan bytes;
};

/// What is in one folder {device}_{pid}.
class NativeTensors::Process {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Process>> create(const NativeTensorsOptions& options,
                                                               std::string_view name) {
    auto process = std::unique_ptr<Process>(new Process);
    process->folder_ = options.folder + "/" + std::string(name);
    ASSAY_TRY_STATUS(make_directories(process->folder_, formats::kAtbFolderMode));
    native::Manifest& manifest = process->manifest_;
    manifest.tool = "assay " ASSAY_VERSION;
    const auto parsed = formats::parse_atb_process_folder(name);
    manifest.host_json = JsonObject()
                             .add("kind", "atb")
                             .add("program", options.program)
                             .add("pid", parsed ? parsed->process : -1)
                             .add("device", parsed ? parsed->device : -1)
                             .text();
    manifest.config_json = JsonObject().add("level", "operation").text();
    manifest.started = writer::utc_now();
    manifest.id = writer::new_run_id();
    // A folder that another process of this number has left is not ours.
    ASSAY_TRY(const bool is_new, writer::create_manifest(process->manifest_path(), manifest));
    if (!is_new)
      return fail(Error{Errc::Invalid, process->folder_, {}, "holds a captured run already"});
    writer::NativeRunOptions run;
    run.folder = process->folder_;
    run.run_id = manifest.id;
    run.arena_bytes = options.arena_bytes;
    run.on_full = options.on_full;
    // The session asks for the disk's room before each tensor, and goes on when there is some
    // again.
    run.disk.reserve_bytes = 0;
    // The host waits for this thread when the buffer is full, so it must not come last.
    run.niceness = 0;
    run.thread_name = "assay-probe";
    run.written = options.written;
    ASSAY_TRY(process->run_, writer::NativeRun::create(std::move(run), wait_here));
    process->run_->describe_buffer(&manifest);
    return process;
  }

  [[nodiscard]] writer::NativeRun& run() { return *run_; }
  [[nodiscard]] KnownValues& values() { return values_; }

  /// False: nothing was recorded, the run has stopped or the tensor was dropped.
  [[nodiscard]] bool add(const Tensor& tensor, WantedContent wanted, const KnownValues::Key& key,
                         const std::optional<stats::TensorStats>& stats) {
    begin_step(tensor.path.run_count);
    native::Record record = record_of(tensor.path.run_count, node_of(tensor.path.node));
    record.slot = slot_of(tensor.path.file);
    record.role = tensor.path.file.role;
    record.has_shape = true;
    record.ndim = static_cast<int32_t>(tensor.shape.size());
    record.dtype = tensor.dtype;
    record.dtype_name = name(tensor.dtype).data();
    record.more = more_of(tensor);
    record.more_repeats = tensor.format == formats::kAtbFormatNd;
    record.stats = stats;
    if (wanted.digest) record.digest = key.digest;
    KnownValue* known = wanted.data || wanted.statistics ? values_.find(key) : nullptr;
    if (wanted.data && known != nullptr) record.payload = known->payload;
    if (wanted.data && !record.payload) {
      const Result<TensorView> view = make_view(tensor.dtype, tensor.shape, tensor.bytes);
      if (view) append_elements(*run_, *view, record);
      if (!record.first_copy) return false;
    } else if (known != nullptr) {
      record.same_as = static_cast<int64_t>(known->number);
      record.repeats = known->has_all_of(record);
    }
    native::ManifestStep& step = steps_[tensor.path.run_count];
    ++step.records;
    ++step.tensors;
    if (record.first_copy) step.bytes += tensor.bytes.size();
    const uint64_t number = run_->push_record(record, tensor.shape.span(), {});
    if (known == nullptr) {
      if (wanted.data || wanted.statistics) values_.add(key, {number, record.payload, stats});
    } else if (!record.repeats) {
      *known = {number, record.payload, stats};
    }
    return true;
  }

  [[nodiscard]] bool add_param(const formats::AtbNodePath& path, std::string_view param) {
    begin_step(path.run_count);
    native::Record record = record_of(path.run_count, node_of(path.node));
    record.kind = native::RecordKind::Operator;
    ++steps_[path.run_count].records;
    (void)run_->push_record(record, {}, {}, param);
    return true;
  }

  void conclude(bool is_whole) {
    is_concluded_ = is_whole;
    run_->when_written([this, last = is_whole ? last_manifest() : manifest_, is_whole]() mutable {
      if (is_whole) last.files = run_->files();
      return writer::write_manifest(manifest_path(), last);
    });
  }

  /// The first error, or nothing.
  [[nodiscard]] Status finish() {
    run_->close();
    native::Manifest last = last_manifest();
    last.files = run_->files();
    last.stopped = run_->stop_reason();
    ASSAY_TRY_STATUS(writer::write_manifest(manifest_path(), last));
    if (last.stopped.empty()) return {};
    return fail(Error{Errc::Io, folder_, {}, last.stopped});
  }

 private:
  Process() = default;

  [[nodiscard]] native::Manifest last_manifest() const {
    native::Manifest last = manifest_;
    run_->describe_buffer(&last);
    for (const auto& [number, step] : steps_) {
      last.steps.push_back(step);
      last.steps.back().step = number;
    }
    last.planned = last.captured = run_->counters().records;
    last.finished = writer::utc_now();
    return last;
  }

  [[nodiscard]] std::string manifest_path() const {
    return folder_ + "/" + std::string(native::kManifestFile);
  }

  /// Runs count up for each operation by itself. A new file begins where one is counted that this
  /// process has not come to yet: what was before is on its way to the disk as a whole.
  void begin_step(int64_t run_count) {
    if (is_concluded_) conclude(false);  // of another thread, which was not done
    if (run_count <= newest_step_) return;
    newest_step_ = run_count;
    order_ = 0;  // so that a line is like that of the step before
    run_->begin_file(native::step_file_stem(run_count), 256);
  }

  [[nodiscard]] const native::RecordNode* node_of(std::string_view path) {
    const auto known = nodes_.find(path);
    if (known != nodes_.end()) return known->second;
    const auto parsed = formats::parse_atb_node_folder(path.substr(path.rfind('/') + 1));
    const native::RecordNode* node =
        run_->add_node(std::string(path), std::string(parsed ? parsed->type : ""));
    return nodes_.emplace(path, node).first->second;
  }

  /// What the lines of one operation have in common.
  [[nodiscard]] native::Record record_of(int64_t run_count, const native::RecordNode* node) {
    native::Record record;
    record.step = run_count;
    record.node = node;
    if (node != last_node_ || run_count != last_step_) ++order_;
    last_node_ = node;
    last_step_ = run_count;
    record.order = order_;
    return record;
  }

  [[nodiscard]] const std::string* slot_of(const formats::AtbFileName& file) {
    if (file.parameter.empty()) return run_->intern(file.index);
    return run_->intern(std::string(file.index) + "_" + std::string(file.parameter));
  }

  [[nodiscard]] const std::string* more_of(const Tensor& tensor) {
    const bool is_plain = tensor.format == formats::kAtbFormatNd;
    const std::string*& plain = tensor.path.before ? before_ : after_;
    if (is_plain && plain != nullptr) return plain;
    JsonObject members;
    members.add(native::key::kMoment, tensor.path.before ? "before" : "after");
    if (tensor.format != formats::kAtbFormatNd) members.add(native::key::kFormat, tensor.format);
    const std::string* text = run_->intern(members.open_text().substr(1));
    if (is_plain) plain = text;
    return text;
  }

  std::string folder_;
  native::Manifest manifest_;
  std::unique_ptr<writer::NativeRun> run_;
  KnownValues values_;
  std::unordered_map<std::string, const native::RecordNode*, TextHash, std::equal_to<>> nodes_;
  std::map<int64_t, native::ManifestStep> steps_;
  int64_t newest_step_ = -1;
  bool is_concluded_ = false;
  const std::string* before_ = nullptr;
  const std::string* after_ = nullptr;
  const native::RecordNode* last_node_ = nullptr;
  int64_t last_step_ = -1;
  uint64_t order_ = 0;
};

NativeTensors::NativeTensors(NativeTensorsOptions options) : options_(std::move(options)) {}
NativeTensors::~NativeTensors() = default;

std::optional<NativeTensors::Tensor> NativeTensors::understood(const TensorArguments& given,
                                                               std::string_view path) const {
  const auto parts = formats::parse_atb_tensor_path(path);
  // The older library's inTensor would come back as intensor.
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (!parts || !(file.starts_with("intensor") || file.starts_with("outtensor")))
    return std::nullopt;
  const std::optional<DType> dtype = dtype_of(given);
  const std::optional<Dims> shape = shape_of(given);
  const auto format = parse_number<int64_t>(given.format);
  if (!dtype || !shape || !format) return std::nullopt;
  // Of a tiled tensor a file says two shapes, a line one; a format that is none has no word.
  if (*format < 0 || *format > formats::kAtbFormatNd) return std::nullopt;
  // The texts of a header are made of the numbers again.
  if (given.format != std::to_string(*format) ||
      given.dims != formats::atb_dims_text(shape->span()) ||
      given.dtype != std::to_string(*formats::atb_from_dtype(*dtype)))
    return std::nullopt;
  if (described_bytes(given) != given.size_bytes) return std::nullopt;
  Tensor tensor;
  tensor.path = *parts;
  tensor.dtype = *dtype;
  tensor.shape = *shape;
  tensor.format = *format;
  tensor.bytes = ByteSpan(static_cast<const std::byte*>(given.data), given.size_bytes);
  return tensor;
}

stats::TensorStats NativeTensors::statistics(const Tensor& tensor) {
  const Result<TensorView> view = make_view(tensor.dtype, tensor.shape, tensor.bytes);
  return view ? statistics_of(*view) : stats::TensorStats();
}

NativeTensors::Process* NativeTensors::process_of(std::string_view name) {
  if (finished_) return nullptr;
  const auto known = processes_.find(name);
  if (known != processes_.end()) return known->second.get();
  const FileSizeSignalBlocked no_signal;  // of the manifest; all else the writer's thread writes
  Result<std::unique_ptr<Process>> made = Process::create(options_, name);
  if (!made && refusal_.empty()) refusal_ = made.error().describe();
  return processes_.emplace(name, made ? *std::move(made) : nullptr).first->second.get();
}

Taken NativeTensors::take(const TensorArguments& given, std::string_view path,
                          WantedContent wanted) {
  const std::optional<Tensor> tensor = understood(given, path);
  if (!tensor) return Taken::Elsewhere;
  // A record of the library has both parts of a complex number.
  if (wanted.statistics && is_complex(tensor->dtype)) return Taken::Elsewhere;
  const bool is_read = wanted.data || wanted.statistics || wanted.digest;
  const KnownValues::Key key{is_read ? stats::digest_bytes(tensor->bytes) : stats::Digest(),
                             given.size_bytes, tensor->dtype};
  std::optional<stats::TensorStats> stats;
  if (wanted.statistics) {
    {
      const std::lock_guard lock(mutex_);
      Process* process = process_of(tensor->path.process);
      if (process == nullptr) return Taken::Elsewhere;
      if (const KnownValue* known = process->values().find(key)) stats = known->stats;
    }
    if (!stats) stats = statistics(*tensor);
    const bool is_inexact = is_integer(tensor->dtype) &&
                            std::max(std::abs(stats->min), stats->max) >= kLargestExactInteger;
    if (is_inexact && !wanted.data) return Taken::Elsewhere;
  }
  const std::lock_guard lock(mutex_);
  Process* process = process_of(tensor->path.process);
  if (process == nullptr || process->run().stopped()) return Taken::Elsewhere;
  const uint64_t dropped = process->run().counters().dropped;
  if (!process->add(*tensor, wanted, key, stats))
    return process->run().counters().dropped > dropped ? Taken::Dropped : Taken::Elsewhere;
  note_taken(*process);
  return Taken::Here;
}

Taken NativeTensors::take_param(std::string_view path, std::string_view param) {
  constexpr std::string_view kFile = "/op_param.json";
  if (!path.ends_with(kFile)) return Taken::Elsewhere;
  path.remove_suffix(kFile.size());
  const auto parts = formats::parse_atb_node_path(path);
  const bool is_line = param.size() <= kMaxParameterBytes &&
                       param.find_first_of("\n\r") == std::string_view::npos &&
                       (formats::PlainObject::parse(param) || formats::parse_json_object(param));
  if (!parts || !is_line) return Taken::Elsewhere;
  const std::lock_guard lock(mutex_);
  Process* process = process_of(parts->process);
  if (process == nullptr || process->run().stopped() || !process->add_param(*parts, param))
    return Taken::Elsewhere;
  note_taken(*process);
  return Taken::Here;
}

void NativeTensors::note_taken(Process& process) {
  ++taken_;
  if (options_.synchronous) {
    process.run().write_out();
    process.run().wait_until_written();
    return;
  }
  if (std::exchange(is_pending_, true)) return;
  if (!watcher_.joinable()) start_watching();
  changed_.notify_one();
}

void NativeTensors::start_watching() {
  const AllSignalsBlocked signals_blocked;
  try {
    watcher_ = std::thread([this] { watch(); });
    ::pthread_setname_np(watcher_.native_handle(), "assay-watch");
  } catch (const std::system_error&) {
    // Without it more is lost when the host is killed, and nothing else.
  }
}

void NativeTensors::watch() {
  inside_probe = true;  // what it allocates comes back to nobody
  std::unique_lock lock(mutex_);
  int busy_looks = 0;
  while (!finished_) {
    changed_.wait(lock, [this] { return is_pending_ || finished_; });
    const uint64_t before = taken_;
    changed_.wait_for(lock, kPause, [this] { return finished_; });
    if (finished_) return;
    if (taken_ != before && ++busy_looks < kMostBusyLooks) continue;
    busy_looks = 0;
    is_pending_ = false;
    for (const auto& [name, process] : processes_) {
      if (process != nullptr) process->run().write_out();
    }
  }
}

void NativeTensors::conclude(bool is_whole) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  for (const auto& [name, process] : processes_) {
    if (process != nullptr) process->conclude(is_whole);
  }
}

void NativeTensors::finish() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
  }
  changed_.notify_one();
  if (watcher_.joinable()) watcher_.join();
  const std::lock_guard lock(mutex_);
  for (const auto& [name, process] : processes_) {
    if (process == nullptr) continue;
    if (const Status status = process->finish(); !status && first_error_.empty())
      first_error_ = status.error().describe();
  }
}

double NativeTensors::waited_ms() const {
  const std::lock_guard lock(mutex_);
  double waited = 0;
  for (const auto& [name, process] : processes_) {
    if (process != nullptr) waited += process->run().counters().waited_ms;
  }
  return waited;
}

std::string NativeTensors::first_error() const {
  const std::lock_guard lock(mutex_);
  return first_error_;
}

std::string NativeTensors::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

}  // namespace assay::capture::atb

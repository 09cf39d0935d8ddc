// SPDX-License-Identifier: Apache-2.0
#include "capture/torch/session.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "capture/common/host_threads.hpp"
#include "capture/torch/operator_mode.hpp"
#include "capture/torch/python_compat.hpp"
#include "stats/digest.hpp"
#include "stats/tensor_stats.hpp"
#include "tensor/convert.hpp"
#include "writer/fork_guard.hpp"

namespace assay::capture {
namespace {

constexpr size_t kMaxValueText = 256;  // longer strings among the arguments are cut
constexpr int kMaxWrappers = 4;        // inside each other
constexpr uint64_t kMaxDeviceBytesInFlight = 256ull << 20;

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000ll + time.tv_nsec;
}

double milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// What this thread is doing: in which root call of which session, and whether it is inside our own code (attribute
// reads under a function mode, properties of dataclasses may call modules).
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

ThreadState& this_thread() {
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

// "self", "tensors.0"
const std::string* slot_of(const OperatorSchema& schema, const BoundTensor& bound,
                           writer::NativeRun& run) {
  const bool named = bound.argument < schema.arguments.size();
  if (named && bound.index < 0) return schema.arguments[bound.argument].slot;
  std::string slot = named ? schema.arguments[bound.argument].text : std::to_string(bound.argument);
  if (bound.index >= 0) slot += '.' + std::to_string(bound.index);
  return run.intern(slot);
}

// A Python scalar as JSON: numbers as numbers (non-finite ones as the strings the format document names), everything
// else as a string.
std::string value_json(PyObject* value) {
  if (value == Py_None) return "null";
  if (PyBool_Check(value)) return value == Py_True ? "true" : "false";
  if (PyFloat_Check(value)) return json_number(PyFloat_AS_DOUBLE(value));
  PyObject* text = PyUnicode_CheckExact(value) ? new_ref(value) : PyObject_Str(value);
  Py_ssize_t size = 0;
  const char* utf8 = text != nullptr ? PyUnicode_AsUTF8AndSize(text, &size) : nullptr;
  std::string json = "null";
  if (utf8 != nullptr) {
    const std::string_view view(utf8, std::min(static_cast<size_t>(size), kMaxValueText));
    json = PyLong_CheckExact(value) ? std::string(view) : json_quote(view);
  }
  PyErr_Clear();
  Py_XDECREF(text);
  return json;
}

}  // namespace

bool inside_root_call() noexcept {
  const ThreadState& thread = this_thread();
  return thread.inside || !thread.roots.empty();
}

// Taken around recording. Whoever holds it may wait for the GIL, so it is never waited for with the GIL held. The GIL also
// guards the flag: an atomic operation for each operator would wait for all the stores before it.
class Session::Lock {
 public:
  explicit Lock(Session& session) : session_(session) {
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
  // The mutex is taken with the GIL and left without it, so the notification cannot come before the wait; whoever holds
  // the mutex does not wait for the GIL.
  void wait() {
    ++session_.waiting_;
    std::unique_lock lock(session_.mutex_);
    PyThreadState* const state = PyEval_SaveThread();
    session_.recorded_.wait(lock);
    lock.unlock();
    PyEval_RestoreThread(state);
    --session_.waiting_;
  }

  Session& session_;
};

// A record of a device tensor that waits for its statistics or bytes.
struct Session::Unfetched {
  native::Record record;
  Dims shape;
  Dims strides;
  std::shared_ptr<StepProgress> step;
  int64_t same_as_entry = -1;  // index of the entry whose bytes it shares
  bool known = false;          // the record is whole: its bytes were fetched before
  std::optional<native::PayloadLocation> payload;
  uint64_t number = 0;
  std::string text;  // of records that only keep their place behind others
};

// Turns the leaves of one walk into records.
class Session::Recorder final : public LeafVisitor {
 public:
  Recorder(Session& session, SessionNode& node, StepProgress& step,
           const std::shared_ptr<StepProgress>& shared_step, uint64_t order, uint32_t call,
           native::Role role)
      : session_(session),
        run_(*session.run_),
        node_(node),
        step_(step),
        shared_step_(shared_step),
        order_(order),
        call_(call),
        role_(role) {}

  void tensor(PyObject* tensor, std::string_view slot) override {
    this->tensor(tensor, slot == "0" ? session_.slot_0_ : run_.intern(slot));
  }

  void tensor(PyObject* tensor, const std::string* slot) {
    const bool by_storage = session_.options_.operators && wrapped_in_ == 0;
    session_.access_.look(tensor, look_, !by_storage);
    if (look_.readable == Readable::Nothing) {
      if (!session_.access_.is_plain(tensor) && record_parts(tensor, slot)) return;
      skip_unread(tensor, slot, look_.reason);
      return;
    }
    native::Record record = draft(slot);
    record.more = members_of(tensor);
    describe(record);
    version_is_known_ = false;
    Storage* storage = nullptr;
    StoredValue* stored = nullptr;
    if (by_storage) identify(tensor, record, storage, stored);
    if (look_.readable == Readable::Device || session_.options_.force_device) {
      record_device(tensor, std::move(record), storage, stored);
    } else {
      record_memory(tensor, record, slot, storage, stored);
    }
  }

  void value(PyObject* value, std::string_view slot) override {
    native::Record record = draft(run_.intern(slot));
    record.kind = native::RecordKind::Value;
    push(record, value_json(value));
  }

  /// `tensor`: as it was looked at last, or nullptr.
  void skip(PyObject* tensor, const std::string* slot, std::string_view reason) {
    native::Record record = draft(slot);
    record.kind = native::RecordKind::Skipped;
    record.dtype_name = look_.dtype_name;
    if (tensor != nullptr) record.more = members_of(tensor);
    set_rank(record);
    push(record, reason);
  }
  /// Of a tensor that nothing else stands for.
  void skip_unread(PyObject* tensor, const std::string* slot, std::string_view reason) {
    skip(tensor, slot, reason);
    ++node_.unread[std::string(reason)];
  }
  void forget_look() {
    look_.dtype_name = nullptr;
    look_.has_shape = false;
  }

  /// Records from here on are those of an operator. `view`, `mutates`: what its schema says.
  void set_operator(const std::string* name, uint32_t index, bool is_view, bool mutates) {
    operation_ = name;
    operation_index_ = index;
    is_view_ = is_view;
    mutates_ = mutates;
  }
  void begin_operator(std::string_view arguments, const std::string* writes) {
    forget_look();
    native::Record record = draft(session_.no_slot_);
    record.kind = native::RecordKind::Operator;
    record.writes = writes;
    push(record, arguments);
  }

 private:
  [[nodiscard]] native::Record draft(const std::string* slot) const {
    native::Record record;
    record.step = step_.step;
    record.node = node_.text;
    record.slot = slot;
    record.order = order_;
    record.call = call_;
    record.role = role_;
    record.operation = operation_;
    record.operation_index = operation_index_;
    return record;
  }

  // Which value it is, and who made it. The first operator of a step that returns a value made it; one that returns
  // what it was given did not.
  void identify(PyObject* tensor, native::Record& record, Storage*& storage, StoredValue*& stored) {
    const StorageTable::Sight sight = session_.storages_.see(tensor, is_settled());
    storage = sight.storage;
    if (!is_negative_known(tensor, sight)) session_.access_.look_for_negative(tensor, look_);
    if (storage == nullptr) return;
    version_is_known_ = sight.version.has_value();
    if (version_is_known_) version_ = *sight.version;
    fresh_storage_ = sight.is_new;
    StoredValue& value = session_.storages_.value_of(*storage, tensor, look_);
    stored = &value;
    const bool first_sight = value.seen_in != step_.step;
    value.seen_in = step_.step;
    made_here_ = first_sight && operation_ != nullptr && role_ == native::Role::Output;
    record.value.id = value.id;
    record.value.storage = storage->number;
    record.value.storage_offset = value.storage_offset;
    record.value.version = storage->version;
    if (made_here_) return;
    if (role_ != native::Role::Output) record.value.producer = value.producer;
    if (value.producer == -1) record.value.leaf = session_.storages_.leaf_of(*storage, value);
  }

  // Whether the lazy neg bit need not be asked for. Only views have it: what an operator of torch puts into a storage of
  // its own does not, and what was seen before has the bit of then.
  [[nodiscard]] bool is_negative_known(PyObject* tensor, const StorageTable::Sight& sight) {
    if (sight.storage == nullptr) return false;
    const bool is_result = operation_ != nullptr && role_ == native::Role::Output;
    if (is_result && sight.is_new && !is_view_ && !mutates_ && operation_->starts_with("aten."))
      return true;
    if (is_result && is_view_) return false;
    return session_.storages_.knows_negative(*sight.storage, tensor, look_);
  }

  // The sizes themselves follow with push(): until then the sink may start another batch.
  void set_rank(native::Record& record) {
    record.has_shape = look_.has_shape;
    record.ndim = look_.ndim;
  }
  [[nodiscard]] std::span<const int64_t> shape() const {
    return {look_.shape, look_.shape != nullptr ? static_cast<size_t>(look_.ndim) : 0};
  }
  [[nodiscard]] std::span<const int64_t> strides() const {
    return {look_.strides, look_.strides != nullptr ? static_cast<size_t>(look_.ndim) : 0};
  }

  void describe(native::Record& record) {
    record.dtype = look_.dtype;
    record.dtype_name = look_.dtype_name;
    if (look_.readable == Readable::Device)
      record.device = run_.intern(device_text(look_))->c_str();
    set_rank(record);
  }

  uint64_t push(native::Record& record, std::string_view text = {}) {
    const bool keeps_place = session_.options_.operators && !session_.unfetched_.empty() &&
                             record.kind != native::RecordKind::Tensor;
    if (keeps_place) {  // behind device tensors whose numbers come with their bytes
      Unfetched entry;
      entry.shape = Dims(shape());
      entry.strides = Dims(strides());
      entry.step = shared_step_;
      entry.text = text;
      entry.record = record;
      session_.unfetched_.push_back(std::move(entry));
      return 0;
    }
    ++step_.counts.records;
    if (record.kind == native::RecordKind::Tensor) {
      ++step_.counts.tensors;
      ++node_.tensors;
    }
    if (record.first_copy) step_.counts.bytes += record.payload->size_bytes;
    const bool known = record.has_shape && (record.kind == native::RecordKind::Tensor ||
                                            record.kind == native::RecordKind::Skipped);
    return run_.push_record(record, known ? shape() : std::span<const int64_t>{},
                            known ? strides() : std::span<const int64_t>{}, text);
  }

  // Wrappers without memory of their own: a DTensor is its local shard, others have parts. Returns whether the parts
  // stand for the tensor itself.
  bool record_parts(PyObject* tensor, const std::string* slot) {
    if (wrapped_in_ >= kMaxWrappers) return false;
    PyObject* answer = session_.access_.wrapper_parts(tensor);
    int stand_for_it = 0;
    PyObject* parts = nullptr;
    if (answer == nullptr ||
        PyArg_ParseTuple(answer, "pO!", &stand_for_it, &PyList_Type, &parts) == 0) {
      PyErr_Clear();
      Py_XDECREF(answer);
      return false;
    }
    if (stand_for_it == 0 && PyList_GET_SIZE(parts) != 0) skip(tensor, slot, look_.reason);
    ++wrapped_in_;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts); ++i)
      record_part(PyList_GET_ITEM(parts, i), *slot);
    --wrapped_in_;
    const bool done = PyList_GET_SIZE(parts) != 0;
    Py_DECREF(answer);
    return done;
  }

  void record_part(PyObject* part, const std::string& slot) {
    const char* suffix = nullptr;
    const char* members = nullptr;
    PyObject* tensor = nullptr;
    if (PyArg_ParseTuple(part, "sOs", &suffix, &tensor, &members) == 0) {
      PyErr_Clear();
      return;
    }
    // A part of the root value itself has no dot in front.
    std::string own_slot = slot + suffix;
    if (slot.empty() && own_slot.starts_with('.')) own_slot.erase(0, 1);
    const std::string* before =
        std::exchange(members_, *members != 0 ? run_.intern(members) : nullptr);
    this->tensor(tensor, run_.intern(own_slot));
    members_ = before;
  }

  // What the line of a tensor says beyond the common keys.
  [[nodiscard]] const std::string* members_of(PyObject* tensor) {
    if (members_ != nullptr || session_.access_.is_plain(tensor)) return members_;
    return run_.intern(R"("class":)" + json_quote(class_name(Py_TYPE(tensor))));
  }

  void record_memory(PyObject* tensor, native::Record& record, const std::string* slot,
                     Storage* storage, StoredValue* stored) {
    const bool contiguous = is_contiguous(look_);
    const bool dense = contiguous || is_dense(look_);
    const int64_t version = version_of(tensor);
    // Our own counter sees what a dispatch mode sees, also where torch has none.
    const bool trusted = (version >= 0 || stored != nullptr) && !session_.options_.verify;
    const SeenTensor* seen = trusted ? find_seen(tensor, storage, stored, version, dense) : nullptr;
    if (seen != nullptr && is_complete(*seen, contiguous)) {
      share(record, *seen);
      const bool made_here = made_here_;
      const uint64_t number = push(record);
      if (made_here) stored->producer = static_cast<int64_t>(number);
      return;
    }
    if (!is_covered(tensor, storage, stored)) {
      skip_unread(tensor, slot, "storage smaller than the shape");
      return;
    }
    const TensorView view = view_of(look_);
    const uint64_t size_bytes = payload_bytes(look_);
    const stats::BlockRunner runner = host_runner(size_bytes);
    SeenTensor fresh = seen_now(version, contiguous, dense);
    if (session_.options_.data != DataLevel::None) {
      fresh.stats = seen != nullptr     ? statistics_of(*seen)
                    : runner != nullptr ? stats::compute_stats(view, runner)
                                        : stats::compute_stats(view);
    }
    const bool full = session_.options_.data == DataLevel::Full;
    // Without versions only the content tells whether bytes are there already; worth a digest when they would be stored.
    if (session_.options_.digest || session_.options_.verify || (full && !trusted))
      fresh.digest = stats::digest(view);
    std::string_view lost;
    const SeenTensor* twin = full && !trusted ? find_digest(fresh) : nullptr;
    if (twin != nullptr) {
      record.payload = twin->payload;
      record.same_as = static_cast<int64_t>(twin->record_number);
      ++session_.shared_;
    } else if (full) {
      store(record, fresh, view, runner);
      if (!record.payload) {
        record.kind = native::RecordKind::Skipped;
        lost = run_.stopped() ? "capture stopped" : "dropped, the queue was full";
      }
    }
    record.stats = fresh.stats;
    if (session_.options_.digest || session_.options_.verify) record.digest = fresh.digest;
    const bool remember = record.kind == native::RecordKind::Tensor && twin == nullptr;
    fresh.payload = record.payload;
    fresh.record_number = push(record, lost);
    if (stored != nullptr && made_here_)
      stored->producer = static_cast<int64_t>(fresh.record_number);
    if (!remember) return;
    if (trusted) {
      remember_seen(tensor, stored, std::move(fresh));
    } else if (full) {
      session_.by_digest_[*fresh.digest].push_back(std::move(fresh));
    }
  }

  // Whether torch's version counters are final: autograd counts a write, and links a view to its base, only after the
  // operator has returned.
  [[nodiscard]] bool is_settled() const {
    return operation_ == nullptr || role_ != native::Role::Output || !(is_view_ || mutates_);
  }
  // torch's version counter, -1 where it has none or is not final.
  [[nodiscard]] int64_t version_of(PyObject* tensor) {
    if (version_is_known_) return version_;
    if (!is_settled() || session_.access_.is_inference(tensor)) return -1;
    return session_.access_.version(tensor);
  }

  // Whether the storage has all the bytes that shape and strides claim: it may have been resized below them.
  [[nodiscard]] bool is_covered(PyObject* tensor, const Storage* storage,
                                const StoredValue* stored) const {
    if (storage == nullptr || !fresh_storage_)
      return session_.access_.storage_covers(tensor, look_);
    return look_.element_count == 0 ||
           fits_storage(look_, stored->storage_offset, storage->first_size_bytes);
  }

  // Bytes of this storage that were read at its present version. Where both have one, torch's counter must agree, too:
  // it sees writes by code that was not dispatched on this thread.
  [[nodiscard]] const SeenTensor* known_bytes(const Storage& storage, const StoredValue& stored,
                                              int64_t version, bool dense) const {
    const SeenTensor* seen = session_.storages_.known_bytes(storage, stored, look_, dense);
    const bool contradicted =
        seen != nullptr && version >= 0 && seen->version >= 0 && seen->version != version;
    return contradicted ? nullptr : seen;
  }

  // Whether a hit answers everything asked for; a transposed alias shares statistics but not the payload.
  [[nodiscard]] bool is_complete(const SeenTensor& seen, bool contiguous) const {
    if (session_.options_.data == DataLevel::None) return true;
    const bool same = seen.same_payload(look_, contiguous);
    return (session_.options_.data != DataLevel::Full || same) &&
           (!session_.options_.digest || same);
  }

  void share(native::Record& record, const SeenTensor& seen) {
    record.payload = seen.payload;
    record.same_as = static_cast<int64_t>(seen.record_number);
    record.stats = statistics_of(seen);
    if (session_.options_.digest) record.digest = seen.digest;
    ++session_.shared_;
  }

  /// Those of the same values; in another order they have no sketch.
  std::optional<stats::TensorStats> statistics_of(const SeenTensor& seen) const {
    std::optional<stats::TensorStats> stats = seen.stats;
    if (stats && seen.contiguous && !is_contiguous(look_)) stats->sketch.reset();
    return stats;
  }

  void store(native::Record& record, const SeenTensor& fresh, const TensorView& view,
             stats::BlockRunner runner) {
    if (fresh.conjugate || fresh.negative) {
      store_resolved(record, view);
    } else {
      record.payload = run_.append_payload(view, record, runner);
    }
    record.first_copy = record.payload.has_value();
  }

  // Payloads are plain bytes: torch's lazy conj and neg bits are applied. The sign bit of each part is flipped, exactly.
  void store_resolved(native::Record& record, const TensorView& view) {
    const uint64_t element_bytes = info(view.dtype).element_bits / 8u;
    const bool complex = is_complex(view.dtype);
    std::vector<std::byte> resolved(payload_bytes(look_));
    gather_bytes(view, 0, view.element_count(), resolved);
    const uint64_t part_bytes = complex ? element_bytes / 2 : element_bytes;
    for (uint64_t at = 0; at < resolved.size(); at += part_bytes) {
      const bool imaginary = complex && (at / part_bytes) % 2 == 1;
      const bool flip = view.negative != (imaginary && view.conjugate);
      // Little-endian IEEE numbers: the sign is the top bit of the last byte. torch sets neg bits on float types only.
      if (flip) resolved[at + part_bytes - 1] ^= std::byte{0x80};
    }
    const auto plain = make_view(view.dtype, view.shape, resolved);
    if (plain) record.payload = run_.append_payload(*plain, record, nullptr);
  }

  [[nodiscard]] const SeenTensor* find_digest(const SeenTensor& fresh) const {
    const auto found = session_.by_digest_.find(*fresh.digest);
    if (found == session_.by_digest_.end()) return nullptr;
    for (const SeenTensor& seen : found->second) {
      if (seen.dtype == fresh.dtype && seen.shape == fresh.shape) return &seen;
    }
    return nullptr;
  }

  // Its bytes come with the next fetch; until then the list keeps its place among the records.
  void record_device(PyObject* tensor, native::Record record, Storage* storage,
                     StoredValue* stored) {
    const auto place = static_cast<int64_t>(session_.unfetched_.size());
    if (stored != nullptr && made_here_) stored->producer = -2 - place;
    const bool contiguous = is_contiguous(look_);
    const bool dense = contiguous || is_dense(look_);
    const int64_t version = version_of(tensor);
    const bool trusted = (version >= 0 || stored != nullptr) && !session_.options_.verify;
    const SeenTensor* seen = trusted ? find_seen(tensor, storage, stored, version, dense) : nullptr;
    Unfetched entry;
    entry.shape = Dims(shape());
    entry.strides = Dims(strides());
    entry.step = shared_step_;
    if (seen != nullptr && is_complete(*seen, contiguous)) {
      entry.known = seen->place < 0;
      entry.same_as_entry = seen->place;
      if (entry.known)
        share(record, *seen);
      else
        ++session_.shared_;
    } else if (session_.options_.data != DataLevel::None) {
      if (session_.options_.device == nullptr || !send_to_device(tensor)) {
        record.kind = native::RecordKind::Skipped;
        entry.record = std::move(record);
        session_.unfetched_.push_back(std::move(entry));
        return;
      }
      in_flight_bytes() += payload_bytes(look_);
      if (trusted) {
        SeenTensor fresh = seen_now(version, contiguous, dense);
        fresh.place = place;
        remember_seen(tensor, stored, std::move(fresh));
      }
    }
    entry.record = std::move(record);
    session_.unfetched_.push_back(std::move(entry));
    ++node_.tensors;
    if (in_flight_bytes() > kMaxDeviceBytesInFlight) session_.fetch_device_results();
  }

  const SeenTensor* find_seen(PyObject* tensor, const Storage* storage, const StoredValue* stored,
                              int64_t version, bool dense) {
    return stored != nullptr ? known_bytes(*storage, *stored, version, dense)
                             : session_.identity_.find(tensor, look_, version, dense);
  }

  /// Of the tensor at hand, without what its bytes tell.
  [[nodiscard]] SeenTensor seen_now(int64_t version, bool contiguous, bool dense) const {
    SeenTensor fresh;
    fresh.data = look_.data;
    fresh.element_count = look_.element_count;
    fresh.version = version;
    fresh.dtype = look_.dtype;
    fresh.contiguous = contiguous;
    fresh.dense = dense;
    fresh.conjugate = look_.conjugate;
    fresh.negative = look_.negative;
    fresh.shape = Dims(shape());
    fresh.strides = Dims(strides());
    return fresh;
  }

  void remember_seen(PyObject* tensor, StoredValue* stored, SeenTensor fresh) {
    if (stored != nullptr)
      session_.storages_.remember_bytes(*stored, std::move(fresh));
    else
      session_.identity_.insert(tensor, std::move(fresh));
  }

  bool send_to_device(PyObject* tensor) {
    PyObject* done = PyObject_CallMethod(session_.options_.device, "send", "O", tensor);
    if (done == nullptr) PyErr_Clear();
    Py_XDECREF(done);
    return done != nullptr;
  }
  uint64_t& in_flight_bytes() { return session_.device_bytes_in_flight_; }

  Session& session_;
  writer::NativeRun& run_;
  SessionNode& node_;
  StepProgress& step_;
  const std::shared_ptr<StepProgress>& shared_step_;
  uint64_t order_;
  uint32_t call_;
  native::Role role_;
  const std::string* operation_ = nullptr;
  uint32_t operation_index_ = 0;
  bool is_view_ = false;
  bool mutates_ = false;
  bool made_here_ = false;                // the tensor at hand is what this operator makes
  int wrapped_in_ = 0;                    // the tensor at hand is a part of so many wrappers
  const std::string* members_ = nullptr;  // what its line says of that
  bool fresh_storage_ = false;            // the tensor at hand is the first one seen of its storage
  bool version_is_known_ = false;         // its version counter was read on the way
  int64_t version_ = -1;
  TensorLook look_;
};

Session::Session(SessionOptions options, TensorAccess& access,
                 std::unique_ptr<writer::NativeRun> run)
    : options_(options),
      access_(access),
      walker_(access),
      identity_(access),
      storages_(access),
      run_(std::move(run)),
      operators_(*run_),
      no_slot_(run_->intern("")),
      slot_0_(run_->intern("0")),
      generation_(writer::fork_generation()) {
  walker_.set_caches(options.caches);
}

Session::~Session() = default;

uint32_t Session::add_node(std::string name, std::string type, bool is_root, bool wanted,
                           bool opaque) {
  const Lock lock(*this);
  nodes_.push_back(
      {run_->add_node(std::move(name), std::move(type)), is_root, wanted, opaque, 0, 0, 0});
  return static_cast<uint32_t>(nodes_.size() - 1);
}

bool Session::live() const noexcept {
  return !off_ && generation_ == writer::fork_generation() && !run_->stopped();
}

bool Session::asks_for(int64_t step) {
  if (options_.wanted == nullptr) return true;
  const InsideOurCode guard;
  PyObject* number = PyLong_FromLongLong(step);
  PyObject* answer =
      number != nullptr ? PyObject_CallFunctionObjArgs(options_.wanted, number, nullptr) : nullptr;
  Py_XDECREF(number);
  const int wanted = answer != nullptr ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  if (wanted < 0) {
    // The predicate is the user's; its failure must not reach the model.
    PyErr_WriteUnraisable(options_.wanted);
    fail_for_good("the steps predicate raised");
  }
  return wanted > 0;
}

std::shared_ptr<StepProgress> Session::new_step(int64_t number) {
  auto step = std::make_shared<StepProgress>();
  step->step = number;
  step->counts.step = number;
  step->wanted = asks_for(number);
  return step;
}

// The step that a root call begins.
std::shared_ptr<StepProgress> Session::next_step(SessionNode& node) {
  const int64_t of_node = node.steps++;
  if (!options_.outermost) {
    return pending_ != nullptr ? std::move(pending_) : new_step(steps_started_);
  }
  const auto known = by_number_.find(of_node);
  if (known != by_number_.end()) return known->second;
  auto step = new_step(of_node);
  if (step->wanted) by_number_.emplace(of_node, step);
  return step;
}

// The step a call belongs to: the root call of this thread; else a root call that runs on another thread (which has
// handed out work); else the next root call (encoders that generate() calls before the model itself).
std::shared_ptr<StepProgress> Session::step_of_this_thread() {
  for (const auto& root : this_thread().roots) {
    if (root.session == this) return root.step;
  }
  if (roots_active_ > 0) return latest_;
  if (pending_ == nullptr) pending_ = new_step(steps_started_);
  return pending_;
}

void Session::open_step_file(int64_t step) {
  if (options_.data != DataLevel::Full || file_step_ == step) return;
  if (roots_active_ > 1)
    return;  // another thread's step is open: its file takes these payloads too
  char stem[32];
  std::snprintf(stem, sizeof(stem), "step-%06lld", static_cast<long long>(step));
  run_->begin_file(stem, nodes_.size() * 2);
  file_step_ = step;
}

bool Session::begin(uint32_t number, PyObject* args, PyObject* kwargs, CallFrame& frame) noexcept {
  ThreadState& thread = this_thread();
  if (thread.inside || !live()) return false;
  SessionNode& node = nodes_[number];
  try {
    if (node.is_root || (options_.outermost && roots_active_ == 0)) {
      bool nested = false;
      for (const auto& root : thread.roots) nested = nested || root.session == this;
      if (!nested) {
        auto step = next_step(node);
        // Servers create the capture on one thread and run the model on another.
        if (steps_started_ == 0) claim_host_threads();
        ++steps_started_;
        ++roots_active_;
        latest_ = step;
        thread.roots.push_back({this, step});
        frame.counts_step = true;
        frame.begin_ns = now_ns();
      }
    }
    std::shared_ptr<StepProgress> step = step_of_this_thread();
    if (!step->wanted || !(node.wanted || options_.operators)) return frame.counts_step;
    const int64_t begin_ns = frame.counts_step ? frame.begin_ns : now_ns();
    const InsideOurCode guard;
    const Lock lock(*this);
    if (step->calls.size() < nodes_.size()) step->calls.resize(nodes_.size(), 0);
    frame.call = step->calls[number]++;
    if (options_.operators) {
      if (frame.counts_step) storages_.begin_step(step->step);
      enter_module(number, step, frame);
    }
    if (!node.wanted) return true;
    frame.step = step;
    frame.order = step->order++;
    ++node.executed;
    open_step_file(step->step);
    if (options_.inputs) {
      Recorder recorder(*this, node, *step, step, frame.order, frame.call, native::Role::Input);
      walker_.walk_arguments(args, kwargs, recorder);
    }
    step->added_ns += now_ns() - begin_ns;
    return true;
  } catch (const std::exception& exception) {
    fail_for_good(exception.what());
  }
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return frame.counts_step;
}

void Session::end(uint32_t number, PyObject* result, CallFrame& frame) noexcept {
  try {
    if (frame.entered) leave_module(frame);
    if (frame.step != nullptr && live()) {
      const int64_t begin_ns = now_ns();
      const InsideOurCode guard;
      const Lock lock(*this);
      Recorder recorder(*this, nodes_[number], *frame.step, frame.step, frame.order, frame.call,
                        native::Role::Output);
      if (result == nullptr) {
        recorder.forget_look();
        recorder.skip(nullptr, no_slot_, "the call raised");
      } else if (options_.outputs) {
        walker_.walk_value(result, "", recorder);
      }
      frame.step->added_ns += now_ns() - begin_ns;
    }
    if (frame.counts_step) {
      ThreadState& thread = this_thread();
      for (size_t i = thread.roots.size(); i-- > 0;) {
        if (thread.roots[i].session != this) continue;
        const std::shared_ptr<StepProgress> step = thread.roots[i].step;
        thread.roots.resize(i);
        --roots_active_;
        if (step->wanted) {
          step->counts.wall_ms += milliseconds(now_ns() - frame.begin_ns);
          if (live()) finish_step(step);
        }
        break;
      }
    }
  } catch (const std::exception& exception) {
    fail_for_good(exception.what());
  }
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
}

void Session::finish_step(const std::shared_ptr<StepProgress>& step) {
  const int64_t begin_ns = now_ns();
  const InsideOurCode guard;
  const Lock lock(*this);
  fetch_device_results();
  if (roots_active_ == 0) {
    run_->end_file();
    file_step_ = -2;
    identity_.clear_step();
    by_digest_.clear();
    if (options_.operators) storages_.end_step();
  }
  step->added_ns += now_ns() - begin_ns;
  step->counts.added_ms = milliseconds(step->added_ns);
  if (!step->finished) finished_.push_back(step);
  step->finished = true;
}

// --- operators

// Puts the dispatch mode on this thread's stack when the call is the first one that wants it there, and takes it away
// for the time of a call that torch compiles.
void Session::enter_module(uint32_t number, const std::shared_ptr<StepProgress>& step,
                           CallFrame& frame) {
  ThreadState& thread = this_thread();
  const auto* around = thread.innermost(this);
  const SessionNode& node = nodes_[number];
  ThreadState::Call call{this, number, frame.call, node.wanted, !node.opaque, false, 0, step, {}};
  const bool was_on = around != nullptr && around->mode_is_on;
  if (was_on) call.modes_below = around->modes_below;
  if (call.mode_is_on && !was_on) {
    call.modes_below = dispatch_stack_size();
    call.changed_mode = push_dispatch_mode(options_.mode);
    call.mode_is_on = call.changed_mode;
  } else if (!call.mode_is_on && was_on) {
    call.changed_mode = pop_dispatch_mode(options_.mode);
  }
  thread.calls.push_back(std::move(call));
  frame.entered = true;
}

void Session::leave_module(CallFrame& frame) noexcept {
  frame.entered = false;
  ThreadState& thread = this_thread();
  for (size_t i = thread.calls.size(); i-- > 0;) {
    if (thread.calls[i].session != this) continue;
    const bool changed = thread.calls[i].changed_mode;
    const bool was_on = thread.calls[i].mode_is_on;
    if (!was_on) storages_.distrust();
    thread.calls.erase(thread.calls.begin() + static_cast<std::ptrdiff_t>(i));
    if (!changed) return;
    const bool done = was_on ? pop_dispatch_mode(options_.mode) : push_dispatch_mode(options_.mode);
    if (!done && !was_on) fail_for_good("the dispatch mode could not be put back");
    return;
  }
}

const OperatorSchema* Session::schema_of(PyObject* function) noexcept {
  try {
    // Without the lock: a mode of functions may run operators while we look at a tensor.
    return &operators_.of(function);
  } catch (const std::exception& exception) {
    fail_for_good(exception.what());
    return nullptr;
  }
}

bool Session::begin_operator(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                             OperatorFrame& frame) noexcept {
  ThreadState& thread = this_thread();
  if (thread.inside || !live()) return false;
  ThreadState::Call* call = thread.innermost(this);
  // A mode that stands below ours and was not there before is a tracer's: nothing is computed.
  if (call == nullptr || !call->mode_is_on || dispatch_stack_size() != call->modes_below)
    return false;
  try {
    if (compiled_code_.is_calling()) {
      // Kernels around this operator write where nobody sees it.
      const Lock lock(*this);
      storages_.distrust();
      return false;
    }
    if (!call->recorded) return schema.is_mutable;
    const int64_t begin_ns = now_ns();
    const InsideOurCode guard(thread);
    const Lock lock(*this);
    if (call->operator_calls.size() <= schema.number)
      call->operator_calls.resize(schema.number + 1, 0);
    frame.step = call->step;
    frame.node = call->node;
    frame.call = call->call;
    frame.index = call->operator_calls[schema.number]++;
    frame.order = call->step->order++;
    open_step_file(call->step->step);
    record_operator(schema, args, kwargs, frame);
    frame.step->added_ns += now_ns() - begin_ns;
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    return true;
  } catch (const std::exception& exception) {
    fail_for_good(exception.what());
  }
  return false;
}

// The operator's line and its inputs.
void Session::record_operator(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                              const OperatorFrame& frame) {
  arguments_json_.clear();
  bound_tensors_.clear();
  bind_arguments(schema, args, kwargs, access_, arguments_json_, bound_tensors_);
  Recorder recorder(*this, nodes_[frame.node], *frame.step, frame.step, frame.order, frame.call,
                    native::Role::Input);
  recorder.set_operator(schema.name, frame.index, schema.is_view, schema.is_mutable);
  recorder.begin_operator(arguments_json_, schema.writes);
  if (!options_.inputs) return;
  for (const BoundTensor& bound : bound_tensors_)
    recorder.tensor(bound.tensor, slot_of(schema, bound, *run_));
}

void Session::note_writes(const OperatorSchema& schema, PyObject* args, PyObject* kwargs) {
  const auto note = [this](PyObject* tensor) {
    Storage* storage = access_.is_tensor(tensor) ? storages_.see(tensor, false).storage : nullptr;
    if (storage != nullptr) storages_.wrote(*storage);
  };
  for (size_t i = 0; i < schema.arguments.size(); ++i) {
    if (!schema.arguments[i].written) continue;
    PyObject* value = static_cast<Py_ssize_t>(i) < PyTuple_GET_SIZE(args)
                          ? PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(i))
                      : kwargs != nullptr && PyDict_Check(kwargs)
                          ? PyDict_GetItemWithError(kwargs, schema.arguments[i].name)
                          : nullptr;
    if (value == nullptr) continue;
    if (!PyList_Check(value) && !PyTuple_Check(value)) {
      note(value);
      continue;
    }
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); ++k)
      note(PySequence_Fast_GET_ITEM(value, k));
  }
}

void Session::end_operator(const OperatorSchema& schema, PyObject* args, PyObject* kwargs,
                           PyObject* result, OperatorFrame& frame) noexcept {
  if (!live()) return;
  try {
    const int64_t begin_ns = now_ns();
    const InsideOurCode guard;
    const Lock lock(*this);
    // Also when it raised: it may have come as far as writing.
    if (schema.is_mutable) note_writes(schema, args, kwargs);
    if (frame.step == nullptr) return;
    Recorder recorder(*this, nodes_[frame.node], *frame.step, frame.step, frame.order, frame.call,
                      native::Role::Output);
    recorder.set_operator(schema.name, frame.index, schema.is_view, schema.is_mutable);
    if (result == nullptr) {
      recorder.forget_look();
      recorder.skip(nullptr, no_slot_, "the call raised");
    } else if (options_.outputs) {
      if (access_.is_tensor(result)) {
        recorder.tensor(result, no_slot_);
      } else {
        walker_.walk_value(result, "", recorder);
      }
    }
    frame.step->added_ns += now_ns() - begin_ns;
  } catch (const std::exception& exception) {
    fail_for_good(exception.what());
  }
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
}

void Session::add_leaf(PyObject* tensor, std::string_view name) noexcept {
  if (!access_.is_tensor(tensor)) return;
  try {
    const InsideOurCode guard;
    const Lock lock(*this);
    storages_.add_leaf(tensor, run_->intern(name));
  } catch (const std::exception& exception) {
    fail_for_good(exception.what());
  }
}

// One synchronisation for everything that is on its way from the device.
void Session::fetch_device_results() {
  if (unfetched_.empty()) return;
  PyObject* results = options_.device != nullptr
                          ? PyObject_CallMethod(options_.device, "fetch", nullptr)
                          : PyList_New(0);
  PyErr_Clear();
  Py_ssize_t next = 0;
  // Producers are places in this list as long as their numbers are not known.
  const auto number_of_place = [this](int64_t producer) {
    return static_cast<int64_t>(unfetched_[static_cast<size_t>(-2 - producer)].number);
  };
  for (Unfetched& entry : unfetched_) {
    native::Record& record = entry.record;
    if (record.value.producer <= -2) record.value.producer = number_of_place(record.value.producer);
    if (entry.same_as_entry >= 0) {
      const Unfetched& first = unfetched_[static_cast<size_t>(entry.same_as_entry)];
      record.same_as = static_cast<int64_t>(first.number);
      record.payload = first.payload;
      record.stats = first.record.stats;
      record.kind = first.record.kind;
    } else if (!entry.known && record.kind == native::RecordKind::Tensor &&
               options_.data != DataLevel::None) {
      PyObject* item =
          results != nullptr && PyList_Check(results) && next < PyList_GET_SIZE(results)
              ? PyList_GET_ITEM(results, next++)
              : nullptr;
      take_device_result(item, entry);
    }
    ++entry.step->counts.records;
    if (record.kind == native::RecordKind::Tensor) ++entry.step->counts.tensors;
    if (record.first_copy) entry.step->counts.bytes += record.payload->size_bytes;
    entry.payload = record.payload;
    if (record.kind == native::RecordKind::Skipped && entry.text.empty())
      entry.text = "the device refused the copy";
    entry.number = run_->push_record(record, entry.shape.span(), entry.strides.span(), entry.text);
  }
  storages_.each_value([&](StoredValue& value) {
    if (value.producer <= -2) value.producer = number_of_place(value.producer);
    if (value.bytes != nullptr && value.bytes->place >= 0) settle_bytes(value);
  });
  Py_XDECREF(results);
  PyErr_Clear();
  unfetched_.clear();
  device_bytes_in_flight_ = 0;
  identity_.clear();  // its entries name places in the list that is gone
}

// What was on its way has come, or was lost.
void Session::settle_bytes(StoredValue& value) {
  const Unfetched& entry = unfetched_[static_cast<size_t>(value.bytes->place)];
  if (entry.record.kind != native::RecordKind::Tensor) {
    value.bytes.reset();
    return;
  }
  value.bytes->place = -1;
  value.bytes->record_number = entry.number;
  value.bytes->payload = entry.payload;
  value.bytes->stats = entry.record.stats;
  value.bytes->digest = entry.record.digest;
}

// item: (statistics or None, host tensor or None), the statistics as the eight numbers of a record.
void Session::take_device_result(PyObject* item, Unfetched& entry) {
  native::Record& record = entry.record;
  PyObject* numbers = nullptr;
  PyObject* tensor = nullptr;
  if (item == nullptr || PyArg_ParseTuple(item, "OO", &numbers, &tensor) == 0) {
    PyErr_Clear();
    record.kind = native::RecordKind::Skipped;
    return;
  }
  double v[8];
  if (numbers != Py_None &&
      PyArg_ParseTuple(numbers, "dddddddd", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7)) {
    record.stats = stats::TensorStats{static_cast<int64_t>(v[0]),
                                      static_cast<int64_t>(v[1]),
                                      static_cast<int64_t>(v[2]),
                                      static_cast<int64_t>(v[3]),
                                      v[4],
                                      v[5],
                                      v[6],
                                      v[7],
                                      {}};
  }
  PyErr_Clear();
  if (tensor == Py_None || !access_.is_tensor(tensor)) return;
  TensorLook look;
  access_.look(tensor, look);
  if (look.readable != Readable::Memory) {
    record.kind = native::RecordKind::Skipped;
    return;
  }
  const TensorView view = view_of(look);
  if (options_.digest || options_.verify) record.digest = stats::digest(view);
  record.payload = run_->append_payload(view, record, host_runner(payload_bytes(look)));
  record.first_copy = record.payload.has_value();
  if (!record.payload) record.kind = native::RecordKind::Skipped;
}

void Session::begin_weights(uint64_t expected_count) noexcept {
  const InsideOurCode guard;
  const Lock lock(*this);
  if (options_.data == DataLevel::Full) run_->begin_file("weights", expected_count);
}

void Session::record_weight(uint32_t node, PyObject* tensor, std::string_view slot,
                            native::Role role) noexcept {
  if (!live() || !access_.is_tensor(tensor)) return;
  const InsideOurCode guard;
  const Lock lock(*this);
  try {
    auto step = std::make_shared<StepProgress>();
    step->step = -1;
    Recorder recorder(*this, nodes_[node], *step, step, 0, 0, role);
    recorder.tensor(tensor, slot);
  } catch (const std::exception& exception) {
    fail_for_good(exception.what());
  }
}

void Session::end_weights() noexcept {
  if (!live()) return;
  const InsideOurCode guard;
  const Lock lock(*this);
  fetch_device_results();
  run_->end_file();
  identity_.clear_step();
  by_digest_.clear();
}

void Session::flush() noexcept {
  if (generation_ != writer::fork_generation()) return;
  const InsideOurCode guard;
  const Lock lock(*this);
  fetch_device_results();
  run_->flush();
}

void Session::close() noexcept {
  if (generation_ != writer::fork_generation()) return;
  const InsideOurCode guard;
  const Lock lock(*this);
  if (roots_active_ > 0 && latest_ != nullptr && latest_->wanted && live())
    failure_ = "the capture ended inside step " + std::to_string(latest_->step);
  off_ = true;
  fetch_device_results();
  run_->close();
  if (pending_ != nullptr && pending_->counts.records != 0) {
    pending_->counts.added_ms = milliseconds(pending_->added_ns);
    finished_.push_back(std::move(pending_));
  }
  identity_.clear();
  by_digest_.clear();
}

std::vector<native::ManifestStep> Session::steps() const {
  std::vector<native::ManifestStep> result;
  for (const auto& step : finished_) result.push_back(step->counts);
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return result;
}

void Session::fail_for_good(const char* what) noexcept {
  if (off_) return;
  off_ = true;
  try {
    failure_ = what;
    log_line(LogLevel::Error, std::string("capture off: ") + what + "; the run continues");
  } catch (const std::bad_alloc&) {
    log_line(LogLevel::Error, "capture off: out of memory; the run continues");
  }
}

}  // namespace assay::capture

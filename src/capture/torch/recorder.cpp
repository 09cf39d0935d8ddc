// SPDX-License-Identifier: Apache-2.0
// From a tensor, or another leaf of a call, to its record.
#include "capture/torch/recorder.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "capture/intake/take.hpp"
#include "stats/digest.hpp"
#include "stats/glance.hpp"
#include "tensor/node.hpp"

namespace assay::capture {
namespace {

constexpr size_t kMaxValueText = 256;  // longer strings among the arguments are cut
constexpr int kMaxWrappers = 4;        // inside each other
constexpr std::string_view kOnItsWay = "a collective may still write it";

// A Python scalar as JSON: numbers as numbers (non-finite ones as the strings the format document
// names), everything else as a string.
std::string value_json(PyObject* value) {
  if (value == Py_None) return "null";
  if (PyBool_Check(value)) return value == Py_True ? "true" : "false";
  if (PyFloat_Check(value)) return json_number(PyFloat_AsDouble(value));
  if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) return std::to_string(number);
  }
  const Ref text(PyUnicode_CheckExact(value) ? new_ref(value) : PyObject_Str(value));
  const Utf8 utf8(text.get());
  PyErr_Clear();
  if (!utf8) return "null";
  const std::string_view view = utf8.view().substr(0, kMaxValueText);
  return PyLong_CheckExact(value) ? std::string(view) : json_quote(view);
}

// What the parts of a wrapper are to it: assay.torch._wrappers.
enum class Parts : int { BesideIt, Shard, ItItself, OnItsWay, Overwritten };

struct WrapperParts {
  Parts kind = Parts::BesideIt;
  Ref answer;
  // Borrowed from it: a list of (suffix of the slot, tensor, members of its line), and torch's
  // write counters.
  PyObject* list = nullptr;
  PyObject* counters = nullptr;
};

// Nothing where Python raised or there are none. `since`: counters of before, or nullptr. `waited`:
// what the program has just waited for, or nullptr.
std::optional<WrapperParts> parts_of(TensorAccess& access, PyObject* tensor, bool may_wait,
                                     PyObject* since, PyObject* waited) {
  WrapperParts parts;
  parts.answer = Ref(access.wrapper_parts(tensor, may_wait, since, waited));
  int kind = 0;
  if (!parts.answer || PyArg_ParseTuple(parts.answer.get(), "iO!O", &kind, &PyList_Type,
                                        &parts.list, &parts.counters) == 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  if (PyList_Size(parts.list) == 0) return std::nullopt;
  parts.kind = static_cast<Parts>(kind);
  return parts;
}

}  // namespace

void Session::Recorder::tensor(PyObject* tensor, const std::string* slot) {
  const bool by_storage = session_.options_.operators && wrapped_in_ == 0;
  session_.access_.look(tensor, look_, !by_storage);
  if (look_.readable == Readable::Nothing) {
    if (!session_.access_.is_plain(tensor) && record_parts(tensor, slot)) return;
    skip_unread(tensor, slot, look_.reason);
    return;
  }
  if (std::shared_ptr<Work> work = work_writing(look_)) {
    promise(tensor, slot, Ref(), std::move(work));
    return;
  }
  at_hand_ = {};
  at_hand_.object = tensor;
  at_hand_.slot = slot;
  at_hand_.contiguous = is_contiguous(look_);
  native::Record record = draft(slot);
  record.more = members_of(tensor);
  describe(record);
  if (by_storage) identify(record);
  const bool is_on_device = look_.readable == Readable::Device || session_.options_.force_device;
  // Nothing has to be waited for where nothing is read.
  if (is_on_device && (session_.options_.reads_elements() || session_.options_.verify))
    record_device(std::move(record));
  else
    record_memory(record);
}

void Session::Recorder::value(PyObject* value, std::string_view slot) {
  native::Record record = draft(run_.intern(slot));
  record.kind = native::RecordKind::Value;
  push(record, value_json(value));
}

void Session::Recorder::begin_operator(std::string_view arguments, const std::string* writes) {
  forget_look();
  native::Record record = draft(session_.no_slot_);
  record.kind = native::RecordKind::Operator;
  record.writes = writes;
  push(record, arguments);
}

void Session::Recorder::call_raised() {
  forget_look();
  skip(nullptr, session_.no_slot_, "the call raised");
}

void Session::Recorder::still_written(PyObject* tensor, const std::string* slot) {
  forget_look();
  native::Record record = draft(slot);
  record.kind = native::RecordKind::Skipped;
  if (tensor != nullptr) session_.access_.look(tensor, look_, false);
  if (tensor != nullptr && look_.readable != Readable::Nothing) {
    at_hand_ = {};
    at_hand_.object = tensor;
    describe(record);
    identify(record);
  }
  push(record, kOnItsWay);
}

void Session::Recorder::forget_look() {
  look_.dtype_name = nullptr;
  look_.has_shape = false;
}

// `tensor`: as it was looked at last, or nullptr.
void Session::Recorder::skip(PyObject* tensor, const std::string* slot, std::string_view reason) {
  native::Record record = draft(slot);
  record.kind = native::RecordKind::Skipped;
  record.dtype_name = look_.dtype_name;
  if (tensor != nullptr) record.more = members_of(tensor);
  record.has_shape = look_.has_shape;
  record.ndim = look_.ndim;
  push(record, reason);
}

// Of a tensor that nothing else stands for.
void Session::Recorder::skip_unread(PyObject* tensor, const std::string* slot,
                                    std::string_view reason) {
  skip(tensor, slot, reason);
  ++node_.unread[std::string(reason)];
}

native::Record Session::Recorder::draft(const std::string* slot) const {
  native::Record record;
  record.step = step_->step;
  record.node = node_.text;
  record.slot = slot;
  record.order = order_;
  record.call = call_;
  record.role = role_;
  record.operation = operation_;
  record.operation_index = operation_index_;
  return record;
}

// The sizes themselves follow with push(): until then the sink may start another batch.
void Session::Recorder::describe(native::Record& record) {
  record.dtype = look_.dtype;
  record.dtype_name = look_.dtype_name;
  if (look_.readable == Readable::Device) record.device = session_.device_.name_of(look_);
  record.has_shape = look_.has_shape;
  record.ndim = look_.ndim;
}

// Which value it is, and who made it. The first operator of a step that returns a value made it;
// one that returns what it was given did not.
void Session::Recorder::identify(native::Record& record) {
  const StorageTable::Sight sight = session_.storages_.see(at_hand_.object, is_settled());
  if (!is_negative_known(sight)) session_.access_.look_for_negative(at_hand_.object, look_);
  if (sight.storage == nullptr) return;
  StoredValue* found = &session_.storages_.value_of(*sight.storage, at_hand_.object, look_);
  if (has_changed_unseen(*sight.storage, *found)) {
    session_.storages_.wrote(*sight.storage);
    found = &session_.storages_.value_of(*sight.storage, at_hand_.object, look_);
  }
  StoredValue& value = *found;
  const bool first_sight = value.seen_in != step_->step;
  value.seen_in = step_->step;
  at_hand_.storage = sight.storage;
  at_hand_.stored = &value;
  at_hand_.version = sight.version;
  at_hand_.has_fresh_storage = sight.is_new;
  at_hand_.is_made_here = first_sight && is_result();
  record.value.id = value.id;
  record.value.storage = sight.storage->number;
  record.value.storage_offset = value.storage_offset;
  record.value.version = sight.storage->version;
  if (at_hand_.is_made_here) return;
  if (role_ != Role::Output) {
    at_hand_.producer = value.producer;
    record.value.producer = value.producer.number();
  }
  if (value.producer.is_none())
    record.value.leaf = session_.storages_.leaf_of(*sight.storage, value);
}

// Whether somebody wrote the tensor's memory in a way that no counter shows (collectives, `data`,
// NumPy, a kernel of one's own), so that it is another value than the one we know.
bool Session::Recorder::has_changed_unseen(const Storage& storage, const StoredValue& value) {
  if (look_.readable != Readable::Memory) return false;
  if (session_.options_.verify) {
    const TakenBytes* before = value.bytes.get();
    return before != nullptr && before->digest && is_covered() &&
           *before->digest != digest_at_hand();
  }
  const StoredValue* known =
      session_.storages_.find_bytes(storage, value, look_, value.layout.dense);
  return known != nullptr && !session_.storages_.is_unchanged(storage, *known);
}

const stats::Digest& Session::Recorder::digest_at_hand() {
  if (!at_hand_.digest) at_hand_.digest = stats::digest(view_of(look_));
  return *at_hand_.digest;
}

// Whether the lazy neg bit need not be asked for. Only views have it: what an operator of torch
// puts into a storage of its own does not, and what was seen before has the bit of then.
bool Session::Recorder::is_negative_known(const StorageTable::Sight& sight) {
  if (sight.storage == nullptr) return false;
  if (is_result() && sight.is_new && !is_view_ && !mutates_ && operation_->starts_with("aten."))
    return true;
  if (is_result() && is_view_) return false;
  return session_.storages_.knows_negative(*sight.storage, at_hand_.object, look_);
}

WaitingRecord Session::Recorder::waiting(const native::Record& record) const {
  WaitingRecord waiting;
  waiting.record = record;
  waiting.shape = Dims(look_.sizes());
  waiting.strides = Dims(look_.steps());
  waiting.step = step_;
  return waiting;
}

uint64_t Session::Recorder::push(native::Record& record, std::string_view text) {
  if (session_.options_.operators && !session_.device_.empty() &&
      record.kind != native::RecordKind::Tensor) {
    // Behind device tensors whose numbers come with their bytes.
    WaitingRecord behind = waiting(record);
    behind.text = text;
    session_.device_.add(std::move(behind));
    return 0;
  }
  step_->count(record);
  if (record.kind == native::RecordKind::Tensor) ++node_.tensors;
  const bool known = record.has_shape && (record.kind == native::RecordKind::Tensor ||
                                          record.kind == native::RecordKind::Skipped);
  return run_.push_record(record, known ? look_.sizes() : std::span<const int64_t>{},
                          known ? look_.steps() : std::span<const int64_t>{}, text);
}

// Wrappers without memory of their own: a DTensor is its local shard, others have parts. Returns
// whether the parts stand for the tensor itself.
bool Session::Recorder::record_parts(PyObject* tensor, const std::string* slot) {
  if (wrapped_in_ >= kMaxWrappers) return false;
  const auto parts = parts_of(session_.access_, tensor, waits_for_operands(), nullptr, waited_);
  if (!parts) return false;
  if (parts->kind == Parts::OnItsWay) {
    promise(tensor, slot, Ref(new_ref(parts->counters)), nullptr);
    return true;
  }
  if (parts->kind == Parts::BesideIt) skip(tensor, slot, look_.reason);
  const int depth = parts->kind == Parts::ItItself ? 0 : 1;
  wrapped_in_ += depth;
  for (Py_ssize_t i = 0; i < PyList_Size(parts->list); ++i)
    record_part(PyList_GetItem(parts->list, i), *slot);
  wrapped_in_ -= depth;
  return true;
}

void Session::Recorder::promise(PyObject* tensor, const std::string* slot, Ref counters,
                                std::shared_ptr<Work> work) {
  session_.promises_.push_back({Ref(new_ref(tensor)), std::move(counters), std::move(work), &node_,
                                step_, order_, call_, role_, slot, operation_, operation_index_,
                                is_view_, mutates_});
  watch_waits(&session_);
}

// Whether the program is about to wait for what it gave: an operator does, unless it makes a view.
bool Session::Recorder::waits_for_operands() const {
  return operation_ != nullptr && role_ == Role::Input && !is_view_;
}

bool Session::Recorder::keep(const Promise& promise, bool may_wait, PyObject* waited) {
  PyObject* wrapper = promise.tensor.get();
  waited_ = waited;
  if (promise.work != nullptr) {
    if (!promise.work->has_ended()) return false;
    tensor(wrapper, promise.slot);
    return true;
  }
  const auto parts = parts_of(session_.access_, wrapper, may_wait, promise.counters.get(), waited);
  if (parts && parts->kind == Parts::OnItsWay) return false;
  forget_look();
  if (!parts)
    skip(nullptr, promise.slot, kOnItsWay);
  else if (parts->kind == Parts::Overwritten)
    skip(nullptr, promise.slot, "it was overwritten before it could be read");
  else
    tensor(wrapper, promise.slot);
  return true;
}

void Session::Recorder::record_part(PyObject* part, const std::string& slot) {
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
const std::string* Session::Recorder::members_of(PyObject* tensor) {
  if (members_ != nullptr || session_.access_.is_plain(tensor)) return members_;
  return run_.intern(R"("class":)" + json_quote(class_name(Py_TYPE(tensor))));
}

void Session::Recorder::record_memory(native::Record& record) {
  const Seen seen = find_seen();
  StoredValue* made = at_hand_.is_made_here ? at_hand_.stored : nullptr;
  if (seen && is_complete(seen)) {
    share(record, seen);
    const RecordRef made_as = RecordRef::numbered(push(record));
    if (made != nullptr) made->producer = made_as;
    return;
  }
  if (!is_covered())
    return skip_unread(at_hand_.object, at_hand_.slot, "storage smaller than the shape");
  const TensorView view = view_of(look_);
  const bool full = session_.options_.data == DataLevel::Full;
  const bool trusted = is_trusted();
  TakenBytes fresh;
  fresh.version = version();
  if (session_.options_.data != DataLevel::None)
    fresh.stats = seen ? statistics_in(seen) : statistics_of(view);
  // Without versions only the content tells whether bytes are there already; worth a digest when
  // they would be stored.
  if (keeps_digests() || (full && !trusted)) fresh.digest = digest_at_hand();
  std::string_view lost;
  const TakenBytes* twin =
      full && !trusted ? session_.sightings_.find_content(*fresh.digest, look_) : nullptr;
  if (twin != nullptr) {
    record.payload = twin->payload;
    record.same_as = twin->record.number();
    ++session_.shared_;
  } else if (full && lie_in_stored(record, seen)) {
    ++session_.shared_;
  } else if (full) {
    append_elements(run_, view, record);
    if (!record.payload) {
      record.kind = native::RecordKind::Skipped;
      lost = run_.stopped() ? "capture stopped" : "dropped, the queue was full";
    }
  }
  record.stats = fresh.stats;
  if (keeps_digests()) record.digest = fresh.digest;
  const bool is_first = record.kind == native::RecordKind::Tensor && twin == nullptr;
  fresh.payload = record.payload;
  fresh.is_view = record.is_view;
  if (is_first && trusted && look_.element_count > 0) {
    fresh.memory = memory_of(look_);
    fresh.glance = stats::glance(fresh.memory);
  }
  fresh.record = RecordRef::numbered(push(record, lost));
  if (made != nullptr) made->producer = fresh.record;
  if (session_.options_.verify && at_hand_.stored != nullptr)
    session_.storages_.remember_bytes(*at_hand_.stored, {.digest = fresh.digest});
  if (is_first && (trusted || full)) remember(std::move(fresh));
}

// Its bytes come with the next fetch; until then the list keeps its place among the records.
void Session::Recorder::record_device(native::Record record) {
  DeviceRecords& device = session_.device_;
  const RecordRef place = device.next();
  if (at_hand_.is_made_here) at_hand_.stored->producer = place;
  const Seen seen = find_seen();
  WaitingRecord entry = waiting(record);
  entry.producer = at_hand_.producer;
  const bool is_view = seen && !is_complete(seen) && is_transpose_of(seen);
  if (seen && (is_complete(seen) || is_view)) {
    entry.is_whole = !seen.bytes->record.is_waiting();
    entry.record.is_view = is_view;
    if (entry.is_whole) {
      share(entry.record, seen);
      entry.record.is_view |= is_view;
      entry.record.repeats &= !is_view;
    } else {
      entry.shares = seen.bytes->record;
      entry.drops_sketch = seen.layout->contiguous && !at_hand_.contiguous;
      ++session_.shared_;
    }
  } else if (session_.options_.reads_elements()) {
    if (!device.send(at_hand_.object, look_, &entry)) {
      entry.record.kind = native::RecordKind::Skipped;
      return device.add(std::move(entry));
    }
    if (is_trusted()) {
      TakenBytes fresh;
      fresh.version = version();
      fresh.record = place;
      remember(std::move(fresh));
    }
  }
  device.add(std::move(entry));
  ++node_.tensors;
  if (device.is_full()) session_.fetch_device_results();
}

// Whether torch's version counters are final: autograd counts a write, and links a view to its
// base, only after the operator has returned.
bool Session::Recorder::is_settled() const { return !is_result() || !(is_view_ || mutates_); }

// torch's version counter, -1 where it has none or is not final.
int64_t Session::Recorder::version() {
  if (!at_hand_.version) {
    const bool has_none = !is_settled() || session_.access_.is_inference(at_hand_.object);
    at_hand_.version = has_none ? -1 : session_.access_.version(at_hand_.object);
  }
  return *at_hand_.version;
}

// Our own counter sees what a dispatch mode sees, also where torch has none.
bool Session::Recorder::is_trusted() {
  return !session_.options_.verify && (version() >= 0 || at_hand_.stored != nullptr);
}

// Whether the storage has all the bytes that shape and strides claim: it may have been resized
// below them.
bool Session::Recorder::is_covered() const {
  if (!at_hand_.has_fresh_storage) return session_.access_.storage_covers(at_hand_.object, look_);
  return look_.element_count == 0 ||
         fits_storage(look_, at_hand_.stored->storage_offset, at_hand_.storage->first_size_bytes);
}

Session::Recorder::Seen Session::Recorder::find_seen() {
  if (!is_trusted()) return {};
  if (at_hand_.stored == nullptr) {
    const auto* found = session_.sightings_.find(at_hand_.object, look_, version(),
                                                 at_hand_.contiguous || is_dense(look_));
    return found != nullptr && is_unchanged(found->known) ? Seen{&found->layout, &found->known}
                                                          : Seen{};
  }
  const StoredValue* found = session_.storages_.find_bytes(*at_hand_.storage, *at_hand_.stored,
                                                           look_, at_hand_.stored->layout.dense);
  return found != nullptr && !is_contradicted(*found) ? Seen{&found->layout, found->bytes.get()}
                                                      : Seen{};
}

// Of a tensor in the same place of the same storage as the one at hand.
bool Session::Recorder::is_unchanged(const TakenBytes& known) const {
  return known.glance == 0 || (is_covered() && stats::glance(known.memory) == known.glance);
}

// Where both have one, torch's counter must agree, too: it sees writes by code that was not
// dispatched on this thread. Precondition: `known` has bytes.
bool Session::Recorder::is_contradicted(const StoredValue& known) {
  const int64_t then = known.bytes->version;
  return then >= 0 && version() >= 0 && then != version();
}

// A transpose or a slice of what is stored already: its place there, instead of another copy.
bool Session::Recorder::lie_in_stored(native::Record& record, const Seen& seen) {
  if (!is_trusted()) return false;
  const std::optional<uint64_t> spanned = spanned_bytes(look_);
  if (!spanned) return false;
  const auto begin_in = [&](const Seen& known) -> std::optional<uint64_t> {
    if (!known.bytes->payload || known.bytes->is_view) return std::nullopt;
    return known.layout->begin_of(look_, *spanned);
  };
  Seen whole = seen;
  if (at_hand_.stored != nullptr) {
    const StorageTable& storages = session_.storages_;
    const StoredValue* found =
        storages.find_known(*at_hand_.storage, [&](const StoredValue& known) {
          return !is_contradicted(known) && begin_in({&known.layout, known.bytes.get()}) &&
                 storages.is_unchanged(*at_hand_.storage, known);
        });
    whole = found != nullptr ? Seen{&found->layout, found->bytes.get()} : Seen{};
  }
  const std::optional<uint64_t> begin = whole ? begin_in(whole) : std::nullopt;
  if (!begin) return false;
  const native::PayloadLocation& payload = *whole.bytes->payload;
  record.payload = {payload.file, payload.offset + *begin, *spanned};
  record.same_as = whole.bytes->record.number();
  record.is_view = true;
  return true;
}

// Whether a hit answers everything asked for; a transposed alias shares statistics but not the
// payload.
bool Session::Recorder::is_complete(const Seen& seen) const {
  const SessionOptions& options = session_.options_;
  const bool needs_payload = options.data == DataLevel::Full || options.digest;
  return !needs_payload || seen.layout->has_payload_of(look_, at_hand_.contiguous);
}

// Whether the bytes of the hit, which lie or will lie as the host has them, are those at hand in
// another order, and nothing but their place is asked for.
bool Session::Recorder::is_transpose_of(const Seen& seen) const {
  const std::optional<uint64_t> spanned = spanned_bytes(look_);
  return !session_.options_.digest && !seen.bytes->is_view && spanned &&
         seen.layout->begin_of(look_, *spanned).has_value() &&
         (seen.bytes->record.is_waiting() || seen.bytes->payload);
}

void Session::Recorder::share(native::Record& record, const Seen& seen) {
  record.payload = seen.bytes->payload;
  record.is_view = seen.bytes->is_view;
  record.same_as = seen.bytes->record.number();
  record.stats = statistics_in(seen);
  if (session_.options_.digest) record.digest = seen.bytes->digest;
  const bool has_sketch = record.stats && record.stats->sketch;
  record.repeats = has_sketch == (seen.bytes->stats && seen.bytes->stats->sketch);
  ++session_.shared_;
}

// Those of the same values; in another order they have no sketch.
std::optional<stats::TensorStats> Session::Recorder::statistics_in(const Seen& seen) const {
  std::optional<stats::TensorStats> stats = seen.bytes->stats;
  if (stats && seen.layout->contiguous && !at_hand_.contiguous) stats->sketch.reset();
  return stats;
}

bool Session::Recorder::keeps_digests() const {
  return session_.options_.digest || session_.options_.verify;
}

void Session::Recorder::remember(TakenBytes bytes) {
  if (at_hand_.stored != nullptr && is_trusted())
    session_.storages_.remember_bytes(*at_hand_.stored, std::move(bytes));
  else if (is_trusted())
    session_.sightings_.insert(at_hand_.object, SeenLayout(look_), std::move(bytes));
  else
    session_.sightings_.insert_content(look_, std::move(bytes));
}

}  // namespace assay::capture

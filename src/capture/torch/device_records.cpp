// SPDX-License-Identifier: Apache-2.0
// From the answer of assay.torch._device.DevicePath to the records that waited for it.
#include "capture/torch/device_records.hpp"

#include "capture/intake/take.hpp"
#include "capture/torch/python_compat.hpp"
#include "capture/torch/session.hpp"

namespace assay::capture {
namespace {

constexpr size_t kMaxWaiting = 1'000'000;  // of some 600 bytes each
constexpr const char* kRefused = "the device refused the copy";

// None, or the eight numbers of a record.
std::optional<stats::TensorStats> statistics_in(PyObject* numbers) {
  double v[8];
  if (numbers == Py_None ||
      !PyArg_ParseTuple(numbers, "dddddddd", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7)) {
    PyErr_Clear();
    return std::nullopt;
  }
  const auto count = [&v](int i) { return static_cast<int64_t>(v[i]); };
  return stats::TensorStats{count(0), count(1), count(2), count(3), v[4], v[5], v[6], v[7], {}};
}

}  // namespace

const char* DeviceRecords::name_of(const TensorLook& look) {
  if (name_ == nullptr || name_type_ != look.device_type || name_index_ != look.device_index) {
    name_ = run_.intern(device_text(look))->c_str();
    name_type_ = look.device_type;
    name_index_ = look.device_index;
  }
  return name_;
}

bool DeviceRecords::is_full() const {
  return bytes_in_flight_ > kMaxBytesInFlight || waiting_.size() > kMaxWaiting || cuda_.is_full();
}

bool DeviceRecords::send(PyObject* tensor, const TensorLook& look, WaitingRecord* waiting) {
  waiting->text = kRefused;
  if (options_.device == nullptr) return false;
  if (is_cuda(look) || options_.force_device) {
    const char* why = kRefused;
    const CudaPath::Answer answer = cuda_.send(tensor, look, &waiting->cuda, &why);
    waiting->text = answer == CudaPath::Answer::Refused ? why : "";
    if (answer != CudaPath::Answer::Elsewhere) return answer == CudaPath::Answer::Sent;
  }
  const Ref refusal(PyObject_CallMethod(options_.device, "send", "O", tensor));
  if (!refusal || refusal.get() != Py_None) {
    waiting->text = text_of(refusal.get(), kRefused);
    PyErr_Clear();
    return false;
  }
  waiting->text.clear();
  if (options_.data == DataLevel::Full || options_.digest) bytes_in_flight_ += payload_bytes(look);
  return true;
}

void DeviceRecords::fetch() {
  cuda_.fetch();
  const Ref results(options_.device != nullptr
                        ? PyObject_CallMethod(options_.device, "fetch", nullptr)
                        : PyList_New(0));
  PyErr_Clear();
  const Py_ssize_t count = results && PyList_Check(results.get()) ? PyList_Size(results.get()) : 0;
  Py_ssize_t next = 0;
  for (WaitingRecord& waiting : waiting_) {
    native::Record& record = waiting.record;
    if (waiting.producer.is_waiting()) record.value.producer = numbered(waiting.producer).number();
    if (waiting.shares.is_waiting()) {
      const native::Record& first = at(waiting.shares);
      record.same_as = static_cast<int64_t>(first.number);
      record.payload = first.payload;
      record.repeats =
          !record.is_view && !(waiting.drops_sketch && first.stats && first.stats->sketch);
      record.is_view = (record.is_view || first.is_view) && record.payload.has_value();
      record.stats = first.stats;
      if (record.stats && waiting.drops_sketch) record.stats->sketch.reset();
      record.digest = first.digest;
      record.kind = first.kind;
    } else if (!waiting.is_whole && record.kind == native::RecordKind::Tensor &&
               options_.reads_elements()) {
      if (waiting.cuda.is_sent())
        take_from_cuda(waiting);
      else
        take(next < count ? PyList_GetItem(results.get(), next++) : nullptr, waiting);
    }
    waiting.step->count(record);
    if (record.kind == native::RecordKind::Skipped && waiting.text.empty()) waiting.text = kRefused;
    record.number =
        run_.push_record(record, waiting.shape.span(), waiting.strides.span(), waiting.text);
  }
  PyErr_Clear();
}

void DeviceRecords::clear() {
  waiting_.clear();
  cuda_.clear();
  bytes_in_flight_ = 0;
}

void DeviceRecords::take_from_cuda(WaitingRecord& waiting) {
  native::Record& record = waiting.record;
  if (cuda_.is_lost(waiting.cuda)) {
    record.kind = native::RecordKind::Skipped;
    return;
  }
  record.stats = cuda_.statistics(waiting.cuda, record.dtype);
  if (options_.data != DataLevel::Full && !options_.digest) return;
  const uint64_t size_bytes =
      storage_bytes(record.dtype, static_cast<uint64_t>(element_count(waiting.shape).value_or(0)))
          .value_or(0);
  const auto view = make_view(record.dtype, waiting.shape, {waiting.cuda.bytes, size_bytes});
  if (view) take_bytes(*view, waiting);
}

void DeviceRecords::take_bytes(const TensorView& view, WaitingRecord& waiting) {
  native::Record& record = waiting.record;
  if (options_.digest || options_.verify) record.digest = stats::digest(view);
  if (options_.data != DataLevel::Full) return;
  append_elements(run_, view, record);
  if (record.payload) return;
  record.kind = native::RecordKind::Skipped;
  waiting.text = run_.stopped() ? "capture stopped" : "dropped, the queue was full";
}

// item: (statistics or None, host tensor or None)
void DeviceRecords::take(PyObject* item, WaitingRecord& waiting) {
  native::Record& record = waiting.record;
  PyObject* numbers = nullptr;
  PyObject* tensor = nullptr;
  if (item == nullptr || PyArg_ParseTuple(item, "OO", &numbers, &tensor) == 0) {
    PyErr_Clear();
    record.kind = native::RecordKind::Skipped;
    return;
  }
  record.stats = statistics_in(numbers);
  if (tensor == Py_None || !access_.is_tensor(tensor)) return;
  TensorLook look;
  access_.look(tensor, look);
  if (look.readable == Readable::Memory)
    take_bytes(view_of(look), waiting);
  else if (options_.data == DataLevel::Full)
    record.kind = native::RecordKind::Skipped;
}

}  // namespace assay::capture

// SPDX-License-Identifier: Apache-2.0
// From the answer of assay.torch._device.DevicePath to the records that waited for it.
#include "capture/torch/device_records.hpp"

#include "capture/intake/take.hpp"
#include "capture/torch/python_compat.hpp"
#include "capture/torch/session.hpp"

namespace assay::capture {
namespace {

constexpr uint64_t kMaxBytesInFlight = 256ull << 20;

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

bool DeviceRecords::is_full() const { return bytes_in_flight_ > kMaxBytesInFlight; }

bool DeviceRecords::send(PyObject* tensor, uint64_t size_bytes) {
  if (options_.device == nullptr) return false;
  const Ref done(PyObject_CallMethod(options_.device, "send", "O", tensor));
  if (!done) PyErr_Clear();
  if (done) bytes_in_flight_ += size_bytes;
  return static_cast<bool>(done);
}

void DeviceRecords::fetch() {
  const Ref results(options_.device != nullptr
                        ? PyObject_CallMethod(options_.device, "fetch", nullptr)
                        : PyList_New(0));
  PyErr_Clear();
  const Py_ssize_t count =
      results && PyList_Check(results.get()) ? PyList_GET_SIZE(results.get()) : 0;
  Py_ssize_t next = 0;
  for (WaitingRecord& waiting : waiting_) {
    native::Record& record = waiting.record;
    if (waiting.producer.is_waiting()) record.value.producer = numbered(waiting.producer).number();
    if (waiting.shares.is_waiting()) {
      const native::Record& first = at(waiting.shares);
      record.same_as = static_cast<int64_t>(first.number);
      record.payload = first.payload;
      record.stats = first.stats;
      record.digest = first.digest;
      record.kind = first.kind;
    } else if (!waiting.is_whole && record.kind == native::RecordKind::Tensor &&
               options_.reads_elements()) {
      take(next < count ? PyList_GET_ITEM(results.get(), next++) : nullptr, record);
    }
    waiting.step->count(record);
    if (record.kind == native::RecordKind::Skipped && waiting.text.empty())
      waiting.text = "the device refused the copy";
    record.number =
        run_.push_record(record, waiting.shape.span(), waiting.strides.span(), waiting.text);
  }
  PyErr_Clear();
}

void DeviceRecords::clear() {
  waiting_.clear();
  bytes_in_flight_ = 0;
}

// item: (statistics or None, host tensor or None)
void DeviceRecords::take(PyObject* item, native::Record& record) {
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
  if (look.readable == Readable::Memory) {
    const TensorView view = view_of(look);
    if (options_.digest || options_.verify) record.digest = stats::digest(view);
    if (options_.data == DataLevel::Full) append_elements(run_, view, record);
  }
  if (!record.payload && options_.data == DataLevel::Full)
    record.kind = native::RecordKind::Skipped;
}

}  // namespace assay::capture

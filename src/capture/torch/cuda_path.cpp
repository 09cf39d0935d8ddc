// SPDX-License-Identifier: Apache-2.0
// The driver's functions are looked up in the process, which has them when torch is one for CUDA:
// nothing is linked.
#include "capture/torch/cuda_path.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "capture/torch/session.hpp"
#include "stats/block_stats.hpp"

namespace assay::capture {
namespace {

using Address = unsigned long long;  // of the device
using Stream = void*;
constexpr int kSuccess = 0;

// What device_statistics.cu agrees upon.
constexpr int64_t kRowDoubles = 24;
constexpr uint64_t kRowBytes = kRowDoubles * sizeof(double);
constexpr int64_t kBlocksOfOneLaunchBlock = 8;
constexpr unsigned kThreads = 128;
constexpr unsigned kMergeThreads = 256;
struct TensorBlocks {
  Address rows;
  int64_t blocks;
};

constexpr uint64_t kRowsAtOnce = 16ull << 20;  // of device memory for sums, asked for at once
constexpr uint64_t kMaxRowBytes = 256ull << 20;
constexpr uint64_t kStageBytes = 64ull << 20;  // of device memory and of pinned memory each
constexpr uint64_t kBatchBytes = 8ull << 20;   // a copy over the link is as fast as a larger one
constexpr uint64_t kAlignment = 256;

uint64_t aligned(uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

struct Driver {
  int (*get_current)(void** context) = nullptr;
  int (*push_current)(void* context) = nullptr;
  int (*pop_current)(void** context) = nullptr;
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream,
                void** parameters, void** extra) = nullptr;
  int (*is_capturing)(Stream stream, int* status) = nullptr;
  int (*synchronize)(Stream stream) = nullptr;
  int (*event_create)(void** event, unsigned flags) = nullptr;
  int (*event_record)(void* event, Stream stream) = nullptr;
  int (*wait_event)(Stream stream, void* event, unsigned flags) = nullptr;
  int (*copy_on_device)(Address to, Address from, size_t size, Stream stream) = nullptr;
  int (*copy_to_host)(void* to, Address from, size_t size, Stream stream) = nullptr;
  bool is_whole = false;

  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

 private:
  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return;
    is_whole = true;
    find(library, "cuCtxGetCurrent", &get_current);
    find(library, "cuCtxPushCurrent_v2", &push_current);
    find(library, "cuCtxPopCurrent_v2", &pop_current);
    find(library, "cuLaunchKernel", &launch);
    find(library, "cuStreamIsCapturing", &is_capturing);
    find(library, "cuStreamSynchronize", &synchronize);
    find(library, "cuEventCreate", &event_create);
    find(library, "cuEventRecord", &event_record);
    find(library, "cuStreamWaitEvent", &wait_event);
    find(library, "cuMemcpyDtoDAsync_v2", &copy_on_device);
    find(library, "cuMemcpyDtoHAsync_v2", &copy_to_host);
  }
  template <typename Function>
  void find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    is_whole = is_whole && *function != nullptr;
  }
};

// The device's context is the current one as long as it lives: the model may be at work on another.
class CurrentContext {
 public:
  explicit CurrentContext(void* context) {
    void* current = nullptr;
    const Driver& driver = Driver::get();
    if (driver.get_current(&current) == kSuccess && current == context) return;
    pushed_ = driver.push_current(context) == kSuccess;
  }
  ~CurrentContext() {
    void* popped = nullptr;
    if (pushed_) Driver::get().pop_current(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  bool pushed_ = false;
};

void* pointer_attribute(PyObject* object, const char* name) {
  const Ref value = attribute(object, name);
  void* address = value ? PyLong_AsVoidPtr(value.get()) : nullptr;
  PyErr_Clear();
  return address;
}

}  // namespace

// What is open of one device. A refused one stays, so that it is not asked again.
class CudaPath::Device {
 public:
  Device(Ref object, int index) : object_(std::move(object)), index_(PyLong_FromLong(index)) {
    if (!object_ || object_.get() == Py_None || !Driver::get().is_whole) return;
    context_ = pointer_attribute(object_.get(), "context");
    side_ = pointer_attribute(object_.get(), "stream");
    merge_ = pointer_attribute(object_.get(), "merge");
    current_stream_ = attribute(object_.get(), "current_stream");
    if (context_ == nullptr || side_ == nullptr || merge_ == nullptr || !current_stream_) return;
    const CurrentContext current(context_);
    constexpr unsigned kWithoutTimes = 2;
    is_usable_ = Driver::get().event_create(&event_, kWithoutTimes) == kSuccess;
  }

  [[nodiscard]] bool is_usable() const { return is_usable_; }
  [[nodiscard]] void* context() const { return context_; }

  /// torch's current stream; nothing when torch does not say. nullptr is the default stream.
  [[nodiscard]] std::optional<Stream> current_stream() const {
    const Ref number(PyObject_CallFunctionObjArgs(current_stream_.get(), index_.get(), nullptr));
    void* stream = number ? PyLong_AsVoidPtr(number.get()) : nullptr;
    const bool known = PyErr_Occurred() == nullptr;
    PyErr_Clear();
    return known ? std::optional(stream) : std::nullopt;
  }

  /// nullptr for a type that has none.
  [[nodiscard]] void* kernel_of(DType dtype) {
    Kernel& kernel = kernels_[static_cast<size_t>(dtype)];
    if (!kernel.is_known) {
      const Ref address(PyObject_CallMethod(object_.get(), "kernel", "s", name(dtype).data()));
      kernel.function = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
      PyErr_Clear();
      kernel.is_known = true;
    }
    return kernel.function;
  }

  void use(Stream stream) {
    if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end())
      streams_.push_back(stream);
  }

  /// Sums the blocks of `count` elements; false with the reason.
  [[nodiscard]] bool start_sums(void* kernel, const void* data, int64_t count, DType dtype,
                                Stream stream, CudaTicket* ticket, const char** why) {
    int64_t block_elements = stats::block_elements(dtype);
    const int64_t blocks = (count + block_elements - 1) / block_elements;
    Address rows = 0;
    if (!row_memory_for(static_cast<uint64_t>(blocks) * kRowBytes, &rows)) {
      *why = "no memory on the device for its statistics";
      return false;
    }
    void* parameters[] = {&data, &count, &block_elements, &rows};
    const int64_t grid = (blocks + kBlocksOfOneLaunchBlock - 1) / kBlocksOfOneLaunchBlock;
    if (Driver::get().launch(kernel, static_cast<unsigned>(grid), 1, 1, kThreads, 1, 1, 0, stream,
                             parameters, nullptr) != kSuccess) {
      *why = "the device refused the launch";
      return false;
    }
    ticket->row = static_cast<int64_t>(tensors_.size());
    tensors_.push_back({rows, blocks});
    return true;
  }

  /// Copies contiguous bytes; false with the reason.
  [[nodiscard]] bool start_copy(const void* data, uint64_t size_bytes, Stream stream,
                                CudaTicket* ticket, const char** why) {
    Stage* stage = stage_for(size_bytes, why);
    if (stage == nullptr) return false;
    if (batch_stage_ != stage || batch_stream_ != stream) {
      if (!send_batch()) {
        *why = "the device refused the copy";
        return false;
      }
      batch_stage_ = stage;
      batch_stream_ = stream;
    }
    if (Driver::get().copy_on_device(stage->device + stage->used, reinterpret_cast<Address>(data),
                                     size_bytes, stream) != kSuccess) {
      *why = "the device refused the copy";
      return false;
    }
    ticket->bytes = stage->host + stage->used;
    stage->used += aligned(size_bytes);
    bytes_in_flight_ += size_bytes;
    if (stage->used - stage->sent < kBatchBytes || send_batch()) return true;
    *why = "the device refused the copy";
    return false;
  }

  [[nodiscard]] bool is_full() const {
    return bytes_in_flight_ > kMaxBytesInFlight || row_bytes_ > kMaxRowBytes;
  }

  void fetch() {
    if (streams_.empty()) return;
    const CurrentContext current(context_);
    const Driver& driver = Driver::get();
    has_no_pinned_ = false;
    bool is_well = send_batch() && has_room_for_results();
    {
      const GilReleased released;
      for (Stream stream : streams_) is_well = driver.synchronize(stream) == kSuccess && is_well;
      if (is_well && !tensors_.empty()) {
        std::memcpy(tensors_host_, tensors_.data(), tensors_.size() * sizeof(TensorBlocks));
        void* parameters[] = {&tensors_host_, &results_};
        is_well = driver.launch(merge_, static_cast<unsigned>(tensors_.size()), 1, 1, kMergeThreads,
                                1, 1, 0, side_, parameters, nullptr) == kSuccess;
      }
      is_well = driver.synchronize(side_) == kSuccess && is_well;
    }
    is_lost_ = !is_well;
  }
  [[nodiscard]] bool is_lost() const { return is_lost_; }
  [[nodiscard]] const double* result(int64_t row) const { return results_ + row * kRowDoubles; }

  void clear() {
    tensors_.clear();
    streams_.clear();
    for (Memory& memory : row_memory_) memory.used = 0;
    for (Stage& stage : stages_) stage.used = stage.sent = 0;
    row_bytes_ = bytes_in_flight_ = 0;
    batch_stage_ = nullptr;
    is_lost_ = has_no_device_memory_ = has_no_pinned_ = false;
  }

  void close() {
    if (!is_usable_) return;
    is_usable_ = false;
    const Ref done(PyObject_CallMethod(object_.get(), "close", nullptr));
    PyErr_Clear();
  }

 private:
  struct Kernel {
    void* function = nullptr;
    bool is_known = false;
  };
  struct Memory {
    Address begin = 0;
    uint64_t size = 0;
    uint64_t used = 0;
  };
  struct Stage {
    Address device = 0;
    std::byte* host = nullptr;
    uint64_t size = 0;
    uint64_t used = 0;
    uint64_t sent = 0;  // on its way to the host
  };

  // method   kOfDevice or kPinned; nullptr when there is none. Then it is not asked again
  //          until what is on its way has come: torch gives all its free memory back before it says no.
  static constexpr const char* kOfDevice = "device_memory";
  static constexpr const char* kPinned = "pinned_memory";
  [[nodiscard]] void* memory_of(const char* method, uint64_t size_bytes) {
    bool& is_used_up = std::strcmp(method, kPinned) == 0 ? has_no_pinned_ : has_no_device_memory_;
    if (is_used_up) return nullptr;
    const Ref address(PyObject_CallMethod(object_.get(), method, "K",
                                          static_cast<unsigned long long>(size_bytes)));
    void* result = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
    PyErr_Clear();
    is_used_up = result == nullptr;
    return result;
  }

  [[nodiscard]] bool row_memory_for(uint64_t size_bytes, Address* rows) {
    Memory* found = nullptr;
    for (Memory& memory : row_memory_) {
      if (memory.size - memory.used >= size_bytes) found = &memory;
    }
    if (found == nullptr) {
      const uint64_t size = std::max(kRowsAtOnce, aligned(size_bytes));
      void* memory = memory_of(kOfDevice, size);
      if (memory == nullptr) return false;
      row_memory_.push_back({reinterpret_cast<Address>(memory), size, 0});
      found = &row_memory_.back();
    }
    *rows = found->begin + found->used;
    found->used += size_bytes;
    row_bytes_ += size_bytes;
    return true;
  }

  [[nodiscard]] Stage* stage_for(uint64_t size_bytes, const char** why) {
    if (batch_stage_ != nullptr && batch_stage_->size - batch_stage_->used >= aligned(size_bytes))
      return batch_stage_;
    for (Stage& stage : stages_) {
      if (stage.size - stage.used >= aligned(size_bytes)) return &stage;
    }
    const uint64_t size = std::max(kStageBytes, aligned(size_bytes));
    if (spare_pinned_ == nullptr || spare_pinned_size_ < size) {
      spare_pinned_ = static_cast<std::byte*>(memory_of(kPinned, size));
      spare_pinned_size_ = size;
    }
    if (spare_pinned_ == nullptr) {
      *why = "no pinned memory";
      return nullptr;
    }
    void* device = memory_of(kOfDevice, size);
    if (device == nullptr) {
      *why = "no memory on the device for a copy";
      return nullptr;
    }
    std::byte* host = std::exchange(spare_pinned_, nullptr);
    stages_.push_back({reinterpret_cast<Address>(device), host, size, 0, 0});
    return &stages_.back();
  }

  // What the model's stream has copied goes on to the host.
  [[nodiscard]] bool send_batch() {
    Stage* stage = batch_stage_;
    if (stage == nullptr || stage->sent == stage->used) return true;
    const Driver& driver = Driver::get();
    const uint64_t from = std::exchange(stage->sent, stage->used);
    return driver.event_record(event_, batch_stream_) == kSuccess &&
           driver.wait_event(side_, event_, 0) == kSuccess &&
           driver.copy_to_host(stage->host + from, stage->device + from, stage->used - from,
                               side_) == kSuccess;
  }

  [[nodiscard]] bool has_room_for_results() {
    if (tensors_.size() <= result_capacity_) return true;
    const uint64_t count = std::max<uint64_t>(4096, tensors_.size() * 2);
    void* memory = memory_of(kPinned, count * (kRowBytes + sizeof(TensorBlocks)));
    if (memory == nullptr) return false;
    results_ = static_cast<double*>(memory);
    tensors_host_ = reinterpret_cast<TensorBlocks*>(results_ + count * kRowDoubles);
    result_capacity_ = count;
    return true;
  }

  Ref object_;  // assay.torch._cuda.CudaDevice, None, or nothing
  Ref index_;
  Ref current_stream_;
  bool is_usable_ = false;
  void* context_ = nullptr;
  void* merge_ = nullptr;
  void* event_ = nullptr;
  Stream side_ = nullptr;
  std::array<Kernel, 64> kernels_ = {};

  std::vector<Stream> streams_;  // of the model, that have work of ours
  std::vector<TensorBlocks> tensors_;
  std::vector<Memory> row_memory_;
  uint64_t row_bytes_ = 0;
  // Of the host, where the device reads and writes it.
  double* results_ = nullptr;
  TensorBlocks* tensors_host_ = nullptr;
  size_t result_capacity_ = 0;

  std::deque<Stage> stages_;  // stay in place
  // Of a stage that the device had no memory for: the next one takes it.
  std::byte* spare_pinned_ = nullptr;
  uint64_t spare_pinned_size_ = 0;
  Stage* batch_stage_ = nullptr;
  Stream batch_stream_ = nullptr;
  uint64_t bytes_in_flight_ = 0;
  bool is_lost_ = false;
  bool has_no_device_memory_ = false;
  bool has_no_pinned_ = false;
};

CudaPath::CudaPath(const SessionOptions& options, TensorAccess& access)
    : options_(options), access_(access) {}

CudaPath::~CudaPath() = default;

CudaPath::Device* CudaPath::device_of(int index) {
  if (index < 0 || options_.device == nullptr) return nullptr;
  const auto at = static_cast<size_t>(index);
  if (devices_.size() <= at) devices_.resize(at + 1);
  if (devices_[at] == nullptr) {
    Ref object(PyObject_CallMethod(options_.device, "open_cuda", "i", index));
    PyErr_Clear();
    devices_[at] = std::make_unique<Device>(std::move(object), index);
  }
  return devices_[at]->is_usable() ? devices_[at].get() : nullptr;
}

// A tensor of consecutive elements in place of one with gaps, expanded or lazily negated.
bool CudaPath::packed(PyObject* tensor, bool in_order, Ref* answer, TensorLook* look,
                      CudaTicket* ticket) {
  *answer = Ref(PyObject_CallMethod(options_.device, "pack", "Oi", tensor, in_order ? 1 : 0));
  PyObject* made = nullptr;
  long long times = 1;
  int row_major = 0;
  if (!*answer || PyArg_ParseTuple(answer->get(), "OLp", &made, &times, &row_major) == 0) {
    PyErr_Clear();
    return false;
  }
  access_.look(made, *look);
  if (!in_order) {
    ticket->times = times;
    ticket->row_major = row_major != 0;
  }
  return look->readable != Readable::Nothing;
}

CudaPath::Answer CudaPath::send(PyObject* tensor, const TensorLook& look, CudaTicket* ticket,
                                const char** why) {
  Device* device = device_of(look.device_index);
  if (device == nullptr) return Answer::Elsewhere;
  const std::optional<Stream> stream = device->current_stream();
  if (!stream) return Answer::Elsewhere;
  const CurrentContext current(device->context());
  // Any work of ours would become part of the graph; of its own stream a driver that is capturing
  // elsewhere says an error, and would say it to the copy, too.
  int status = 0;
  if (Driver::get().is_capturing(*stream, &status) != kSuccess || status != 0)
    return Answer::Elsewhere;
  void* kernel = device->kernel_of(look.dtype);
  if (kernel == nullptr) return Answer::Elsewhere;
  CudaTicket sent;
  sent.device = look.device_index;
  sent.element_count = look.element_count;
  device->use(*stream);
  if (look.element_count > 0) {
    const bool is_contiguous_here = is_contiguous(look) && !look.negative;
    Ref made;
    TensorLook made_look;
    if (options_.data != DataLevel::None) {
      const void* data = look.data;
      if (!is_contiguous_here) {
        sent.row_major = false;
        if (look.negative || !is_dense(look)) {
          if (!packed(tensor, false, &made, &made_look, &sent)) {
            *why = "the device refused the copy";
            return Answer::Refused;
          }
          data = made_look.data;
          sent.element_count = made_look.element_count;
        }
      }
      if (!device->start_sums(kernel, data, sent.element_count, look.dtype, *stream, &sent, why))
        return Answer::Refused;
    }
    if (options_.data == DataLevel::Full || options_.digest) {
      const void* data = look.data;
      if (!is_contiguous_here) {
        if (!packed(tensor, true, &made, &made_look, &sent)) {
          *why = "the device refused the copy";
          return Answer::Refused;
        }
        data = made_look.data;
      }
      if (!device->start_copy(data, payload_bytes(look), *stream, &sent, why))
        return Answer::Refused;
    }
  }
  *ticket = sent;
  return Answer::Sent;
}

bool CudaPath::is_full() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const std::unique_ptr<Device>& device) {
    return device != nullptr && device->is_full();
  });
}

void CudaPath::fetch() {
  for (const std::unique_ptr<Device>& device : devices_) {
    if (device != nullptr && device->is_usable()) device->fetch();
  }
}

bool CudaPath::is_lost(const CudaTicket& ticket) const {
  return devices_[static_cast<size_t>(ticket.device)]->is_lost();
}

std::optional<stats::TensorStats> CudaPath::statistics(const CudaTicket& ticket,
                                                       DType dtype) const {
  if (options_.data == DataLevel::None || is_lost(ticket)) return std::nullopt;
  if (ticket.row < 0) return stats::TensorStats{};
  const double* row = devices_[static_cast<size_t>(ticket.device)]->result(ticket.row);
  stats::BlockStats sums;
  sums.sum = row[0];
  sums.sum_of_squares = row[1];
  sums.min = row[2];
  sums.max = row[3];
  sums.nan_count = static_cast<int64_t>(row[4]);
  sums.positive_inf_count = static_cast<int64_t>(row[5]);
  sums.negative_inf_count = static_cast<int64_t>(row[6]);
  std::copy_n(row + 8, stats::kSketchBuckets, sums.sketch);
  return stats::statistics_of_sums(sums, dtype, ticket.element_count, ticket.times,
                                   ticket.row_major);
}

void CudaPath::clear() {
  for (const std::unique_ptr<Device>& device : devices_) {
    if (device != nullptr) device->clear();
  }
}

void CudaPath::close() {
  for (const std::unique_ptr<Device>& device : devices_) {
    if (device != nullptr) device->close();
  }
}

}  // namespace assay::capture

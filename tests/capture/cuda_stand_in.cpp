// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA driver that the capture calls, on memory of the host, for machines
// without a device. What is sent to the capture's own stream happens when that is waited for, and
// not before; the model's streams are the CPU's torch, which has done all it was asked for.
// tests/device runs the same captures on a real device.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#define ASSAY_ON_HOST
#include "capture/torch/device_statistics.cu"

namespace {

struct Tensor {
  double* rows;
  assay_i64 blocks;
};

void* const kSide = reinterpret_cast<void*>(0x51DE);
std::vector<std::function<void()>> waiting;
std::vector<void*> contexts;
int capturing = 0;
int failing_launches = 0;
int failing_waits = 0;

void run_or_wait(void* stream, std::function<void()> work) {
  if (stream == kSide)
    waiting.push_back(std::move(work));
  else
    work();
}

template <typename T>
T argument(void** parameters, int place) {
  T value;
  std::memcpy(&value, parameters[place], sizeof(T));
  return value;
}

template <typename Type>
std::function<void()> blocks(unsigned /*grid*/, void** parameters) {
  const auto* data = argument<const typename Type::Raw*>(parameters, 0);
  const auto count = argument<assay_i64>(parameters, 1);
  const auto block_elements = argument<assay_i64>(parameters, 2);
  auto* rows = argument<double*>(parameters, 3);
  return [=] {
    for (assay_i64 first = 0; first < count; first += block_elements) {
      AssayChain<Type> chains[kAssayBuckets];
      double* row = rows + first / block_elements * kAssayRow;
      for (int bucket = 0; bucket < kAssayBuckets; ++bucket) {
        assay_run_chain<Type>(data + first,
                              static_cast<int>(std::min(count - first, block_elements)),
                              static_cast<assay_u64>(first / kAssayGroup), bucket, &chains[bucket]);
        row[8 + bucket] = assay_sketch_of<Type>(chains[bucket]);
      }
      for (int part = 0; part < kAssayParts; ++part) assay_join_chains<Type>(chains, part, row);
    }
  };
}

std::function<void()> merge(unsigned grid, void** parameters) {
  const auto* tensors = argument<const Tensor*>(parameters, 0);
  auto* out = argument<double*>(parameters, 1);
  return [=] {
    for (unsigned i = 0; i < grid; ++i) {
      const auto [rows, count] = tensors[i];
      const assay_i64 per_chunk = assay_blocks_per_chunk(count);
      for (int column = 0; column < kAssayRow; ++column) {
        assay_i64 chunks = 0;
        for (assay_i64 first = 0; first < count; first += per_chunk, ++chunks) {
          double* chunk = rows + first * kAssayRow;
          chunk[column] = assay_merge_column(chunk, std::min(per_chunk, count - first), 1, column);
        }
        out[i * kAssayRow + column] = assay_merge_column(rows, chunks, per_chunk, column);
      }
    }
  };
}

using Kernel = std::function<void()> (*)(unsigned grid, void** parameters);

}  // namespace

extern "C" {

int cuCtxGetCurrent(void** context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  contexts.push_back(context);
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}
int cuLaunchKernel(void* function, unsigned grid, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, void* stream, void** parameters, void**) {
  if (contexts.empty()) return 201;
  if (failing_launches != 0) return 1;
  run_or_wait(stream, reinterpret_cast<Kernel>(function)(grid, parameters));
  return 0;
}
int cuStreamIsCapturing(void*, int* status) {
  *status = capturing;
  return 0;
}
int cuStreamSynchronize(void* stream) {
  if (failing_waits != 0) return 1;
  if (stream == kSide) {
    for (const auto& work : waiting) work();
    waiting.clear();
  }
  return 0;
}
int cuEventCreate(void** event, unsigned) {
  *event = event;
  return 0;
}
int cuEventRecord(void*, void*) { return 0; }
int cuStreamWaitEvent(void*, void*, unsigned) { return 0; }
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t size,
                         void* stream) {
  run_or_wait(stream, [=] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size);
  });
  return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t size, void* stream) {
  run_or_wait(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), size); });
  return 0;
}

// ---- For the test ----

void* stand_in_stream() { return kSide; }
void* stand_in_merge() { return reinterpret_cast<void*>(&merge); }
void* stand_in_kernel(const char* name) {
  const std::pair<std::string_view, Kernel> kernels[] = {
      {"float32", &blocks<AssayFloat32>},        {"float16", &blocks<AssayFloat16>},
      {"bfloat16", &blocks<AssayBFloat16>},      {"int64", &blocks<AssayInteger<int64_t>>},
      {"int32", &blocks<AssayInteger<int32_t>>}, {"bool", &blocks<AssayBool>},
  };
  for (const auto& [type, kernel] : kernels) {
    if (type == name) return reinterpret_cast<void*>(kernel);
  }
  return nullptr;
}
void stand_in_fail(int launches, int waits) {
  failing_launches = launches;
  failing_waits = waits;
}
}

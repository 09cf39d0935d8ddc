// SPDX-License-Identifier: Apache-2.0
// Measuring an output against its golden, beside the floor: a memcpy of the same bytes.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "measure/measures.hpp"
#include "reference/wide.hpp"

namespace assay::measure {
namespace {

constexpr int64_t kElements = 4 << 20;

Tensor golden_values() {
  reference::Wide array(Dims{kElements});
  uint64_t seed = 1;
  for (double& value : array.values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<double>(seed >> 11) * 0x1p-53 * 200 - 100;
  }
  return reference::to_tensor(std::move(array));
}

int64_t pair_bytes(const Tensor& golden, const Tensor& mine) {
  return kElements * (info(golden.view.dtype).element_bits + info(mine.view.dtype).element_bits) /
         8;
}

void bench_measure(benchmark::State& state, const Tensor& golden, const Tensor& mine) {
  for (auto _ : state)
    benchmark::DoNotOptimize(measures_of(golden.view, mine.view, {.atb_error = 0x1p-9}));
  state.SetBytesProcessed(state.iterations() * pair_bytes(golden, mine));
}

void BM_Computed(benchmark::State& state, DType dtype) {
  Tensor golden = golden_values();
  const Tensor mine = reference::narrow(golden.view, dtype).value();
  // Goldens of quantised outputs are whole numbers, computed in float64.
  if (is_integer(dtype)) golden = reference::to_tensor(reference::widen(mine.view).value());
  bench_measure(state, golden, mine);
}

/// What a move gives: both sides in the output's type, equal byte for byte.
void BM_Equal(benchmark::State& state, DType dtype) {
  const Tensor golden = golden_values();
  bench_measure(state, reference::narrow(golden.view, dtype).value(),
                reference::narrow(golden.view, dtype).value());
}

void BM_Memcpy(benchmark::State& state) {
  const std::vector<std::byte> source(static_cast<size_t>(kElements) * 8);
  std::vector<std::byte> target(source.size());
  for (auto _ : state) {
    std::memcpy(target.data(), source.data(), source.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(source.size()));
}

BENCHMARK_CAPTURE(BM_Computed, float16 / 4M, DType::Float16);
BENCHMARK_CAPTURE(BM_Computed, bfloat16 / 4M, DType::BFloat16);
BENCHMARK_CAPTURE(BM_Computed, float32 / 4M, DType::Float32);
BENCHMARK_CAPTURE(BM_Computed, int8 / 4M, DType::Int8);
BENCHMARK_CAPTURE(BM_Equal, float16 / 4M, DType::Float16);
BENCHMARK_CAPTURE(BM_Equal, float32 / 4M, DType::Float32);
BENCHMARK_CAPTURE(BM_Equal, int8 / 4M, DType::Int8);
BENCHMARK(BM_Memcpy);

}  // namespace
}  // namespace assay::measure

// SPDX-License-Identifier: Apache-2.0
// Products of layer sizes in float64 beside their floors: dgemm of operands that are doubles
// already, and widening the weight alone.
#include <benchmark/benchmark.h>
#include <cblas.h>

#include <vector>

#include "reference/products/matmul.hpp"
#include "tensor/convert.hpp"

namespace assay::reference {
namespace {

/// Values around 1 in every type of 8, 16 and 32 bits.
std::vector<uint16_t> storage_for(DType dtype, int64_t elements) {
  std::vector<uint16_t> storage(static_cast<size_t>(elements) * info(dtype).element_bits / 16 + 1);
  for (size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<uint16_t>(0x3C30 + i % 307);
  return storage;
}

/// range: rows of x, n, k, jobs
void bench_matmul(benchmark::State& state, DType dtype, bool transpose_w) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const auto x = storage_for(dtype, m * k);
  const auto w = storage_for(dtype, n * k);
  const auto left = *make_view(dtype, {m, k}, std::as_bytes(std::span(x)));
  const Dims shape = transpose_w ? Dims{n, k} : Dims{k, n};
  const auto right = *make_view(dtype, shape, std::as_bytes(std::span(w)));
  for (auto _ : state)
    benchmark::DoNotOptimize(matmul(
        left, right, {.transpose_w = transpose_w, .jobs = static_cast<int>(state.range(3))}));
  state.SetBytesProcessed(state.iterations() * n * k * info(dtype).element_bits / 8);
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(m * n * k),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void bench_dgemm(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  std::vector<double> x(static_cast<size_t>(m * k), 0.5), w(static_cast<size_t>(n * k), 0.25);
  std::vector<double> out(static_cast<size_t>(m * n));
  for (auto _ : state) {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(m), static_cast<int>(n),
                static_cast<int>(k), 1.0, x.data(), static_cast<int>(k), w.data(),
                static_cast<int>(k), 0.0, out.data(), static_cast<int>(n));
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(m * n * k),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void bench_widen(benchmark::State& state, DType dtype) {
  const int64_t count = state.range(0);
  const auto w = storage_for(dtype, count);
  const auto view = *make_view(dtype, {count}, std::as_bytes(std::span(w)));
  std::vector<double> block(4096);
  for (auto _ : state) {
    for (int64_t i = 0; i + 4096 <= count; i += 4096) {
      read_values(view, i, 4096, block);
      benchmark::DoNotOptimize(block.data());
    }
  }
  state.SetBytesProcessed(state.iterations() * count * info(dtype).element_bits / 8);
}

#define ASSAY_SIZES                 \
  ->Args({128, 4096, 4096, 1})      \
      ->Args({128, 11008, 4096, 1}) \
      ->Args({128, 4096, 4096, 2})  \
      ->Args({1, 4096, 4096, 1})    \
      ->Args({1, 11008, 4096, 1})   \
      ->Args({1, 4096, 4096, 2})    \
      ->Args({4, 4096, 4096, 1})    \
      ->Args({16, 4096, 4096, 1})   \
      ->UseRealTime()               \
      ->Unit(benchmark::kMillisecond)
BENCHMARK_CAPTURE(bench_matmul, float16, DType::Float16, true) ASSAY_SIZES;
BENCHMARK_CAPTURE(bench_matmul, bfloat16, DType::BFloat16, true) ASSAY_SIZES;
BENCHMARK_CAPTURE(bench_matmul, int8, DType::Int8, true) ASSAY_SIZES;
BENCHMARK_CAPTURE(bench_matmul, float16_not_transposed, DType::Float16, false) ASSAY_SIZES;
BENCHMARK(bench_dgemm)->Args({128, 4096, 4096})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bench_widen, float16, DType::Float16)
    ->Arg(1 << 24)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bench_widen, bfloat16, DType::BFloat16)
    ->Arg(1 << 24)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bench_widen, int8, DType::Int8)->Arg(1 << 24)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace assay::reference

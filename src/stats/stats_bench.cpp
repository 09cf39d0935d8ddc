// SPDX-License-Identifier: Apache-2.0
// Statistics beside the floor: a memcpy of the same bytes.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "stats/digest.hpp"
#include "stats/tensor_stats.hpp"

namespace assay::stats {
namespace {

/// Bytes whose 8-, 16- and 32-bit float readings are finite numbers around 1.
std::vector<uint16_t> storage_for(DType dtype, int64_t elements) {
  const size_t words = static_cast<size_t>(elements) * info(dtype).element_bits / 16 + 1;
  std::vector<uint16_t> storage(words);
  for (size_t i = 0; i < words; ++i) storage[i] = static_cast<uint16_t>(0x3C30 + i % 307);
  return storage;
}

void bench_stats(benchmark::State& state, DType dtype) {
  const int64_t elements = state.range(0);
  const auto storage = storage_for(dtype, elements);
  const Dims shape{elements};
  const Dims strides{1};
  for (auto _ : state) {
    // A hook makes the view anew for each tensor, so its cost belongs to the measurement.
    const TensorView view{dtype, shape, strides, std::as_bytes(std::span(storage)),
                          0,     false, false};
    benchmark::DoNotOptimize(compute_stats(view));
  }
  state.SetBytesProcessed(state.iterations() * elements * info(dtype).element_bits / 8);
}

void bench_transposed(benchmark::State& state) {
  const int64_t side = state.range(0);
  const auto storage = storage_for(DType::Float32, side * side);
  const auto view =
      *make_view(DType::Float32, {side, side}, {1, side}, std::as_bytes(std::span(storage)));
  for (auto _ : state) benchmark::DoNotOptimize(compute_stats(view));
  state.SetBytesProcessed(state.iterations() * side * side * 4);
}

void bench_rows(benchmark::State& state) {
  // Rows of 64 floats with gaps: [n, 64] of a [n, 192] fused projection.
  const int64_t rows = state.range(0);
  const auto storage = storage_for(DType::Float32, rows * 192);
  const auto view =
      *make_view(DType::Float32, {rows, 64}, {192, 1}, std::as_bytes(std::span(storage)));
  for (auto _ : state) benchmark::DoNotOptimize(compute_stats(view));
  state.SetBytesProcessed(state.iterations() * rows * 64 * 4);
}

void bench_digest(benchmark::State& state) {
  const int64_t elements = state.range(0);
  const auto storage = storage_for(DType::Float32, elements);
  const auto view = *make_view(DType::Float32, {elements}, std::as_bytes(std::span(storage)));
  for (auto _ : state) benchmark::DoNotOptimize(digest(view));
  state.SetBytesProcessed(state.iterations() * elements * 4);
}

void bench_memcpy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0)) * 4;
  const std::vector<std::byte> source(bytes, std::byte{1});
  std::vector<std::byte> target(bytes);
  for (auto _ : state) {
    std::memcpy(target.data(), source.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

void sizes(benchmark::internal::Benchmark* bench) {
  for (const int64_t count : {1, 64, 4096, 32768, 1 << 20, 1 << 24}) bench->Arg(count);
}

BENCHMARK_CAPTURE(bench_stats, fp32, DType::Float32)->Apply(sizes);
BENCHMARK_CAPTURE(bench_stats, bf16, DType::BFloat16)->Apply(sizes);
BENCHMARK_CAPTURE(bench_stats, fp16, DType::Float16)->Apply(sizes);
BENCHMARK_CAPTURE(bench_stats, fp64, DType::Float64)->Arg(64)->Arg(1 << 20);
BENCHMARK_CAPTURE(bench_stats, int64, DType::Int64)->Arg(64)->Arg(1 << 20);
BENCHMARK_CAPTURE(bench_stats, int8, DType::Int8)->Arg(64)->Arg(1 << 20);
BENCHMARK_CAPTURE(bench_stats, bool, DType::Bool)->Arg(64)->Arg(1 << 20);
BENCHMARK_CAPTURE(bench_stats, float8_e4m3fn, DType::Float8E4M3FN)->Arg(1 << 20);
BENCHMARK(bench_transposed)->Arg(1024);
BENCHMARK(bench_rows)->Arg(1 << 14);
BENCHMARK(bench_digest)->Arg(64)->Arg(1 << 20);
BENCHMARK(bench_memcpy)->Apply(sizes);

}  // namespace
}  // namespace assay::stats

// SPDX-License-Identifier: Apache-2.0
// All metrics of a pair beside the floor: a memcpy of the same bytes. Bytes are those of both
// sides.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "measure/metrics.hpp"
#include "measure/pair_picture.hpp"

namespace assay::measure {
namespace {

/// Normal values with relative noise of 1e-3 on the second side; bf16 by cutting the low half off.
struct Pair {
  std::vector<float> golden;
  std::vector<float> mine;
  std::vector<uint16_t> golden16;
  std::vector<uint16_t> mine16;

  explicit Pair(int64_t count) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    golden.resize(static_cast<size_t>(count));
    mine.resize(golden.size());
    for (size_t i = 0; i < golden.size(); ++i) {
      golden[i] = normal(random);
      mine[i] = golden[i] * (1 + 1e-3f * std::sin(static_cast<float>(i)));
    }
    for (const float value : golden) golden16.push_back(upper_half(value));
    for (const float value : mine) mine16.push_back(upper_half(value));
  }
  static uint16_t upper_half(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return static_cast<uint16_t>(bits >> 16);
  }
};

const Pair& pair_of(int64_t count) {
  static const Pair small(1 << 12);
  static const Pair middle(1 << 16);
  static const Pair large(1 << 25);
  return count <= (1 << 12) ? small : count <= (1 << 16) ? middle : large;
}

enum class Extra : uint8_t { None, Pooled, Picture };

/// Arguments: values, last axis, threads.
void bench_compare(benchmark::State& state, DType dtype, MetricRules rules, bool kl, Extra extra) {
  const int64_t count = state.range(0);
  const int64_t row = state.range(1);
  const Pair& pair = pair_of(count);
  const bool is_float = dtype == DType::Float32;
  const ByteSpan golden_bytes =
      is_float ? std::as_bytes(std::span(pair.golden)) : std::as_bytes(std::span(pair.golden16));
  const ByteSpan mine_bytes =
      is_float ? std::as_bytes(std::span(pair.mine)) : std::as_bytes(std::span(pair.mine16));
  const auto golden = *make_view(dtype, {count / row, row}, golden_bytes);
  const auto mine = *make_view(dtype, {count / row, row}, mine_bytes);
  PooledErrors pooled;
  const MetricOptions options{rules, kl, static_cast<int>(state.range(2)),
                              extra == Extra::None ? nullptr : &pooled};
  for (auto _ : state) {
    benchmark::DoNotOptimize(compare_tensors(golden, mine, options));
    if (extra == Extra::Picture) benchmark::DoNotOptimize(picture_of(golden, mine, rules, pooled));
  }
  state.SetBytesProcessed(state.iterations() * 2 * count * info(dtype).element_bits / 8);
}

void bench_memcpy(benchmark::State& state) {
  const Pair& pair = pair_of(state.range(0));
  std::vector<float> target(pair.golden.size());
  for (auto _ : state) {
    std::memcpy(target.data(), pair.golden.data(), target.size() * sizeof(float));
    benchmark::ClobberMemory();
    std::memcpy(target.data(), pair.mine.data(), target.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 *
                          static_cast<int64_t>(target.size() * sizeof(float)));
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->UseRealTime();
  bench->Args({1 << 12, 64, 1});
  bench->Args({1 << 25, 4096, 1});
  bench->Args({1 << 25, 4096, 2});
  bench->Args({1 << 25, 64, 2});
  bench->Args({1 << 25, 128, 1});
  bench->Args({1 << 16, 256, 1});
}

constexpr auto kCorrected = MetricRules::Corrected;
BENCHMARK_CAPTURE(bench_compare, fp32, DType::Float32, kCorrected, true, Extra::None)->Apply(sizes);
BENCHMARK_CAPTURE(bench_compare, bf16, DType::BFloat16, kCorrected, true, Extra::None)
    ->Apply(sizes);
BENCHMARK_CAPTURE(bench_compare, fp32_pooled, DType::Float32, kCorrected, true, Extra::Pooled)
    ->Apply(sizes);
BENCHMARK_CAPTURE(bench_compare, bf16_pooled, DType::BFloat16, kCorrected, true, Extra::Pooled)
    ->Apply(sizes);
BENCHMARK_CAPTURE(bench_compare, fp32_picture, DType::Float32, kCorrected, true, Extra::Picture)
    ->Apply(sizes);
BENCHMARK_CAPTURE(bench_compare, bf16_picture, DType::BFloat16, kCorrected, true, Extra::Picture)
    ->Apply(sizes);
BENCHMARK_CAPTURE(bench_compare, fp32_without_kl, DType::Float32, kCorrected, false, Extra::None)
    ->UseRealTime()
    ->Args({1 << 25, 4096, 2});
BENCHMARK_CAPTURE(bench_compare, fp32_as_float32, DType::Float32, MetricRules::Float32, true,
                  Extra::None)
    ->UseRealTime()
    ->Args({1 << 25, 4096, 2});
BENCHMARK(bench_memcpy)->Arg(1 << 25);

}  // namespace
}  // namespace assay::measure

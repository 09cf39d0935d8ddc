// SPDX-License-Identifier: Apache-2.0
// How fast fingerprints are taken, beside a copy of the same bytes, and how pairing grows with the
// number of candidates.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "pair/by_value.hpp"
#include "pair/fingerprint.hpp"
#include "pair/permutation.hpp"
#include "pair/test_files.hpp"

namespace assay::pair {
namespace {

std::vector<float> random_floats(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// 64 MiB: larger than the caches.
void measure_fingerprint(benchmark::State& state, DType dtype, size_t element_bytes) {
  std::vector<float> values = random_floats(size_t{1} << 24);
  if (element_bytes == 2) {
    // Two numbers of about size 1 in each place; any sign and fraction will do for either half
    // type.
    for (float& value : values) {
      const auto bits = std::bit_cast<uint32_t>(value);
      value = std::bit_cast<float>((bits & 0x83FF83FFu) | 0x3C003C00u);
    }
  }
  const auto count = static_cast<int64_t>(values.size() * 4 / element_bytes);
  const auto view = make_view(dtype, Dims{count}, std::as_bytes(std::span(values)));
  for (auto _ : state) benchmark::DoNotOptimize(fingerprint_of(*view));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(values.size()) * 4);
}
BENCHMARK_CAPTURE(measure_fingerprint, fp32, DType::Float32, 4);
BENCHMARK_CAPTURE(measure_fingerprint, bf16, DType::BFloat16, 2);
BENCHMARK_CAPTURE(measure_fingerprint, fp16, DType::Float16, 2);
BENCHMARK_CAPTURE(measure_fingerprint, fp64, DType::Float64, 8);

void measure_copy(benchmark::State& state) {
  const std::vector<float> values = random_floats(size_t{1} << 24);
  std::vector<float> copy(values.size());
  for (auto _ : state) {
    std::memcpy(copy.data(), values.data(), values.size() * 4);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(values.size()) * 4);
}
BENCHMARK(measure_copy);

// Tensors of 64 values, all of one shape: the worst case for finding candidates.
void measure_matching(benchmark::State& state) {
  constexpr size_t width = 64;
  const auto count = static_cast<size_t>(state.range(0));
  const std::vector<float> values = random_floats(count * width);
  std::vector<float> noisy = values;
  for (size_t i = 0; i < noisy.size(); ++i) noisy[i] *= i % 2 == 0 ? 1.003F : 0.997F;
  test::Files golden;
  test::Files mine;
  const auto fill = [&](test::Files& files, const std::vector<float>& content) {
    files.add(DType::Float32, Dims{static_cast<int64_t>(content.size())}, content);
    run::TensorRecord record = files.run.records[0];
    files.run.records.clear();
    record.shape = Dims{static_cast<int64_t>(width)};
    record.bytes->size_bytes = width * 4;
    for (size_t i = 0; i < count; ++i) {
      record.order = i;
      record.bytes->offset = i * width * 4;
      files.run.records.push_back(record);
    }
  };
  fill(golden, values);
  fill(mine, noisy);
  std::vector<size_t> all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  size_t pairs = 0;
  for (auto _ : state) {
    pairs = match_by_value(golden.run, all, mine.run, all, {}, {.jobs = 1, .interrupted = nullptr})
                .size();
  }
  state.counters["pairs"] = static_cast<double>(pairs);
}
BENCHMARK(measure_matching)->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMillisecond);

// fp32 [2048, 11008]: the up projection of a 7B model, its units in another order.
void measure_permutation(benchmark::State& state) {
  constexpr int64_t rows = 2048;
  constexpr int64_t columns = 11008;
  const std::vector<float> golden = random_floats(static_cast<size_t>(rows * columns));
  std::vector<float> mine(golden.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    const size_t column = i % columns;
    mine[i - column + (column * 4321 + 7) % columns] = golden[i];
  }
  const Dims shape{rows, columns};
  const auto left = make_view(DType::Float32, shape, std::as_bytes(std::span(golden)));
  const auto right = make_view(DType::Float32, shape, std::as_bytes(std::span(mine)));
  bool found = false;
  for (auto _ : state) found = find_permutation(*left, *right).has_value();
  if (!found) state.SkipWithError("no order found");
}
BENCHMARK(measure_permutation)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace assay::pair

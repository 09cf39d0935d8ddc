// SPDX-License-Identifier: Apache-2.0
// What a call costs while nothing is captured, beside an empty function call.
#include "capture/atb/probe.hpp"

#include <benchmark/benchmark.h>

#include <cstdlib>

#include "capture/atb/selection.hpp"

namespace assay::capture::atb {
namespace {

constexpr Text kPath = {"0_1/0/2_A/after/outtensor0.bin", 30};

// Before anything asks: the environment is read once.
[[maybe_unused]] const int nothing_is_asked_for = unsetenv("ATB_DUMP_TYPE");

[[gnu::noinline]] bool empty_function(uint32_t gate) {
  benchmark::DoNotOptimize(gate);
  return false;
}

void BM_EmptyCall(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(empty_function(kGateTensor));
}
BENCHMARK(BM_EmptyCall);

void BM_Off_Ask(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(ask(kGateData));
}
BENCHMARK(BM_Off_Ask);

void BM_Off_IsTensorNeedSave(benchmark::State& state) {
  const int64_t ids[2] = {2, 0};
  for (auto _ : state) benchmark::DoNotOptimize(is_tensor_need_save(ids, 2, {"Linear", 6}));
}
BENCHMARK(BM_Off_IsTensorNeedSave);

void BM_Off_IsExecuteCountInRange(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(is_execute_count_in_range(3));
}
BENCHMARK(BM_Off_IsExecuteCountInRange);

void BM_Off_SaveTensor(benchmark::State& state) {
  const float value = 1;
  for (auto _ : state) save_tensor({"2", 1}, {"0", 1}, {"1", 1}, &value, sizeof(value), kPath);
}
BENCHMARK(BM_Off_SaveTensor);

void BM_Off_UpdateConfig(benchmark::State& state) {
  for (auto _ : state) update_config();
}
BENCHMARK(BM_Off_UpdateConfig);

}  // namespace
}  // namespace assay::capture::atb

// SPDX-License-Identifier: Apache-2.0
// What a strict dump costs beyond the raw write: the CRC of every payload and some 1.2 kB around
// it. Floors: memcpy of the same bytes. Rival: zlib's crc32.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <string>

#include "formats/crc32.hpp"
#include "formats/pth.hpp"

namespace assay::formats {
namespace {

std::string payload(benchmark::State& state) {
  return std::string(static_cast<size_t>(state.range(0)), 'p');
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void BM_Memcpy(benchmark::State& state) {
  const std::string source = payload(state);
  std::string target(source.size(), '\0');
  for (auto _ : state) {
    std::memcpy(target.data(), source.data(), source.size());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}
void BM_Crc32(benchmark::State& state) {
  const std::string bytes = payload(state);
  for (auto _ : state) benchmark::DoNotOptimize(crc32(as_bytes(bytes)));
  count_bytes(state);
}
void BM_Crc32ByTable(benchmark::State& state) {
  const std::string bytes = payload(state);
  for (auto _ : state) benchmark::DoNotOptimize(crc32_by_table(as_bytes(bytes), 0));
  count_bytes(state);
}
void BM_Crc32Zlib(benchmark::State& state) {
  const std::string bytes = payload(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  }
  count_bytes(state);
}

// Everything but the system call: header, CRC, trailer.
void BM_PthAroundPayload(benchmark::State& state) {
  const std::string bytes = payload(state);
  const Dims shape{state.range(0)};
  for (auto _ : state) {
    const auto prologue = pth_prologue(DType::UInt8, shape, {.archive_name = "input_0"});
    const std::string epilogue = pth_epilogue(*prologue, crc32(as_bytes(bytes)));
    benchmark::DoNotOptimize(epilogue.data());
  }
  count_bytes(state);
}

// The same bytes to a file of the memory file system, with and without being a .pth.
int memory_file() { return memfd_create("formats_bench", 0); }

void BM_WriteRaw(benchmark::State& state) {
  const std::string bytes = payload(state);
  const int fd = memory_file();
  for (auto _ : state) {
    if (pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      state.SkipWithError("write");
  }
  close(fd);
  count_bytes(state);
}
void BM_WritePth(benchmark::State& state) {
  std::string bytes = payload(state);
  const Dims shape{state.range(0)};
  const int fd = memory_file();
  for (auto _ : state) {
    auto prologue = pth_prologue(DType::UInt8, shape, {.archive_name = "input_0"});
    std::string epilogue = pth_epilogue(*prologue, crc32(as_bytes(bytes)));
    const iovec parts[] = {{prologue->header.data(), prologue->header.size()},
                           {bytes.data(), bytes.size()},
                           {epilogue.data(), epilogue.size()}};
    if (pwritev(fd, parts, 3, 0) <= 0) state.SkipWithError("write");
  }
  close(fd);
  count_bytes(state);
}
void BM_ReadPth(benchmark::State& state) {
  const std::string bytes = payload(state);
  const std::string file =
      *write_pth(*make_view(DType::UInt8, Dims{state.range(0)}, as_bytes(bytes)));
  for (auto _ : state) benchmark::DoNotOptimize(read_pth(as_bytes(file))->size());
  count_bytes(state);
}

constexpr int64_t kSmall = 1 << 12;
constexpr int64_t kLayer = 1 << 20;
constexpr int64_t kBeyondCache = int64_t{1} << 28;
BENCHMARK(BM_Memcpy)->Arg(kSmall)->Arg(kLayer)->Arg(kBeyondCache);
BENCHMARK(BM_Crc32)->Arg(64)->Arg(kSmall)->Arg(kLayer)->Arg(kBeyondCache);
BENCHMARK(BM_Crc32ByTable)->Arg(kLayer);
BENCHMARK(BM_Crc32Zlib)->Arg(kLayer);
BENCHMARK(BM_PthAroundPayload)->Arg(0)->Arg(kLayer);
BENCHMARK(BM_WriteRaw)->Arg(kSmall)->Arg(kLayer)->Arg(kBeyondCache);
BENCHMARK(BM_WritePth)->Arg(kSmall)->Arg(kLayer)->Arg(kBeyondCache);
BENCHMARK(BM_ReadPth)->Arg(kLayer);

}  // namespace
}  // namespace assay::formats

// SPDX-License-Identifier: Apache-2.0
// The simplest probe that works, for measurements beside ours and for tests that want a dump from other code than
// ours: everything is wanted, inputs before and outputs after, each tensor written in the calling thread.
//
//   NAIVE_PROBE_DIR    where to write; nothing is written without it
//   NAIVE_PROBE_MODE   files (default): folders, stream, header and data for each tensor, op_param.json
//                      statistics: the same files without data, with max, min, mean and l2norm of a plain loop
//                      raw: the data alone, one write each into one open file; the floor for bytes
//                      rawfiles: the data alone, open, write and close each, folders made once; the floor for files
//                      none: asked and answered the same, nothing written: what the host itself spends
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <unordered_set>

#include "probe.h"

namespace {

enum class Mode { kFiles, kStatistics, kRaw, kRawFiles, kNone };

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? text : "";
}

const std::string& folder() {
  static const std::string path = text_of("NAIVE_PROBE_DIR");
  return path;
}

Mode mode() {
  static const Mode chosen = [] {
    const std::string name = text_of("NAIVE_PROBE_MODE");
    if (name == "none" || folder().empty()) return Mode::kNone;
    if (name == "statistics") return Mode::kStatistics;
    if (name == "rawfiles") return Mode::kRawFiles;
    return name == "raw" ? Mode::kRaw : Mode::kFiles;
  }();
  return chosen;
}

void write_all(int file, const void* data, uint64_t size) {
  const char* rest = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(file, rest, size);
    if (written <= 0) std::abort();  // a measurement without its bytes is none
    rest += written;
    size -= static_cast<uint64_t>(written);
  }
}

void append_raw(const void* data, uint64_t size) {
  static const int file = open((folder() + "/raw").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0640);
  write_all(file, data, size);
}

void write_raw_file(const void* data, uint64_t size, const std::string& relative_path) {
  static std::unordered_set<std::string> known_folders;
  const std::string path = folder() + "/" + relative_path;
  const std::string parent = path.substr(0, path.rfind('/'));
  if (known_folders.insert(parent).second) std::filesystem::create_directories(parent);
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0640);
  write_all(file, data, size);
  close(file);
}

std::ofstream open_stream(const std::string& relative_path) {
  const std::filesystem::path path = folder() + "/" + relative_path;
  std::filesystem::create_directories(path.parent_path());
  return std::ofstream(path, std::ios::binary);
}

float widen(const std::string& dtype, uint16_t half) {
  const auto from_bits = [](uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  };
  if (dtype == "27") return from_bits(static_cast<uint32_t>(half) << 16);
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t rest = static_cast<uint32_t>(half & 0x7fff) << 13;
  if (rest >= 0x0f800000) return from_bits(sign | 0x7f800000 | rest);  // infinity or NaN
  const float value = from_bits(rest) * 0x1p112F;  // 127 - 15; right for small numbers, too
  return sign != 0 ? -value : value;
}

struct Statistics {
  double max = -std::numeric_limits<double>::infinity();
  double min = std::numeric_limits<double>::infinity();
  double sum = 0;
  double sum_of_squares = 0;
  uint64_t count = 0;

  void add(double value) {
    max = std::max(max, value);
    min = std::min(min, value);
    sum += value;
    sum_of_squares += value * value;
    ++count;
  }
};

Statistics statistics_of(const std::string& dtype, const void* data, uint64_t size) {
  Statistics result;
  const auto each = [&](const auto* values, auto value_of) {
    for (uint64_t i = 0; i < size / sizeof *values; ++i) result.add(value_of(values[i]));
  };
  const auto as_double = [](auto value) { return static_cast<double>(value); };
  if (dtype == "9") {
    each(static_cast<const int64_t*>(data), as_double);
  } else if (dtype == "3") {
    each(static_cast<const int32_t*>(data), as_double);
  } else {
    each(static_cast<const uint16_t*>(data), [&](uint16_t half) { return widen(dtype, half); });
  }
  return result;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

namespace atb {

bool Probe::IsTensorNeedSave(const std::vector<int64_t>&, const std::string&) { return true; }
bool Probe::IsSaveTensorData() { return true; }
bool Probe::IsSaveTensorDesc() { return true; }
bool Probe::IsExecuteCountInRange(const uint64_t) { return true; }
bool Probe::IsSaveTensorBefore() { return true; }
bool Probe::IsSaveTensorAfter() { return true; }
bool Probe::IsSaveTensorInSpecificDir(const std::string&) { return true; }
bool Probe::IsSaveParam() { return true; }

void Probe::SaveTensor(const std::string& format, const std::string& dtype, const std::string& dims,
                       const void* hostData, uint64_t dataSize, const std::string& filePath) {
  const bool wanted = (contains(filePath, "before") && contains(filePath, "intensor")) ||
                      (contains(filePath, "after") && contains(filePath, "outtensor"));
  if (!wanted || mode() == Mode::kNone) return;
  if (mode() == Mode::kRaw) return append_raw(hostData, dataSize);
  if (mode() == Mode::kRawFiles) return write_raw_file(hostData, dataSize, filePath);
  std::ofstream stream = open_stream(filePath);
  const bool with_data = mode() == Mode::kFiles;
  stream << "$Version=1.0\n$Object.Count=" << (with_data ? 1 : 0)
         << "\n$Object.Length=" << (with_data ? dataSize : 0) << "\nformat=" << format
         << "\ndtype=" << dtype << "\ndims=" << dims << '\n';
  if (with_data) {
    stream << "$Object.data=0," << dataSize << "\n$End=1\n";
    stream.write(static_cast<const char*>(hostData), static_cast<std::streamsize>(dataSize));
  } else {
    const Statistics found = statistics_of(dtype, hostData, dataSize);
    const double count = static_cast<double>(found.count);
    stream << "max=" << found.max << "\nmin=" << found.min << "\nmean=" << found.sum / count
           << "\nl2norm=" << std::sqrt(found.sum_of_squares) << "\n$End=1\n";
  }
}

void Probe::SaveParam(const std::string& param, const std::string& filePath) {
  if (mode() == Mode::kFiles || mode() == Mode::kStatistics) open_stream(filePath) << param << '\n';
}

}  // namespace atb

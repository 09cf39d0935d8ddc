// SPDX-License-Identifier: Apache-2.0
// CANN dump files of float32 vectors, encoded by hand, and runs as lines a test can compare.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "run/open.hpp"
#include "run/run.hpp"

namespace assay::run::test {

inline std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(0x80 | (value & 0x7F)));
  out.push_back(static_cast<char>(value));
  return out;
}
inline std::string field(uint32_t number, const std::string& content) {
  return varint(number << 3 | 2) + varint(content.size()) + content;
}
inline std::string number_field(uint32_t number, uint64_t value) {
  return varint(number << 3) + varint(value);
}

/// A dump file with header and payload put together by the caller.
inline std::string dump_bytes(const std::string& header, const std::string& payload) {
  std::string file;
  append(file, static_cast<uint64_t>(header.size()));
  return file + header + payload;
}

using Vectors = std::vector<std::vector<float>>;
inline std::string dump_file(const std::string& op_name, const Vectors& inputs,
                             const Vectors& outputs, const std::string& more_header = "") {
  const auto operand = [](size_t elements, uint32_t size_field) {
    const std::string shape = field(3, field(1, varint(elements)));
    // data_type = 1 float32, format = 2 ND
    return "\x08\x01\x10\x02" + shape + varint(size_field << 3) + varint(elements * 4);
  };
  std::string header = field(1, "2.0");
  std::string payload;
  for (const auto& values : outputs) header += field(3, operand(values.size(), 6));
  for (const auto& values : inputs) header += field(4, operand(values.size(), 5));
  header += field(6, op_name) + more_header;
  for (const Vectors& list : {inputs, outputs}) {
    for (const auto& values : list)
      for (const float value : values) append(payload, value);
  }
  return dump_bytes(header, payload);
}

inline Run open(const std::string& path) {
  auto run = open_run(path);
  EXPECT_TRUE(run.has_value()) << run.error().describe();
  return run ? *std::move(run) : Run{};
}

using Lines = std::vector<std::string>;

/// "rank/graph/step node role slot" of every record, in order.
inline Lines summary(const Run& run) {
  Lines lines;
  for (const TensorRecord& record : run.records) {
    lines.push_back(std::to_string(record.rank) + "/" + std::to_string(record.graph) + "/" +
                    std::to_string(record.step) + " " + record.node + " " +
                    std::string(role_name(record.role)) + " " + record.slot);
  }
  return lines;
}

}  // namespace assay::run::test

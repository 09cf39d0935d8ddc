// SPDX-License-Identifier: Apache-2.0
// What the acceleration library asks and reports, without std::string: the one core behind the
// shims of both string ABIs. Nothing here throws, whatever happens the host goes on.
//
// Only plain structs cross: a template of the standard library would be compiled in both shims
// under one name, with two layouts.   docs/design/atb-probe.md
#pragma once
#include <cstddef>
#include <cstdint>

namespace assay::capture::atb {

struct Text {
  const char* data;
  size_t size;
};

struct TensorTexts {
  Text dtype;   // "float16"
  Text format;  // "nd"
  Text shape;   // "1,4096"
  Text path;
};

/// The shim's vector, read element by element.
struct TensorList {
  const void* first;
  size_t count;
  TensorTexts (*at)(const void* first, size_t index);
};

/// Questions without arguments: bits of Gate (selection.hpp). One relaxed load once the environment
/// is known.
[[nodiscard]] bool ask(uint32_t gate) noexcept;

[[nodiscard]] bool is_tensor_need_save(const int64_t* ids, size_t id_count, Text op_type) noexcept;
[[nodiscard]] bool is_execute_count_in_range(uint64_t execute_count) noexcept;
[[nodiscard]] bool is_save_tensor_in_specific_dir(Text directory) noexcept;
[[nodiscard]] bool is_report_model(Text name) noexcept;
void update_config() noexcept;

void save_tensor(Text format, Text dtype, Text dims, const void* data, uint64_t size_bytes,
                 Text path) noexcept;
void save_tiling(const void* data, uint64_t size_bytes, Text path) noexcept;
void save_param(Text param, Text path) noexcept;
void report_operation_graph(Text name, Text report) noexcept;
void report_model(Text name, Text report) noexcept;
void report_operation_tensors(uint64_t execute_count, Text name, Text param, TensorList inputs,
                              TensorList outputs) noexcept;
void report_kernel_tensors(uint64_t execute_count, Text name, Text param, TensorList inputs,
                           TensorList outputs) noexcept;
void report_setup_statistic(uint64_t count, Text name, Text statistic) noexcept;
void report_execute_statistic(uint64_t count, Text name, Text statistic) noexcept;
void report_overflow(Text kernel) noexcept;

}  // namespace assay::capture::atb

// SPDX-License-Identifier: Apache-2.0
// What of a run is captured: the command's environment and its configuration file as one immutable
// value, and the questions the acceleration library asks about it. Pure: no files, no globals.
// Rules and their tables: docs/design/atb-probe.md
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/common/dynamic_config.hpp"

namespace assay::capture::atb {

/// The words of ATB_DUMP_TYPE.
enum DumpType : uint32_t {
  kModel = 1u << 0,
  kLayer = 1u << 1,
  kOp = 1u << 2,
  kKernel = 1u << 3,
  kTensor = 1u << 4,
  kCpuProfiling = 1u << 5,
  kOnnx = 1u << 6,
};

/// Answers that do not depend on arguments, one bit each. The probe keeps the word in one atomic,
/// so that such a question costs one relaxed load; 0 beside kGatesKnown means off.
enum Gate : uint32_t {
  kGatesKnown = 1u << 0,
  kGateTensor = 1u << 1,
  kGateDesc = 1u << 2,
  kGateData = 1u << 3,
  kGateBefore = 1u << 4,
  kGateAfter = 1u << 5,
  kGateTiling = 1u << 6,
  kGateParam = 1u << 7,
  kGateGraph = 1u << 8,
  kGateOperation = 1u << 9,
  kGateKernel = 1u << 10,
  kGateStatistic = 1u << 11,
  kGateModel = 1u << 12,
  kGateOverflowCheck = 1u << 13,
  kGateOverflowStop = 1u << 14,
  kGateChild = 1u << 15,
  kGateInputs = 1u << 16,
  kGateOutputs = 1u << 17,
  kGateDynamic = 1u << 18,  // a configuration file is to be looked at again
};

/// Numbers of runs: pairs of first and last, both included.
struct RunRange {
  bool all = false;
  std::vector<std::pair<int64_t, int64_t>> pairs;

  [[nodiscard]] bool contains(uint64_t execute_count) const;
  friend bool operator==(const RunRange&, const RunRange&) = default;
};

/// What of a range lies behind the first `runs` runs: "7", "3-5,7"; empty: nothing.
[[nodiscard]] std::string unreached(const RunRange& range, uint64_t runs);

/// "0,0", "3,5,7,7", "all", "none". A trailing odd number does not count; what is no int counts as
/// 0 and adds a sentence to `warnings`.
[[nodiscard]] RunRange parse_run_range(std::string_view text, std::vector<std::string>* warnings);

enum class StatisticsText : uint8_t {
  Exact,    // enough digits to read the same number back, and counts of NaN and infinities
  Decimals  // six decimals, byte for byte what the original wrote
};

struct Settings {
  uint32_t types = 0;  // DumpType bits
  bool save_data = false;
  bool statistics = false;
  bool data_with_statistics = false;  // both in one record
  bool digest = false;                // in the native layout
  bool native = false;                // tensors in one growing file, not in a file each
  StatisticsText statistics_text = StatisticsText::Exact;

  int save_time = 1;                          // 0 before, 1 after, 2 both
  std::optional<bool> in_before_out_after{};  // inputs from before, outputs from after
  std::optional<int> part{};                  // 0 inputs, 1 outputs, 2 both; none: nothing

  std::vector<std::string> ids;    // "2", "24_1"
  std::vector<std::string> names;  // lower case, prefixes
  std::optional<bool> child{};     // the nodes below those named by `ids`
  RunRange range;
  std::vector<std::string> devices;  // empty: all

  bool tiling = false;
  bool link_identical = false;
  bool overflow_check = false;
  bool overflow_stop = false;
  bool filter_rows = false;  // ids, names and range select rows of operation and kernel lists, too

  std::string output_dir;       // as given; "" is the current folder
  std::string dump_name;        // folder below it
  std::string subprocess_list;  // folder of subprocess_info.txt; "" for none
  std::string config_path;      // "" for none
  bool enabled = true;          // by the configuration file
  bool msprobe = false;         // the configuration file follows msprobe's rules
  bool without_kernel_data = false;

  uint64_t queue_bytes = 256ull << 20;
  bool drop_when_full = false;
  bool write_in_caller = false;
  uint64_t disk_reserve_bytes = 2ull << 30;
  uint32_t reload_ms = 5000;
  int log_level = 1;  // 0 debug, 1 info, 2 warning, 3 error, 4 fatal, 5 critical

  std::vector<std::string> warnings;  // about values that could not be used, one sentence each

  [[nodiscard]] bool has(DumpType type) const { return (types & type) != 0; }
  /// Anything at all that leads to a file in the dump folder.
  [[nodiscard]] bool captures() const { return types != 0; }
};

/// variable   getenv, or a test's table; returns nullptr for what is not set
[[nodiscard]] Settings settings_from_environment(
    const std::function<const char*(const char*)>& variable);

/// The settings while a configuration file governs; `config` is nothing until it could be read
/// once, and then nothing is captured.
[[nodiscard]] Settings with_config(Settings environment,
                                   const std::optional<DynamicConfig>& config);

[[nodiscard]] uint32_t gates_of(const Settings& settings);

/// Ids joined by '_' against the id list alone.
[[nodiscard]] bool matches_ids(const Settings& settings, std::string_view joined_ids);
/// {0, 1} -> "0_1".
[[nodiscard]] std::string joined_ids(std::span<const int64_t> ids);
/// IsTensorNeedSave. op_type in any case.
[[nodiscard]] bool needs_save(const Settings& settings, std::span<const int64_t> ids,
                              std::string_view op_type);
/// IsExecuteCountInRange.
[[nodiscard]] bool in_range(const Settings& settings, uint64_t execute_count);
/// IsSaveTensorInSpecificDir. directory: "{device}_{pid}/{count}/{id}_{name}[/{n}_{name}]*"
[[nodiscard]] bool in_directory(const Settings& settings, std::string_view directory);
/// path: begins with "{device}_"; true when no device was asked for.
[[nodiscard]] bool device_matches(const Settings& settings, std::string_view path);
/// Row filter of the lists, only with filter_rows: ids are the numbers at the end of the name.
[[nodiscard]] bool row_matches(const Settings& settings, uint64_t execute_count,
                               std::string_view op_name);

/// Whether a file of the library is wanted, as input or output (ATB_SAVE_TENSOR_PART).
[[nodiscard]] bool wants_part(const Settings& settings, std::string_view path);
/// The same by its time: inputs before and outputs after the operation, when that was asked for.
[[nodiscard]] bool wants_time(const Settings& settings, std::string_view path);

}  // namespace assay::capture::atb

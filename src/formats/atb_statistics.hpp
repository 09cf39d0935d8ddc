// SPDX-License-Identifier: Apache-2.0
// Maximum, minimum, mean and l2 norm of a tensor as the texts of a statistics record.
// Rules: docs/formats/atb-bin.md
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "stats/tensor_stats.hpp"

namespace assay::formats {

enum class AtbStatisticsForm : uint8_t {
  /// max and min with 9 digits (double: 17, integers: all), mean and l2norm with 17; over the
  /// values that are no NaN; NaN when there is none. With counts of NaN and infinities.
  Exact,
  /// Six decimals, as the original printed them; its extremes start at the largest finite values.
  Decimals,
};

struct AtbStatisticsTexts {
  std::string max = "N/A";
  std::string min = "N/A";
  std::string mean = "N/A";
  std::string l2norm = "N/A";
  std::optional<std::string> nan_count;  // Exact form of a supported type only
  std::optional<std::string> inf_count;
};

/// Reads `data` as consecutive elements; bytes behind the last whole element do not count.
/// atb_dtype   the library's number; a type without values (bool, string, packed and 8-bit floats,
///             complex128, unknown) gives N/A
/// mean of an infinity and of a NaN is what IEEE addition gives; l2norm likewise. Complex: extremes
/// by magnitude, printed "(re,im)".
[[nodiscard]] AtbStatisticsTexts atb_statistics(int64_t atb_dtype, ByteSpan data,
                                                AtbStatisticsForm form);

/// The same in the exact form, of sums that were taken before; complex types give N/A, and integers
/// beyond 2^53 are those next to them.
[[nodiscard]] AtbStatisticsTexts atb_statistics(int64_t atb_dtype,
                                                const stats::TensorStats& statistics);

/// The texts that describe a tensor: decimal numbers, "1,4096".
struct AtbDescription {
  std::string_view format;
  std::string_view dtype;
  std::string_view dims;
};

/// "1,4096", as the library spells sizes; "" of a scalar.
[[nodiscard]] std::string atb_dims_text(std::span<const int64_t> sizes);

/// What stands in front of the payload in a tensor's file.
/// payload_bytes   nothing for a record without data
[[nodiscard]] std::string atb_record_header(const AtbDescription& tensor,
                                            const std::optional<AtbStatisticsTexts>& statistics,
                                            std::optional<uint64_t> payload_bytes);

}  // namespace assay::formats

// SPDX-License-Identifier: Apache-2.0
// The two texts that the ATB probe leaves beside tensors: lists of operations, and what they cost.
#include "base/bytes.hpp"
#include "formats/cpu_profiling.hpp"
#include "formats/op_csv.hpp"

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = as_text(std::as_bytes(std::span(data, size)));
  for (const OpCsvRow& row : read_op_csv(text).rows) {
    const std::string line =
        op_csv_row(row.case_num, row.op_name, row.op_param, row.inputs, row.outputs);
    ASSAY_CHECK(line.find('\n') == std::string::npos, "a row is one line");
    if (line.empty()) continue;
    const OpCsv again = read_op_csv(line);
    ASSAY_CHECK(again.damaged_lines == 0 && again.rows.size() == 1, "a row that was written reads");
    ASSAY_CHECK(again.rows[0].inputs.size() == row.inputs.size() &&
                    again.rows[0].outputs.size() == row.outputs.size(),
                "and has as many tensors");
  }
  const auto csv = cpu_profiling_csv(text);
  ASSAY_CHECK(csv.has_value() == !cpu_profiling_text(text).empty(), "both forms or none");
  return 0;
}

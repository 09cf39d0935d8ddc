// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"
#include "formats/csv.hpp"

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const CsvTable table = read_csv(as_text(std::as_bytes(std::span(data, size))));
  std::string text;
  for (const auto& row : table.rows) append_csv_row(row, {}, &text);
  if (text.starts_with("\xef\xbb\xbf"))
    return 0;  // a second byte order mark is data once, a mark the next time
  ASSAY_CHECK(read_csv(text).rows == table.rows, "written and read again it is the same");
  return 0;
}

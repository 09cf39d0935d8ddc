// SPDX-License-Identifier: Apache-2.0
#include "formats/fuzz_support.hpp"
#include "formats/graph_text.hpp"

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = as_text(std::as_bytes(std::span(data, size)));
  const auto graphs = read_graph_text(text);
  if (!graphs) {
    ASSAY_CHECK(graphs.error().offset.value_or(0) <= size, "an error lies inside the text");
    return 0;
  }
  size_t names = 0;
  for (const GraphText& graph : *graphs) {
    for (const GraphOp& op : graph.ops) {
      names += op.name.size();
      for (const std::string& input : op.inputs)
        ASSAY_CHECK(split_graph_edge(input).first.size() <= input.size(), "a part of the edge");
    }
  }
  ASSAY_CHECK(names <= size, "names come from the text");
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "formats/fuzz_support.hpp"
#include "formats/graph_text.hpp"
#include "formats/protobuf_text.hpp"

using namespace assay;
using namespace assay::formats;

namespace {

/// Every field lies inside the one around it, and every string can be decoded.
void check_document(std::string_view text) {
  const auto document = TextDocument::parse(text);
  if (!document) {
    ASSAY_CHECK(document.error().offset.value_or(0) <= text.size(), "an error lies inside");
    return;
  }
  std::vector<TextDocument::Field> pending{0};
  while (!pending.empty()) {
    const TextDocument::Field message = pending.back();
    pending.pop_back();
    for (auto field = document->first(message); field != TextDocument::kNone;
         field = document->next(field)) {
      ASSAY_CHECK(document->offset(field) + document->text(field).size() <= text.size(), "inside");
      if (document->kind(field) == TextDocument::Kind::Message) {
        pending.push_back(field);
      } else {
        // An escape of four bytes gives at most four.
        ASSAY_CHECK(document->string(field).size() <= document->text(field).size(), "no growth");
        (void)document->integer(field);
        (void)document->real(field);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = as_text(std::as_bytes(std::span(data, size)));
  check_document(text);
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

// SPDX-License-Identifier: Apache-2.0
// The ending of the output's name chooses the kind of file: .json, .me.json, .onnx or .hier.onnx.
#include "cli/convert/graph_conversion.hpp"

#include "base/mapped_file.hpp"
#include "run/folder.hpp"
#include "topology/ge_graph.hpp"
#include "topology/model_explorer.hpp"
#include "topology/onnx_export.hpp"

namespace assay::cli {

bool is_graph_conversion(const std::string& in, const std::string& out) {
  if (!out.ends_with(".json") && !out.ends_with(".onnx")) return false;
  if (!run::is_file(in)) return false;
  const auto file = MappedFile::open(in);
  return file && topology::is_graph_text(as_text(file->bytes()));
}

Result<std::string> converted_graph(const std::string& in, const std::string& out) {
  constexpr int kAllLeaves = -1;
  ASSAY_TRY(const MappedFile file, MappedFile::open(in));
  const std::string_view text = as_text(file.bytes());
  const bool is_explorer = out.ends_with(".me.json");
  if (out.ends_with(".json") && !is_explorer) return in_file(in, topology::ge_graph_json(text));
  ASSAY_TRY(const topology::Graph graph, in_file(in, topology::read_ge_graph(text)));
  if (is_explorer) return topology::model_explorer_json(graph, kAllLeaves);
  topology::OnnxOptions options;
  options.level = kAllLeaves;
  options.hierarchical = out.ends_with(".hier.onnx");
  options.document = run::base_name(in);
  return topology::onnx_model(graph, options);
}

}  // namespace assay::cli

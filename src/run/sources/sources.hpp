// SPDX-License-Identifier: Apache-2.0
// The readers of directory layouts. Each one recognises its layout by itself, so that adding one is
// a new file here and a line in detect.cpp.
#pragma once
#include <optional>
#include <string>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run::sources {

/// What a source says about a path: nothing when the layout is not its own, otherwise the run or
/// why it cannot be read. The records come in any order and with any `order`; open_run() sorts and
/// numbers them.
using Attempt = std::optional<Result<Run>>;

[[nodiscard]] Attempt read_file(const std::string& path);         // one tensor file
[[nodiscard]] Attempt read_fingerprint(const std::string& path);  // docs/formats/fingerprint.md
[[nodiscard]] Attempt read_native(const std::string& path);       // docs/formats/native.md
[[nodiscard]] Attempt read_torch_tree(const std::string& path);   // docs/formats/torch-tree.md
[[nodiscard]] Attempt read_atb_tree(const std::string& path);     // docs/formats/atb-tree.md
[[nodiscard]] Attempt read_ge_tree(const std::string& path);      // docs/formats/ge-tree.md
[[nodiscard]] Attempt read_fx_tree(const std::string& path);      // docs/formats/fx-tree.md
[[nodiscard]] Attempt read_captured_graph(
    const std::string& path);                                 // docs/formats/captured-graph.md
[[nodiscard]] Attempt read_msprobe(const std::string& path);  // docs/formats/msprobe.md
[[nodiscard]] Attempt read_debug_tree_dump(
    const std::string& path);                              // docs/formats/transformers-debug.md
[[nodiscard]] Attempt read_flat(const std::string& path);  // a folder of tensor files

/// The tensors of one file as records of `node`: one for a plain file, one a member for a
/// container, with the member's name as slot. A file that cannot be read gives one record with
/// `problem`. Thread-safe.
[[nodiscard]] std::vector<TensorRecord> records_of_file(const std::string& file,
                                                        const std::string& node);
/// Whether the keys of a file are names of nodes: an npz is a folder of arrays in one file.
[[nodiscard]] bool has_named_arrays(std::string_view file);
/// The key of a record in its file; empty in a file of one tensor.
[[nodiscard]] std::string member_of(const TensorRecord& record);
/// What an array is by its name: "layers.0.mlp.output", "x.input.0", "norm.weight", "norm.bias"; any
/// other name is that of a node whose output it is.
void name_array(std::string_view name, TensorRecord* record);
/// Behind those that are there, in this order.
void append_records(std::vector<TensorRecord> records, Run* run);

/// True for names that end like a tensor file: .npy .npz .pth .pt .safetensors .bin
[[nodiscard]] bool has_tensor_suffix(std::string_view name);
/// "a/b.npy" -> "a/b"; other names unchanged.
[[nodiscard]] std::string without_tensor_suffix(std::string_view name);

}  // namespace assay::run::sources

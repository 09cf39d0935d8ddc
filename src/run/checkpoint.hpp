// SPDX-License-Identifier: Apache-2.0
// A folder of model weights, as Hugging Face and the tools around it lay it out.
//
//   model.safetensors.index.json    which shard holds which weight; may be missing
//   model-00001-of-00002.safetensors ...          or pytorch_model*.bin, *.pth, *.pt of torch
//   model.gguf                      alone, or all shards model-00001-of-00003.gguf, when there is none of the above
//   config.json                     ties and quantisation, when it is there
#pragma once
#include <string>
#include <vector>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run {

/// Files of the model that a .gguf file belongs to: of `model-00002-of-00003.gguf` all shards that
/// are there, in order; otherwise the file alone.
struct GgufFiles {
  std::vector<std::string> paths;
  std::vector<std::string> warnings;  // shards that are not there
};
/// split_count   number of shards by the file's metadata, "split.count"; empty when it says nothing
[[nodiscard]] Result<GgufFiles> gguf_files(const std::string& path, const std::string& split_count);

/// Lists the weights of a folder; reads no payload. `node` of a record is the weight's name, and
/// its role is Weight. What the index names and no shard holds is a record with `problem`; a shard
/// that cannot be read is such a record for each of its names, or a warning when no index tells
/// them.
///
/// The files are those of the index, else every *.safetensors in order of names, else every
/// *.bin, *.pth and *.pt. Links are followed: a Hugging Face cache consists of them.
///
/// A .gguf file may be named itself; of several shards any one.
///
/// first_file_only   only the first of the files: what the original read of my side
/// properties        "tie_word_embeddings" and "checkpoint_format" of config.json, "index"; of a
///                   GGUF file its metadata, "gguf:llama.block_count", and `layout` is Layout::Gguf
/// errors   NotFound ("No .safetensors files found in the directory.") | Usage (no folder) |
///          Permission | Io
[[nodiscard]] Result<Run> open_checkpoint(const std::string& folder, bool first_file_only = false);

}  // namespace assay::run

// SPDX-License-Identifier: Apache-2.0
// Checkpoints among the paths of a command: they hold weights, no run.
#pragma once
#include <string>

namespace assay::cli {

/// A folder with the files of Hugging Face, or a GGUF file; a folder of tensors by other names may
/// be anything.
[[nodiscard]] bool is_checkpoint(const std::string& path);

/// What to do with two paths of which one is a checkpoint, or a file inside one: "two checkpoints
/// are compared by their weights; add -w: assay compare -w G M". Empty when neither is.
[[nodiscard]] std::string checkpoint_advice(const std::string& golden, const std::string& mine);

/// "assay compare -w G M" of two checkpoints, or files inside them; empty otherwise.
[[nodiscard]] std::string checkpoint_command(const std::string& golden, const std::string& mine);

}  // namespace assay::cli

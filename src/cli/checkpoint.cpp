// SPDX-License-Identifier: Apache-2.0
// Paths are told by the file names that checkpoints have; where one is given as a run, the advice
// is the command that compares weights.
#include "cli/checkpoint.hpp"

#include <algorithm>
#include <iterator>

#include "base/file_source.hpp"
#include "base/shell_words.hpp"

namespace assay::cli {
namespace {

constexpr const char* kCheckpointFiles[] = {"model.safetensors", "model.safetensors.index.json",
                                            "pytorch_model.bin", "pytorch_model.bin.index.json"};

bool is_file(const std::string& path) {
  const Result<FileFacts> facts = file_facts(path);
  return facts && facts->kind == FileFacts::Kind::File;
}

// What -w takes: the path itself, or the folder around a file of a checkpoint; empty when it
// belongs to none.
std::string checkpoint_around(const std::string& path) {
  if (is_checkpoint(path)) return path;
  if (!is_file(path)) return {};
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  return is_checkpoint(folder) ? folder : std::string();
}

}  // namespace

bool is_checkpoint(const std::string& path) {
  if (path.ends_with(".gguf")) return is_file(path);
  return std::any_of(std::begin(kCheckpointFiles), std::end(kCheckpointFiles),
                     [&](const char* name) { return is_file(path + "/" + name); });
}

std::string checkpoint_advice(const std::string& golden, const std::string& mine) {
  const std::string golden_checkpoint = checkpoint_around(golden);
  const std::string my_checkpoint = checkpoint_around(mine);
  if (golden_checkpoint.empty() && my_checkpoint.empty()) return {};
  if (!golden_checkpoint.empty() && !my_checkpoint.empty())
    return "two checkpoints are compared by their weights; add -w: " +
           checkpoint_command(golden, mine);
  return (golden_checkpoint.empty() ? mine : golden) +
         " is a checkpoint, whose weights are compared with those of another one; for that add -w";
}

std::string checkpoint_command(const std::string& golden, const std::string& mine) {
  const std::string golden_checkpoint = checkpoint_around(golden);
  const std::string my_checkpoint = checkpoint_around(mine);
  if (golden_checkpoint.empty() || my_checkpoint.empty()) return {};
  return "assay compare -w " + shell_quote(golden_checkpoint) + " " + shell_quote(my_checkpoint);
}

}  // namespace assay::cli

// SPDX-License-Identifier: Apache-2.0
// Operands of a ggml run that its capture did not copy: weights, which stand in the model's file,
// and views of values that were captured.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "locate/program/program.hpp"

namespace assay::engines::ggml {

/// The GGUF files that the captured command names and that are there, each once.
[[nodiscard]] std::vector<std::string> model_files(const run::Run& run);

/// The weights of the GGUF files that the captured command named, by name. A name in several files
/// is left out: nobody knows which of them was meant. Empty when no file is where it was.
[[nodiscard]] std::map<std::string, run::TensorRecord, std::less<>> model_weights(
    const run::Run& run);

/// The tensor of a use whose record has no bytes.
///
/// A weight counts when its name, shape and type are those of the file's. A view counts when
/// operators that only view lead to a captured value of the same storage without gaps.
/// errors  NotFound, of run::load_tensor() for the record itself
[[nodiscard]] Result<Tensor> load_uncopied(const locate::Program& program, const locate::Use& use);

/// Adds what records say beside the arguments: the sizes of the result, and the types in which
/// blocks were stored.
/// errors  Unsupported (a view of a view with gaps, results in blocks)
[[nodiscard]] Status add_facts(const locate::Program& program, const locate::Operator& one,
                               reference::aten::Call* call);

}  // namespace assay::engines::ggml

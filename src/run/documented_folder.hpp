// SPDX-License-Identifier: Apache-2.0
// Folders of graph mode under the names that the documents of ait and msit print.
#pragma once
#include <string>

namespace assay::run {

/// The documents compare `{dump_path}/dump_{time}` with `data_dump`, `gm_{time}_dump` or
/// `msit_fx_dump/data_dump`, by the version that they describe; the dumps of today lie in
/// `msit_ge_dump` and `msit_fx_dump` beside these names. Returns that folder where `path` names
/// nothing and the folder is there, else `path`.
///
/// source   Ascend/msit: msit/docs/llm, the pages on TorchAir
[[nodiscard]] std::string documented_folder(const std::string& path);

}  // namespace assay::run

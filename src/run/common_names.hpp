// SPDX-License-Identifier: Apache-2.0
// The same modules under other names: wrappers and prefixes of one side, several models called in
// another order.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "run/run.hpp"

namespace assay::run {

/// The path of a node as modules have it: the strict torch dump puts `root` in front.
[[nodiscard]] std::string module_path(const Run& run, std::string_view node);

/// The module path with every number replaced by "*": "model.layers.*.mlp".
[[nodiscard]] std::string layer_pattern(std::string_view module);

/// A path without the segments that wrappers add: `_orig_mod` (torch.compile),
/// `_fsdp_wrapped_module`, `_checkpoint_wrapped_module`, `_forward_module` and `base_layer` (PEFT)
/// wherever they stand, `module` (DDP, DeepSpeed) and `base_model.model` (PEFT) in front.
[[nodiscard]] std::string without_wrappers(std::string_view path);

/// Gives every module of a run, its operators, weights and place in the topology the path that
/// `rename` has for it.
void rename_modules(const std::function<std::string(std::string_view path)>& rename, Run* run);

/// A module or an operator in it, "model.norm::aten.mul.Tensor.1", as the run's files have it.
[[nodiscard]] std::string own_name(const Run& run, std::string_view node);

/// Gives mine, and where that is wrapped golden, the names that both have in common. Names decide,
/// and shapes and weights of the modules behind them, never values of activations; a renaming is
/// one for the whole run (or model of a run) and keeps parents.
///
/// returns  what was renamed, one sentence each
std::vector<std::string> use_common_names(Run* golden, Run* mine);

}  // namespace assay::run

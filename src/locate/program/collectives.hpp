// SPDX-License-Identifier: Apache-2.0
// Collectives between ranks as operators of a program: they read what every rank gave.
//   docs/formats/native.md, "Operator level"
#pragma once
#include "locate/program/program.hpp"

namespace assay::locate {

/// Finds the collectives that ranks had together, gives each the other ranks' tensors as its inputs
/// ("parts.0" ...), and puts operators in an order in which everything is made before it is read: by
/// rank and time between two collectives. One whose group was not captured whole stays what it is.
void join_collectives(Program* program);

/// True for an operator that join_collectives() gave its inputs, or that hands on what one writes.
[[nodiscard]] bool is_collective(const Operator& one);
/// Of a sum that so many ranks made together: an argument that torch's operator has not.
inline constexpr std::string_view kRanksArgument = "ranks of the collective";
/// What such a call computes, as one of aten.
/// errors  Unsupported (a kind of reduction) | Invalid
[[nodiscard]] Result<reference::aten::Call> collective_call(reference::aten::Call call);

}  // namespace assay::locate

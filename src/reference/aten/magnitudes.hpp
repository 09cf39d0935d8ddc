// SPDX-License-Identifier: Apache-2.0
// How large the terms are that an operator adds up: what bounds the rounding errors of a correct
// kernel.
//   docs/localisation.md, "Own error"
#pragma once
#include <optional>
#include <span>

#include "reference/aten/call.hpp"

namespace assay::reference::aten {

struct Magnitudes {
  /// C of every element, in C order of the output; of selected rows only when rows were asked for:
  /// [rows, last].
  ///   products   |A| . |B|, times |alpha|, plus |beta| |bias|
  ///   reductions mean or sum of |x| (times what a step multiplies: see magnitudes.cpp)
  ///   norms      (|x| + mean|x|) rstd |weight| + |bias|
  ///   attention  sum over j of p_j |v_j|
  ///   softmax    |y| (1 + |x - max| / 16), logarithms |x - max| + |log sum| + 1: more than |y|, which near 0 is too
  ///              little and in fp32 alarms on healthy kernels (measured: e 3.9 where scores spread by 80)
  Wide c;
  /// Attention: sum over j of p_j^2 v_j^2, shape of c. Otherwise empty.
  Wide variance;
  /// Attention: scale max|q| max|k| (Euclidean norms) over the queries and keys of that head; one
  /// value a row (last axis) of c. Otherwise empty.
  Wide score_bound;
  /// K of a product, n of a mean or sum; 1 where the table has none.
  double terms = 1;
  /// Operators of ggml, whose kernels convert operands first: w of every element, shape of c;
  /// `variance` is v then. Otherwise empty.
  Wide allowed = {};
  /// Products with an addend (linear with a bias, addmm ...): beta times it, shape of c, where it
  /// was asked for. Kernels of 16 bits may round the product before they add it. Otherwise empty.
  Wide addend = {};
};

struct MagnitudeOptions {
  int jobs = 1;
  /// Rows of the output (all axes but the last as one), ascending; nothing: all of them.
  std::optional<std::span<const int64_t>> rows = {};
  /// Fill Magnitudes::addend.
  bool addend = false;
};

/// What a correct kernel of an operator may err.
enum class Rounding : uint8_t {
  ByClass,  // as its class does
  Once,     // one rounding of the result
  Given,    // magnitudes() has the bound and the variance themselves
};
[[nodiscard]] Rounding rounding_of(std::string_view name);

/// C for one output of a call, computed in fp64 from its operands.
///
/// output   0; of layer and group norms 1 (mean) and 2 (rstd) too, of var_mean and std_mean 1, of
///          attention 1 (logsumexp)
/// errors   Unsupported (a class without C: use |y|; an output without C) | Invalid (rows out of
///          range) | of evaluate()
[[nodiscard]] Result<Magnitudes> magnitudes(const Call& call, size_t output = 0,
                                            const MagnitudeOptions& options = {});

/// Rows of a product's result: [rows, last]. Where they are rows of an operand (mm, bmm, addmm,
/// linear, matmul) the others are not computed.
///
/// rows     as MagnitudeOptions::rows
/// errors   Unsupported (not of class Product) | Invalid (rows out of range) | of evaluate()
[[nodiscard]] Result<Wide> product_rows(const Call& call, std::span<const int64_t> rows,
                                        int jobs = 1);

}  // namespace assay::reference::aten

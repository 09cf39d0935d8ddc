// SPDX-License-Identifier: Apache-2.0
// Which of the 64 bytes of parameters mean what, operator by operator.
#include "capture/ggml/arguments.hpp"

#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>

#include "base/ascii.hpp"
#include "base/text.hpp"

namespace assay::capture::ggml {
namespace {

enum class Kind : uint8_t { Float, Int, Bool };

struct Parameter {
  std::string_view op;
  std::string_view name;
  Kind kind;
  size_t index;      // of the 4-byte word
  size_t count = 1;  // more than one: a list
};

// Source: docs/design/ggml-probe.md, "Parameters". Operators without parameters stand here with an
// empty name, so that they are told from operators nobody knows.
constexpr Parameter kParameters[] = {
    {"rms_norm", "eps", Kind::Float, 0},
    {"norm", "eps", Kind::Float, 0},
    {"l2_norm", "eps", Kind::Float, 0},
    {"group_norm", "groups", Kind::Int, 0},
    {"group_norm", "eps", Kind::Float, 1},
    {"rope", "n_dims", Kind::Int, 1},
    {"rope", "mode", Kind::Int, 2},
    {"rope", "n_ctx_orig", Kind::Int, 4},
    {"rope", "freq_base", Kind::Float, 5},
    {"rope", "freq_scale", Kind::Float, 6},
    {"rope", "ext_factor", Kind::Float, 7},
    {"rope", "attn_factor", Kind::Float, 8},
    {"rope", "beta_fast", Kind::Float, 9},
    {"rope", "beta_slow", Kind::Float, 10},
    {"rope", "sections", Kind::Int, 11, 4},
    {"rope", "offset", Kind::Int, 15},
    {"soft_max", "scale", Kind::Float, 0},
    {"soft_max", "max_bias", Kind::Float, 1},
    {"flash_attn_ext", "scale", Kind::Float, 0},
    {"flash_attn_ext", "max_bias", Kind::Float, 1},
    {"flash_attn_ext", "logit_softcap", Kind::Float, 2},
    {"flash_attn_ext", "prec", Kind::Int, 3},
    {"mul_mat", "prec", Kind::Int, 0},
    {"mul_mat_id", "", Kind::Int, 0},
    {"scale", "scale", Kind::Float, 0},
    {"scale", "bias", Kind::Float, 1},
    {"clamp", "min", Kind::Float, 0},
    {"clamp", "max", Kind::Float, 1},
    {"permute", "axes", Kind::Int, 0, 4},
    {"concat", "dim", Kind::Int, 0},
    {"argsort", "order", Kind::Int, 0},
    {"diag_mask_inf", "n_past", Kind::Int, 0},
    {"add", "", Kind::Int, 0},
    {"sub", "", Kind::Int, 0},
    {"mul", "", Kind::Int, 0},
    {"div", "", Kind::Int, 0},
    {"get_rows", "", Kind::Int, 0},
    {"set_rows", "", Kind::Int, 0},
    {"cpy", "", Kind::Int, 0},
    {"cont", "", Kind::Int, 0},
    {"dup", "", Kind::Int, 0},
    {"reshape", "", Kind::Int, 0},
    {"transpose", "", Kind::Int, 0},
    {"im2col", "s0", Kind::Int, 0},
    {"im2col", "s1", Kind::Int, 1},
    {"im2col", "p0", Kind::Int, 2},
    {"im2col", "p1", Kind::Int, 3},
    {"im2col", "d0", Kind::Int, 4},
    {"im2col", "d1", Kind::Int, 5},
    {"im2col", "is_2d", Kind::Bool, 6},
    {"pool_2d", "kind", Kind::Int, 0},
    {"pool_2d", "kernel", Kind::Int, 1, 2},
    {"pool_2d", "stride", Kind::Int, 3, 2},
    {"pool_2d", "padding", Kind::Int, 5, 2},
    {"upscale", "mode", Kind::Int, 0},
    {"pad", "padding", Kind::Int, 0, 8},
    {"pad", "circular", Kind::Bool, 8},
    {"leaky_relu", "slope", Kind::Float, 0},
};

void append_key(std::string& out, std::string_view key) {
  if (out.size() > 1) out += ',';
  out += json_quote(key);
  out += ':';
}

template <typename T>
std::string shortest(T value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  return {digits, end};
}

// The shortest text that gives the same float again.
std::string float_json(float value) {
  if (std::isnan(value)) return R"({"float":"nan"})";
  if (std::isinf(value)) return value > 0 ? R"({"float":"inf"})" : R"({"float":"-inf"})";
  return shortest(value);
}

std::string word_json(const TensorFields& node, Kind kind, size_t index) {
  if (kind == Kind::Float) return float_json(node.float_parameter(index));
  if (kind == Kind::Bool) return node.int_parameter(index) != 0 ? "true" : "false";
  return shortest(node.int_parameter(index));
}

std::string words_json(const TensorFields& node, Kind kind, size_t first, size_t count) {
  std::string list = "[";
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) list += ',';
    list += word_json(node, kind, first + i);
  }
  return list + "]";
}

void append_named(std::string& out, const Engine& engine, const TensorFields& node, bool gated) {
  const EngineFunctions& functions = engine.functions();
  const char* name = nullptr;
  if (!gated) {
    name = functions.ggml_unary_op_name(functions.ggml_get_unary_op(node.address()));
  } else if (functions.ggml_get_glu_op != nullptr && functions.ggml_glu_op_name != nullptr) {
    name = functions.ggml_glu_op_name(functions.ggml_get_glu_op(node.address()));
  }
  append_key(out, "op");
  out += name == nullptr ? shortest(node.int_parameter(0)) : json_quote(name);
  if (gated) {
    append_key(out, "swapped");
    out += word_json(node, Kind::Bool, 1);
    if (name != nullptr && std::string_view(name) == "SWIGLU_OAI") {
      append_key(out, "alpha");
      out += word_json(node, Kind::Float, 2);
      append_key(out, "limit");
      out += word_json(node, Kind::Float, 3);
    }
  } else if (name != nullptr && std::string_view(name) == "XIELU") {
    append_key(out, "parameters");
    out += words_json(node, Kind::Float, 1, 4);
  }
}

bool append_table(std::string& out, const TensorFields& node, std::string_view op) {
  bool known = false;
  for (const Parameter& parameter : kParameters) {
    if (parameter.op != op) continue;
    known = true;
    if (parameter.name.empty()) continue;
    append_key(out, parameter.name);
    out += parameter.count == 1
               ? word_json(node, parameter.kind, parameter.index)
               : words_json(node, parameter.kind, parameter.index, parameter.count);
  }
  return known;
}

}  // namespace

std::string arguments_json(const Engine& engine, const TensorFields& node) {
  std::string out = "{";
  for (size_t i = 0; i < node.source_count(); ++i) {
    if (node.source(i) == nullptr || node.source(i) == node.address()) continue;
    const std::string slot = "src" + std::to_string(i);
    append_key(out, slot);
    out += "{\"tensor\":\"" + slot + "\"}";
  }
  const std::string& op = engine.op_name(node.op());
  if (op == "unary" || op == "glu") {
    append_named(out, engine, node, op == "glu");
  } else if (op == "view") {
    append_key(out, "offset");
    // Counted from src0, unlike the tensor's own offset, which counts from the root.
    out += shortest(node.long_parameter());
  } else if (!append_table(out, node, op)) {
    append_key(out, "op_params");
    out += words_json(node, Kind::Int, 0, kOpParamsBytes / 4);
  }
  const char* description = engine.functions().ggml_op_desc(node.address());
  if (description != nullptr && lower_case(description) != op) {
    append_key(out, "desc");
    out += json_quote(description);
  }
  return out + "}";
}

}  // namespace assay::capture::ggml

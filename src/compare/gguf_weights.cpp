// SPDX-License-Identifier: Apache-2.0
// Renames the file's records to the checkpoint's, takes stacked experts apart, undoes what the
// converter does to rows and norms, and holds each block against what rounding to it may do.
#include "compare/gguf_weights.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "pair/gguf_names.hpp"
#include "run/container.hpp"
#include "run/strided_payload.hpp"
#include "tensor/block_types.hpp"
#include "tensor/convert.hpp"

namespace assay::compare {
namespace {

using run::TensorRecord;

// ---- names ----

/// Each name, and what stands behind each of its dots.
std::set<std::string, std::less<>> endings_of(const run::Run& run) {
  std::set<std::string, std::less<>> out;
  for (const TensorRecord& record : run.records) {
    out.insert(record.node);
    for (size_t dot = record.node.find('.'); dot != std::string::npos;
         dot = record.node.find('.', dot + 1))
      out.insert(record.node.substr(dot + 1));
  }
  return out;
}

Dims without_ones(const Dims& shape) {
  Dims out;
  for (const int64_t size : shape.span()) {
    if (size != 1) out.push_back(size);
  }
  return out;
}

/// Shapes of the checkpoint's parameters that have axes of one, which files leave out, by name and
/// what stands behind each of its dots.
std::map<std::string, Dims, std::less<>> shapes_with_ones(const run::Run& run) {
  std::map<std::string, Dims, std::less<>> out;
  for (const TensorRecord& record : run.records) {
    if (!record.shape || without_ones(*record.shape) == *record.shape) continue;
    out.emplace(record.node, *record.shape);
    for (size_t dot = record.node.find('.'); dot != std::string::npos;
         dot = record.node.find('.', dot + 1))
      out.emplace(record.node.substr(dot + 1), *record.shape);
  }
  return out;
}

/// "blk.3.attn_q.weight" -> 3
std::optional<int64_t> layer_of(std::string_view name) {
  if (!name.starts_with("blk.")) return std::nullopt;
  const size_t dot = name.find('.', 4);
  if (dot == std::string_view::npos) return std::nullopt;
  return parse_number<int64_t>(name.substr(4, dot - 4));
}

/// "model.layers.3.mlp.experts.down_proj" -> 3; -1 when there is none
int64_t checkpoint_layer(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = name.find(kLayers);
  if (at == std::string_view::npos) return -1;
  const std::string_view rest = name.substr(at + kLayers.size());
  return parse_number<int64_t>(rest.substr(0, rest.find('.'))).value_or(-1);
}

/// The parameter that the checkpoint has, of a single family before the usual one; else the usual
/// one, since names may differ by a prefix.
std::optional<std::string> checkpoint_name(const std::string& name,
                                           const std::set<std::string, std::less<>>& known) {
  constexpr std::string_view kModel = "model.";
  const std::vector<std::string> candidates = pair::parameters_of(name);
  if (candidates.empty()) return std::nullopt;
  const auto is_known = [&](std::string_view candidate) {
    return known.contains(candidate) ||
           (candidate.starts_with(kModel) && known.contains(candidate.substr(kModel.size())));
  };
  const auto found = std::find_if(candidates.rbegin(), candidates.rend(), is_known);
  return found == candidates.rend() ? candidates.front() : *found;
}

// ---- experts ----

/// Rows `first` to `first + count` of all rows of a tensor, whatever its number of axes, as a
/// tensor of its own. Nothing where the bytes are not known or the rows are not whole.
std::optional<TensorRecord> rows_of(const TensorRecord& record, int64_t first, int64_t count,
                                    const Dims& shape, std::string name) {
  const Dims& whole = *record.shape;
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < whole.size(); ++axis) rows *= whole[axis];
  if (!record.bytes || !record.bytes->raw || run::is_strided(record) || rows <= 0 ||
      record.bytes->size_bytes % static_cast<uint64_t>(rows) != 0)
    return std::nullopt;
  const uint64_t row_bytes = record.bytes->size_bytes / static_cast<uint64_t>(rows);
  TensorRecord out = record;
  out.node = std::move(name);
  out.shape = shape;
  out.strides.reset();
  out.bytes->offset += static_cast<uint64_t>(first) * row_bytes;
  out.bytes->size_bytes = static_cast<uint64_t>(count) * row_bytes;
  return out;
}

/// A stacked tensor [experts, rows, columns], taken apart by expert and, where it is two matrices
/// one after the other, by these.
/// names   of the matrices; `#` is the expert
std::optional<std::vector<TensorRecord>> take_apart(const TensorRecord& record,
                                                    const std::vector<std::string>& names) {
  if (!record.shape || record.shape->size() != 3) return std::nullopt;
  const Dims& shape = *record.shape;
  const auto matrices = static_cast<int64_t>(names.size());
  if (shape[1] % matrices != 0) return std::nullopt;
  const int64_t rows = shape[1] / matrices;
  std::vector<TensorRecord> out;
  for (int64_t expert = 0; expert < shape[0]; ++expert) {
    for (int64_t m = 0; m < matrices; ++m) {
      std::string name = names[static_cast<size_t>(m)];
      name.replace(name.find('#'), 1, std::to_string(expert));
      auto slice = rows_of(record, expert * shape[1] + m * rows, rows, Dims{rows, shape[2]},
                           std::move(name));
      if (!slice) return std::nullopt;
      out.push_back(std::move(*slice));
    }
  }
  return out;
}

/// Replaces each record for which `names_of` has names by its parts.
template <typename NamesOf>
void take_apart_all(run::Run* run, NamesOf names_of) {
  std::vector<TensorRecord> out;
  for (TensorRecord& record : run->records) {
    const std::vector<std::string> names = names_of(record);
    auto parts = names.empty() ? std::nullopt : take_apart(record, names);
    if (!parts) {
      out.push_back(std::move(record));
      continue;
    }
    for (TensorRecord& part : *parts) out.push_back(std::move(part));
  }
  run->records = std::move(out);
  for (size_t i = 0; i < run->records.size(); ++i) run->records[i].order = i;
}

// ---- what the converter does ----

/// Architectures whose rope turns neighbours (mode 0) although their checkpoints pair the halves of
/// a head.
bool reorders_heads(std::string_view architecture) {
  constexpr std::array<std::string_view, 12> kArchitectures = {
      "llama", "deci",    "baichuan", "internlm2",  "minicpm", "xverse",
      "olmo",  "granite", "arcee",    "granitemoe", "smollm3", "mistral3"};
  return std::ranges::find(kArchitectures, architecture) != kArchitectures.end();
}

bool stores_norms_plus_one(std::string_view architecture) {
  return architecture == "gemma" || architecture == "gemma2" || architecture == "gemma3" ||
         architecture == "gemma-embedding";
}

/// A number of the metadata, or of its list the one of the layer. 0 when there is none.
int64_t layer_number(const run::Run& run, const std::string& key, int64_t layer) {
  const auto found = run.properties.find("gguf:" + key);
  if (found == run.properties.end()) return 0;
  std::string_view text = found->second;
  if (text.starts_with('[')) {
    const std::vector<std::string_view> items = split(text.substr(1, text.find(']') - 1), ',');
    if (layer < 0 || static_cast<size_t>(layer) >= items.size()) return 0;
    text = items[static_cast<size_t>(layer)];
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  return parse_number<int64_t>(text).value_or(0);
}

std::string architecture_of(const run::Run& run) {
  const auto found = run.properties.find("gguf:general.architecture");
  return found == run.properties.end() ? std::string() : found->second;
}

/// Row of the file that holds row `row` of the checkpoint.
int64_t file_row(const GgufWeight& weight, int64_t rows, int64_t row) {
  if (weight.fused_heads > 0) {
    const int64_t size = rows / 3 / weight.fused_heads;  // of a head
    const int64_t head = row / (3 * size);
    const int64_t part = row / size % 3;
    return (part * weight.fused_heads + head) * size + row % size;
  }
  return weight.rope_heads > 0 ? pair::gguf_channel(row, rows / weight.rope_heads) : row;
}

/// Of a vector each value is a row; rows of stacked matrices are counted through.
int64_t row_count(const Dims& shape) {
  int64_t rows = shape.empty() ? 1 : shape[0];
  for (size_t axis = 1; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  return rows;
}

Status check_heads(const GgufWeight& weight, const Dims& shape) {
  const int64_t rows = row_count(shape);
  const auto refuse = [&](const std::string& heads) {
    return fail(Errc::Invalid,
                weight.name + " of shape " + list_text(shape.span()) + " has no rows of " + heads);
  };
  if (weight.fused_heads > 0 && (shape.empty() || rows % (3 * weight.fused_heads) != 0))
    return refuse("Q, K and V of " + std::to_string(weight.fused_heads) + " heads");
  if (weight.rope_heads > 0 &&
      (shape.empty() || rows % weight.rope_heads != 0 || rows / weight.rope_heads % 2 != 0))
    return refuse(std::to_string(weight.rope_heads) + " heads of even size");
  return {};
}

// ---- rounding ----

/// The file's values and how far they may be from what they were rounded from, some rows at a time.
class FileRows {
 public:
  static Result<std::optional<FileRows>> open(const TensorRecord& record, DType golden) {
    FileRows rows;
    rows.blocks_ = block_type_from_name(record.memory_format);
    if (!rows.blocks_) {
      const bool is_half = record.dtype == DType::Float16 || record.dtype == DType::BFloat16;
      if (!is_half || record.dtype == golden) return std::optional<FileRows>();
    }
    if (!record.shape || record.shape->empty() || !record.bytes || !record.bytes->raw ||
        run::is_strided(record))
      return std::optional<FileRows>();
    ASSAY_TRY(rows.container_, run::open_container(record.bytes->file));
    const ByteSpan file = rows.container_->bytes();
    if (record.bytes->offset > file.size() ||
        record.bytes->size_bytes > file.size() - record.bytes->offset)
      return fail(Errc::Truncated, "the file is shorter than when it was listed", file.size());
    rows.bytes_ = file.subspan(record.bytes->offset, record.bytes->size_bytes);
    rows.dtype_ = *record.dtype;
    rows.row_bytes_ =
        rows.bytes_.size() / static_cast<size_t>(std::max<int64_t>(row_count(*record.shape), 1));
    return std::optional<FileRows>(std::move(rows));
  }

  [[nodiscard]] std::string type() const {
    return std::string(blocks_ ? name(*blocks_) : name(dtype_));
  }
  [[nodiscard]] int64_t block_values() const {
    return blocks_ ? static_cast<int64_t>(info(*blocks_).block_values) : 1;
  }
  Status read(int64_t row, std::span<float> values, std::span<CodeReach> reaches) const {
    const ByteSpan bytes = bytes_.subspan(static_cast<size_t>(row) * row_bytes_, row_bytes_);
    if (blocks_) {
      ASSAY_TRY_STATUS(decode_blocks(*blocks_, bytes, values));
      return code_reaches(*blocks_, bytes, reaches);
    }
    ASSAY_TRY(const TensorView view,
              make_view(dtype_, Dims{static_cast<int64_t>(values.size())}, bytes));
    std::vector<double> wide(values.size());
    read_values(view, 0, static_cast<int64_t>(wide.size()), wide);
    // Half a unit in the last place: 10 and 7 bits of fraction; below 2^-14 halves are 2^-24 apart.
    const float relative = dtype_ == DType::Float16 ? 0x1p-11F : 0x1p-8F;
    const float smallest = dtype_ == DType::Float16 ? 0x1p-25F : 0;
    for (size_t i = 0; i < wide.size(); ++i) {
      values[i] = static_cast<float>(wide[i]);
      const float reach = std::max(std::abs(values[i]) * relative, smallest);
      reaches[i] = {2 * reach, reach, reach};
    }
    return {};
  }

 private:
  FileRows() = default;
  std::optional<BlockType> blocks_;
  DType dtype_ = DType::Float32;
  std::shared_ptr<const run::Container> container_;
  ByteSpan bytes_;
  size_t row_bytes_ = 0;
};

/// Whether a block whose type bounds no single value is another's. Quantisers keep the error of a
/// block small: the worst was 1.3 times the squares of the block, of outliers 50 times as large as
/// the rest; a block of another place has 1.5 to 2.
bool is_foreign_block(std::span<const float> values, std::span<const CodeReach> reaches,
                      std::span<const double> golden) {
  constexpr double kMaxSquaredError = 1.4;  // relative to the block's squares
  // Beyond it rounding the scale costs as much as the codes, and numbers are too small for the
  // type.
  constexpr float kMaxHalfStep = 0.75F;  // steps
  double error = 0;
  double squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isinf(reaches[i].bound) || !(reaches[i].half_step <= kMaxHalfStep * reaches[i].step))
      return false;
    const double distance = golden[i] - static_cast<double>(values[i]);
    error += distance * distance;
    squares += golden[i] * golden[i];
  }
  return !(error <= kMaxSquaredError * squares);
}

/// Compares one row of the file with the numbers that became it.
void check_row(std::span<const float> values, std::span<const CodeReach> reaches,
               std::span<const double> golden, int64_t row, int64_t block_values,
               RoundingCheck* out) {
  int64_t last_bad_block = -1;
  const int64_t first_block = row * (static_cast<int64_t>(values.size()) / block_values);
  double worst_unexplained = -1;
  bool is_foreign = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (const auto length = static_cast<size_t>(block_values); length > 1 && i % length == 0) {
      is_foreign = is_foreign_block(values.subspan(i, length), reaches.subspan(i, length),
                                    golden.subspan(i, length));
    }
    const double error = std::abs(golden[i] - static_cast<double>(values[i]));
    const CodeReach& reach = reaches[i];
    if (error <= static_cast<double>(reach.half_step)) continue;
    if (std::isnan(golden[i]) && std::isnan(values[i])) continue;
    if (golden[i] == static_cast<double>(values[i])) continue;  // infinities
    ++out->beyond_half_step;
    const double steps = error / static_cast<double>(reach.step);
    const bool is_unexplained = is_foreign || !(error <= static_cast<double>(reach.bound));
    if (is_unexplained) {
      const int64_t block = first_block + static_cast<int64_t>(i) / block_values;
      ++out->unexplained;
      out->bad_blocks += block != last_bad_block;
      last_bad_block = block;
      // Not a number is worse than any.
      const double rank = std::isnan(steps) ? INFINITY : steps;
      if (rank > worst_unexplained && (out->worst_block < 0 || rank > out->worst_steps)) {
        worst_unexplained = rank;
        out->worst_block = block;
        out->worst_row = row;
      }
    }
    // Where a scale was rounded to zero there are no steps to count in.
    if (reach.step > 0 || is_unexplained)
      out->worst_steps = std::max(out->worst_steps, std::isnan(steps) ? INFINITY : steps);
  }
  out->value_count += static_cast<int64_t>(values.size());
}

void merge(const RoundingCheck& part, RoundingCheck* out) {
  out->value_count += part.value_count;
  out->beyond_half_step += part.beyond_half_step;
  out->unexplained += part.unexplained;
  out->bad_blocks += part.bad_blocks;
  if (part.worst_block >= 0 && (out->worst_block < 0 || part.worst_steps > out->worst_steps)) {
    out->worst_block = part.worst_block;
    out->worst_row = part.worst_row;
  }
  out->worst_steps = std::max(out->worst_steps, part.worst_steps);
}

double cosine(const TensorView& a, const TensorView& b) {
  constexpr int64_t kBlock = 1 << 14;
  std::vector<double> left(kBlock);
  std::vector<double> right(kBlock);
  double product = 0;
  double left_square = 0;
  double right_square = 0;
  for (int64_t first = 0; first < a.element_count(); first += kBlock) {
    const auto count = static_cast<size_t>(std::min(kBlock, a.element_count() - first));
    read_values(a, first, static_cast<int64_t>(count), std::span(left).first(count));
    read_values(b, first, static_cast<int64_t>(count), std::span(right).first(count));
    for (size_t i = 0; i < count; ++i) {
      product += left[i] * right[i];
      left_square += left[i] * left[i];
      right_square += right[i] * right[i];
    }
  }
  return product / std::sqrt(left_square * right_square);
}

std::string short_text(double value) {
  std::array<char, 32> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.3g", value);
  return buffer.data();
}

std::string of_text(int64_t count, int64_t total) {
  return std::to_string(count) + " of " + std::to_string(total);
}

}  // namespace

std::string GgufWeight::note() const {
  std::string out = name;
  if (rope_heads > 0)
    out += ", rows brought back from rope's order (" + std::to_string(rope_heads) + " heads)";
  if (fused_heads > 0)
    out += ", Q, K and V put together for each of " + std::to_string(fused_heads) + " heads";
  if (plus_one) out += ", stored plus 1";
  return out;
}

void take_experts_apart(run::Run* gguf, run::Run* other) {
  // Of one expert, by layer: how the checkpoint's matrices lie if they are to be the same.
  std::map<int64_t, Dims> up_shapes;
  take_apart_all(gguf, [&](const TensorRecord& record) -> std::vector<std::string> {
    constexpr std::string_view kStacked = "_exps.weight";
    const auto layer = layer_of(record.node);
    if (!layer || !record.node.ends_with(kStacked)) return {};
    const std::string stem = record.node.substr(0, record.node.size() - kStacked.size());
    if (stem.ends_with(".ffn_gate_up")) {
      const std::string block = stem.substr(0, stem.rfind('.'));
      if (record.shape && record.shape->size() == 3)
        up_shapes[*layer] = Dims{(*record.shape)[1] / 2, (*record.shape)[2]};
      return {block + ".ffn_gate.#.weight", block + ".ffn_up.#.weight"};
    }
    if (stem.ends_with(".ffn_up") && record.shape && record.shape->size() == 3)
      up_shapes[*layer] = Dims{(*record.shape)[1], (*record.shape)[2]};
    return {stem + ".#.weight"};
  });
  take_apart_all(other, [&](const TensorRecord& record) -> std::vector<std::string> {
    constexpr std::string_view kFused = ".experts.gate_up_proj";
    constexpr std::string_view kDown = ".experts.down_proj";
    const bool is_fused = record.node.ends_with(kFused);
    if ((!is_fused && !record.node.ends_with(kDown)) || !record.shape || record.shape->size() != 3)
      return {};
    const auto up = up_shapes.find(checkpoint_layer(record.node));
    const Dims& shape = *record.shape;
    // Some families have the axes in the other order, and gate and up in turn: those are left as
    // they are.
    if (up == up_shapes.end() || (is_fused && Dims{shape[1] / 2, shape[2]} != up->second) ||
        (!is_fused && Dims{shape[2], shape[1]} != up->second))
      return {};
    const std::string experts = record.node.substr(0, record.node.rfind('.'));
    if (!is_fused) return {experts + ".#.down_proj.weight"};
    return {experts + ".#.gate_proj.weight", experts + ".#.up_proj.weight"};
  });
}

GgufSide as_checkpoint(const run::Run& gguf, const run::Run& other) {
  GgufSide out;
  out.run = gguf;
  const auto known = endings_of(other);
  const auto with_ones = shapes_with_ones(other);
  const std::string architecture = architecture_of(gguf);
  for (size_t i = 0; i < out.run.records.size(); ++i) {
    TensorRecord& record = out.run.records[i];
    const auto parameter = checkpoint_name(record.node, known);
    if (!parameter) continue;
    GgufWeight weight;
    weight.name = record.node;
    const auto table = pair::gguf_name_of(*parameter);
    if (table && table->heads != pair::Heads::None) {
      const int64_t layer = layer_of(record.node).value_or(-1);
      const std::string key = architecture + ".attention.head_count";
      const int64_t query_heads = layer_number(gguf, key, layer);
      const int64_t key_heads = layer_number(gguf, key + "_kv", layer);
      weight.heads =
          table->heads == pair::Heads::Queries || key_heads == 0 ? query_heads : key_heads;
      if (reorders_heads(architecture)) weight.rope_heads = weight.heads;
    }
    // GPT-NeoX has Q, K and V of a head beside each other, the file all of Q first.
    if (parameter->find(".query_key_value.") != std::string::npos)
      weight.fused_heads = layer_number(gguf, architecture + ".attention.head_count", -1);
    weight.plus_one = stores_norms_plus_one(architecture) && record.node.ends_with("norm.weight");
    record.node = *parameter;
    const auto shape = with_ones.find(record.node);
    if (shape != with_ones.end() && record.shape &&
        without_ones(*record.shape) == without_ones(shape->second)) {
      record.shape = shape->second;
      record.strides.reset();
    }
    out.weights.emplace(i, std::move(weight));
  }
  return out;
}

Result<Tensor> in_checkpoint_order(Tensor tensor, const GgufWeight& weight) {
  if (weight.rope_heads <= 0 && weight.fused_heads <= 0 && !weight.plus_one) return tensor;
  const TensorView& view = tensor.view;
  ASSAY_TRY_STATUS(check_heads(weight, view.shape));
  const auto count = static_cast<size_t>(view.element_count());
  const auto rows = static_cast<size_t>(row_count(view.shape));
  if (rows == 0 || count == 0) return tensor;
  const auto size = count / rows * info(view.dtype).element_bits / 8;
  if (weight.plus_one) {
    const auto values = std::make_shared<std::vector<double>>(count);
    read_values(view, 0, static_cast<int64_t>(count), *values);
    for (double& value : *values) value -= 1;
    ASSAY_TRY(const TensorView out, make_view(DType::Float64, view.shape,
                                              std::as_bytes(std::span<const double>(*values))));
    return Tensor{out, values};
  }
  const ByteSpan bytes = view.contiguous_bytes();
  const auto ordered = std::make_shared<std::vector<std::byte>>(bytes.size());
  for (size_t row = 0; row < rows; ++row) {
    const auto from = static_cast<size_t>(
        file_row(weight, static_cast<int64_t>(rows), static_cast<int64_t>(row)));
    std::memcpy(ordered->data() + row * size, bytes.data() + from * size, size);
  }
  ASSAY_TRY(const TensorView out, make_view(view.dtype, view.shape, *ordered));
  return Tensor{out, ordered};
}

Result<std::optional<std::string>> other_order(const Tensor& stored, const GgufWeight& weight,
                                               const TensorView& golden) {
  constexpr double kFits = 0.98;  // cosine; two bits a value give 0.97
  GgufWeight other = weight;
  other.rope_heads = weight.rope_heads > 0 ? 0 : weight.heads;
  if (weight.heads <= 0 || stored.view.shape != golden.shape || !check_heads(other, golden.shape))
    return std::optional<std::string>();
  ASSAY_TRY(const Tensor ordered, in_checkpoint_order(stored, other));
  if (!(cosine(ordered.view, golden) >= kFits)) return std::optional<std::string>();
  return std::optional<std::string>(
      weight.rope_heads > 0
          ? "the rows fit golden as they stand in the file: the converter did not put them into "
            "rope's order"
          : "the rows fit golden when they are brought back from rope's order, which this "
            "architecture does not have");
}

std::string RoundingCheck::text() const {
  std::string out = type + ", ";
  if (unexplained > 0) {
    out += of_text(unexplained, value_count) + " values unexplained in " +
           std::to_string(bad_blocks) + (bad_blocks == 1 ? " block" : " blocks") +
           "; worst: block " + std::to_string(worst_block) + " (row " + std::to_string(worst_row) +
           "), " + short_text(worst_steps) + " steps";
  } else if (beyond_half_step > 0) {
    out += "within rounding (" + of_text(beyond_half_step, value_count) +
           " beyond half a step, at most " + short_text(worst_steps) + " steps)";
  } else {
    out += "within half a step";
  }
  return out;
}

Result<std::optional<RoundingCheck>> check_rounding(const TensorRecord& record,
                                                    const GgufWeight& weight,
                                                    const TensorView& golden, int jobs) {
  if (!record.shape || *record.shape != golden.shape || !is_float(golden.dtype) || weight.plus_one)
    return std::optional<RoundingCheck>();
  ASSAY_TRY(const std::optional<FileRows> file, FileRows::open(record, golden.dtype));
  if (!file) return std::optional<RoundingCheck>();
  ASSAY_TRY_STATUS(check_heads(weight, golden.shape));
  const int64_t rows = row_count(golden.shape);
  const auto width = rows == 0 ? 0 : static_cast<size_t>(golden.element_count() / rows);
  constexpr int64_t kChunkRows = 64;
  const auto chunks = static_cast<size_t>((rows + kChunkRows - 1) / kChunkRows);
  std::vector<Result<RoundingCheck>> parts(chunks, RoundingCheck{});
  parallel_for(chunks, resolve_job_count(jobs), [&](size_t chunk) {
    std::vector<float> values(width);
    std::vector<CodeReach> reaches(width);
    std::vector<double> numbers(width);
    const int64_t first = static_cast<int64_t>(chunk) * kChunkRows;
    for (int64_t row = first; row < std::min(first + kChunkRows, rows); ++row) {
      const int64_t stored = file_row(weight, rows, row);
      if (const Status read = file->read(stored, values, reaches); !read) {
        parts[chunk] = fail(read.error());
        return;
      }
      read_values(golden, row * static_cast<int64_t>(width), static_cast<int64_t>(width), numbers);
      check_row(values, reaches, numbers, stored, file->block_values(), &*parts[chunk]);
    }
  });
  RoundingCheck out;
  out.type = file->type();
  for (const Result<RoundingCheck>& part : parts) {
    if (!part) return fail(part.error());
    merge(*part, &out);
  }
  return std::optional<RoundingCheck>(std::move(out));
}

}  // namespace assay::compare

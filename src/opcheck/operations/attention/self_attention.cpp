// SPDX-License-Identifier: Apache-2.0
// SelfAttention: with contiguous caches, without a cache (PA_ENCODER), or behind a cached prefix.
//   docs/opcheck/attention.md
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "opcheck/operations/attention/evaluate.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using attention::BlockCache;
using attention::InputList;
using attention::Mask;
using attention::Prepared;
using attention::read_choice;
using reference::Attention;
using reference::AttentionSequence;
using reference::ScoreBias;

enum class CalcType : int64_t { Fused, Encoder, Decoder, PaEncoder, PrefixEncoder };
enum MaskType : int64_t {
  kNone,
  kNorm,
  kAlibi,
  kNormCompress,
  kAlibiCompress,
  kAlibiCompressSqrt,
  kAlibiCompressLeft,
  kWindowNorm,
  kWindowCompress,
  kCausal,
};
constexpr const char* kMaskNames[] = {"no mask",
                                      "NORM mask",
                                      "ALIBI mask",
                                      "NORM_COMPRESS mask",
                                      "ALIBI_COMPRESS mask",
                                      "ALIBI_COMPRESS_SQRT mask",
                                      "ALIBI_COMPRESS_LEFT_ALIGN mask",
                                      "SLIDING_WINDOW_NORM mask",
                                      "SLIDING_WINDOW_COMPRESS mask",
                                      "CAUSAL mask"};
constexpr const char* kModeNames[] = {"fused", "fused encoder", "fused decoder", "PA_ENCODER",
                                      "PREFIX_ENCODER"};
// Masks of fp16 models hold this value at forbidden places.
constexpr double kForbidden = -10000.0;

struct Settings {
  attention::Heads heads;
  CalcType calc_type = CalcType::Fused;
  int64_t mask_type = 0, quant_type = 0, value_size = 0, window = 0;
  double query_scale = 1, scale = 1, clamp_low = 0, clamp_high = 0;
  bool clamp = false, bypass = false, batch_status = false, logn = false, triangular = false;
  bool heads_first = false;     // inputLayout BNSD
  bool high_precision = false;  // kernelType 1
  bool ring_cache = false;      // cacheType SWA

  [[nodiscard]] bool is_fused() const { return calc_type <= CalcType::Decoder; }
  [[nodiscard]] bool is_alibi() const {
    return mask_type == kAlibi || (mask_type >= kAlibiCompress && mask_type <= kAlibiCompressLeft);
  }
  [[nodiscard]] bool is_compressed_alibi() const {
    return mask_type >= kAlibiCompress && mask_type <= kAlibiCompressLeft;
  }
};

Status read_modes(const Parameters& parameters, Settings* settings) {
  ASSAY_TRY(int64_t calc_type, read_choice(parameters, "calcType|coderType", 4));
  ASSAY_TRY(const bool is_encoder, parameters.boolean("isEncoder", false));
  if (is_encoder && !parameters.has("calcType|coderType")) calc_type = 3;
  settings->calc_type = static_cast<CalcType>(calc_type);
  ASSAY_TRY(settings->mask_type, read_choice(parameters, "maskType", kCausal));
  ASSAY_TRY(const bool is_alibi, parameters.boolean("isSupportAlibi", false));
  if (is_alibi && !parameters.has("maskType")) settings->mask_type = kAlibi;
  ASSAY_TRY(settings->quant_type, read_choice(parameters, "quantType", 3));
  ASSAY_TRY(const int64_t clamp_type, read_choice(parameters, "clampType|isClamp", 1));
  ASSAY_TRY(const int64_t bypass, read_choice(parameters, "kvcacheCfg", 1));
  ASSAY_TRY(const int64_t layout, read_choice(parameters, "inputLayout", 1));
  ASSAY_TRY(const int64_t kernel, read_choice(parameters, "kernelType|isFp32", 2));
  ASSAY_TRY(const int64_t scale_type, read_choice(parameters, "scaleType", 1));
  ASSAY_TRY(const int64_t cache_type, read_choice(parameters, "cacheType", 1));
  ASSAY_TRY(const int64_t triangular, read_choice(parameters, "isTriuMask", 1));
  settings->clamp = clamp_type == 1;
  settings->bypass = bypass == 1 && settings->is_fused();
  settings->heads_first = layout == 1;
  settings->high_precision = kernel == 1;
  settings->logn = scale_type == 1;
  settings->ring_cache = cache_type == 1;
  settings->triangular = triangular == 1;
  return {};
}

Result<Settings> read_settings(const Parameters& parameters) {
  Settings settings;
  ASSAY_TRY(settings.heads, attention::read_heads(parameters));
  ASSAY_TRY_STATUS(read_modes(parameters, &settings));
  ASSAY_TRY(settings.query_scale, parameters.number("qScale", 1.0));
  ASSAY_TRY(settings.scale, parameters.number("qkScale", 1.0));
  ASSAY_TRY(settings.clamp_low, parameters.number("clampMin", 0.0));
  ASSAY_TRY(settings.clamp_high, parameters.number("clampMax", 0.0));
  ASSAY_TRY(settings.batch_status, parameters.boolean("batchRunStatusEnable", false));
  ASSAY_TRY(settings.value_size, parameters.integer("mlaVHeadSize", 0));
  ASSAY_TRY(settings.window, parameters.integer("windowSize", 0));
  if (settings.clamp && !(settings.clamp_low <= settings.clamp_high))
    return fail(Errc::Invalid, "clampMin is above clampMax");
  if (settings.value_size < 0 || settings.window < 0 || settings.window > INT32_MAX)
    return fail(Errc::Invalid, "a negative or huge mlaVHeadSize or windowSize");
  if (settings.quant_type == 1)
    return fail(Errc::Unsupported, "quantType 1 is reserved in the library");
  if (settings.quant_type != 0 && settings.calc_type != CalcType::PaEncoder)
    return fail(Errc::Unsupported, "quantType goes with calcType PA_ENCODER only");
  if (settings.value_size > 0 && settings.calc_type != CalcType::PaEncoder)
    return fail(Errc::Unsupported, "mlaVHeadSize goes with calcType PA_ENCODER only");
  if (settings.heads_first && settings.calc_type == CalcType::PrefixEncoder)
    return fail(Errc::Unsupported, "inputLayout BNSD has no PREFIX_ENCODER");
  if (settings.mask_type == kWindowCompress && settings.window == 0)
    return fail(Errc::Invalid, "maskType SLIDING_WINDOW_COMPRESS needs a windowSize");
  if (settings.mask_type == kCausal && settings.is_fused())
    return fail(Errc::Unsupported, "maskType CAUSAL goes without caches only");
  return settings;
}

std::string variant_of(const Settings& settings) {
  std::string text = kModeNames[static_cast<size_t>(settings.calc_type)];
  if (settings.bypass) text += " bypass";
  text += std::string(", ") + kMaskNames[settings.mask_type];
  if (settings.heads.kv != settings.heads.query) text += ", GQA";
  if (settings.heads_first) text += ", BNSD";
  if (settings.clamp) text += ", clamp";
  if (settings.quant_type == 2) text += ", int8 offline";
  if (settings.quant_type == 3) text += ", int8 online";
  if (settings.value_size > 0) text += ", values inside keys";
  if (settings.logn) text += ", logN";
  return text;
}

/// The inputs by what they are.
struct Inputs {
  InputList::Input query, keys, values, key_cache, value_cache;
  std::optional<InputList::Input> mask;
  std::optional<Tensor> table, offsets, lengths, kv_lengths, layer, status, slopes, logn;
  std::optional<Tensor> qk_scale, v_scale, p_scale;
};

Status read_tensor(InputList* list, std::string_view name, std::optional<Tensor>* out) {
  ASSAY_TRY(InputList::Input input, list->next(name));
  *out = std::move(input.tensor);
  return {};
}

Status read_data(const Settings& settings, InputList* list, Inputs* inputs) {
  ASSAY_TRY(inputs->query, list->next("query"));
  if (settings.calc_type == CalcType::PrefixEncoder || settings.bypass) {
    ASSAY_TRY(inputs->key_cache, list->next("cacheK"));
    ASSAY_TRY(inputs->value_cache, list->next("cacheV"));
    if (settings.calc_type == CalcType::PrefixEncoder)
      return read_tensor(list, "blockTables", &inputs->table);
    return {};
  }
  ASSAY_TRY(inputs->keys, list->next("key"));
  if (settings.value_size == 0) {
    ASSAY_TRY(inputs->values, list->next("value"));
  }
  if (settings.is_fused()) {
    ASSAY_TRY(inputs->key_cache, list->next("cacheK"));
    ASSAY_TRY(inputs->value_cache, list->next("cacheV"));
  }
  return {};
}

Result<Inputs> read_inputs(const Case& one, const Settings& settings) {
  InputList list(*one.operands);
  Inputs inputs;
  ASSAY_TRY_STATUS(read_data(settings, &list, &inputs));
  // What follows the mask is known, so the count tells whether a mask and slopes are there.
  size_t following = settings.is_fused()                             ? 3
                     : settings.calc_type == CalcType::PrefixEncoder ? 2
                                                                     : 1;
  following += settings.is_fused() && settings.batch_status ? 1 : 0;
  following += settings.logn ? 1 : 0;
  following += settings.quant_type == 0 ? 0 : settings.quant_type == 2 ? 5 : 4;
  bool has_mask = settings.mask_type != kNone && settings.mask_type != kCausal;
  if (settings.mask_type == kNone && settings.is_fused() && list.left() == following + 1)
    has_mask = true;  // old models pass one of zeros
  if (settings.mask_type >= kWindowNorm && settings.mask_type <= kWindowCompress &&
      list.left() == following)
    has_mask = false;  // decoders of a ring cache need none
  if (has_mask) {
    ASSAY_TRY(inputs.mask, list.next("mask"));
  }
  const bool has_slopes = settings.is_compressed_alibi() && list.left() == following + 1;

  if (settings.is_fused()) {
    ASSAY_TRY_STATUS(read_tensor(&list, "tokenOffset", &inputs.offsets));
    ASSAY_TRY_STATUS(read_tensor(&list, "seqLen", &inputs.lengths));
    ASSAY_TRY_STATUS(read_tensor(&list, "layerId", &inputs.layer));
    if (settings.batch_status)
      ASSAY_TRY_STATUS(read_tensor(&list, "batchRunStatus", &inputs.status));
  } else {
    ASSAY_TRY_STATUS(read_tensor(&list, "seqLen", &inputs.lengths));
    if (settings.calc_type == CalcType::PrefixEncoder)
      ASSAY_TRY_STATUS(read_tensor(&list, "kvSeqLen", &inputs.kv_lengths));
  }
  if (has_slopes) ASSAY_TRY_STATUS(read_tensor(&list, "slopes", &inputs.slopes));
  if (settings.logn) ASSAY_TRY_STATUS(read_tensor(&list, "logN", &inputs.logn));
  if (settings.quant_type != 0) {
    std::optional<Tensor> unused;  // the offsets: quantisation is symmetric
    ASSAY_TRY_STATUS(read_tensor(&list, "qkDescale", &inputs.qk_scale));
    ASSAY_TRY_STATUS(read_tensor(&list, "qkOffset", &unused));
    ASSAY_TRY_STATUS(read_tensor(&list, "vpvDescale", &inputs.v_scale));
    ASSAY_TRY_STATUS(read_tensor(&list, "vpvOffset", &unused));
    if (settings.quant_type == 2) ASSAY_TRY_STATUS(read_tensor(&list, "pScale", &inputs.p_scale));
  }
  ASSAY_TRY_STATUS(list.finish());
  return inputs;
}

// ---- Rows of queries, new keys and new values ---------------------------------------------------

/// Tokens of all sequences behind each other, or [B, heads, S, size] with sequences of their own.
struct Tokens {
  Tensor tensor;  // [tokens, heads, size]; heads_first: as dumped
  bool heads_first = false;

  [[nodiscard]] int64_t size() const { return tensor.view.shape[tensor.view.shape.size() - 1]; }
  [[nodiscard]] int64_t count() const {
    return heads_first ? tensor.view.shape[0] * tensor.view.shape[2] : tensor.view.shape[0];
  }
  /// Rows [first, first + count) of what lies behind each other; of sequence `sequence` when
  /// heads_first, from its start.
  [[nodiscard]] TensorView rows(int64_t sequence, int64_t first, int64_t row_count) const {
    TensorView view = tensor.view;
    if (heads_first) {
      view.offset_elements += sequence * view.strides[0];
      view.shape = {row_count, view.shape[1], view.shape[3]};
      view.strides = {tensor.view.strides[2], tensor.view.strides[1], tensor.view.strides[3]};
    } else {
      view.offset_elements += first * view.strides[0];
      view.shape[0] = row_count;
    }
    return view;
  }
};

Result<Tokens> read_tokens(const Tensor& tensor, int64_t heads, bool heads_first,
                           std::string_view name) {
  if (!heads_first) {
    ASSAY_TRY(Tensor rows, attention::tokens_of(tensor, heads, name));
    return Tokens{std::move(rows), false};
  }
  const Dims& shape = tensor.view.shape;
  if (shape.size() != 4 || shape[1] != heads)
    return fail(Errc::Invalid, name, " has shape ", shape, ", not [batch, ", heads,
                " heads, rows, size]");
  return Tokens{tensor, true};
}

/// Where the rows of each sequence begin, and which sequences take part.
struct Batch {
  std::vector<int64_t> lengths;  // query rows
  std::vector<int64_t> first;    // row of the first, among rows that lie behind each other
  std::vector<bool> runs;
  bool decoder = false;
  /// Rows of padding between sequences, each of `row_elements` elements: nothing says what they
  /// hold.
  std::vector<std::pair<int64_t, int64_t>> padding;  // first row, count
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(lengths.size()); }
};

Result<Batch> read_batch(const Settings& settings, const Inputs& inputs, const Tokens& query) {
  Batch batch;
  ASSAY_TRY(batch.lengths, attention::lengths_of(*inputs.lengths, "seqLen"));
  const int64_t count = batch.size();
  batch.runs.assign(batch.lengths.size(), true);
  if (inputs.status) {
    ASSAY_TRY(const std::vector<int64_t> status,
              attention::lengths_of(*inputs.status, "batchRunStatus"));
    if (status.size() != batch.lengths.size())
      return fail(Errc::Invalid, "batchRunStatus has ", status.size(), " values, seqLen ", count);
    for (size_t b = 0; b < status.size(); ++b) batch.runs[b] = status[b] != 0;
  }
  batch.decoder = settings.calc_type == CalcType::Decoder ||
                  std::all_of(batch.lengths.begin(), batch.lengths.end(),
                              [](int64_t length) { return length == 1; });
  int64_t all = 0;
  int64_t running = 0;
  int64_t longest = 0;
  for (size_t b = 0; b < batch.lengths.size(); ++b) {
    all += batch.lengths[b];
    running += batch.runs[b] ? batch.lengths[b] : 0;
    longest = std::max(longest, batch.lengths[b]);
  }
  const int64_t tokens = query.count();
  const Dims& shape = query.tensor.view.shape;
  // Rows of each sequence in a place of equal size: BNSD, or a padded [B, S, ...].
  const Dims& dumped = inputs.query.tensor.view.shape;
  const int64_t place = query.heads_first ? shape[2] : dumped.size() == 4 ? dumped[1] : 0;
  const bool padded = query.heads_first ? shape[0] == count && longest <= place
                                        : tokens != all && dumped.size() == 4 &&
                                              dumped[0] == count && longest <= place;
  if (padded) {
    for (int64_t b = 0; b < count; ++b) {
      const int64_t length = batch.lengths[static_cast<size_t>(b)];
      batch.first.push_back(b * place);
      if (length < place) batch.padding.emplace_back(b * place + length, place - length);
    }
    return batch;
  }
  if (query.heads_first || (tokens != all && tokens != running))
    return fail(Errc::Invalid, "seqLen adds up to ", all, ", query has ", tokens, " tokens");
  // An encoder may be given the rows of running sequences only.
  const bool skips = tokens != all;
  int64_t first = 0;
  for (size_t b = 0; b < batch.lengths.size(); ++b) {
    batch.first.push_back(first);
    if (batch.runs[b] || !skips) first += batch.lengths[b];
    if (!batch.runs[b] && !skips && !batch.decoder)
      batch.padding.emplace_back(batch.first[b], batch.lengths[b]);
  }
  return batch;
}

// ---- Contiguous caches --------------------------------------------------------------------------

struct CacheLayout {
  int64_t layer = 0, batch = 0, kv_heads = 0, size = 0;
  bool heads_first = false;
};

/// The rows of one sequence in a cache: [max rows, kv heads, size...].
Result<TensorView> cache_rows(const InputList::Input& input, const CacheLayout& layout,
                              int64_t sequence, std::string_view name) {
  TensorView view = input.tensor.view;
  Dims shape = view.shape;
  Dims strides = view.strides;
  const int64_t columns = layout.kv_heads * layout.size;
  const auto refuse = [&](Errc code, const std::string& why) {
    return fail(code, std::string(name) + " has shape " +
                          list_text(input.tensor.view.shape.span()) +
                          (input.is_nz ? " (FRACTAL_NZ)" : "") + why);
  };
  // In front of what belongs to a sequence there may be a dimension of layers.
  const size_t own = input.is_nz ? 4 : layout.heads_first ? 4 : 3;
  const bool split_heads = !input.is_nz && !layout.heads_first && shape.size() >= 4 &&
                           shape[shape.size() - 2] == layout.kv_heads &&
                           shape[shape.size() - 1] == layout.size &&
                           shape[shape.size() - 1] != columns;
  const size_t rank = own + (split_heads ? 1 : 0);
  int64_t first = 0;
  const auto drop_front = [&](int64_t index) {
    first += index * strides[0];
    shape = Dims(shape.span().subspan(1));
    strides = Dims(strides.span().subspan(1));
  };
  if (shape.size() == rank + 1) {
    if (layout.layer >= shape[0])
      return refuse(Errc::Invalid, ", layerId is " + std::to_string(layout.layer));
    drop_front(layout.layer);
  } else if (shape.size() == rank && shape[0] != layout.batch && layout.layer < shape[0] &&
             layout.batch > 0 && shape[1] % layout.batch == 0 && rank == 3) {
    // [layers, batch * max rows, columns]
    drop_front(layout.layer);
    const int64_t rows = shape[0] / layout.batch;
    shape = {layout.batch, rows, shape[1]};
    strides = {rows * strides[0], strides[0], strides[1]};
  }
  if (shape.size() != rank) return refuse(Errc::Invalid, ", which is no cache of contiguous rows");
  const auto place = [&](Dims new_shape, Dims new_strides) {
    view.offset_elements += first;
    view.shape = std::move(new_shape);
    view.strides = std::move(new_strides);
    return view;
  };
  if (input.is_nz) {
    const int64_t width = shape[3];
    if (width <= 0 || layout.size % width != 0)
      return refuse(Errc::Unsupported,
                    ": heads of " + std::to_string(layout.size) + " columns share blocks");
    const int64_t blocks = layout.size / width;
    const bool by_heads =
        layout.heads_first && shape[0] == layout.batch * layout.kv_heads && shape[1] == blocks;
    if (by_heads) {
      first += sequence * layout.kv_heads * strides[0];
      return place({shape[2], layout.kv_heads, blocks, width},
                   {strides[2], strides[0], strides[1], strides[3]});
    }
    if (shape[0] != layout.batch || shape[1] != layout.kv_heads * blocks)
      return refuse(Errc::Invalid, " for " + std::to_string(layout.batch) + " sequences of " +
                                       std::to_string(columns) + " columns");
    first += sequence * strides[0];
    return place({shape[2], layout.kv_heads, blocks, width},
                 {strides[2], blocks * strides[1], strides[1], strides[3]});
  }
  if (shape[0] != layout.batch)
    return refuse(Errc::Invalid, " for " + std::to_string(layout.batch) + " sequences");
  first += sequence * strides[0];
  if (layout.heads_first) {
    if (shape[1] != layout.kv_heads || shape[3] != layout.size)
      return refuse(Errc::Invalid, ", not [layers, batch, " + std::to_string(layout.kv_heads) +
                                       " kv heads, rows, " + std::to_string(layout.size) + "]");
    return place({shape[2], shape[1], shape[3]}, {strides[2], strides[1], strides[3]});
  }
  if (split_heads)
    return place({shape[1], shape[2], shape[3]}, {strides[1], strides[2], strides[3]});
  if (shape[2] != columns)
    return refuse(Errc::Invalid, "; rows have " + std::to_string(columns) + " columns");
  return place({shape[1], layout.kv_heads, layout.size},
               {strides[1], layout.size * strides[2], strides[2]});
}

/// The first `count` rows, as a list of one part.
Result<std::vector<TensorView>> first_rows(TensorView view, int64_t count, std::string_view name) {
  if (count > view.shape[0])
    return fail(Errc::Invalid, name, " holds ", view.shape[0], " rows a sequence, ", count,
                " are asked for");
  view.shape[0] = count;
  return std::vector<TensorView>{std::move(view)};
}

// ---- Masks --------------------------------------------------------------------------------------

/// What the mask tensor of the operation says, read once.
struct MaskData {
  std::optional<Mask> dense;
  double forbidden = -INFINITY;  // of generated triangles
  std::vector<double> slopes;    // signed as they are added
  bool column_blocks = false;    // compressed ALiBi [heads, s, 128]
  bool triangle_from_rule = false;
};

Result<MaskData> read_mask_data(const Settings& settings, const Inputs& inputs, int64_t batch) {
  MaskData data;
  const int64_t heads = settings.heads.query;
  const DType query_type = inputs.query.tensor.view.dtype;
  const bool may_scale = !settings.is_alibi() && !settings.high_precision;
  const bool by_rule = settings.mask_type == kWindowCompress || settings.mask_type == kCausal ||
                       (settings.mask_type == kWindowNorm && settings.window > 0);
  if (!inputs.mask || by_rule) return data;
  const Tensor& tensor = inputs.mask->tensor;
  const double coefficient = may_scale ? attention::mask_coefficient(tensor.view, query_type) : 1.0;

  if (settings.is_compressed_alibi()) {
    const Dims& shape = tensor.view.shape;
    const bool square = !inputs.mask->is_nz ? shape.size() == 2 && shape[0] == shape[1]
                                            : element_count(shape).value_or(0) == 256 * 256;
    if (square || inputs.slopes) {
      if (inputs.slopes) {
        ASSAY_TRY(data.slopes, attention::scales_of(*inputs.slopes, "slopes", heads));
      } else {
        data.slopes = reference::alibi_slopes(heads);
        if (settings.mask_type != kAlibiCompressLeft)
          for (double& slope : data.slopes) slope = -slope;
      }
      data.triangle_from_rule = true;
      return data;
    }
    data.column_blocks = true;
  }
  ASSAY_TRY(data.dense, attention::read_mask(*inputs.mask, batch, heads, settings.is_alibi()));
  data.dense->coefficient = coefficient;
  if (settings.mask_type == kNormCompress) {
    // A small triangle stands for one of any size: its corner says what is forbidden.
    if (data.dense->rows() < 1 || data.dense->columns() < 2)
      return fail(Errc::Invalid, "mask has shape ", tensor.view.shape,
                  "; a compressed triangle has two columns at least");
    TensorView corner = data.dense->tensor.view;
    corner.offset_elements += corner.strides[3];
    corner.shape = {1};
    corner.strides = {1};
    ASSAY_TRY(const reference::Wide value, reference::widen(corner));
    data.forbidden = value.values[0] * coefficient;
    data.dense.reset();
    data.triangle_from_rule = true;
  }
  return data;
}

Result<ScoreBias> bias_of(const Settings& settings, const MaskData& data, int64_t sequence,
                          int64_t rows, int64_t columns) {
  ScoreBias bias;
  bias.offset = columns - rows;
  bias.forbidden = data.forbidden;
  bias.slopes = data.slopes;
  if (settings.mask_type == kAlibiCompressSqrt) bias.distance = ScoreBias::Distance::SquareRoot;
  if (settings.mask_type == kAlibiCompressLeft) bias.distance = ScoreBias::Distance::Column;
  bias.causal = data.triangle_from_rule || settings.mask_type == kCausal ||
                (settings.mask_type == kNone && settings.triangular);
  if (settings.window > 0 &&
      (settings.mask_type == kWindowNorm || settings.mask_type == kWindowCompress)) {
    bias.causal = true;
    bias.window = settings.window;
  }
  if (!data.dense) return bias;
  bias.coefficient = data.dense->coefficient;
  if (data.column_blocks) bias.block_columns = data.dense->columns();
  const bool at_end =
      settings.calc_type == CalcType::PrefixEncoder && data.dense->rows() >= columns;
  if (settings.mask_type == kNorm && rows > data.dense->rows()) {
    // A triangle of 128 rows stands for one of the length of the prompt.
    bias.causal = true;
    bias.forbidden = kForbidden;
    return bias;
  }
  bias.dense = data.dense->of_sequence(sequence, at_end ? std::max<int64_t>(columns - rows, 0) : 0);
  return bias;
}

// ---- Sequences ----------------------------------------------------------------------------------

struct Data {
  Tokens query;
  std::optional<Tokens> keys, values;
  CacheLayout key_layout, value_layout;
  std::optional<BlockCache> key_blocks, value_blocks;
  reference::Whole table;
};

Result<int64_t> layer_of(const Inputs& inputs) {
  if (!inputs.layer) return 0;
  ASSAY_TRY(const std::vector<int64_t> layers, attention::lengths_of(*inputs.layer, "layerId"));
  if (layers.empty()) return fail(Errc::Invalid, "layerId is empty");
  return layers[0];
}

/// Columns of a value head in a cache of contiguous rows, where no value tensor tells it.
Result<int64_t> cached_size(const InputList::Input& input, const Settings& settings) {
  const Dims& shape = input.tensor.view.shape;
  const size_t rank = shape.size();
  if (rank < 3) return fail(Errc::Invalid, "cacheV has shape ", shape);
  if (settings.heads_first)
    return input.is_nz ? shape[rank - 3] * shape[rank - 1] : shape[rank - 1];
  const int64_t kv = settings.heads.kv;
  if (input.is_nz) return shape[rank - 3] * shape[rank - 1] / kv;
  return rank == 5 ? shape[4] : shape[rank - 1] / kv;
}

/// Reads queries, keys, values and caches and fills in the sizes of the attention.
Result<Data> read_operands(const Settings& settings, const Inputs& inputs, Attention* out) {
  Data operands;
  ASSAY_TRY(operands.query,
            read_tokens(inputs.query.tensor, settings.heads.query, settings.heads_first, "query"));
  out->heads = settings.heads.query;
  out->kv_heads = settings.heads.kv;
  out->head_size = operands.query.size();
  out->owners.push_back(operands.query.tensor);
  if (settings.calc_type == CalcType::PrefixEncoder) {
    ASSAY_TRY(operands.key_blocks,
              attention::read_block_cache(inputs.key_cache, settings.heads.kv, "cacheK"));
    ASSAY_TRY(operands.value_blocks,
              attention::read_block_cache(inputs.value_cache, settings.heads.kv, "cacheV"));
    ASSAY_TRY(operands.table, reference::whole(inputs.table->view));
    out->value_size = operands.value_blocks->size;
    out->owners.push_back(operands.key_blocks->tensor);
    out->owners.push_back(operands.value_blocks->tensor);
    return operands;
  }
  if (!settings.bypass) {
    ASSAY_TRY(operands.keys,
              read_tokens(inputs.keys.tensor, settings.heads.kv, settings.heads_first, "key"));
    out->owners.push_back(operands.keys->tensor);
    if (settings.value_size > 0) {
      // Multi-head latent attention: the values are the first columns of the keys.
      Tokens values = *operands.keys;
      const size_t last = values.tensor.view.shape.size() - 1;
      if (settings.value_size > values.tensor.view.shape[last])
        return fail(Errc::Invalid, "mlaVHeadSize ", settings.value_size, " exceeds the ",
                    values.size(), " columns of a key");
      values.tensor.view.shape[last] = settings.value_size;
      operands.values = std::move(values);
    } else {
      ASSAY_TRY(operands.values, read_tokens(inputs.values.tensor, settings.heads.kv,
                                             settings.heads_first, "value"));
    }
    out->owners.push_back(operands.values->tensor);
    out->value_size = operands.values->size();
    if (operands.keys->count() != operands.query.count() ||
        operands.values->count() != operands.keys->count())
      return fail(Errc::Invalid, "query has ", operands.query.count(), " tokens, key ",
                  operands.keys->count(), ", value ", operands.values->count());
  } else {
    ASSAY_TRY(out->value_size, cached_size(inputs.value_cache, settings));
  }
  if (settings.is_fused()) {
    ASSAY_TRY(const int64_t layer, layer_of(inputs));
    operands.key_layout = {layer, 0, settings.heads.kv, out->head_size, settings.heads_first};
    operands.value_layout = {layer, 0, settings.heads.kv, out->value_size, settings.heads_first};
    out->owners.push_back(inputs.key_cache.tensor);
    out->owners.push_back(inputs.value_cache.tensor);
  }
  return operands;
}

/// Keys and values of one sequence. `length` new rows, `total` rows altogether.
Status add_keys(const Settings& settings, const Inputs& inputs, const Data& operands,
                const Batch& batch, int64_t sequence, int64_t total, AttentionSequence* out) {
  const auto index = static_cast<size_t>(sequence);
  if (operands.key_blocks) {
    if (operands.table.shape.size() != 2 || operands.table.shape[0] != batch.size())
      return fail(Errc::Invalid, "blockTables has shape ", operands.table.shape, ", seqLen ",
                  batch.size(), " values");
    ASSAY_TRY(out->keys,
              attention::gather_blocks(*operands.key_blocks, operands.table, sequence, total));
    ASSAY_TRY(out->values,
              attention::gather_blocks(*operands.value_blocks, operands.table, sequence, total));
    return {};
  }
  const int64_t length = batch.lengths[index];
  if (settings.is_fused()) {
    CacheLayout keys = operands.key_layout;
    CacheLayout values = operands.value_layout;
    keys.batch = values.batch = batch.size();
    const int64_t past = settings.bypass ? total : total - length;
    if (past > 0) {
      ASSAY_TRY(TensorView key_rows, cache_rows(inputs.key_cache, keys, sequence, "cacheK"));
      ASSAY_TRY(TensorView value_rows, cache_rows(inputs.value_cache, values, sequence, "cacheV"));
      ASSAY_TRY(out->keys, first_rows(std::move(key_rows), past, "cacheK"));
      ASSAY_TRY(out->values, first_rows(std::move(value_rows), past, "cacheV"));
    }
    if (settings.bypass) return {};
  }
  out->keys.push_back(operands.keys->rows(sequence, batch.first[index], length));
  out->values.push_back(operands.values->rows(sequence, batch.first[index], length));
  return {};
}

/// Keys of each sequence, new ones included.
Result<std::vector<int64_t>> key_counts(const Settings& settings, const Inputs& inputs,
                                        const Batch& batch) {
  if (settings.calc_type == CalcType::PaEncoder) return batch.lengths;
  const bool prefix = settings.calc_type == CalcType::PrefixEncoder;
  const char* name = prefix ? "kvSeqLen" : "tokenOffset";
  ASSAY_TRY(std::vector<int64_t> totals,
            attention::lengths_of(prefix ? *inputs.kv_lengths : *inputs.offsets, name));
  if (totals.size() != batch.lengths.size())
    return fail(Errc::Invalid, name, " has ", totals.size(), " values, seqLen ", batch.size());
  for (size_t b = 0; b < totals.size(); ++b) {
    if (batch.runs[b] && totals[b] < batch.lengths[b])
      return fail(Errc::Invalid, "sequence ", b, " has ", batch.lengths[b], " new tokens, but ",
                  name, " ", totals[b]);
    // A ring holds the last windowSize rows; the softmax does not mind their order.
    if (settings.ring_cache && settings.window > 0 && totals[b] > settings.window) {
      if (!settings.bypass)
        return fail(Errc::Unsupported, "where a ring cache puts its new rows is not public");
      totals[b] = settings.window;
    }
  }
  return totals;
}

Result<std::vector<double>> row_scales(const Settings& settings, const std::vector<double>& logn,
                                       bool decoder, int64_t sequence, int64_t rows) {
  if (!settings.logn) return std::vector<double>();
  const auto count = static_cast<int64_t>(logn.size());
  if (decoder ? sequence >= count : rows > count)
    return fail(Errc::Invalid, "logN has ", count, " values, sequence ", sequence, " has ", rows,
                " rows");
  if (decoder)
    return std::vector<double>(static_cast<size_t>(rows), logn[static_cast<size_t>(sequence)]);
  return std::vector<double>(logn.begin(), logn.begin() + rows);
}

/// The shape and strides of the output: as the query, with heads of value_size.
void place_output(const Tokens& query, const Batch& batch, const Inputs& inputs,
                  Prepared* prepared) {
  Attention& out = prepared->attention;
  const int64_t dv = out.value_size;
  const Dims& dumped = inputs.query.tensor.view.shape;
  if (query.heads_first) {
    const int64_t rows = dumped[2];
    out.output_shape = {dumped[0], out.heads, rows, dv};
    out.output_row_stride = dv;
    out.output_head_stride = rows * dv;
    for (const auto& [first, count] : batch.padding) {
      const int64_t sequence = first / rows;
      for (int64_t h = 0; h < out.heads; ++h)
        prepared->unjudged.emplace_back(((sequence * out.heads + h) * rows + first % rows) * dv,
                                        count * dv);
    }
    return;
  }
  const bool joined = dumped.size() == 2 || (dumped.size() == 3 && dumped[1] != out.heads);
  out.output_shape = dumped;
  out.output_shape[dumped.size() - 1] = joined ? out.heads * dv : dv;
  out.output_row_stride = out.heads * dv;
  out.output_head_stride = dv;
  for (const auto& [first, count] : batch.padding)
    prepared->unjudged.emplace_back(first * out.output_row_stride, count * out.output_row_stride);
}

Status add_sequences(const Settings& settings, const Inputs& inputs, const Data& operands,
                     const Batch& batch, Prepared* prepared) {
  Attention& out = prepared->attention;
  ASSAY_TRY(const MaskData mask, read_mask_data(settings, inputs, batch.size()));
  if (mask.dense) out.owners.push_back(mask.dense->tensor);
  ASSAY_TRY(const std::vector<int64_t> totals, key_counts(settings, inputs, batch));
  std::vector<double> logn;
  if (inputs.logn) {
    ASSAY_TRY(logn, attention::scales_of(*inputs.logn, "logN", inputs.logn->view.element_count()));
  }
  for (int64_t b = 0; b < batch.size(); ++b) {
    const auto index = static_cast<size_t>(b);
    const int64_t length = batch.lengths[index];
    if (!batch.runs[index] || length == 0) continue;
    AttentionSequence sequence;
    sequence.query = operands.query.rows(b, batch.first[index], length);
    ASSAY_TRY_STATUS(add_keys(settings, inputs, operands, batch, b, totals[index], &sequence));
    ASSAY_TRY(sequence.bias, bias_of(settings, mask, b, length, totals[index]));
    if (settings.ring_cache && sequence.bias.window > 0)
      sequence.bias.window = 0;  // all rows are in it
    ASSAY_TRY(sequence.row_scale, row_scales(settings, logn, batch.decoder, b, length));
    sequence.output_offset = operands.query.heads_first
                                 ? b * out.heads * out.output_head_stride
                                 : batch.first[index] * out.output_row_stride;
    prepared->longest = std::max(prepared->longest, totals[index]);
    out.sequences.push_back(std::move(sequence));
  }
  return {};
}

/// Readings of the parameters beside the first, where public sources differ.
void add_alternatives(const Settings& settings, Prepared* prepared) {
  const Attention first = prepared->attention;
  if ((settings.is_alibi() || settings.clamp) && settings.scale != 1) {
    Attention other = first;
    other.bias_before_scale = true;
    prepared->label = "scale before mask";
    prepared->alternatives.emplace_back("mask before scale", std::move(other));
  }
  const double usual = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(first.head_size, 1)));
  const double given = settings.query_scale * settings.scale;
  if (settings.bypass && std::fabs(given - usual) > 1e-3 * usual) {
    Attention other = first;
    other.query_scale = 1;
    other.scale = usual;
    if (prepared->label.empty()) prepared->label = "qScale * qkScale";
    prepared->alternatives.emplace_back("scale 1/sqrt(head size)", std::move(other));
  }
}

}  // namespace

Result<Evaluation> evaluate_self_attention(const Case& one) {
  ASSAY_TRY(const Settings settings, read_settings(one.parameters));
  ASSAY_TRY(const Inputs inputs, read_inputs(one, settings));
  Prepared prepared;
  Attention& out = prepared.attention;
  ASSAY_TRY(const Data operands, read_operands(settings, inputs, &out));
  ASSAY_TRY(const Batch batch, read_batch(settings, inputs, operands.query));
  out.query_scale = settings.is_fused() ? settings.query_scale : 1.0;
  out.scale = settings.scale;
  if (settings.clamp) out.clamp = {settings.clamp_low, settings.clamp_high};
  if (settings.quant_type != 0) {
    ASSAY_TRY(out.score_scale, attention::scales_of(*inputs.qk_scale, "qkDescale", out.heads));
    ASSAY_TRY(out.value_scale, attention::scales_of(*inputs.v_scale, "vpvDescale", out.heads));
    if (inputs.p_scale) {
      ASSAY_TRY(out.weight_scale, attention::scales_of(*inputs.p_scale, "pScale", out.heads));
    }
  }
  place_output(operands.query, batch, inputs, &prepared);
  ASSAY_TRY_STATUS(add_sequences(settings, inputs, operands, batch, &prepared));
  ASSAY_TRY_STATUS(reference::check_attention(out));
  prepared.variant = variant_of(settings);
  if (settings.calc_type == CalcType::PrefixEncoder)
    prepared.note = "derived: no public golden of PREFIX_ENCODER";
  if (!prepared.unjudged.empty()) prepared.note = "rows of padding are not judged";
  if (settings.quant_type != 0) {
    attention::add_roundings(&prepared, settings.quant_type == 3);
  } else {
    add_alternatives(settings, &prepared);
  }
  return attention::evaluation_of(std::move(prepared), one);
}

}  // namespace assay::opcheck

// SPDX-License-Identifier: Apache-2.0
// PagedAttention: query rows of decoding sequences against a cache in blocks.
//   docs/opcheck/attention.md
#include <algorithm>
#include <optional>

#include "opcheck/operations/attention/evaluate.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using attention::InputList;
using attention::read_choice;
using reference::Attention;
using reference::AttentionSequence;
using reference::Whole;
using reference::Wide;

enum MaskType : int64_t { kNone, kNorm, kAlibi, kSpec, kMaskFree, kNormCompress };
enum QuantType : int64_t { kUnquantised, kDequantFusion, kOffline, kOnline };
enum CompressType : int64_t { kUncompressed, kKvHead, kKvHeadRope };

constexpr const char* kMaskNames[] = {"no mask",   "NORM mask",      "ALIBI mask",
                                      "SPEC mask", "MASK_FREE mask", "NORM_COMPRESS mask"};

struct Settings {
  attention::Heads heads;
  double scale = 1;
  int64_t mask_type = 0, quant_type = 0, compress_type = 0, calc_type = 0, value_size = 0;
  bool batch_status = false, quant_offset = false, logn = false;
};

Result<Settings> read_settings(const Parameters& parameters) {
  Settings settings;
  ASSAY_TRY(settings.heads, attention::read_heads(parameters));
  ASSAY_TRY(settings.scale, parameters.number("qkScale", 1.0));
  ASSAY_TRY(settings.mask_type, read_choice(parameters, "maskType", kNormCompress));
  ASSAY_TRY(settings.quant_type, read_choice(parameters, "quantType", kOnline));
  ASSAY_TRY(settings.compress_type, read_choice(parameters, "compressType", kKvHeadRope));
  ASSAY_TRY(settings.calc_type, read_choice(parameters, "calcType", 1));
  ASSAY_TRY(const int64_t layout, read_choice(parameters, "inputLayout", 1));
  ASSAY_TRY(const int64_t scale_type, read_choice(parameters, "scaleType", 1));
  ASSAY_TRY(settings.value_size, parameters.integer("mlaVHeadSize", 0));
  ASSAY_TRY(settings.batch_status, parameters.boolean("batchRunStatusEnable", false));
  ASSAY_TRY(settings.quant_offset, parameters.boolean("hasQuantOffset", false));
  ASSAY_TRY(const double query_scale, parameters.number("qScale", 0.0));
  settings.logn = scale_type == 1;
  if (layout == 1) return fail(Errc::Unsupported, "inputLayout BNSD has no public golden here");
  if (query_scale != 0) settings.scale *= query_scale;
  if (settings.value_size < 0) return fail(Errc::Invalid, "mlaVHeadSize is negative");
  const bool int8 = settings.quant_type == kOffline || settings.quant_type == kOnline;
  if (int8 && settings.compress_type != kUncompressed)
    return fail(Errc::Unsupported, "quantType 2 and 3 do not go with compressType");
  if (settings.calc_type == 1 && settings.compress_type != kUncompressed)
    return fail(Errc::Unsupported, "calcType SPEC does not go with compressType");
  if (settings.compress_type == kKvHeadRope && settings.mask_type != kNone)
    return fail(Errc::Unsupported, "compressType KVHEAD_ROPE takes no mask");
  if (settings.mask_type == kSpec && settings.calc_type != 1)
    return fail(Errc::Unsupported, "maskType SPEC needs calcType SPEC");
  return settings;
}

std::string variant_of(const Settings& settings) {
  std::string text = kMaskNames[settings.mask_type];
  if (settings.heads.kv != settings.heads.query) text += ", GQA";
  if (settings.calc_type == 1) text += ", several rows a sequence";
  if (settings.quant_type == kDequantFusion)
    text += settings.quant_offset ? ", int8 caches with offset" : ", int8 caches";
  if (settings.quant_type == kOffline) text += ", int8 offline";
  if (settings.quant_type == kOnline) text += ", int8 online";
  if (settings.compress_type == kKvHead) text += ", KVHEAD";
  if (settings.compress_type == kKvHeadRope) text += ", KVHEAD_ROPE";
  if (settings.value_size > 0) text += ", values inside keys";
  if (settings.logn) text += ", logN";
  return text;
}

/// The inputs by what they are.
struct Inputs {
  InputList::Input query, keys, mask;
  std::optional<InputList::Input> values;
  Tensor table, context;
  std::optional<Tensor> status, k_scale, k_offset, v_scale, v_offset, query_lengths, razor, p_scale,
      logn;
  bool is_nz = false;
};

Result<Inputs> read_inputs(const Case& one, Settings* settings) {
  InputList list(*one.operands);
  Inputs inputs;
  const auto read = [&](std::string_view name, std::optional<Tensor>* out) -> Status {
    ASSAY_TRY(InputList::Input input, list.next(name));
    *out = std::move(input.tensor);
    return {};
  };
  ASSAY_TRY(inputs.query, list.next("query"));
  ASSAY_TRY(inputs.keys, list.next("keyCache"));
  if (settings->value_size == 0) {
    ASSAY_TRY(inputs.values, list.next("valueCache"));
  }
  std::optional<Tensor> held;
  ASSAY_TRY_STATUS(read("blockTables", &held));
  inputs.table = *held;
  ASSAY_TRY_STATUS(read("contextLens", &held));
  inputs.context = *held;
  if (settings->mask_type != kNone) {
    ASSAY_TRY(inputs.mask, list.next("mask"));
  }
  if (settings->batch_status) ASSAY_TRY_STATUS(read("batchRunStatus", &inputs.status));
  if (settings->quant_type != kUnquantised) {
    ASSAY_TRY_STATUS(read("kDescale", &inputs.k_scale));
    if (settings->quant_offset) ASSAY_TRY_STATUS(read("kOffset", &inputs.k_offset));
    ASSAY_TRY_STATUS(read("vDescale", &inputs.v_scale));
    if (settings->quant_offset) ASSAY_TRY_STATUS(read("vOffset", &inputs.v_offset));
  }
  if (settings->calc_type == 1) ASSAY_TRY_STATUS(read("qSeqLen", &inputs.query_lengths));
  if (settings->compress_type == kKvHeadRope) ASSAY_TRY_STATUS(read("razorOffset", &inputs.razor));
  if (settings->quant_type == kOffline) ASSAY_TRY_STATUS(read("pScale", &inputs.p_scale));
  // scaleType is not in the file: an input that nothing else explains is logN.
  if (list.left() == 1) settings->logn = true;
  if (settings->logn) ASSAY_TRY_STATUS(read("logN", &inputs.logn));
  ASSAY_TRY_STATUS(list.finish());
  return inputs;
}

/// Where the query rows of each sequence lie.
Result<std::vector<int64_t>> rows_of_sequences(const Inputs& inputs, int64_t batch,
                                               int64_t tokens) {
  std::vector<int64_t> rows(static_cast<size_t>(batch), 1);
  if (inputs.query_lengths) {
    ASSAY_TRY(rows, attention::lengths_of(*inputs.query_lengths, "qSeqLen"));
    if (rows.size() != static_cast<size_t>(batch))
      return fail(Errc::Invalid, "qSeqLen has ", rows.size(), " values, contextLens ", batch);
  }
  int64_t total = 0;
  for (const int64_t count : rows) total += count;
  if (total != tokens)
    return fail(Errc::Invalid, "query has ", tokens, " rows, the sequences ", total);
  return rows;
}

/// The terms of one sequence that a mask of this type stands for.
Result<reference::ScoreBias> bias_of(const Settings& settings,
                                     const std::optional<attention::Mask>& mask, int64_t sequence,
                                     int64_t first_token, int64_t rows, int64_t context,
                                     int64_t masks_per_row) {
  reference::ScoreBias bias;
  bias.offset = context - rows;
  if (settings.mask_type == kMaskFree || settings.mask_type == kNormCompress) bias.causal = true;
  if (!mask) return bias;
  bias.coefficient = mask->coefficient;
  int64_t of_sequence = sequence / masks_per_row;
  int64_t first = 0;
  if (settings.mask_type == kSpec) {
    of_sequence = 0;
    first = first_token;
  } else if (settings.mask_type == kNorm && settings.calc_type == 1) {
    first = mask->rows() >= context ? std::max<int64_t>(context - rows, 0) : 0;
  }
  if (first > mask->rows())
    return fail(Errc::Invalid, "mask has ", mask->rows(), " rows, sequence ", sequence,
                " needs row ", first);
  bias.dense = mask->of_sequence(of_sequence, first);
  return bias;
}

/// [H, maxS] slices of an ALiBi mask of a compressed cache belong to pseudo sequences.
Result<std::optional<attention::Mask>> mask_of(const Settings& settings, const Inputs& inputs,
                                               int64_t batch, int64_t rows, int64_t heads) {
  if (settings.mask_type != kNorm && settings.mask_type != kAlibi && settings.mask_type != kSpec)
    return std::optional<attention::Mask>();
  InputList::Input input = inputs.mask;
  const Dims& shape = input.tensor.view.shape;
  int64_t sequences = batch;
  if (settings.compress_type == kKvHead) {
    if (settings.mask_type == kAlibi && !input.is_nz && shape.size() == 4 && batch > 0) {
      ASSAY_TRY(input.tensor, reference::reshaped(input.tensor, {batch, heads, 1, shape[3]}));
    } else {
      sequences = rows;
    }
  } else if (settings.mask_type == kNorm && settings.calc_type == 0 && shape.size() == 2 &&
             shape[0] == batch && !input.is_nz) {
    ASSAY_TRY(input.tensor, reference::reshaped(input.tensor, {batch, 1, shape[1]}));
  }
  ASSAY_TRY(attention::Mask mask,
            attention::read_mask(input, sequences, heads, settings.mask_type == kAlibi));
  if (settings.mask_type != kAlibi)
    mask.coefficient =
        attention::mask_coefficient(inputs.mask.tensor.view, inputs.query.tensor.view.dtype);
  return std::optional<attention::Mask>(std::move(mask));
}

/// Values of the razor offsets [blocks, block size] along the keys of a sequence.
Result<std::vector<double>> razor_of(const Wide& razor, const Whole& table, int64_t sequence,
                                     int64_t block_size, int64_t blocks, int64_t context) {
  if (razor.size() != blocks * block_size)
    return fail(Errc::Invalid, "razorOffset has shape ", razor.shape, ", not [", blocks, ", ",
                block_size, "]");
  std::vector<double> result;
  for (int64_t j = 0; j < context; ++j) {
    const int64_t block =
        table.values[static_cast<size_t>(sequence * table.shape[1] + j / block_size)];
    result.push_back(razor.values[static_cast<size_t>(block * block_size + j % block_size)]);
  }
  return result;
}

Status read_scales(const Settings& settings, const Inputs& inputs, int64_t scale_heads, int64_t d,
                   int64_t dv, Attention* out) {
  if (settings.quant_type == kUnquantised) return {};
  if (settings.quant_type == kDequantFusion) {
    ASSAY_TRY(out->key_dequant_scale,
              attention::scales_of(*inputs.k_scale, "kDescale", scale_heads * d));
    ASSAY_TRY(out->value_dequant_scale,
              attention::scales_of(*inputs.v_scale, "vDescale", scale_heads * dv));
    if (!settings.quant_offset) return {};
    ASSAY_TRY(out->key_dequant_offset,
              attention::scales_of(*inputs.k_offset, "kOffset", scale_heads * d));
    ASSAY_TRY(out->value_dequant_offset,
              attention::scales_of(*inputs.v_offset, "vOffset", scale_heads * dv));
    return {};
  }
  ASSAY_TRY(out->score_scale, attention::scales_of(*inputs.k_scale, "kDescale", out->heads));
  ASSAY_TRY(out->value_scale, attention::scales_of(*inputs.v_scale, "vDescale", out->heads));
  if (settings.quant_type == kOffline) {
    ASSAY_TRY(out->weight_scale, attention::scales_of(*inputs.p_scale, "pScale", out->heads));
  }
  return {};
}

}  // namespace

Result<Evaluation> evaluate_paged_attention(const Case& one) {
  ASSAY_TRY(Settings settings, read_settings(one.parameters));
  ASSAY_TRY(const Inputs inputs, read_inputs(one, &settings));
  ASSAY_TRY(Tensor query, attention::tokens_of(inputs.query.tensor, settings.heads.query, "query"));
  ASSAY_TRY(const Whole table, reference::whole(inputs.table.view));
  ASSAY_TRY(const std::vector<int64_t> context,
            attention::lengths_of(inputs.context, "contextLens"));
  const auto batch = static_cast<int64_t>(context.size());
  if (table.shape.size() != 2 || table.shape[0] != batch)
    return fail(Errc::Invalid, "blockTables has shape ", table.shape, ", contextLens ", batch,
                " values");
  const int64_t tokens = query.view.shape[0];
  const int64_t d = query.view.shape[2];

  // Of a cache without heads every kv head of a token is a sequence of its own.
  int64_t split = 1;
  if (settings.compress_type != kUncompressed) {
    split = tokens == 0 ? 1 : batch / tokens;
    if (split <= 0 || split * tokens != batch || settings.heads.query % split != 0)
      return fail(Errc::Invalid, "blockTables has ", batch, " rows for ", tokens, " query rows of ",
                  settings.heads.query, " heads");
    ASSAY_TRY(query, reference::reshaped(query, {batch, settings.heads.query / split, d}));
  }

  attention::Prepared prepared;
  Attention& out = prepared.attention;
  out.heads = settings.heads.query / split;
  out.kv_heads = split > 1 || settings.compress_type != kUncompressed ? 1 : settings.heads.kv;
  out.head_size = d;
  out.scale = settings.scale;
  ASSAY_TRY(const attention::BlockCache keys,
            attention::read_block_cache(inputs.keys, out.kv_heads, "keyCache"));
  attention::BlockCache values = keys;
  if (inputs.values) {
    ASSAY_TRY(values, attention::read_block_cache(*inputs.values, out.kv_heads, "valueCache"));
  } else if (keys.is_nz) {
    return fail(Errc::Unsupported, "mlaVHeadSize with FRACTAL_NZ caches has no public golden");
  } else {
    if (settings.value_size > d)
      return fail(Errc::Invalid, "mlaVHeadSize ", settings.value_size, " exceeds the ", d,
                  " columns of a key");
    values.size = settings.value_size;
  }
  if (keys.size != d)
    return fail(Errc::Invalid, "query has heads of ", d, " values, keyCache of ", keys.size);
  out.value_size = values.size;
  out.owners = {query, inputs.keys.tensor, values.tensor};
  ASSAY_TRY_STATUS(read_scales(settings, inputs,
                               settings.compress_type != kUncompressed ? split : settings.heads.kv,
                               d, values.size, &out));
  ASSAY_TRY(const std::vector<int64_t> rows, rows_of_sequences(inputs, batch, query.view.shape[0]));
  ASSAY_TRY(const std::optional<attention::Mask> mask,
            mask_of(settings, inputs, batch, tokens, out.heads));
  if (mask) out.owners.push_back(mask->tensor);
  std::vector<int64_t> status(static_cast<size_t>(batch), 1);
  if (inputs.status) {
    ASSAY_TRY(status, attention::lengths_of(*inputs.status, "batchRunStatus"));
    if (status.size() != static_cast<size_t>(batch))
      return fail(Errc::Invalid, "batchRunStatus has ", status.size(), " values for ", batch,
                  " sequences");
  }
  std::vector<double> logn;
  if (inputs.logn) {
    ASSAY_TRY(logn, attention::scales_of(*inputs.logn, "logN", batch));
  }
  Wide razor;
  if (inputs.razor) {
    ASSAY_TRY(razor, reference::widen(inputs.razor->view));
  }

  out.output_shape = {tokens, settings.heads.query, values.size};
  out.output_row_stride = out.heads * values.size;
  out.output_head_stride = values.size;
  int64_t first_token = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const auto index = static_cast<size_t>(b);
    const int64_t count = rows[index];
    const int64_t first = first_token;
    first_token += count;
    if (status[index] == 0 || context[index] == 0 || count == 0) continue;  // rows stay zero
    prepared.longest = std::max(prepared.longest, context[index]);
    AttentionSequence sequence;
    sequence.query = query.view;
    sequence.query.offset_elements += first * query.view.strides[0];
    sequence.query.shape[0] = count;
    ASSAY_TRY(sequence.keys, attention::gather_blocks(keys, table, b, context[index]));
    ASSAY_TRY(sequence.values, attention::gather_blocks(values, table, b, context[index]));
    const int64_t masks_per_row =
        settings.compress_type == kKvHead && settings.mask_type == kNorm ? split : 1;
    ASSAY_TRY(sequence.bias,
              bias_of(settings, mask, b, first, count, context[index], masks_per_row));
    if (inputs.razor) {
      ASSAY_TRY(sequence.column_bias,
                razor_of(razor, table, b, keys.block_size, keys.blocks, context[index]));
    }
    if (!logn.empty()) sequence.row_scale.assign(static_cast<size_t>(count), logn[index]);
    if (split > 1) sequence.first_scale_head = b % split;
    sequence.output_offset = first * out.output_row_stride;
    out.sequences.push_back(std::move(sequence));
  }
  prepared.variant = variant_of(settings);
  ASSAY_TRY_STATUS(reference::check_attention(out));
  if (settings.quant_type == kOffline || settings.quant_type == kOnline)
    attention::add_roundings(&prepared, settings.quant_type == kOnline);
  return attention::evaluation_of(std::move(prepared), one);
}

}  // namespace assay::opcheck

// SPDX-License-Identifier: Apache-2.0
// Convolutions as products: the values under the kernel are gathered into the columns of a matrix.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/thread_pool.hpp"
#include "reference/aten/products.hpp"
#include "reference/aten/values.hpp"
#include "reference/elementwise/broadcast.hpp"
#include "reference/products/matmul.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

constexpr size_t kMaxSpatial = 3;
constexpr int64_t kMaxResult = int64_t{1} << 31;       // values: paddings may ask for any number
constexpr int64_t kColumnsAtATime = int64_t{1} << 22;  // values gathered at once: 32 MB

/// One entry a spatial dimension; those beyond `spatial` are as of size 1.
struct Geometry {
  size_t spatial = 0;
  bool transposed = false;
  int64_t batch = 1, channels_in = 0, channels_out = 0, groups = 1;
  std::array<int64_t, kMaxSpatial> in{1, 1, 1}, kernel{1, 1, 1}, out{1, 1, 1};
  std::array<int64_t, kMaxSpatial> stride{1, 1, 1}, dilation{1, 1, 1}, before{0, 0, 0};
  bool batched = true;  // the input has a batch dimension

  [[nodiscard]] static int64_t volume(const std::array<int64_t, kMaxSpatial>& sizes) {
    return sizes[0] * sizes[1] * sizes[2];
  }
  [[nodiscard]] int64_t in_of_group() const { return channels_in / groups; }
  [[nodiscard]] int64_t out_of_group() const { return channels_out / groups; }
};

struct Convolution {
  Geometry geometry;
  Wide input;  // [batch, channels_in, in...]
  /// [channels_out, channels_in / groups, kernel...]; transposed [channels_in, channels_out /
  /// groups, ...].
  Wide weight;
  std::optional<Tensor> bias;
};

/// Everything but the sizes of the result, which need the padding.
Result<Geometry> operands_geometry(const Arguments& arguments, const Dims& input,
                                   const Dims& weight) {
  Geometry geometry;
  if (weight.size() < 3 || weight.size() > 2 + kMaxSpatial ||
      (input.size() != weight.size() && input.size() + 1 != weight.size()))
    return fail(arguments.invalid("input ", input, " and weight ", weight, " do not fit"));
  geometry.spatial = weight.size() - 2;
  geometry.batched = input.size() == weight.size();
  const size_t channel = geometry.batched ? 1 : 0;
  geometry.batch = geometry.batched ? input[0] : 1;
  geometry.channels_in = input[channel];
  ASSAY_TRY(geometry.transposed, arguments.truth("transposed", false));
  if (arguments.call().name.find("conv_transpose") != std::string::npos) geometry.transposed = true;
  ASSAY_TRY(geometry.groups, arguments.integer("groups", 1));
  if (geometry.groups <= 0 || geometry.channels_in % geometry.groups != 0 ||
      (!geometry.transposed && weight[0] % geometry.groups != 0))
    return fail(arguments.invalid(geometry.groups, " groups of weight ", weight));
  if (geometry.transposed &&
      __builtin_mul_overflow(weight[1], geometry.groups, &geometry.channels_out))
    return fail(arguments.invalid("too many channels"));
  if (!geometry.transposed) geometry.channels_out = weight[0];
  const int64_t expected = geometry.transposed ? geometry.channels_in : geometry.in_of_group();
  if (weight[geometry.transposed ? 0 : 1] != expected)
    return fail(arguments.invalid("input ", input, " and weight ", weight, " do not fit"));
  for (size_t i = 0; i < geometry.spatial; ++i) {
    geometry.in[i] = input[channel + 1 + i];
    geometry.kernel[i] = weight[2 + i];
    if (geometry.kernel[i] <= 0) return fail(arguments.invalid("an empty kernel"));
  }
  return geometry;
}

constexpr int64_t kMaxSize = int64_t{1} << 40;  // of strides and paddings, so that sums of them fit

Result<Geometry> geometry_of(const Arguments& arguments, const Dims& input, const Dims& weight) {
  ASSAY_TRY(Geometry geometry, operands_geometry(arguments, input, weight));
  ASSAY_TRY(const auto stride, arguments.integers_each("stride", geometry.spatial, 1));
  ASSAY_TRY(const auto dilation, arguments.integers_each("dilation", geometry.spatial, 1));
  std::string named_padding;
  std::vector<int64_t> padding(geometry.spatial, 0);
  if (arguments.call().name.ends_with(".padding")) {
    ASSAY_TRY(named_padding, arguments.text("padding", "valid"));
    if (named_padding != "valid" && named_padding != "same")
      return fail(arguments.invalid("padding '", named_padding, "'"));
  } else {
    ASSAY_TRY(padding, arguments.integers_each("padding", geometry.spatial, 0));
  }
  ASSAY_TRY(const auto extra, arguments.integers_each("output_padding", geometry.spatial, 0));
  for (size_t i = 0; i < geometry.spatial; ++i) {
    for (const int64_t size :
         {stride[i], dilation[i], padding[i], extra[i], geometry.in[i], geometry.kernel[i]}) {
      if (size < 0 || size > kMaxSize) return fail(arguments.invalid("a size out of range"));
    }
    int64_t reach = 0;
    if (stride[i] == 0 || dilation[i] == 0 ||
        __builtin_mul_overflow(dilation[i], geometry.kernel[i] - 1, &reach) || reach > kMaxSize)
      return fail(arguments.invalid("a stride or dilation out of range"));
    int64_t total = 2 * padding[i];
    geometry.before[i] = padding[i];
    if (named_padding == "same") {
      if (stride[i] != 1) return fail(arguments.invalid("padding 'same' with strides"));
      total = reach;
      geometry.before[i] = reach / 2;
    }
    geometry.stride[i] = stride[i];
    geometry.dilation[i] = dilation[i];
    if (geometry.transposed) {
      int64_t grown = 0;
      if (__builtin_mul_overflow(std::max<int64_t>(geometry.in[i] - 1, 0), stride[i], &grown) ||
          grown > kMaxSize)
        return fail(arguments.invalid("a stride out of range"));
      geometry.out[i] = grown - total + reach + extra[i] + 1;
    } else {
      geometry.out[i] = (geometry.in[i] + total - reach - 1 + stride[i]) / stride[i];
      if (geometry.in[i] + total < reach + 1) geometry.out[i] = -1;
    }
    if (geometry.out[i] < 0 || (geometry.out[i] == 0 && !geometry.transposed))
      return fail(arguments.invalid("the kernel is larger than the input"));
  }
  return geometry;
}

Result<Convolution> convolution_of(const Arguments& arguments) {
  ASSAY_TRY(const Tensor input, arguments.tensor(arguments.has("input") ? "input" : "self"));
  ASSAY_TRY(const Tensor weight, arguments.tensor("weight"));
  Convolution convolution;
  ASSAY_TRY(convolution.geometry, geometry_of(arguments, input.view.shape, weight.view.shape));
  ASSAY_TRY(convolution.bias, arguments.optional_tensor("bias"));
  ASSAY_TRY(convolution.input, widen(input.view));
  ASSAY_TRY(convolution.weight, widen(weight.view));
  return convolution;
}

/// Calls visit(at, position) with the places of the input (or, transposed, of the result) under one
/// value of the kernel, for positions [first, last) of the result (or input): at is -1 where there
/// is padding.
template <typename Visit>
void for_each_place(const Geometry& geometry, int64_t kernel_at, int64_t first, int64_t last,
                    Visit visit) {
  const auto& spread = geometry.transposed ? geometry.out : geometry.in;
  const auto& grid = geometry.transposed ? geometry.in : geometry.out;
  std::array<int64_t, kMaxSpatial> tap{};
  for (size_t i = kMaxSpatial; i-- > 0;) {
    tap[i] = kernel_at % geometry.kernel[i] * geometry.dilation[i] - geometry.before[i];
    kernel_at /= geometry.kernel[i];
  }
  for (int64_t position = first; position < last; ++position) {
    int64_t rest = position;
    int64_t at = 0;
    int64_t factor = 1;
    for (size_t i = kMaxSpatial; i-- > 0;) {
      const int64_t place = rest % grid[i] * geometry.stride[i] + tap[i];
      rest /= grid[i];
      if (place < 0 || place >= spread[i]) at = -1;
      if (at >= 0) at += place * factor;
      factor *= spread[i];
    }
    visit(at, position);
  }
}

TensorView matrix(const double* values, int64_t rows, int64_t columns) {
  return {DType::Float64, Dims{rows, columns}, contiguous_strides(Dims{rows, columns}),
          std::as_bytes(std::span(values, static_cast<size_t>(rows * columns)))};
}

/// out [channels of the group, positions] = weight . columns, some positions at a time.
void convolve_group(const Convolution& convolution, int64_t batch, int64_t group, double* out) {
  const Geometry& geometry = convolution.geometry;
  const int64_t taps = Geometry::volume(geometry.kernel);
  const int64_t depth = geometry.in_of_group() * taps;
  const int64_t positions = Geometry::volume(geometry.out);
  const int64_t area = Geometry::volume(geometry.in);
  const double* input = convolution.input.data() +
                        (batch * geometry.channels_in + group * geometry.in_of_group()) * area;
  const TensorView weight =
      matrix(convolution.weight.data() + group * geometry.out_of_group() * depth,
             geometry.out_of_group(), depth);
  const int64_t step = std::max<int64_t>(1, kColumnsAtATime / std::max<int64_t>(depth, 1));
  std::vector<double, NoInitAllocator<double>> columns;
  for (int64_t first = 0; first < positions; first += step) {
    const int64_t count = std::min(step, positions - first);
    columns.resize(static_cast<size_t>(depth * count));
    for (int64_t row = 0; row < depth; ++row) {
      const double* channel = input + row / taps * area;
      double* column = columns.data() + row * count;
      for_each_place(geometry, row % taps, first, first + count, [&](int64_t at, int64_t position) {
        column[position - first] = at < 0 ? 0.0 : channel[at];
      });
    }
    multiply_into(weight, matrix(columns.data(), depth, count), out + first, positions, 1);
  }
}

/// Every value of the input spreads over the result.
void spread_group(const Convolution& convolution, int64_t batch, int64_t group, double* out) {
  const Geometry& geometry = convolution.geometry;
  const int64_t taps = Geometry::volume(geometry.kernel);
  const int64_t rows = geometry.out_of_group() * taps;
  const int64_t area = Geometry::volume(geometry.in);
  const int64_t positions = Geometry::volume(geometry.out);
  const double* input = convolution.input.data() +
                        (batch * geometry.channels_in + group * geometry.in_of_group()) * area;
  const TensorView weight =
      transposed(matrix(convolution.weight.data() + group * geometry.in_of_group() * rows,
                        geometry.in_of_group(), rows));
  std::fill_n(out, geometry.out_of_group() * positions, 0.0);
  const int64_t step = std::max<int64_t>(1, kColumnsAtATime / std::max<int64_t>(rows, 1));
  std::vector<double, NoInitAllocator<double>> columns;
  for (int64_t first = 0; first < area; first += step) {
    const int64_t count = std::min(step, area - first);
    columns.resize(static_cast<size_t>(rows * count));
    multiply_into(weight, section(matrix(input, geometry.in_of_group(), area), 1, first, count),
                  columns.data(), count, 1);
    for (int64_t row = 0; row < rows; ++row) {
      double* channel = out + row / taps * positions;
      const double* column = columns.data() + row * count;
      for_each_place(geometry, row % taps, first, first + count, [&](int64_t at, int64_t position) {
        if (at >= 0) channel[at] += column[position - first];
      });
    }
  }
}

/// Of a batch: [batch, channels, ...]
Dims result_shape(const Geometry& geometry) {
  Dims shape{geometry.batch, geometry.channels_out};
  for (size_t i = 0; i < geometry.spatial; ++i) shape.push_back(geometry.out[i]);
  return shape;
}

/// values  of result_shape()
Status add_channel_bias(const Arguments& arguments, const Tensor& bias, const Geometry& geometry,
                        bool absolute, Wide* values) {
  ASSAY_TRY(const Wide addends, widen(bias.view));
  if (addends.size() != geometry.channels_out)
    return fail(
        arguments.invalid("bias ", addends.shape, " for ", geometry.channels_out, " channels"));
  const int64_t positions = Geometry::volume(geometry.out);
  for (int64_t row = 0; row < geometry.batch * geometry.channels_out; ++row) {
    const double addend = addends.data()[row % geometry.channels_out];
    double* out = values->data() + row * positions;
    for (int64_t i = 0; i < positions; ++i) out[i] += absolute ? std::fabs(addend) : addend;
  }
  return {};
}

}  // namespace

bool is_convolution(std::string_view name) { return name.find("conv") != std::string_view::npos; }

Result<int64_t> convolution_terms(const Arguments& arguments) {
  ASSAY_TRY(const Tensor weight, arguments.tensor("weight"));
  ASSAY_TRY(const Tensor input, arguments.tensor(arguments.has("input") ? "input" : "self"));
  ASSAY_TRY(const Geometry geometry, geometry_of(arguments, input.view.shape, weight.view.shape));
  return geometry.in_of_group() * Geometry::volume(geometry.kernel);
}

Result<Wide> convolve(const Arguments& arguments, int jobs, bool absolute) {
  ASSAY_TRY(Convolution convolution, convolution_of(arguments));
  const Geometry& geometry = convolution.geometry;
  if (absolute) {
    for (Wide* values : {&convolution.input, &convolution.weight})
      for (double& value : values->values) value = std::fabs(value);
  }
  const Dims shape = result_shape(geometry);
  ASSAY_TRY(const int64_t count, checked_count(shape));
  if (count > kMaxResult)
    return fail(Errc::TooLarge, arguments.invalid("a result of shape ", shape).message);
  ASSAY_TRY_STATUS(checked_count(Dims{geometry.in_of_group(), Geometry::volume(geometry.kernel)}));
  Wide result(shape);
  const int64_t positions = Geometry::volume(geometry.out);
  if (result.size() == 0) return result;
  parallel_for(static_cast<size_t>(geometry.batch * geometry.groups), resolve_job_count(jobs),
               [&](size_t index) {
                 const auto batch = static_cast<int64_t>(index) / geometry.groups;
                 const auto group = static_cast<int64_t>(index) % geometry.groups;
                 double* out =
                     result.data() +
                     (batch * geometry.channels_out + group * geometry.out_of_group()) * positions;
                 if (geometry.transposed)
                   spread_group(convolution, batch, group, out);
                 else
                   convolve_group(convolution, batch, group, out);
               });
  if (convolution.bias)
    ASSAY_TRY_STATUS(add_channel_bias(arguments, *convolution.bias, geometry, absolute, &result));
  if (!geometry.batched) {
    result.shape = Dims(shape.span().subspan(1));
  }
  return result;
}

Result<std::optional<Wide>> addend_of_convolution(const Arguments& arguments) {
  ASSAY_TRY(const Tensor weight, arguments.tensor("weight"));
  ASSAY_TRY(const Tensor input, arguments.tensor(arguments.has("input") ? "input" : "self"));
  ASSAY_TRY(const std::optional<Tensor> bias, arguments.optional_tensor("bias"));
  if (!bias) return std::nullopt;
  ASSAY_TRY(const Geometry geometry, geometry_of(arguments, input.view.shape, weight.view.shape));
  const Dims shape = result_shape(geometry);
  Wide addend(shape, 0.0);
  ASSAY_TRY_STATUS(add_channel_bias(arguments, *bias, geometry, false, &addend));
  if (!geometry.batched) addend.shape = Dims(shape.span().subspan(1));
  return addend;
}

}  // namespace assay::reference::aten

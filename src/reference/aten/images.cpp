// SPDX-License-Identifier: Apache-2.0
// Every operator is a list of taps for each position of the result: places in a plane of the input,
// and their weights. Lists are made axis by axis, and the same for all planes.
#include "reference/aten/images.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "reference/aten/products.hpp"

namespace assay::reference::aten {
namespace {

constexpr int64_t kMostTaps = int64_t{1} << 28;
constexpr int64_t kMostOfSize = int64_t{1}
                                << 31;  // of strides and paddings, so that sums of them fit

/// What each place along an axis of the result is made of.
struct Axis {
  int64_t in, out;
  std::vector<int64_t> first{0};  // of place o: [first[o], first[o + 1])
  std::vector<int64_t> at;        // along the axis of the input; -1: padding
  std::vector<double> weight;

  explicit Axis(int64_t size_in = 1, int64_t size_out = 1) : in(size_in), out(size_out) {}
  void add(int64_t place, double share) {
    at.push_back(place);
    weight.push_back(share);
  }
  void end_place() { first.push_back(static_cast<int64_t>(at.size())); }
};

/// [planes..., axes...]
struct Planes {
  Wide values;
  DType dtype = DType::Float32;
  Dims outer;
  int64_t count = 1, area = 1;  // planes, and values of one
  std::vector<int64_t> sizes;
};

Result<Planes> planes_of(const Arguments& arguments, size_t axes, bool absolute = false) {
  ASSAY_TRY(const Tensor self, arguments.tensor(arguments.has("input") ? "input" : "self"));
  const Dims& shape = self.view.shape;
  if (shape.size() != axes + 1 && shape.size() != axes + 2)
    return fail(arguments.invalid(shape, " has no ", axes, " axes behind the channels"));
  Planes planes;
  planes.dtype = self.view.dtype;
  ASSAY_TRY(planes.values, widen(self.view));
  if (absolute) {
    for (double& value : planes.values.values) value = std::fabs(value);
  }
  planes.outer = Dims(shape.span().first(shape.size() - axes));
  ASSAY_TRY(planes.count, checked_count(planes.outer));
  for (size_t i = shape.size() - axes; i < shape.size(); ++i) {
    planes.sizes.push_back(shape[i]);
    planes.area *= shape[i];
  }
  return planes;
}

// ---- Windows ------------------------------------------------------------------------------------

struct Window {
  int64_t size = 1, stride = 1, padding = 0, dilation = 1;
};

constexpr int64_t kOfKernel = std::numeric_limits<int64_t>::min();  // a stride that is not given

Result<std::vector<Window>> windows_of(const Arguments& arguments, size_t axes) {
  ASSAY_TRY(const auto sizes, arguments.integers_each("kernel_size", axes, 1));
  ASSAY_TRY(auto strides, arguments.integers_each("stride", axes, kOfKernel));
  ASSAY_TRY(const auto paddings, arguments.integers_each("padding", axes, 0));
  ASSAY_TRY(const auto dilations, arguments.integers_each("dilation", axes, 1));
  std::vector<Window> windows;
  for (size_t i = 0; i < axes; ++i) {
    if (strides[i] == kOfKernel) strides[i] = sizes[i];
    windows.push_back({sizes[i], strides[i], paddings[i], dilations[i]});
    for (const int64_t size : {sizes[i], strides[i], dilations[i], paddings[i] + 1})
      if (size <= 0 || size > kMostOfSize)
        return fail(arguments.invalid("a kernel, stride or padding out of range"));
  }
  return windows;
}

/// Places of a window along an axis. A last one that would begin in the padding behind is left out.
Result<int64_t> place_count(const Arguments& arguments, const Window& window, int64_t in,
                            bool ceil_mode) {
  int64_t reach = 0;
  if (__builtin_mul_overflow(window.dilation, window.size - 1, &reach) || reach > kMostOfSize)
    return fail(arguments.invalid("a kernel out of range"));
  const int64_t room = in + 2 * window.padding - reach - 1;
  const int64_t last = room + (ceil_mode ? window.stride - 1 : 0);
  if (last < 0) return fail(arguments.invalid("a kernel larger than the plane"));
  int64_t count = last / window.stride + 1;
  if (ceil_mode && (count - 1) * window.stride >= in + window.padding) --count;
  return count;
}

/// Which share each value under a window has.
enum class Share : uint8_t { One, OfValues, OfValuesAndPadding };

Result<Axis> windowed(const Arguments& arguments, const Window& window, int64_t in, bool ceil_mode,
                      Share share, bool with_padding = false) {
  Axis axis(in);
  ASSAY_TRY(axis.out, place_count(arguments, window, in, ceil_mode));
  ASSAY_TRY(const int64_t taps, checked_count(Dims{axis.out, window.size}));
  if (taps > kMostTaps) return fail(Errc::TooLarge, arguments.invalid("too many windows").message);
  for (int64_t o = 0; o < axis.out; ++o) {
    const int64_t start = o * window.stride - window.padding;
    const int64_t end = std::min(start + window.size, in + window.padding);
    const int64_t extent = share == Share::OfValuesAndPadding
                               ? end - start
                               : std::min(end, in) - std::max<int64_t>(start, 0);
    const double weight = share == Share::One ? 1 : 1 / static_cast<double>(extent);
    for (int64_t k = 0; k < window.size; ++k) {
      const int64_t place = start + k * window.dilation;
      const bool inside = place >= 0 && place < in;
      if (inside || with_padding) axis.add(inside ? place : -1, weight);
    }
    axis.end_place();
  }
  return axis;
}

/// Windows that cover the axis, as evenly as can be.
Axis adaptive(int64_t in, int64_t out) {
  Axis axis(in, out);
  for (int64_t o = 0; o < out; ++o) {
    const int64_t start = o * in / out, end = ((o + 1) * in + out - 1) / out;
    for (int64_t i = start; i < end; ++i) axis.add(i, 1 / static_cast<double>(end - start));
    axis.end_place();
  }
  return axis;
}

// ---- Resizing -----------------------------------------------------------------------------------

enum class Filter : uint8_t { Nearest, NearestExact, Linear, Cubic };

struct Resizing {
  Filter filter = Filter::Nearest;
  bool antialias = false;
  size_t axes = 2;
};

std::optional<Resizing> resizing_of(std::string_view operation) {
  Resizing found{.antialias = operation.ends_with("_aa")};
  if (operation.starts_with('_')) operation.remove_prefix(1);
  if (!operation.starts_with("upsample_")) return std::nullopt;
  operation.remove_prefix(9);
  if (operation.starts_with("nearest_exact"))
    found.filter = Filter::NearestExact;
  else if (!operation.starts_with("nearest"))
    found.filter = operation.starts_with("bicubic") ? Filter::Cubic : Filter::Linear;
  const size_t digit = operation.find_first_of("123");
  if (digit == std::string_view::npos) return std::nullopt;
  found.axes = static_cast<size_t>(operation[digit] - '0');
  return found;
}

/// Keys' kernel; A is -0.75, with antialiasing -0.5.
double cubic(double x, double a) {
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// How far places of the input lie apart that places of the result stand for.
template <typename Real>
Real step_of(int64_t in, int64_t out, std::optional<double> factor, bool aligned) {
  if (aligned) return out > 1 ? static_cast<Real>(in - 1) / static_cast<Real>(out - 1) : 0;
  if (factor && *factor > 0) return static_cast<Real>(1.0 / *factor);
  return static_cast<Real>(in) / static_cast<Real>(out);
}

/// Kernels choose a neighbour in float32, whatever the values are.
int64_t nearest(int64_t o, int64_t in, int64_t out, std::optional<double> factor, bool exact) {
  if (in == out) return o;
  if (!exact && out == 2 * in) return o / 2;
  const auto step = step_of<float>(in, out, factor, false);
  const float at = (static_cast<float>(o) + (exact ? 0.5F : 0.0F)) * step;
  return std::min(static_cast<int64_t>(std::floor(at)), in - 1);
}

/// The kernel is as wide as the places of the result are apart; weights add up to 1.
void add_antialiased(int64_t o, const Resizing& how, double step, Axis* axis) {
  const double support = (how.filter == Filter::Cubic ? 2.0 : 1.0) * std::fmax(step, 1.0);
  const double centre = step * (static_cast<double>(o) + 0.5);
  const auto first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
  const auto last = std::min(static_cast<int64_t>(centre + support + 0.5), axis->in);
  double sum = 0;
  const size_t begin = axis->at.size();
  for (int64_t i = first; i < last; ++i) {
    const double x = (static_cast<double>(i) - centre + 0.5) / std::fmax(step, 1.0);
    const double weight =
        how.filter == Filter::Cubic ? cubic(x, -0.5) : std::fmax(1 - std::fabs(x), 0.0);
    axis->add(i, weight);
    sum += weight;
  }
  for (size_t i = begin; sum != 0 && i < axis->weight.size(); ++i) axis->weight[i] /= sum;
}

Axis resized(const Resizing& how, int64_t in, int64_t out, std::optional<double> factor,
             bool aligned) {
  Axis axis(in, out);
  const auto step = step_of<double>(in, out, factor, aligned);
  for (int64_t o = 0; o < out; ++o, axis.end_place()) {
    if (how.filter == Filter::Nearest || how.filter == Filter::NearestExact) {
      axis.add(nearest(o, in, out, factor, how.filter == Filter::NearestExact), 1);
      continue;
    }
    if (how.antialias && in == out) {  // left as it is, whatever the factor
      axis.add(o, 1);
      continue;
    }
    if (how.antialias) {
      add_antialiased(o, how, step, &axis);
      continue;
    }
    double at =
        aligned ? step * static_cast<double>(o) : step * (static_cast<double>(o) + 0.5) - 0.5;
    if (how.filter == Filter::Linear) at = std::fmax(at, 0.0);
    const auto below = static_cast<int64_t>(std::floor(at));
    const double share = at - std::floor(at);
    const auto add = [&](int64_t place, double weight) {
      axis.add(std::clamp<int64_t>(place, 0, in - 1), weight);
    };
    if (how.filter == Filter::Linear) {
      add(below, 1 - share);
      add(below + 1, share);
      continue;
    }
    for (int64_t k = -1; k <= 2; ++k) add(below + k, cubic(static_cast<double>(k) - share, -0.75));
  }
  return axis;
}

// ---- Taps ---------------------------------------------------------------------------------------

Dims shape_of(const Planes& planes, const std::vector<Axis>& axes) {
  Dims shape = planes.outer;
  for (const Axis& axis : axes) shape.push_back(axis.out);
  return shape;
}

/// Calls f(position of the result, place in a plane or -1, weight) for every tap, in C order of both.
template <typename F>
void for_each_tap(const std::vector<Axis>& axes, F f) {
  std::array<const Axis*, 3> three;
  static const Axis kOnePlace = [] {
    Axis axis;
    axis.add(0, 1);
    axis.end_place();
    return axis;
  }();
  for (size_t i = 0; i < 3; ++i)
    three[i] = i + axes.size() < 3 ? &kOnePlace : &axes[i + axes.size() - 3];
  const auto& [d, h, w] = three;
  int64_t position = 0;
  for (int64_t z = 0; z < d->out; ++z)
    for (int64_t y = 0; y < h->out; ++y)
      for (int64_t x = 0; x < w->out; ++x, ++position)
        for (int64_t i = d->first[z]; i < d->first[z + 1]; ++i)
          for (int64_t j = h->first[y]; j < h->first[y + 1]; ++j)
            for (int64_t k = w->first[x]; k < w->first[x + 1]; ++k) {
              const bool inside = d->at[i] >= 0 && h->at[j] >= 0 && w->at[k] >= 0;
              f(position, inside ? (d->at[i] * h->in + h->at[j]) * w->in + w->at[k] : -1,
                d->weight[i] * h->weight[j] * w->weight[k]);
            }
}

/// Taps of all positions, and the results that they make.
Result<int64_t> checked_taps(const Arguments& arguments, const Planes& planes,
                             const std::vector<Axis>& axes) {
  ASSAY_TRY(const int64_t count, checked_count(shape_of(planes, axes)));
  double taps = static_cast<double>(std::max<int64_t>(planes.count, 1));
  for (const Axis& axis : axes) taps *= static_cast<double>(axis.at.size());
  if (taps > 64.0 * static_cast<double>(kMostTaps))
    return fail(Errc::TooLarge, arguments.invalid("too many values under windows").message);
  return count;
}

Result<Wide> weighted_sums(const Arguments& arguments, const Planes& planes,
                           const std::vector<Axis>& axes, bool absolute) {
  ASSAY_TRY_STATUS(checked_taps(arguments, planes, axes));
  Wide sums(shape_of(planes, axes), 0.0);
  const int64_t positions = planes.count == 0 ? 0 : sums.size() / planes.count;
  for (int64_t plane = 0; plane < planes.count; ++plane) {
    const double* from = planes.values.data() + plane * planes.area;
    double* to = sums.data() + plane * positions;
    for_each_tap(axes, [&](int64_t position, int64_t at, double weight) {
      to[position] += (absolute ? std::fabs(weight) : weight) * from[at];
    });
  }
  return sums;
}

/// Of equal values the first; a NaN wins, the last of several.
Result<Values> largest(const Arguments& arguments, const Planes& planes,
                       const std::vector<Axis>& axes, bool with_places) {
  ASSAY_TRY_STATUS(checked_taps(arguments, planes, axes));
  const Dims shape = shape_of(planes, axes);
  Wide values(shape, -std::numeric_limits<double>::infinity());
  Whole places(shape, -1);
  const int64_t positions = planes.count == 0 ? 0 : values.size() / planes.count;
  for (int64_t plane = 0; plane < planes.count; ++plane) {
    const double* from = planes.values.data() + plane * planes.area;
    double* to = values.data() + plane * positions;
    int64_t* place = places.data() + plane * positions;
    for_each_tap(axes, [&](int64_t position, int64_t at, double) {
      if (place[position] >= 0 && !(from[at] > to[position]) && !std::isnan(from[at])) return;
      to[position] = from[at];
      place[position] = at;
    });
  }
  ASSAY_TRY(Tensor chosen, narrow(to_tensor(std::move(values)).view, planes.dtype));
  Values results = single(std::move(chosen));
  if (with_places) results.push_back(to_tensor(std::move(places)));
  return results;
}

// ---- Operators ----------------------------------------------------------------------------------

Result<std::vector<Axis>> windowed_axes(const Arguments& arguments, const Planes& planes,
                                        Share share, bool with_padding = false) {
  ASSAY_TRY(const auto windows, windows_of(arguments, planes.sizes.size()));
  ASSAY_TRY(const bool ceil_mode, arguments.truth("ceil_mode", false));
  std::vector<Axis> axes;
  for (size_t i = 0; i < windows.size(); ++i) {
    ASSAY_TRY(Axis axis,
              windowed(arguments, windows[i], planes.sizes[i], ceil_mode, share, with_padding));
    axes.push_back(std::move(axis));
  }
  return axes;
}

Result<std::vector<Axis>> adaptive_axes(const Arguments& arguments, const Planes& planes) {
  ASSAY_TRY(const auto sizes, arguments.integers_each("output_size", planes.sizes.size(), 1));
  std::vector<Axis> axes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || sizes[i] > kMostOfSize || planes.sizes[i] <= 0 ||
        planes.sizes[i] > kMostTaps - sizes[i])
      return fail(arguments.invalid("output_size out of range"));
    axes.push_back(adaptive(planes.sizes[i], sizes[i]));
  }
  return axes;
}

template <size_t axes, bool with_places>
Result<Values> max_pool(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Planes planes, planes_of(arguments, axes));
  ASSAY_TRY(const auto windows, windowed_axes(arguments, planes, Share::One));
  return largest(arguments, planes, windows, with_places);
}

template <size_t axes>
Result<Values> adaptive_max_pool(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Planes planes, planes_of(arguments, axes));
  ASSAY_TRY(const auto windows, adaptive_axes(arguments, planes));
  return largest(arguments, planes, windows, true);
}

Result<std::vector<Axis>> resized_axes(const Arguments& arguments, const Planes& planes,
                                       const Resizing& how) {
  const size_t count = planes.sizes.size();
  ASSAY_TRY(const auto sizes, arguments.integers_each("output_size", count, 1));
  ASSAY_TRY(const bool aligned, arguments.truth("align_corners", false));
  constexpr std::string_view kFactors[] = {"scales_d", "scales_h", "scales_w"};
  std::vector<Axis> axes;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view name = count == 1 ? "scales" : kFactors[i + 3 - count];
    std::optional<double> factor;
    if (arguments.has(name)) {
      ASSAY_TRY(factor, arguments.real(name));
    }
    if (sizes[i] <= 0 || sizes[i] > kMostTaps || planes.sizes[i] <= 0)
      return fail(arguments.invalid("output_size out of range"));
    axes.push_back(resized(how, planes.sizes[i], sizes[i], factor, aligned));
  }
  return axes;
}

/// One value each: nothing is computed.
Result<Values> upsample_nearest(const Arguments& arguments, const EvaluateOptions&) {
  const Resizing how = *resizing_of(operation_of(arguments.call().name));
  ASSAY_TRY(const Planes planes, planes_of(arguments, how.axes));
  ASSAY_TRY(const auto axes, resized_axes(arguments, planes, how));
  ASSAY_TRY(Wide moved, weighted_sums(arguments, planes, axes, false));
  return single(narrow(to_tensor(std::move(moved)).view, planes.dtype));
}

Result<NeighbourSums> average_pool(const Arguments& arguments, size_t count, bool absolute) {
  ASSAY_TRY(const Planes planes, planes_of(arguments, count, absolute));
  ASSAY_TRY(const bool padding_counts, arguments.truth("count_include_pad", true));
  const bool has_divisor = arguments.has("divisor_override");
  ASSAY_TRY(const auto axes, windowed_axes(arguments, planes,
                                           has_divisor      ? Share::One
                                           : padding_counts ? Share::OfValuesAndPadding
                                                            : Share::OfValues));
  NeighbourSums found;
  ASSAY_TRY(found.sums, weighted_sums(arguments, planes, axes, absolute));
  if (has_divisor) {
    ASSAY_TRY(const int64_t divisor, arguments.integer("divisor_override"));
    if (divisor == 0) return fail(arguments.invalid("a divisor of 0"));
    for (double& value : found.sums.values) value /= static_cast<double>(divisor);
  }
  ASSAY_TRY(const auto windows, windows_of(arguments, count));
  for (const Window& window : windows) found.terms *= static_cast<double>(window.size);
  return found;
}

Result<NeighbourSums> adaptive_average_pool(const Arguments& arguments, size_t count,
                                            bool absolute) {
  ASSAY_TRY(const Planes planes, planes_of(arguments, count, absolute));
  ASSAY_TRY(const auto axes, adaptive_axes(arguments, planes));
  NeighbourSums found;
  ASSAY_TRY(found.sums, weighted_sums(arguments, planes, axes, absolute));
  for (const Axis& axis : axes)
    found.terms *= static_cast<double>(axis.in / std::max<int64_t>(axis.out, 1) + 2);
  return found;
}

Result<NeighbourSums> resize(const Arguments& arguments, const Resizing& how, bool absolute) {
  ASSAY_TRY(const Planes planes, planes_of(arguments, how.axes, absolute));
  ASSAY_TRY(const auto axes, resized_axes(arguments, planes, how));
  NeighbourSums found;
  ASSAY_TRY(found.sums, weighted_sums(arguments, planes, axes, absolute));
  // A share of neighbours is a difference of places, off by 4 u times the size of the axis at most.
  double sizes = 0;
  for (const Axis& axis : axes) sizes += static_cast<double>(std::max(axis.in, axis.out));
  found.terms = 16 * sizes * sizes;
  return found;
}

/// [planes..., H, W] -> [batch, channels taps, positions]: the values under the kernel, 0 for padding.
Result<Values> im2col(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Planes planes, planes_of(arguments, 2));
  ASSAY_TRY(const auto axes, windowed_axes(arguments, planes, Share::One, true));
  ASSAY_TRY_STATUS(checked_taps(arguments, planes, axes));
  ASSAY_TRY(const auto windows, windows_of(arguments, 2));
  const int64_t taps = windows[0].size * windows[1].size;
  const int64_t positions = axes[0].out * axes[1].out;
  Dims shape = planes.outer;
  shape[shape.size() - 1] *= taps;
  shape.push_back(positions);
  ASSAY_TRY_STATUS(checked_count(shape));
  Wide patches(shape);
  for (int64_t plane = 0; plane < planes.count; ++plane) {
    const double* from = planes.values.data() + plane * planes.area;
    double* to = patches.data() + plane * taps * positions;
    int64_t tap = 0;
    for_each_tap(axes, [&](int64_t position, int64_t at, double) {
      to[tap * positions + position] = at < 0 ? 0 : from[at];
      tap = tap + 1 == taps ? 0 : tap + 1;
    });
  }
  return single(narrow(to_tensor(std::move(patches)).view, planes.dtype));
}

/// The other way: values that come from one place are added.
Result<NeighbourSums> col2im(const Arguments& arguments, bool absolute) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const auto sizes, arguments.integers_each("output_size", 2, 1));
  ASSAY_TRY(const auto windows, windows_of(arguments, 2));
  std::vector<Axis> axes;
  for (size_t i = 0; i < 2; ++i) {
    if (sizes[i] <= 0 || sizes[i] > kMostTaps)
      return fail(arguments.invalid("output_size out of range"));
    ASSAY_TRY(Axis axis, windowed(arguments, windows[i], sizes[i], false, Share::One, true));
    axes.push_back(std::move(axis));
  }
  ASSAY_TRY(Wide patches, widen(self.view));
  const Dims& shape = self.view.shape;
  const int64_t taps = windows[0].size * windows[1].size;
  const int64_t positions = axes[0].out * axes[1].out;
  const size_t rank = shape.size();
  if ((rank != 2 && rank != 3) || shape[rank - 1] != positions || shape[rank - 2] % taps != 0)
    return fail(arguments.invalid(shape, " are no patches of a plane ", sizes));
  Dims result(shape.span().first(rank - 1));
  result[rank - 2] /= taps;
  ASSAY_TRY(const int64_t planes, checked_count(result));
  for (const int64_t size : sizes) result.push_back(size);
  ASSAY_TRY_STATUS(checked_count(result));
  NeighbourSums found{Wide(result, 0.0), static_cast<double>(taps)};
  for (int64_t plane = 0; plane < planes; ++plane) {
    const double* from = patches.data() + plane * taps * positions;
    double* to = found.sums.data() + plane * sizes[0] * sizes[1];
    int64_t tap = 0;
    for_each_tap(axes, [&](int64_t position, int64_t at, double) {
      const double value = from[tap * positions + position];
      if (at >= 0) to[at] += absolute ? std::fabs(value) : value;
      tap = tap + 1 == taps ? 0 : tap + 1;
    });
  }
  return found;
}

/// Behind "avg_pool": how many axes.
size_t axes_in(std::string_view operation) {
  return static_cast<size_t>(operation[operation.find_first_of("123")] - '0');
}

Result<Values> evaluate_sums(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(NeighbourSums found, sum_neighbours(arguments, false));
  return single(to_tensor(std::move(found.sums)));
}

}  // namespace

bool is_sum_of_neighbours(std::string_view name) {
  const std::string_view operation = operation_of(name);
  return operation == "col2im" || operation.find("avg_pool") != std::string_view::npos ||
         operation.find("upsample_") != std::string_view::npos;
}

Result<NeighbourSums> sum_neighbours(const Arguments& arguments, bool absolute) {
  const std::string_view operation = operation_of(arguments.call().name);
  if (operation == "col2im") return col2im(arguments, absolute);
  if (const std::optional<Resizing> how = resizing_of(operation))
    return resize(arguments, *how, absolute);
  if (operation.find("adaptive") != std::string_view::npos)
    return adaptive_average_pool(arguments, axes_in(operation), absolute);
  return average_pool(arguments, axes_in(operation), absolute);
}

std::span<const Overloads> image_overloads() {
  using enum OperatorClass;
  static constexpr Overloads kTable[] = {
      {"max_pool2d_with_indices.default", Move, max_pool<2, true>},
      {"max_pool3d_with_indices.default", Move, max_pool<3, true>},
      {"max_pool1d.default", Move, max_pool<1, false>},
      {"max_pool2d.default", Move, max_pool<2, false>},
      {"max_pool3d.default", Move, max_pool<3, false>},
      {"adaptive_max_pool2d.default", Move, adaptive_max_pool<2>},
      {"adaptive_max_pool3d.default", Move, adaptive_max_pool<3>},
      {"_upsample_nearest_exact1d.default _upsample_nearest_exact2d.default "
       "_upsample_nearest_exact3d.default upsample_nearest1d.default upsample_nearest2d.default "
       "upsample_nearest3d.default",
       Move, upsample_nearest},
      {"im2col.default", Move, im2col},
      {"_adaptive_avg_pool2d.default _adaptive_avg_pool3d.default "
       "_upsample_bicubic2d_aa.default _upsample_bilinear2d_aa.default "
       "adaptive_avg_pool1d.default adaptive_avg_pool2d.default adaptive_avg_pool3d.default "
       "avg_pool1d.default avg_pool2d.default avg_pool3d.default col2im.default "
       "upsample_bicubic2d.default upsample_bilinear2d.default upsample_linear1d.default "
       "upsample_trilinear3d.default",
       Reduction, evaluate_sums},
  };
  return kTable;
}

}  // namespace assay::reference::aten

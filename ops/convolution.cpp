// SPDX-License-Identifier: Apache-2.0
#include "ops/convolution.h"

#include "ops/dims.h"
#include "ops/engine/choose.h"
#include "ops/promotion.h"
#include "src/kernels/convolution/convolution.h"
#include "weft/ops/elementwise.h"

namespace weft {

// Three ops of an image x [b, g c, s...], a filter w [g o, c, k...] and a result y [b, g o, t...],
// each of which computes one from the other two. They are the gradients of each other.
//   structure: groups; then for each dim stride, padding, dilation, and the size of what is
//   computed
//   values: whether taps of 0 may be left out

static int filter_dims(const Attributes& attributes) {
  return (attributes.structure.ndim() - 1) / 4;
}
struct FilterDim {
  int64_t stride, padding, dilation, size;
};
static FilterDim filter_dim(const Attributes& attributes, int d) {
  const int64_t* at = attributes.structure.begin() + 1 + 4 * d;
  return {at[0], at[1], at[2], at[3]};
}
/// The same convolution, where `shape` is that of what is computed.
static Attributes computing(const Attributes& attributes, const Shape& shape) {
  Attributes other = attributes;
  for (int d = 0; d < filter_dims(attributes); ++d) {
    other.structure[4 + 4 * d] = shape[d + 2];
  }
  return other;
}

static Structure convolution_structure() {
  return {"groups, then stride, padding, dilation and size for each dim",
          [](const Dims& s, std::span<const Shape> shapes) {
            const int ndim = shapes[0].ndim() - 2;
            if (shapes.size() != 2 || ndim < 1 || ndim > kImageDims || s.ndim() != 1 + 4 * ndim ||
                shapes[1].ndim() != ndim + 2 || s[0] < 1 ||
                !std::all_of(s.begin(), s.end(), is_image_number)) {
              return false;
            }
            for (int d = 0; d < ndim; ++d) {
              const int64_t* at = s.begin() + 1 + 4 * d;
              if (at[0] < 1 || at[2] < 1) return false;
            }
            return true;
          }};
}

/// The factors of the taps of a filter, which is whole along them.
static std::string taps_text(int ndim, const char* prefix) {
  std::string text;
  for (int d = 0; d < ndim; ++d) text += concat(" [", prefix, d, "]");
  return text;
}

/// A rule with "+n" for the dims of the result, and the sizes of the groups and of these dims.
static Rule convolution_rule(const Attributes& attributes, const std::string& text) {
  Rule rule{text, {{"g", attributes.structure[0]}}};
  for (int d = 0; d < filter_dims(attributes); ++d) {
    rule.sizes.emplace_back(dim_name(d, "n"), filter_dim(attributes, d).size);
  }
  return rule;
}

/// The elements of an image that results [box] read through `taps` taps, along each dim.
static Box read_by(const Attributes& attributes, const Box& results, const auto& taps_of) {
  Box box = results;
  box.shape[0] = box.shape[1] = kOwnPart;
  for (int d = 0; d < filter_dims(attributes); ++d) {
    const FilterDim at = filter_dim(attributes, d);
    const int64_t count = results.shape[d + 2], taps = taps_of(d);
    box.offset[d + 2] = results.offset[d + 2] * at.stride - at.padding;
    box.shape[d + 2] = count && taps ? (count - 1) * at.stride + (taps - 1) * at.dilation + 1 : 0;
  }
  return box;
}

/// The results that read elements [box] of an image.
static Box reading(const Attributes& attributes, const Shape& filter, const Box& image) {
  Box box = image;
  box.shape[0] = box.shape[1] = kOwnPart;
  for (int d = 0; d < filter_dims(attributes); ++d) {
    const FilterDim at = filter_dim(attributes, d);
    const int64_t begin = image.offset[d + 2] + at.padding, end = begin + image.shape[d + 2];
    const int64_t reach = at.dilation * (filter[d + 2] - 1);
    const int64_t first = ceil_quotient(begin - reach, at.stride);
    box.offset[d + 2] = first;
    const bool none = image.shape[d + 2] == 0 || filter[d + 2] == 0;
    box.shape[d + 2] =
        none ? 0 : std::max<int64_t>(0, floor_quotient(end - 1, at.stride) + 1 - first);
  }
  return box;
}

/// The taps between local parts of an image and of results.
static Taps taps_between(const Attributes& attributes, const Box& image, const Box& results,
                         int64_t groups) {
  Taps taps{.ndim = filter_dims(attributes), .groups = groups};
  for (int d = 0; d < taps.ndim; ++d) {
    const auto i = static_cast<size_t>(d);
    const FilterDim at = filter_dim(attributes, d);
    taps.stride[i] = at.stride;
    taps.dilation[i] = at.dilation;
    taps.before[i] = image.offset[d + 2] + at.padding - results.offset[d + 2] * at.stride;
  }
  return taps;
}

static int64_t local_groups(const MemoryBlock& image, const MemoryBlock& filter) {
  return filter.shape[1] ? image.shape[1] / filter.shape[1] : 1;
}

static const Takes kDense{.dtypes = {f32, f64, bf16, f16}};
static const Takes kStrided{.dtypes = {f32, f64, bf16, f16}, .strides = true};

// Registered below: they refer to each other.
extern const Op image_gradient_op;
extern const Op filter_gradient_op;

// Missed layouts: channels within each group are not cut, only groups.
static const Op convolution_op = register_op({
    .name = "convolution",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape>) {
          const int ndim = filter_dims(attributes);
          return convolution_rule(
              attributes, concat("b (g c)", image_dims(ndim, "~s"), ", (g o) c",
                                 taps_text(ndim, "k"), " -> b (g o)", image_dims(ndim, "+n")));
        },
    .takes = {kStrided, kDense},
    .structure = convolution_structure(),
    .linear = {{0}, {1}},
    .forward =
        [](const Call& c) {
          const int64_t groups = local_groups(c.in(0), c.in(1));
          Taps taps = taps_between(c.attributes(), c.in_box(0), c.out_box(), groups);
          taps.skips_zeros = c.value(0) != 0;
          convolve(taps, c.in(0), c.in(1), c.out());
        },
    .backward =
        [](const Grad& g) {
          const Attributes& attributes = g.attributes();
          if (g.wants(0)) {
            g.give(0, image_gradient_op, {g.grad(), g.in(1)}, computing(attributes, g.in_shape(0)));
          }
          if (g.wants(1)) {
            g.give(1, filter_gradient_op, {g.grad(), g.in(0)},
                   computing(attributes, g.in_shape(1)));
          }
        },
    .needs =
        [](const Attributes& attributes, int, std::span<const Shape> shapes, const Box& result) {
          return read_by(attributes, result, [&](int d) { return shapes[1][d + 2]; });
        },
    .samples = {sample_with({{2, 4, 7}, {6, 2, 3}}, {2, 2, 1, 1, 4}),
                sample_with({{2, 3, 5, 7}, {2, 3, 3, 2}}, {1, 1, 1, 2, 3, 2, 1, 1, 4})},
});

const Op image_gradient_op = register_op({
    .name = "convolution_to_image",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape>) {
          const int ndim = filter_dims(attributes);
          return convolution_rule(
              attributes, concat("b (g o)", image_dims(ndim, "~t"), ", (g o) c",
                                 taps_text(ndim, "k"), " -> b (g c)", image_dims(ndim, "+n")));
        },
    .takes = {kStrided, kDense},
    .structure = convolution_structure(),
    .linear = {{0}, {1}},
    .forward =
        [](const Call& c) {
          const int64_t groups = local_groups(c.out(), c.in(1));
          convolve_to_image(taps_between(c.attributes(), c.out_box(), c.in_box(0), groups), c.in(0),
                            c.in(1), c.out());
        },
    .backward =
        [](const Grad& g) {
          const Attributes& attributes = g.attributes();
          if (g.wants(0)) {
            g.give(0, convolution_op, {g.grad(), g.in(1)}, computing(attributes, g.in_shape(0)));
          }
          if (g.wants(1)) {
            g.give(1, filter_gradient_op, {g.in(0), g.grad()},
                   computing(attributes, g.in_shape(1)));
          }
        },
    .needs = [](const Attributes& attributes, int, std::span<const Shape> shapes,
                const Box& result) { return reading(attributes, shapes[1], result); },
    .samples = {sample_with({{2, 6, 4}, {6, 2, 3}}, {2, 2, 1, 1, 7}),
                sample_with({{2, 2, 3, 4}, {2, 3, 3, 2}}, {1, 1, 1, 2, 5, 2, 1, 1, 7})},
});

const Op filter_gradient_op = register_op({
    .name = "convolution_to_filter",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape>) {
          const int ndim = filter_dims(attributes);
          return convolution_rule(
              attributes, concat("b (g o)", image_dims(ndim, "t"), ", b (g c)",
                                 image_dims(ndim, "~s"), " -> (g o) c", taps_text(ndim, "+n")));
        },
    .takes = {kDense, kStrided},
    .structure = convolution_structure(),
    .linear = {{0}, {1}},
    .positions = {{"t0", "t1", "t2"}},
    .forward =
        [](const Call& c) {
          const int64_t groups = local_groups(c.in(1), c.out());
          convolve_to_filter(taps_between(c.attributes(), c.in_box(1), c.in_box(0), groups),
                             c.in(0), c.in(1), c.out());
        },
    .backward =
        [](const Grad& g) {
          const Attributes& attributes = g.attributes();
          if (g.wants(0)) {
            g.give(0, convolution_op, {g.in(1), g.grad()}, computing(attributes, g.in_shape(0)));
          }
          if (g.wants(1)) {
            g.give(1, image_gradient_op, {g.in(0), g.grad()}, computing(attributes, g.in_shape(1)));
          }
        },
    .needs =
        [](const Attributes& attributes, int, std::span<const Shape>, const Box& results) {
          return read_by(attributes, results,
                         [&](int d) { return filter_dim(attributes, d).size; });
        },
    .samples = {sample_with({{2, 6, 4}, {2, 4, 7}}, {2, 2, 1, 1, 3}),
                sample_with({{2, 2, 3, 4}, {2, 3, 5, 7}}, {1, 1, 1, 2, 3, 2, 1, 1, 2})},
});

namespace {

/// The checked arguments of a convolution.
struct Convolution {
  const char* what;
  int ndim;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups;

  Convolution(const char* name, const Tensor& x, const Tensor& weight,
              const ConvolutionOptions& options)
      : what(name), ndim(weight ? weight.ndim() - 2 : 0), groups(options.groups) {
    check_tensor(what, x);
    check_tensor(what, weight);
    if (ndim < 1 || ndim > kImageDims) {
      fail(what, ": weight is ", weight.shape(), ", expected 3 to 5 dims");
    }
    if (groups < 1) fail(what, ": groups must be at least 1, got ", groups);
    stride = each_dim(what, "stride", options.stride, ndim, 1);
    padding = each_dim(what, "padding", options.padding, ndim, 0);
    dilation = each_dim(what, "dilation", options.dilation, ndim, 1);
    if (weight.dtype() != x.dtype()) {
      fail(what, ": weight is ", weight.dtype(), ", expected ", x.dtype(), ", as x");
    }
    if (weight.size(0) % groups != 0) {
      fail(what, ": dim 0 of weight is ", weight.size(0), ", expected a multiple of groups, ",
           groups);
    }
    for (int d = 2; d < weight.ndim(); ++d) {
      if (weight.size(d) < 1) fail(what, ": weight is ", weight.shape(), ", expected taps");
    }
  }

  void check_channels(const Tensor& x, int64_t expected) const {
    if (x.size(1) == expected) return;
    fail(what, ": x has ", x.size(1), " channels, expected ", expected,
         ", by the weight and groups ", groups);
  }
  void check_bias(const Tensor& x, const Tensor& bias, int64_t channels) const {
    if (!bias) return;
    if (!(bias.shape() == Shape{channels}))
      fail(what, ": bias is ", bias.shape(), ", expected ", Shape{channels});
    if (bias.dtype() != x.dtype())
      fail(what, ": bias is ", bias.dtype(), ", expected ", x.dtype(), ", as x");
  }

  int64_t reach(const Tensor& weight, size_t d) const {
    return dilation[d] * (weight.size(static_cast<int>(d) + 2) - 1) + 1;
  }
  Attributes attributes(const std::vector<int64_t>& sizes) const {
    Attributes made{.structure = {groups}};
    for (size_t d = 0; d < sizes.size(); ++d) {
      for (const int64_t number : {stride[d], padding[d], dilation[d], sizes[d]}) {
        made.structure.push_back(number);
      }
    }
    return made;
  }
};

}  // namespace

static Tensor with_bias(const Tensor& y, const Tensor& bias, int ndim) {
  if (!bias) return y;
  Shape shape = Shape::filled(ndim + 1, 1);
  shape[0] = bias.size(0);
  return add(y, reshape(bias, shape));
}

Tensor convolution(const Tensor& given, const Tensor& weight, const Tensor& bias,
                   const ConvolutionOptions& options) {
  const Convolution how("convolution", given, weight, options);
  const Tensor x = batched_image(how.what, given, how.ndim);
  how.check_channels(x, weight.size(1) * how.groups);
  how.check_bias(x, bias, weight.size(0));
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < how.stride.size(); ++d) {
    const int64_t padded = x.size(static_cast<int>(d) + 2) + 2 * how.padding[d];
    if (padded < how.reach(weight, d)) {
      fail(how.what, ": dim ", d, " of the image with its padding is ", padded,
           ", expected at least ", how.reach(weight, d), ", which the filter reads");
    }
    sizes.push_back((padded - how.reach(weight, d)) / how.stride[d] + 1);
  }
  const Tensor y = convolution_op({x, weight}, how.attributes(sizes));
  return like_batch_of(given, how.ndim, with_bias(y, bias, how.ndim));
}

Tensor convolution_same(const Tensor& given, const Tensor& weight, const Tensor& bias,
                        const ConvolutionOptions& options) {
  Convolution how("convolution", given, weight, options);
  const Tensor x = batched_image(how.what, given, how.ndim);
  how.check_channels(x, weight.size(1) * how.groups);
  how.check_bias(x, bias, weight.size(0));
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < how.stride.size(); ++d) {
    if (how.stride[d] != 1) {
      fail(how.what, ": stride is ", how.stride[d], ", expected 1 for the padding 'same'");
    }
    how.padding[d] = (how.reach(weight, d) - 1) / 2;
    sizes.push_back(x.size(static_cast<int>(d) + 2));
  }
  const Tensor y = convolution_op({x, weight}, how.attributes(sizes));
  return like_batch_of(given, how.ndim, with_bias(y, bias, how.ndim));
}

Tensor stencil(const Tensor& x, const Tensor& weights) {
  check_tensor("stencil", x);
  check_tensor("stencil", weights);
  const int ndim = x.ndim();
  if (ndim < 1 || ndim > kImageDims || weights.ndim() != ndim) {
    fail("stencil: weights are ", weights.shape(), " for x ", x.shape(),
         ", expected as many dims, 1 to 3");
  }
  if (weights.dtype() != x.dtype()) {
    fail("stencil: weights are ", weights.dtype(), ", expected ", x.dtype(), ", as x");
  }
  Attributes attributes{.structure = {1}, .values = {1}};
  for (int d = 0; d < ndim; ++d) {
    if (weights.size(d) % 2 == 0) {
      fail("stencil: dim ", d, " of weights is ", weights.size(d), ", expected an odd number");
    }
    for (const int64_t n : {int64_t{1}, weights.size(d) / 2, int64_t{1}, x.size(d)}) {
      attributes.structure.push_back(n);
    }
  }
  const auto image = [](const Tensor& a) { return unsqueeze(unsqueeze(a, 0), 0); };
  return squeeze(squeeze(convolution_op({image(x), image(weights)}, attributes), 0), 0);
}

Tensor transposed_convolution(const Tensor& given, const Tensor& weight, const Tensor& bias,
                              const ConvolutionOptions& options,
                              const std::vector<int64_t>& output_padding) {
  const Convolution how("transposed_convolution", given, weight, options);
  const Tensor x = batched_image(how.what, given, how.ndim);
  how.check_channels(x, weight.size(0));
  how.check_bias(x, bias, weight.size(1) * how.groups);
  const auto added = each_dim(how.what, "output_padding", output_padding, how.ndim, 0);
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < how.stride.size(); ++d) {
    const int64_t most = std::max(how.stride[d], how.dilation[d]);
    if (added[d] >= most) {
      fail(how.what, ": output_padding is ", added[d], ", expected less than ", most,
           ", the stride or the dilation");
    }
    const int64_t size = (x.size(static_cast<int>(d) + 2) - 1) * how.stride[d] -
                         2 * how.padding[d] + how.reach(weight, d) + added[d];
    if (size < 1) fail(how.what, ": dim ", d, " of the result must be at least 1, got ", size);
    sizes.push_back(size);
  }
  const Tensor y = image_gradient_op({x, weight}, how.attributes(sizes));
  return like_batch_of(given, how.ndim, with_bias(y, bias, how.ndim));
}

}  // namespace weft

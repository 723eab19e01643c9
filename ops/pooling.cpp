// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "ops/convolution.h"
#include "ops/dims.h"
#include "ops/engine/choose.h"
#include "ops/pools.h"

namespace weft {

// Ops over windows of an image [b, c, s...], whose results are [b, c, t...].
//   structure: count padding, divisor (0: the number of elements); then for each dim kernel,
//   stride, padding, dilation, size of the image, number of windows. A kernel of 0 is adaptive:
//   window t of n begins at floor(t * size / n) and ends before ceil((t + 1) * size / n).

static int image_dims_of(const Attributes& attributes) {
  return (attributes.structure.ndim() - 2) / 6;
}
static WindowDim window_dim(const Attributes& attributes, int d) {
  const auto at = attributes.structure.begin() + 2 + 6 * d;
  return {at[0], at[1], at[2], at[3], at[4], at[5]};
}

static Planes planes_of(const Box& box) {
  Planes planes;
  const int ndim = box.shape.ndim() - 2;
  for (int d = 0; d < ndim; ++d) {
    planes.offset[kImageDims - ndim + d] = box.offset[d + 2];
    planes.size[kImageDims - ndim + d] = box.shape[d + 2];
  }
  return planes;
}

static Pool pool_of(const Attributes& attributes, const Box& image, const Box& results) {
  Pool pool;
  const int ndim = image_dims_of(attributes);
  for (int d = 0; d < ndim; ++d) pool.dims[kImageDims - ndim + d] = window_dim(attributes, d);
  pool.image = planes_of(image);
  pool.results = planes_of(results);
  pool.counts_padding = attributes.structure[0] != 0;
  pool.divisor = attributes.structure[1];
  pool.planes = image.shape[0] * image.shape[1];
  return pool;
}

/// `to_image`: operands are results of windows, otherwise operand 0 is an image.
static Structure pool_structure(bool to_image) {
  return {
      "whether padding counts, divisor, then kernel, stride, padding, dilation, size and number "
      "of windows for each dim",
      [to_image](const Dims& s, std::span<const Shape> shapes) {
        const int ndim = shapes[0].ndim() - 2;
        if (ndim < 1 || ndim > kImageDims || s.ndim() != 2 + 6 * ndim) return false;
        for (int d = 0; d < ndim; ++d) {
          const auto at = s.begin() + 2 + 6 * d;
          if (at[to_image ? 5 : 4] != shapes[0][d + 2] || at[1] < 1 || at[3] < 1) return false;
          if (at[0] == 0 && (at[4] < 1 || at[5] < 1)) return false;
          if (!std::all_of(at, at + 6, is_image_number)) return false;
        }
        return is_flag(s[0]);
      }};
}

/// A rule with "+n" for dims of the image, or of the results.
static Rule pool_rule(const Attributes& attributes, const std::string& text, bool to_image) {
  Rule rule{text};
  for (int d = 0; d < image_dims_of(attributes); ++d) {
    const WindowDim dim = window_dim(attributes, d);
    rule.sizes.emplace_back(dim_name(d, "n"), to_image ? dim.size : dim.count);
  }
  return rule;
}
static Rule results_rule(const Attributes& attributes, int results) {
  const int ndim = image_dims_of(attributes);
  const std::string array = "b c" + image_dims(ndim, "+n");
  return pool_rule(attributes,
                   concat("b c", image_dims(ndim, "~s"), " -> ", array,
                          results == 2 ? ", " + array : std::string()),
                   false);
}
static Rule to_image_rule(const Attributes& attributes, int operands) {
  const int ndim = image_dims_of(attributes);
  const std::string array = "b c" + image_dims(ndim, "~t");
  return pool_rule(attributes,
                   concat(array, operands == 2 ? ", " + array : std::string(), " -> b c",
                          image_dims(ndim, "+n")),
                   true);
}

/// Returns the box from the first place of a box's first element to the last place of its last one.
template <Places (*kPlaces)(const WindowDim&, int64_t)>
static Box covering(const Attributes& attributes, int, std::span<const Shape>, const Box& given) {
  Box box = given;
  box.shape[0] = box.shape[1] = kOwnPart;
  for (int d = 0; d < image_dims_of(attributes); ++d) {
    const WindowDim dim = window_dim(attributes, d);
    const int64_t begin = given.offset[d + 2], count = given.shape[d + 2];
    box.offset[d + 2] = count ? kPlaces(dim, begin).first : 0;
    box.shape[d + 2] =
        count ? std::max<int64_t>(0, kPlaces(dim, begin + count - 1).last - box.offset[d + 2]) : 0;
  }
  return box;
}

// Gradients on the CPU: each window adds to its elements, plane by plane, in the order in which a
// kernel for a GPU sums the windows of each element.

/// The places among the local elements of dim `d` of the image.
static Places local_places(const Pool& pool, int d, Places places) {
  const int64_t begin = pool.image.offset[d], end = begin + pool.image.size[d];
  if (places.first < begin) {
    places.first += (begin - places.first + places.step - 1) / places.step * places.step;
  }
  return {places.first, least(places.last, end), places.step};
}

/// x = the sums of what add(a, b, c, result, sums) adds to a plane for each of its results.
template <class T, class Add> static void sum_planes(const Pool& pool, T* x, const Add& add) {
  using C = Wide<T>;
  const auto count = static_cast<size_t>(pool.image.count());
  const Planes& over = pool.results;
  parallel_for(pool.planes, grain_of(pool.image.count()), [&](int64_t begin, int64_t end) {
    std::vector<C> sums(count);
    for (int64_t plane = begin; plane < end; ++plane) {
      std::fill(sums.begin(), sums.end(), C(0));
      int64_t result = plane * over.count();
      for (int64_t a = over.offset[0]; a < over.offset[0] + over.size[0]; ++a) {
        for (int64_t b = over.offset[1]; b < over.offset[1] + over.size[1]; ++b) {
          for (int64_t c = over.offset[2]; c < over.offset[2] + over.size[2]; ++c) {
            add(a, b, c, result++, sums.data());
          }
        }
      }
      std::transform(sums.begin(), sums.end(), x + static_cast<size_t>(plane) * count,
                     [](C sum) { return static_cast<T>(sum); });
    }
  });
}

template <class T> static void mean_to_image(Device device, Pool pool, const T* y, T* x) {
  using C = Wide<T>;
  if (pool.image.count() == 0) return;
  if (is_on_gpu(device)) return each_place(device, MeanToImage<T>{pool, y, x}, pool.image);
  const WindowTables tables(pool);
  sum_planes(pool, x, [&](int64_t a, int64_t b, int64_t c, int64_t result, C* sums) {
    const C each = static_cast<C>(y[result]) / static_cast<C>(pool.divisor_of(a, b, c));
    const Places is = local_places(pool, 0, pool.elements_of(0, a));
    const Places js = local_places(pool, 1, pool.elements_of(1, b));
    const Places ks = local_places(pool, 2, pool.elements_of(2, c));
    for (int64_t i = is.first; i < is.last; i += is.step) {
      for (int64_t j = js.first; j < js.last; j += js.step) {
        C* line = sums + pool.image.at(i, j, 0);
        for (int64_t k = ks.first; k < ks.last; k += ks.step) line[k] += each;
      }
    }
  });
}

/// True when a window has an element of the local image.
static bool has_local(const Pool& pool, int d, int64_t t, int64_t s) {
  const Places at = pool.elements_of(d, t);
  const int64_t local = s - pool.image.offset[d];
  return s >= at.first && s < at.last && (at.step == 1 || (s - at.first) % at.step == 0) &&
         local >= 0 && local < pool.image.size[d];
}

template <class T>
static void max_to_image(Device device, Pool pool, const T* y, const int64_t* indices, T* x) {
  using C = Wide<T>;
  if (pool.image.count() == 0) return;
  if (is_on_gpu(device)) return each_place(device, MaxToImage<T>{pool, y, indices, x}, pool.image);
  const WindowTables tables(pool);
  sum_planes(pool, x, [&](int64_t a, int64_t b, int64_t c, int64_t result, C* sums) {
    const int64_t number = indices[result], row = number / pool.dims[2].size;
    const int64_t k = number - row * pool.dims[2].size;
    const int64_t i = pool.dims[0].size == 1 ? 0 : row / pool.dims[1].size;
    const int64_t j = row - i * pool.dims[1].size;
    if (has_local(pool, 0, a, i) && has_local(pool, 1, b, j) && has_local(pool, 2, c, k)) {
      sums[pool.image.at(i, j, k)] += static_cast<C>(y[result]);
    }
  });
}

static const Takes kFloats{.dtypes = {f32, f64, bf16, f16}};
static const Takes kIndices{.dtypes = {i64}};
extern const Op avg_to_image_op, max_to_image_op;

static const Op max_pool_op = register_op({
    .name = "max_pool",
    .rule_of = [](const Attributes& a, std::span<const Shape>) { return results_rule(a, 2); },
    .takes = {kFloats},
    .structure = pool_structure(false),
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int result) { return result == 0 ? dtypes[0] : i64; },
    .forward =
        [](const Call& c) {
          const Pool pool = pool_of(c.attributes(), c.in_box(0), c.out_box());
          visit_floating("max_pool", c.out().dtype, [&]<class T>(Type<T>) {
            each_place(
                c.out().device,
                MaxOfWindow<T>{pool, c.in(0).as<T>(), c.out(0).as<T>(), c.out(1).as<int64_t>()},
                pool.results);
          });
        },
    .backward =
        [](const Grad& g) {
          g.give(0, max_to_image_op, {g.grad(), g.out(1)}, g.attributes());
        },
    .needs = covering<reach_of>,
    .saves_in = {{}},
    .saves_out = {1},
    .samples = {sample_with({{2, 3, 7}}, {0, 0, 3, 2, 1, 1, 7, 4}),
                sample_with({{1, 3, 5, 7}}, {0, 0, 2, 1, 1, 2, 5, 5, 3, 3, 1, 1, 7, 3})},
});

static const Op max_picked_op = register_op({
    .name = "max_pool_picked",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape>) {
          const int ndim = image_dims_of(attributes);
          const std::string results = "b c" + image_dims(ndim, "t");
          return Rule{concat("b c", image_dims(ndim, "~s"), ", ", results, " -> ", results)};
        },
    .takes = {kFloats, kIndices},
    .structure = pool_structure(false),
    .linear = {{0}},
    .positions = {{"t0", "t1", "t2"}},
    .forward =
        [](const Call& c) {
          const Pool pool = pool_of(c.attributes(), c.in_box(0), c.out_box());
          visit_floating("max_pool", c.out().dtype, [&]<class T>(Type<T>) {
            each_place(
                c.out().device,
                PickedOfWindow<T>{pool, c.in(0).as<T>(), c.in(1).as<int64_t>(), c.out().as<T>()},
                pool.results);
          });
        },
    .backward =
        [](const Grad& g) {
          g.give(0, max_to_image_op, {g.grad(), g.in(1)}, g.attributes());
        },
    .needs = covering<reach_of>,
    .samples = {sample_with({{2, 3, 7}, {2, 3, 4}}, {0, 0, 3, 2, 1, 1, 7, 4}, {f32, i64}, 0, 7)},
});

const Op max_to_image_op = register_op({
    .name = "max_pool_to_image",
    .rule_of = [](const Attributes& a, std::span<const Shape>) { return to_image_rule(a, 2); },
    .takes = {kFloats, kIndices},
    .structure = pool_structure(true),
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          const Pool pool = pool_of(c.attributes(), c.out_box(), c.in_box(0));
          visit_floating("max_pool", c.out().dtype, [&]<class T>(Type<T>) {
            max_to_image(c.out().device, pool, c.in(0).as<T>(), c.in(1).as<int64_t>(),
                         c.out().as<T>());
          });
        },
    .backward =
        [](const Grad& g) {
          g.give(0, max_picked_op, {g.grad(), g.in(1)}, g.attributes());
        },
    .needs = covering<windows_of>,
    .samples = {sample_with({{2, 3, 4}, {2, 3, 4}}, {0, 0, 3, 2, 1, 1, 7, 4}, {f32, i64}, 0, 7)},
});

static const Op avg_pool_op = register_op({
    .name = "avg_pool",
    .rule_of = [](const Attributes& a, std::span<const Shape>) { return results_rule(a, 1); },
    .takes = {kFloats},
    .structure = pool_structure(false),
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          const Pool pool = pool_of(c.attributes(), c.in_box(0), c.out_box());
          visit_floating("avg_pool", c.out().dtype, [&]<class T>(Type<T>) {
            each_place(c.out().device, MeanOfWindow<T>{pool, c.in(0).as<T>(), c.out().as<T>()},
                       pool.results);
          });
        },
    .backward = [](const Grad& g) { g.give(0, avg_to_image_op, {g.grad()}, g.attributes()); },
    .needs = covering<reach_of>,
    .samples = {sample_with({{2, 3, 7}}, {1, 0, 3, 2, 1, 1, 7, 4}),
                sample_with({{1, 3, 5, 7}}, {0, 0, 0, 1, 0, 1, 5, 3, 0, 1, 0, 1, 7, 2}),
                sample_with({{1, 2, 3, 4, 5}},
                            {0, 3, 2, 1, 0, 1, 3, 2, 2, 2, 0, 1, 4, 2, 3, 1, 1, 1, 5, 5})},
});

const Op avg_to_image_op = register_op({
    .name = "avg_pool_to_image",
    .rule_of = [](const Attributes& a, std::span<const Shape>) { return to_image_rule(a, 1); },
    .takes = {kFloats},
    .structure = pool_structure(true),
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          const Pool pool = pool_of(c.attributes(), c.out_box(), c.in_box(0));
          visit_floating("avg_pool", c.out().dtype, [&]<class T>(Type<T>) {
            mean_to_image(c.out().device, pool, c.in(0).as<T>(), c.out().as<T>());
          });
        },
    .backward = [](const Grad& g) { g.give(0, avg_pool_op, {g.grad()}, g.attributes()); },
    .needs = covering<windows_of>,
    .samples = {sample_with({{2, 3, 4}}, {1, 0, 3, 2, 1, 1, 7, 4})},
});

/// The structure of a pool of checked options.
static Attributes pool_attributes(const char* what, const Tensor& x, int ndim,
                                  const PoolOptions& options) {
  const auto kernel = each_dim(what, "kernel", options.kernel, ndim, 1);
  const auto stride =
      options.stride.empty() ? kernel : each_dim(what, "stride", options.stride, ndim, 1);
  const auto padding = each_dim(what, "padding", options.padding, ndim, 0);
  const auto dilation = each_dim(what, "dilation", options.dilation, ndim, 1);
  Attributes made{.structure = {0, 0}};
  for (int d = 0; d < ndim; ++d) {
    const auto i = static_cast<size_t>(d);
    const int64_t size = x.size(d + 2), reach = (kernel[i] - 1) * dilation[i] + 1;
    if (2 * padding[i] > reach) {
      fail(what, ": padding is ", padding[i], ", expected at most ", reach / 2,
           ", half of the window");
    }
    const int64_t beyond = options.ceil_mode && size > 0 ? stride[i] - 1 : 0;
    const int64_t room = size + 2 * padding[i] - reach + beyond;
    if (room < 0) {
      fail(what, ": dim ", d, " of the image with its padding is ", size + 2 * padding[i],
           ", expected at least ", reach - beyond, ", the window",
           beyond > 0 ? " and its stride" : "");
    }
    int64_t count = room / stride[i] + 1;
    if (options.ceil_mode && (count - 1) * stride[i] >= size + padding[i]) --count;
    for (const int64_t n : {kernel[i], stride[i], padding[i], dilation[i], size, count}) {
      made.structure.push_back(n);
    }
  }
  return made;
}

static Attributes adaptive_attributes(const char* what, const Tensor& x, int ndim,
                                      const std::vector<int64_t>& given) {
  const auto sizes = each_dim(what, "size", given, ndim, -1);
  Attributes made{.structure = {0, 0}};
  for (int d = 0; d < ndim; ++d) {
    const int64_t size = x.size(d + 2), asked = sizes[static_cast<size_t>(d)];
    const int64_t count = asked < 0 ? size : asked;
    if (count < 1) fail(what, ": size must be at least 1, got ", count);
    if (size < 1) fail(what, ": dim ", d, " of the image must be at least 1, got ", size);
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{0}, int64_t{1}, size, count}) {
      made.structure.push_back(n);
    }
  }
  return made;
}

static void check_image_dims(const char* what, int dims) {
  if (dims < 1 || dims > kImageDims) fail(what, ": number of dims is ", dims, ", expected 1 to 3");
}

static PooledAndIndices max_pooled(const Tensor& given, const Tensor& x, int dims,
                                   const Attributes& attributes) {
  const Tensors results = max_pool_op.call({x}, attributes);
  return {like_batch_of(given, dims, results[0]), like_batch_of(given, dims, results[1])};
}

PooledAndIndices max_pool(const Tensor& given, int dims, const PoolOptions& options) {
  check_image_dims("max_pool", dims);
  const Tensor x = batched_image("max_pool", given, dims);
  return max_pooled(given, x, dims, pool_attributes("max_pool", x, dims, options));
}

PooledAndIndices adaptive_max_pool(const Tensor& given, int dims,
                                   const std::vector<int64_t>& size) {
  check_image_dims("adaptive_max_pool", dims);
  const Tensor x = batched_image("adaptive_max_pool", given, dims);
  return max_pooled(given, x, dims, adaptive_attributes("adaptive_max_pool", x, dims, size));
}

Tensor avg_pool(const Tensor& given, int dims, const PoolOptions& options, bool count_padding,
                std::optional<int64_t> divisor) {
  check_image_dims("avg_pool", dims);
  const Tensor x = batched_image("avg_pool", given, dims);
  if (options.dilation != std::vector<int64_t>{1}) fail("avg_pool: dilation is given, expected 1");
  if (divisor && *divisor == 0) fail("avg_pool: divisor is 0, expected another number");
  Attributes attributes = pool_attributes("avg_pool", x, dims, options);
  attributes.structure[0] = count_padding;
  attributes.structure[1] = divisor.value_or(0);
  return like_batch_of(given, dims, avg_pool_op({x}, attributes));
}

Tensor adaptive_avg_pool(const Tensor& given, int dims, const std::vector<int64_t>& size) {
  check_image_dims("adaptive_avg_pool", dims);
  const Tensor x = batched_image("adaptive_avg_pool", given, dims);
  return like_batch_of(given, dims,
                       avg_pool_op({x}, adaptive_attributes("adaptive_avg_pool", x, dims, size)));
}

}  // namespace weft

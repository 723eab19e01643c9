// SPDX-License-Identifier: Apache-2.0
#include "ops/take.h"

#include <algorithm>

#include "ops/dims.h"
#include "ops/promotion.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/take/take.h"
#include "weft/ops.h"

namespace weft {

// structure: dim. Rows move by index (see ByIndex): of a cut dim, ranks exchange the named ones.

/// Indices name slices along a dim, its elements, or rows that ranks keep whole.
enum class Taken : uint8_t { slices, elements, rows };
/// The dims of a tensor, "d0 ~n d2", and of indices of its dim: "n", or as the tensor's.
struct TakenDims {
  TakenDims(const Attributes& a, int ndim, Taken what, const std::string& mark)
      : dim(static_cast<int>(a.structure[0])), count(ndim) {
    if (what == Taken::rows) open = "[d", close = "] ";
    rows = with(mark);
    indices = what == Taken::elements ? rows : mark;
  }
  std::string with(const std::string& name) const {
    return dims_with(count, dim, name, open, close);
  }
  /// The places of the dim, in a tensor whose other dims have size 1.
  std::string places() const { return dims_with(count, dim, "n", "[u", "] "); }

  int dim, count;
  const char *open = "d", *close = " ";
  std::string rows, indices;
};

/// The places of the dim in operand 0.
static Tensor own_places(const Grad& g) {
  return places_along(g.in_shape(0), along_dim(g), g.in_sharding(0), g.grad().device());
}

static Tensor taken(bool elements, const Tensor& a, const Tensor& indices, int dim) {
  return elements ? take_along_dim(a, indices, dim) : take(a, indices, dim);
}

/// Returns whether all elements are one integer, which the CPU's sums take as it is.
static bool is_one_integer(const MemoryBlock& block) {
  return block.device.kind == DeviceKind::cpu && block.dtype == DType::i64 &&
         std::all_of(block.strides.begin(), block.strides.end(), [](int64_t s) { return s == 0; });
}

/// Calls f(out, rows, indices, dim), for listed elements with a flat `out`; f returns an index that
/// is out of range. `size` is that of the dim; the values of sums `may_repeat`.
template <class F>
static void with_rows(const Call& c, const std::string& name, int rows, int64_t size, const F& f,
                      bool may_repeat = false) {
  const DenseBlock indices = DenseBlock::of(c.in(rows + 1));
  const MemoryBlock& given = c.in(rows);
  const DenseBlock values =
      may_repeat && is_one_integer(given) ? DenseBlock::as_it_is(given) : DenseBlock::of(given);
  MemoryBlock out = c.out();
  // The engine gives the elements that indices name as a list.
  const bool listed = given.shape.ndim() != c.in_shape(rows).ndim();
  if (listed) out = dense_block(out.data, out.dtype, {out.numel()}, out.device);
  if (const auto outside = f(out, values, indices, listed ? 0 : along_dim(c))) {
    fail(name, ": index is ", *outside, ", expected one of the ", size, " elements of dim ",
         along_dim(c));
  }
}

/// The gradient of taking: adds up what was taken, at the indices that it was taken from.
/// Missed layouts: the last operand is read for its layout only, and one of a layout that no result
/// has is changed, which moves no bytes of use. Rows of experts stay whole, as their products read
/// them.
static Op add_op(const std::string& name, Taken what, std::vector<OpSample> samples) {
  return register_op({
      .name = name,
      .rule_of =
          [what](const Attributes& a, std::span<const Shape> shapes) {
            const TakenDims dims(a, shapes[0].ndim(), what, "~i");
            return Rule{
                concat(dims.rows, ", ", dims.indices, ", ", dims.places(), "-> ", dims.with("n"))};
          },
      .complex = true,
      .structure = one_dim(),
      .linear = {{0}},
      .forward =
          [name](const Call& c) {
            // Value 0 tells of indices that an op made: a check would wait for a GPU.
            const auto add = [checks = c.value(0) == 0](const auto&... x) {
              return write_along(x..., WriteMode::add, checks);
            };
            with_rows(c, name, 0, c.out_shape()[along_dim(c)], add, true);
          },
      .backward =
          [what](const Grad& g) {
            const int dim = along_dim(g);
            g.give(0, what == Taken::rows ? take_rows(g.grad(), g.in(1))
                                          : taken(what == Taken::elements, g.grad(), g.in(1), dim));
          },
      .by_index =
          ByIndex{.into = 2, .elements = what == Taken::elements, .written = ByIndex::Written::add},
      .saves_in = std::vector<int>{1},
      .samples = std::move(samples),
  });
}

static const Op add_slices_op =
    add_op("add_slices", Taken::slices,
           {sample_with({{5, 3}, {5}, {7, 1}}, {0}, {f32, i64, u8}, -7, 7),
            sample_with({{2, 5}, {5}, {1, 3}}, {1}, {f32, i32, u8}, -3, 3)});

static const Op add_along_dim_op =
    add_op("add_along_dim", Taken::elements,
           {sample_with({{5, 3}, {5, 3}, {7, 1}}, {0}, {f32, i64, u8}, -7, 7),
            sample_with({{3, 2}, {3, 2}, {1, 5}}, {1}, {f32, i32, u8}, -5, 5)});
static const Op combine_rows_op = add_op(
    "combine_rows", Taken::rows, {sample_with({{5, 3}, {5}, {7, 1}}, {0}, {f32, i64, u8}, -7, 7)});

Tensor add_slices(const Tensor& values, const Tensor& indices, int dim, const Tensor& places) {
  return add_slices_op({values, indices, places}, {.structure = {dim}});
}
Tensor add_rows(const Tensor& values, const Tensor& indices, const Tensor& places) {
  return combine_rows_op({values, indices, places}, {.structure = {0}});
}
Tensor add_along_dim(const Tensor& values, const Tensor& indices, int dim, const Tensor& places) {
  return add_along_dim_op({values, indices, places}, {.structure = {dim}});
}
Tensor add_along_dim(const Tensor& values, const Tensor& indices, int dim, int64_t size) {
  const Shape shape = with_size(values.shape(), dim, size);
  const Sharding whole = options_next_to(values, DType::u8).sharding;
  return add_along_dim(values, as_indices("add_along_dim", "indices", indices), dim,
                       places_along(shape, dim, whole, values.device()));
}

Op register_with_indices(OpSpec spec) {
  spec.dtype = [](const Attributes&, std::span<const DType> dtypes, int result) {
    return result ? DType::i64 : dtypes[0];
  };
  spec.backward = [](const Grad& g) {
    g.give(0, add_along_dim_op, {g.grad(), g.out(1), own_places(g)},
           {.structure = {along_dim(g)}, .values = {1}});
  };
  spec.staged_over = {"n"};
  spec.saves_in = std::vector<int>{};
  spec.saves_out = {1};
  return register_op(std::move(spec));
}

Tensor places_along(const Shape& shape, int dim, const Sharding& sharding, Device device,
                    DType dtype) {
  TensorOptions options{.dtype = dtype, .device = device};
  if (sharding) {
    options.sharding = keeping(sharding, [&](int axis) { return sharding[axis].is_shard(dim); });
  }
  const Tensor made = empty(ones_but(shape.ndim(), dim, shape[dim]), options);
  if (!sharding) made.storage()->mark_equal_on_ranks();
  return made;
}

/// Missed layouts: dispatched rows stay whole, as the products of experts read them.
static Op taking_op(const std::string& name, Taken what, const Op& gradient,
                    std::vector<OpSample> samples) {
  return register_op({
      .name = name,
      .rule_of =
          [what](const Attributes& a, std::span<const Shape> shapes) {
            const TakenDims dims(a, shapes[0].ndim(), what, "i");
            Rule rule{concat(dims.with("~n"), ", ", dims.indices, "-> ", dims.rows)};
            if (what == Taken::rows) rule.joined = {"i", "i"};
            return rule;
          },
      .moves = true,
      .structure = one_dim(),
      .linear = {{0}},
      .forward =
          [name](const Call& c) {
            with_rows(c, name, 0, c.in_shape(0)[along_dim(c)],
                      [](const auto&... x) { return take_along(x..., true); });
          },
      .backward =
          [gradient](const Grad& g) {
            g.give(0, gradient, {g.grad(), g.in(1), own_places(g)},
                   {.structure = {g.attribute(0)}});
          },
      .by_index = ByIndex{.elements = what == Taken::elements},
      .samples = std::move(samples),
  });
}

static const Op take_op = taking_op("take", Taken::slices, add_slices_op,
                                    {sample_with({{7, 3}, {5}}, {0}, {f32, i64}, -7, 7),
                                     sample_with({{5, 3}, {2}}, {1}, {f32, i32}, -3, 3)});

static const Op take_along_dim_op =
    taking_op("take_along_dim", Taken::elements, add_along_dim_op,
              {sample_with({{7, 3}, {5, 3}}, {0}, {f32, i64}, -7, 7),
               sample_with({{5, 3}, {5, 2}}, {1}, {f32, i32}, -3, 3)});

static const Op dispatch_rows_op = taking_op("dispatch_rows", Taken::rows, combine_rows_op,
                                             {sample_with({{7, 3}, {5}}, {0}, {f32, i64}, -7, 7)});

Tensor take_rows(const Tensor& a, const Tensor& indices) {
  return dispatch_rows_op({a, indices}, {.structure = {0}});
}

static Tensor put(bool elements, const Tensor& a, const Tensor& values, const Tensor& indices,
                  int dim) {
  return elements ? put_along_dim(a, values, indices, dim) : put_slices(a, values, indices, dim);
}

/// True for each of the values put in that was replaced by a later one.
static Tensor is_replaced(const Grad& g, bool elements, int dim) {
  const Tensor indices = g.in(2);
  const Shape& values = g.in_shape(1);
  Tensor positions = reshape(arange(values[dim], options_next_to(indices, DType::i64)),
                             ones_but(values.ndim(), dim, values[dim]));
  Tensor places = zeros_like(cast(own_places(g), DType::i64));
  if (elements) {
    positions = expand(positions, values);
    places = expand(places, g.in_shape(0));
  }
  const Tensor last = put(elements, places, positions, indices, dim);
  return not_equal(taken(elements, last, indices, dim), positions);
}

/// The gradients of the tensor and of the values that were put into it.
static void put_backward(const Grad& g, bool elements) {
  const int dim = along_dim(g);
  if (g.wants(0)) {
    TensorOptions options{.dtype = g.grad().dtype(), .device = g.grad().device()};
    if (g.in_sharding(1)) options.sharding = reduced_sharding(g.in_sharding(1));
    g.give(0, put(elements, g.grad(), zeros(g.in_shape(1), options), g.in(2), dim));
  }
  if (!g.wants(1)) return;
  const Tensor reached = taken(elements, g.grad(), g.in(2), dim);
  g.give(1, masked_fill(reached, is_replaced(g, elements, dim), 0));
}

/// Ops that write values into a tensor. `written` is what becomes of an element that another is
/// written to.
static OpSpec write_spec(const std::string& name, bool elements, ByIndex::Written written) {
  return {
      .name = name,
      .rule_of =
          [elements](const Attributes& a, std::span<const Shape> shapes) {
            const TakenDims dims(a, shapes[0].ndim(), static_cast<Taken>(elements), "~i");
            const std::string whole = dims.with("n");
            return Rule{concat(whole, ", ", dims.rows, ", ", dims.indices, "-> ", whole)};
          },
      .structure = one_dim(),
      .forward =
          [name, written](const Call& c) {
            copy(c.out(), c.in(0));
            with_rows(c, name, 1, c.out_shape()[along_dim(c)], [&](const auto&... x) {
              return write_along(x..., static_cast<WriteMode>(written), true);
            });
          },
      .by_index =
          ByIndex{.rows = 1, .indices = 2, .into = 0, .elements = elements, .written = written},
  };
}

static Op put_op(const std::string& name, bool elements, std::vector<OpSample> samples) {
  OpSpec spec = write_spec(name, elements, ByIndex::Written::replace);
  spec.moves = true;
  spec.linear = {{0, 1}};
  spec.backward = [elements](const Grad& g) { put_backward(g, elements); };
  spec.samples = std::move(samples);
  return register_op(std::move(spec));
}

/// Missed layouts: tensors of two kinds of Partial have no common kind.
static const Op put_slices_op =
    put_op("put_slices", false,
           {sample_with({{7, 3}, {5, 3}, {5}}, {0}, {f32, f32, i64}, -7, 7),
            sample_with({{2, 3}, {2, 5}, {5}}, {1}, {f32, f32, i32}, -3, 3)});
static const Op put_along_dim_op =
    put_op("put_along_dim", true,
           {sample_with({{7, 3}, {5, 3}, {5, 3}}, {0}, {f32, f32, i64}, -7, 7),
            sample_with({{3, 5}, {3, 2}, {3, 2}}, {1}, {f32, f32, i32}, -5, 5)});

/// Equal greatest, or least, elements share the gradient alike.
static void extreme_backward(const Grad& g) {
  const int dim = along_dim(g);
  const Tensor values = g.in(1), indices = g.in(2), made = g.out();
  const DType dtype = g.grad().dtype();
  const Tensor is_own = cast(equal(g.in(0), made), dtype);
  const Tensor is_taken = cast(equal(values, take_along_dim(made, indices, dim)), dtype);
  const Tensor hits = add(is_own, add_along_dim(is_taken, indices, dim, own_places(g)));
  const Tensor share = div(g.grad(), hits);
  g.give(0, mul(share, is_own));
  g.give(1, mul(take_along_dim(share, indices, dim), is_taken));
}

/// The gradient of a factor is the product of the others: the result over the factor, but where the
/// factor is 0.
static void product_backward(const Grad& g) {
  const int dim = along_dim(g);
  const Tensor own = g.in(0), values = g.in(1), indices = g.in(2);
  if (g.wants(0)) {
    const Tensor nonzero_own = masked_fill(own, equal(own, 0), 1);
    const Tensor others = multiply_along_dim(nonzero_own, values, indices, dim);
    g.give(0, mul(g.grad(), div(others, nonzero_own)));
  }
  if (!g.wants(1)) return;
  const Tensor is_zero = equal(values, 0);
  const Tensor zeros_there = add_along_dim(cast(is_zero, DType::i32), indices, dim, own_places(g));
  const Tensor is_only_zero =
      logical_and(is_zero, equal(take_along_dim(zeros_there, indices, dim), 1));
  const Tensor without =
      multiply_along_dim(own, masked_fill(values, is_only_zero, 1), indices, dim);
  const Tensor all = take_along_dim(mul(g.grad(), g.out()), indices, dim);
  g.give(1, where(is_only_zero, take_along_dim(mul(g.grad(), without), indices, dim),
                  div(all, masked_fill(values, is_zero, 1))));
}

static Op reduce_op(const std::string& name, ByIndex::Written written,
                    void (*backward)(const Grad&)) {
  OpSpec spec = write_spec(name, true, written);
  spec.backward = backward;
  spec.saves_out = {0};
  spec.samples = {sample_with({{7, 3}, {5, 3}, {5, 3}}, {0}, {f32, f32, i64}, -7, 7),
                  sample_with({{3, 5}, {3, 2}, {3, 2}}, {1}, {f32, f32, i32}, -5, 5)};
  return register_op(std::move(spec));
}

/// Missed layouts: it is linear in the tensor, but products elsewhere are not; a Partial one is
/// reduced first.
static const Op multiply_along_dim_op =
    reduce_op("multiply_along_dim", ByIndex::Written::multiply, product_backward);
static const Op max_along_dim_op =
    reduce_op("max_along_dim", ByIndex::Written::max, extreme_backward);
static const Op min_along_dim_op =
    reduce_op("min_along_dim", ByIndex::Written::min, extreme_backward);

/// Kernels read the values in the dtype of the result.
static void check_values(const char* what, const Tensor& a, const Tensor& values) {
  if (!a || !values || a.dtype() == values.dtype()) return;
  fail(what, ": dtype of the values is ", values.dtype(), ", expected ", a.dtype(),
       ", that of the tensor; cast them");
}

Tensor multiply_along_dim(const Tensor& a, const Tensor& values, const Tensor& indices, int dim) {
  check_values("multiply_along_dim", a, values);
  return multiply_along_dim_op({a, values, indices}, {.structure = {dim}});
}
Tensor max_along_dim(const Tensor& a, const Tensor& values, const Tensor& indices, int dim) {
  check_values("max_along_dim", a, values);
  return call_ordered(max_along_dim_op, {a, values, indices}, {.structure = {dim}})[0];
}
Tensor min_along_dim(const Tensor& a, const Tensor& values, const Tensor& indices, int dim) {
  check_values("min_along_dim", a, values);
  return call_ordered(min_along_dim_op, {a, values, indices}, {.structure = {dim}})[0];
}

Tensor put_slices(const Tensor& a, const Tensor& values, const Tensor& indices, int dim) {
  check_values("put_slices", a, values);
  return put_slices_op({a, values, indices}, {.structure = {dim}});
}
Tensor put_along_dim(const Tensor& a, const Tensor& values, const Tensor& indices, int dim) {
  check_values("put_along_dim", a, values);
  return put_along_dim_op({a, values, indices}, {.structure = {dim}});
}

Tensor as_indices(const char* what, const char* name, const Tensor& indices) {
  if (!indices) fail(what, ": no tensor is given, expected one");
  if (indices.dtype() == i32 || indices.dtype() == i64) return indices;
  if (is_integer(indices.dtype())) return cast(indices, i64);
  fail(what, ": dtype of ", name, " is ", indices.dtype(), ", expected an integer one");
}

Tensor take(const Tensor& a, const Tensor& indices, int dim) {
  const int at = checked_dim("take", a, dim);
  const Tensor places = as_indices("take", "indices", indices);
  if (indices.ndim() != 1) fail("take: indices are ", indices.shape(), ", expected one dim");
  return take_op({a, places}, {.structure = {at}});
}

Tensor take_along_dim(const Tensor& a, const Tensor& indices, int dim) {
  const int at = checked_dim("take_along_dim", a, dim);
  const Tensor places = as_indices("take_along_dim", "indices", indices);
  if (indices.ndim() != a.ndim()) {
    fail("take_along_dim: indices are ", indices.shape(), ", expected ", a.ndim(),
         " dims, those of the tensor ", a.shape());
  }
  Shape from = a.shape(), where = indices.shape();
  for (int d = 0; d < a.ndim(); ++d) {
    if (d == at || from[d] == where[d]) continue;
    (from[d] == 1 ? from : where)[d] = from[d] == 1 ? where[d] : from[d];
  }
  return take_along_dim_op({expand(a, from), expand(places, where)}, {.structure = {at}});
}

}  // namespace weft

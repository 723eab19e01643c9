// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/dims.h"
#include "src/base/parallel.h"
#include "src/kernels/kernel.h"
#include "src/kernels/rows/rows.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/shapes.h"

#ifdef WEFT_WITH_CUDA
#include "src/device/kernel/launch.h"
#include "src/kernels/rows/device_values.h"
#endif

namespace weft {

/// to = from, with zeros above the kept diagonal, or below it when `upper`. The rows are those of
/// matrices with `height` rows each.
struct Triangle {
  Rows to, from;
  int64_t height;
  bool upper;
  /// Distance of element (0, 0) from the kept diagonal: negative when it is below it.
  int64_t above;
};

WEFT_KERNEL(void, copy_triangle, (Device device, const Triangle& x), (device, x))

static Line part_of(Line line, int64_t first) {
  const int64_t bytes = first * line.stride * static_cast<int64_t>(size_of(line.dtype));
  line.data = static_cast<char*>(line.data) + bytes;
  return line;
}

void host::copy_triangle(Device, const Triangle& x) {
  const int64_t n = x.to.size();
  const double zero = 0;
  const Line zeros{DType::f64, const_cast<double*>(&zero), 0};
  parallel_for(x.to.count(), grain_of(n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t on_diagonal = r % x.height - x.above;
      const int64_t split = std::clamp<int64_t>(on_diagonal + (x.upper ? 0 : 1), 0, n);
      const Line whole = x.to.line(r), given = x.from.line(r);
      convert_line(x.upper ? whole : part_of(whole, split), zeros, x.upper ? split : n - split);
      const int64_t first = x.upper ? split : 0;
      convert_line(part_of(whole, first), part_of(given, first), x.upper ? n - split : split);
    }
  });
}

#ifdef WEFT_WITH_CUDA
namespace cuda {
namespace {

/// C holds every value of both dtypes.
template <class C> struct CopyTriangle {
  Triangle x;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < x.to.count() * x.to.size(); i += thread.count) {
      const int64_t row = i / x.to.size(), column = i - row * x.to.size();
      const int64_t distance = x.above + column - row % x.height;
      const bool kept = x.upper ? distance >= 0 : distance <= 0;
      const C value = kept ? value_of<C>(x.from, row, column) : C(0);
      set_value(x.to, row, column, value);
    }
  }
};

}  // namespace

void copy_triangle(Device device, const Triangle& x) {
  visit_compute(x.from.dtype(), [&](auto type) {
    using C = typename decltype(type)::type;
    launch(CopyTriangle<C>{x}, x.to.count() * x.to.size(), current_stream(device));
  });
}

}  // namespace cuda
#endif

/// structure: whether upper; values: the diagonal.
static const Op triangle_op = register_op({
    .name = "triangle",
    .rule = "... m n -> ... m n",
    .moves = true,
    .structure = one_flag("flag for the upper one"),
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          const Box& box = c.out_box();
          const int last = box.shape.ndim() - 1;
          const int64_t above =
              box.offset[last] - box.offset[last - 1] - static_cast<int64_t>(c.value(0));
          const Rows to(c.out(), last), from(c.in(0), last);
          check_rows("triangle", to, from);
          copy_triangle(c.out().device,
                        {to, from, c.out().shape[last - 1], c.attribute(0) != 0, above});
        },
    .backward = [](const Grad& g) { g.give(0, triangle_op, {g.grad()}, g.attributes()); },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {0}}},
                {.shapes = {{2, 7, 5}}, .attributes = {.structure = {1}, .values = {-1}}},
                {.shapes = {{5, 3}}, .attributes = {.structure = {0}, .values = {1}}}},
});

static Tensor triangle(const char* what, const Tensor& a, bool upper, int64_t diagonal) {
  if (!a) fail(what, ": no tensor is given, expected one");
  if (a.ndim() < 2)
    fail(what, ": number of dims of ", a.shape(), " is ", a.ndim(), ", expected at least 2");
  return triangle_op({a}, {.structure = {upper}, .values = {static_cast<double>(diagonal)}});
}

Tensor tril(const Tensor& a, int64_t diagonal) { return triangle("tril", a, false, diagonal); }
Tensor triu(const Tensor& a, int64_t diagonal) { return triangle("triu", a, true, diagonal); }

}  // namespace weft

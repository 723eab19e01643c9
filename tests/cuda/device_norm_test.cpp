// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/norm/norm.h"
#include "src/kernels/reduce/reduce.h"
#include "tests/cuda/twin.h"

namespace weft {

class DeviceNorm : public OnGpu {};

static constexpr double kNormEps = 1e-5;
/// Rows that are read 16 bytes at a time and others; longer than the threads of a block; rows that
/// need 48 KiB of shared memory together; and rows too long for shared memory.
static const Shape kNormShapes[] = {{7},      {5, 33},   {1, 1}, {3, 5, 40}, {7, 1000},
                                    {70, 64}, {2, 3072}, {0, 4}, {2, 4096},  {2, 60000}};

struct NormCase {
  DType dtype, weight;
  Lie lie;
};
static constexpr NormCase kNormCases[] = {
    {DType::f32, DType::f32, Lie::dense},      {DType::bf16, DType::bf16, Lie::dense},
    {DType::bf16, DType::f32, Lie::dense},     {DType::f16, DType::f16, Lie::dense},
    {DType::f64, DType::f64, Lie::dense},      {DType::f32, DType::bf16, Lie::gaps},
    {DType::f32, DType::f32, Lie::transposed}, {DType::bf16, DType::f64, Lie::transposed}};

/// The operands of a norm and of its gradient, and memory for results.
struct NormTwins {
  Twin x, dy, weight, bias, y, dx, dweight, dbias;

  NormTwins(const NormCase& c, const Shape& shape)
      : x(Array::random(c.dtype, shape, c.lie, 1)),
        dy(Array::random(c.dtype, shape, Lie::dense, 2)),
        weight(Array::random(c.weight, {shape.back()}, c.lie, 3)),
        bias(Array::random(c.weight, {shape.back()}, Lie::dense, 4)),
        y(Array(c.dtype, shape, c.lie)),
        dx(Array(c.dtype, shape, c.lie)),
        dweight(Array::random(c.weight, {shape.back()}, Lie::gaps, 5)),
        dbias(Array::random(c.weight, {shape.back()}, Lie::dense, 6)) {}
};

template <class Check> static void for_norms(const Check& check) {
  for (const NormCase& c : kNormCases) {
    for (const Shape& shape : kNormShapes) {
      if (c.lie != Lie::dense && shape.back() > 1000) continue;
      SCOPED_TRACE(concat(c.dtype, " ", c.weight, " ", static_cast<int>(c.lie), " ", shape));
      check(NormTwins(c, shape));
    }
  }
}

/// The size of the terms whose difference is an element's gradient: in a row of one element almost
/// nothing else remains.
static constexpr double kTerms = 1;

TEST_F(DeviceNorm, RmsNorm) {
  for_norms([](const NormTwins& t) {
    for (const Device d : kBothDevices)
      normalize({false, kNormEps}, t.y.on(d), t.x.on(d), t.weight.on(d));
    t.y.expect_alike_computed_as(t.x.on(cpu).dtype);
    for (const Device d : kBothDevices) normalize({false, kNormEps}, t.y.on(d), t.x.on(d), {});
    t.y.expect_alike_computed_as(t.x.on(cpu).dtype);
  });
}

TEST_F(DeviceNorm, LayerNorm) {
  for_norms([](const NormTwins& t) {
    for (const Device d : kBothDevices) {
      normalize({true, kNormEps}, t.y.on(d), t.x.on(d), t.weight.on(d), t.bias.on(d));
    }
    t.y.expect_alike_computed_as(t.x.on(cpu).dtype);
    for (const Device d : kBothDevices) {
      normalize({true, kNormEps}, t.y.on(d), t.x.on(d), t.weight.on(d), {});
    }
    t.y.expect_alike_computed_as(t.x.on(cpu).dtype);
  });
}

TEST_F(DeviceNorm, GradientsOfRmsNorm) {
  for_norms([](const NormTwins& t) {
    for (const Device d : kBothDevices) {
      norm_backward({false, kNormEps}, t.dx.on(d), t.dweight.on(d), nullptr, t.dy.on(d), t.x.on(d),
                    t.weight.on(d));
    }
    t.dx.expect_alike_computed_as(t.x.on(cpu).dtype, kTerms);
    t.dweight.expect_alike_computed_as(t.x.on(cpu).dtype);
  });
}

TEST_F(DeviceNorm, GradientsOfLayerNorm) {
  for_norms([](const NormTwins& t) {
    for (const Device d : kBothDevices) {
      norm_backward({true, kNormEps}, t.dx.on(d), t.dweight.on(d), &t.dbias.on(d), t.dy.on(d),
                    t.x.on(d), t.weight.on(d));
    }
    // With one element per row only rounding errors remain.
    if (t.x.on(cpu).shape.back() > 1) t.dx.expect_alike_computed_as(t.x.on(cpu).dtype);
    t.dweight.expect_alike_computed_as(t.x.on(cpu).dtype);
    t.dbias.expect_alike_computed_as(t.x.on(cpu).dtype);
  });
}

TEST_F(DeviceNorm, GradientsAddedToWhatIsThere) {
  for_norms([](const NormTwins& t) {
    for (const Device d : kBothDevices) {
      norm_backward({true, kNormEps}, t.dx.on(d), t.dweight.on(d), &t.dbias.on(d), t.dy.on(d),
                    t.x.on(d), t.weight.on(d), true);
      norm_backward({false, kNormEps}, t.dx.on(d), t.bias.on(d), nullptr, t.dy.on(d), t.x.on(d), {},
                    true);
    }
    t.dx.expect_alike_computed_as(t.x.on(cpu).dtype, kTerms);
    for (const Twin* sums : {&t.dweight, &t.dbias, &t.bias}) {
      sums->expect_alike_computed_as(t.x.on(cpu).dtype);
    }
  });
}

TEST_F(DeviceNorm, InPlace) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape : kNormShapes) {
      const NormTwins t({dtype, DType::f32, Lie::dense}, shape);
      for (const Device d : kBothDevices) {
        norm_backward({false, kNormEps}, t.dy.on(d), t.dweight.on(d), nullptr, t.dy.on(d),
                      t.x.on(d), t.weight.on(d));
        normalize({true, kNormEps}, t.x.on(d), t.x.on(d), t.weight.on(d), t.bias.on(d));
      }
      t.dy.expect_alike_computed_as(t.x.on(cpu).dtype, kTerms);
      t.dweight.expect_alike_computed_as(t.x.on(cpu).dtype);
      t.x.expect_alike_computed_as(t.x.on(cpu).dtype);
    }
  }
}

/// Statistics of sharded rows: the sums of the kernels' results for the parts.
struct CutTwins {
  Twin sums[4];
  explicit CutTwins(const Shape& shape)
      : sums{Array(DType::f32, shape), Array(DType::f32, shape), Array(DType::f32, shape),
             Array(DType::f32, shape)} {}
  Norm on(Device d, bool centered, int64_t size) const {
    return {centered, kNormEps, size, {sums[0].on(d), sums[1].on(d), sums[2].on(d), sums[3].on(d)}};
  }
};

TEST_F(DeviceNorm, CutRowsOfRmsNorm) {
  for_norms([](const NormTwins& t) {
    Shape kept = t.x.on(cpu).shape;
    const int last = kept.ndim() - 1;
    const int64_t size = kept[last] * 2;
    kept[last] = 1;
    const CutTwins sums(kept);
    for (const Device d : kBothDevices) {
      const Norm cut = sums.on(d, false, size);
      reduce(Reduction::sum_squares, cut.sums[0], t.x.on(d), {last});
      norm_sums({false, kNormEps}, {}, cut.sums[1], t.dy.on(d), t.x.on(d), t.weight.on(d));
      normalize(cut, t.y.on(d), t.x.on(d), t.weight.on(d));
      norm_backward(cut, t.dx.on(d), t.dweight.on(d), nullptr, t.dy.on(d), t.x.on(d),
                    t.weight.on(d), true);
    }
    t.y.expect_alike_computed_as(t.x.on(cpu).dtype);
    t.dx.expect_alike_computed_as(t.x.on(cpu).dtype);
    t.dweight.expect_alike_computed_as(t.x.on(cpu).dtype);
    sums.sums[1].expect_alike_computed_as(t.x.on(cpu).dtype);
  });
}

TEST_F(DeviceNorm, CutRowsOfLayerNorm) {
  for_norms([](const NormTwins& t) {
    Shape kept = t.x.on(cpu).shape;
    const int last = kept.ndim() - 1;
    const int64_t size = kept[last] + 3;
    kept[last] = 1;
    const CutTwins sums(kept);
    for (const Device d : kBothDevices) {
      const Norm cut = sums.on(d, true, size);
      reduce(Reduction::sum, cut.sums[0], t.x.on(d), {last});
      centered_squares(cut, cut.sums[1], t.x.on(d));
      norm_sums(cut, cut.sums[2], cut.sums[3], t.dy.on(d), t.x.on(d), t.weight.on(d));
      normalize(cut, t.y.on(d), t.x.on(d), t.weight.on(d), t.bias.on(d));
      norm_backward(cut, t.dx.on(d), t.dweight.on(d), &t.dbias.on(d), t.dy.on(d), t.x.on(d),
                    t.weight.on(d));
    }
    for (const Twin& sum : sums.sums) sum.expect_alike_computed_as(DType::f32);
    t.y.expect_alike_computed_as(t.x.on(cpu).dtype);
    t.dx.expect_alike_computed_as(t.x.on(cpu).dtype);
    t.dweight.expect_alike_computed_as(t.x.on(cpu).dtype);
    t.dbias.expect_alike_computed_as(t.x.on(cpu).dtype);
  });
}

TEST_F(DeviceNorm, RefusesWhatItDoesNotTake) {
  const Twin x = Array(DType::i32, {3, 4}), y = Array(DType::i32, {3, 4});
  EXPECT_THROW(normalize({false, kNormEps}, y.on(gpu), x.on(gpu), {}), std::invalid_argument);
  const NormTwins t({DType::f32, DType::f32, Lie::dense}, {3, 4});
  const Twin longer = Array(DType::f32, {5});
  EXPECT_THROW(normalize({false, kNormEps}, t.y.on(gpu), t.x.on(gpu), longer.on(gpu)),
               std::invalid_argument);
}

}  // namespace weft

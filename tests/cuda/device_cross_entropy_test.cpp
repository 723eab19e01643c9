// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_entropy/cross_entropy.h"

#include "src/kernels/reduce/reduce.h"
#include "src/kernels/softmax/softmax.h"
#include "tests/cuda/twin.h"

namespace weft {

class DeviceCrossEntropy : public OnGpu {};

static Twin class_ids(DType dtype, const Shape& shape, int64_t classes) {
  std::vector<double> ids;
  for (int64_t i = 0; i < shape.product(); ++i) {
    ids.push_back(i % 5 == 3 ? -100.0 : static_cast<double>(i * 7 % classes));
  }
  return Array::of(dtype, shape, ids);
}

struct LogitCase {
  DType dtype, ids;
  Lie lie;
  Shape shape;

  int64_t classes() const { return shape.back(); }
  Shape kept() const { return {shape[0], shape[1]}; }
  Twin logits() const { return Array::random(dtype, shape, lie, 1, -9, 9); }
  Twin room() const { return Array(dtype, shape, lie); }
  Twin values() const { return Array(compute_dtype(dtype), kept()); }
};

template <class Check> static void for_logits(const Check& check) {
  constexpr DType kDtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  const Shape shapes[] = {{1, 7, 33}, {3, 5, 40},    {1, 2, 1000},  {2, 0, 8},
                          {5, 1, 1},  {1, 2, 60000}, {1, 1, 120000}};
  for (const DType dtype : kDtypes) {
    for (const Shape& shape : shapes) {
      for (const Lie lie : {Lie::dense, Lie::transposed, Lie::gaps}) {
        if (lie != Lie::dense && shape.back() > 1000) continue;
        if (dtype != DType::bf16 && shape.back() > 100'000) continue;  // for rows that do not fit
        SCOPED_TRACE(concat(dtype, " ", shape, " ", static_cast<int>(lie)));
        check(LogitCase{dtype, lie == Lie::dense ? DType::i64 : DType::i32, lie, shape});
      }
    }
  }
}

TEST_F(DeviceCrossEntropy, GradientOfWholeRows) {
  for_logits([](const LogitCase& c) {
    const Twin x = c.logits(), ids = class_ids(c.ids, c.kept(), c.classes()), dx = c.room();
    const Twin picked = c.values(), lse = c.values();
    for (const Device d : kBothDevices) {
      logsumexp(lse.on(d), x.on(d), 2);
      pick(picked.on(d), x.on(d), ids.on(d), 0);
      cross_entropy_backward(dx.on(d), lse.on(d), x.on(d), ids.on(d), lse.on(d));
    }
    for (const Twin* twin : {&picked, &dx}) twin->expect_alike_computed_as(c.dtype);
  });
}

TEST_F(DeviceCrossEntropy, SliceOfTheClasses) {
  for_logits([](const LogitCase& c) {
    const int64_t offset = c.classes() / 2;
    const Twin x = c.logits(), ids = class_ids(c.ids, c.kept(), 2 * c.classes());
    const Twin max = c.values(), sum = c.values(), picked = c.values(), lse = c.values();
    for (const Device d : kBothDevices) {
      reduce(Reduction::max, max.on(d), x.on(d), {2});
      row_sum_exp(sum.on(d), x.on(d), 2, max.on(d));
      pick(picked.on(d), x.on(d), ids.on(d), offset);
      logsumexp(lse.on(d), max.on(d), sum.on(d));
      cross_entropy_backward(x.on(d), lse.on(d), x.on(d), ids.on(d), lse.on(d), offset);
    }
    for (const Twin* twin : {&picked, &lse, &x}) twin->expect_alike_computed_as(c.dtype);
  });
}

TEST_F(DeviceCrossEntropy, OfALinearHead) {
  const HeadNumbers kinds[] = {{}, {0.5, 2, 0.25, 0.125, -100}, {1, 0, 0.1, 0, -100}};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const HeadNumbers& numbers : kinds) {
      const int64_t rows = 37, width = 20, classes = 150, all = 200, first = 30;
      const DType computed = dtype == DType::f64 ? DType::f64 : DType::f32;
      const auto random = [&](DType type, const Shape& shape, unsigned seed) {
        return Array::random(type, shape, Lie::dense, seed, -1, 1);
      };
      const Twin x = random(dtype, {rows, width}, 1), weight = random(dtype, {classes, width}, 2);
      const Twin bias = random(dtype, {classes}, 3), weights = random(computed, {all}, 4);
      const Twin ids = class_ids(DType::i64, {rows}, all), dloss = random(computed, {rows}, 5);
      const Twin lse = Array(computed, {rows}), picked = Array(computed, {rows});
      const Twin weighted = Array(computed, {rows}), loss = Array(computed, {rows});
      const Twin dx = Array(dtype, {rows, width}), dweight = Array(dtype, {classes, width});
      const Twin dbias = Array(dtype, {classes});
      for (const Device d : kBothDevices) {
        const LinearHead head{x.on(d),       weight.on(d), ids.on(d), bias.on(d),
                              weights.on(d), first,        all,       numbers};
        linear_head_statistics(head, {lse.on(d), picked.on(d), weighted.on(d)});
        linear_head_loss(loss.on(d), head, {lse.on(d), picked.on(d), weighted.on(d)});
        linear_head_backward(head, lse.on(d), picked.on(d), dloss.on(d), dx.on(d), dweight.on(d),
                             dbias.on(d), false);
      }
      for (const Twin* twin : {&lse, &picked, &loss}) twin->expect_alike(64);
      for (const Twin* twin : {&dx, &dweight, &dbias}) twin->expect_alike(64);
    }
  }
}

}  // namespace weft

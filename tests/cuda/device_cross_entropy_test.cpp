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

template <class Check>
static void for_logits(const Check& check) {
  constexpr DType kDtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  const Shape shapes[] = {{1, 7, 33}, {3, 5, 40}, {1, 2, 1000},
                          {2, 0, 8},  {5, 1, 1},  {1, 2, 60000}};
  for (const DType dtype : kDtypes) {
    for (const Shape& shape : shapes) {
      for (const Lie lie : {Lie::dense, Lie::transposed, Lie::gaps}) {
        if (lie != Lie::dense && shape.back() > 1000) continue;
        SCOPED_TRACE(concat(dtype, " ", shape, " ", static_cast<int>(lie)));
        check(LogitCase{dtype, lie == Lie::dense ? DType::i64 : DType::i32, lie, shape});
      }
    }
  }
}

TEST_F(DeviceCrossEntropy, LossAndGradientOfWholeRows) {
  for_logits([](const LogitCase& c) {
    const Twin x = c.logits(), ids = class_ids(c.ids, c.kept(), c.classes()), loss = c.values();
    const Twin dx = c.room(), of_lse = c.room(), lse = c.values();
    for (const Device d : kBothDevices) {
      cross_entropy(loss.on(d), x.on(d), ids.on(d));
      cross_entropy_backward(dx.on(d), loss.on(d), x.on(d), ids.on(d));
      logsumexp(lse.on(d), x.on(d), 2);
      cross_entropy_backward(of_lse.on(d), loss.on(d), x.on(d), ids.on(d), 0, -100, &lse.on(d));
    }
    for (const Twin* twin : {&loss, &dx, &of_lse}) twin->expect_alike_computed_as(c.dtype);
  });
}

TEST_F(DeviceCrossEntropy, SliceOfTheClasses) {
  for_logits([](const LogitCase& c) {
    const int64_t offset = c.classes() / 2;
    const Twin x = c.logits(), ids = class_ids(c.ids, c.kept(), 2 * c.classes());
    const Twin max = c.values(), sum = c.values(), picked = c.values(), loss = c.values();
    for (const Device d : kBothDevices) {
      reduce(Reduction::max, max.on(d), x.on(d), {2});
      row_sum_exp(sum.on(d), x.on(d), 2, max.on(d));
      pick(picked.on(d), x.on(d), ids.on(d), offset);
      cross_entropy(loss.on(d), ids.on(d), max.on(d), sum.on(d), picked.on(d));
      cross_entropy_backward(x.on(d), loss.on(d), x.on(d), ids.on(d), offset, -100, &max.on(d),
                             &sum.on(d));
    }
    for (const Twin* twin : {&picked, &loss, &x}) twin->expect_alike_computed_as(c.dtype);
  });
}

TEST_F(DeviceCrossEntropy, CountsWhatIsNotIgnored) {
  for (const DType dtype : {DType::i32, DType::i64}) {
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{33, 41}, Shape{0, 3}}) {
      const Twin ids = class_ids(dtype, shape, 11);
      const Twin kept = Array(DType::f32, {}), whole = Array(DType::i64, {1});
      for (const Device d : kBothDevices) {
        count_kept(kept.on(d), ids.on(d));
        count_kept(whole.on(d), ids.on(d), 7);
      }
      kept.expect_alike(0);
      whole.expect_alike(0);
    }
  }
}

}  // namespace weft

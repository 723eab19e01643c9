// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/attention/attention.h"
#include "tests/cuda/twin.h"
#include "weft/error.h"

namespace weft {

class DeviceAttention : public OnGpu {};

struct AttentionCase {
  int64_t batch, heads, kv_heads, queries, keys, width;
  AttentionArguments options = {};
};
/// Less than a tile and several tiles; widths that fill operands or do not; shared key heads;
/// queries before the keys, after them, and some that see no key.
static const AttentionCase kAttentionCases[] = {
    {1, 1, 1, 1, 1, 1},
    {2, 3, 3, 7, 7, 5},
    {1, 4, 2, 33, 33, 64},
    {1, 2, 1, 150, 150, 80, {0.3f, true, {}}},
    {2, 4, 1, 70, 130, 16, {{}, false, {}}},
    {1, 2, 2, 5, 133, 128},
    {1, 2, 1, 65, 40, 24, {{}, true, -20}},
    {1, 2, 2, 40, 90, 33, {{}, true, 10}},
    {1, 2, 1, 37, 37, 200},
    {1, 1, 1, 3, 0, 8},
    {1, 1, 1, 0, 3, 8},
    {0, 2, 1, 3, 3, 8},
};
/// Operands as [batch, heads, sequence, width], as views of [batch, sequence, heads, width], and as
/// parts of a larger array, aligned or not.
enum class HeadLie { dense, swapped, gaps };

static MemoryBlock swapped(MemoryBlock block) {
  std::swap(block.shape[1], block.shape[2]);
  std::swap(block.strides[1], block.strides[2]);
  return block;
}

/// An operand of attention.
class Heads {
 public:
  Heads(DType dtype, const Shape& shape, HeadLie lie, unsigned seed, bool random = true)
      : swaps_(lie == HeadLie::swapped), twin_(array(dtype, shape, lie, seed, random)) {}
  MemoryBlock on(Device device) const {
    return swaps_ ? swapped(twin_.on(device)) : twin_.on(device);
  }
  void expect_alike(double roundings) const { twin_.expect_alike(roundings); }

 private:
  static Array array(DType dtype, Shape shape, HeadLie lie, unsigned seed, bool random) {
    if (lie == HeadLie::swapped) std::swap(shape[1], shape[2]);
    const Lie gaps = lie == HeadLie::gaps ? Lie::gaps : Lie::dense;
    return random ? Array::random(dtype, shape, gaps, seed, -2, 2) : Array(dtype, shape, gaps);
  }
  bool swaps_;
  Twin twin_;
};

/// Operands and results of one case.
struct AttentionTwins {
  Heads q, k, v, dout, out, dq, dk, dv;
  Twin lse;

  AttentionTwins(const AttentionCase& c, DType dtype, HeadLie lie)
      : q(dtype, queries(c), lie, 1),
        k(dtype, keys(c), lie, 2),
        v(dtype, keys(c), HeadLie::dense, 3),
        dout(dtype, queries(c), lie, 4),
        out(dtype, queries(c), lie, 5, false),
        dq(dtype, queries(c), lie, 6),
        dk(dtype, keys(c), lie, 7),
        dv(dtype, keys(c), HeadLie::dense, 8),
        lse(Array(dtype == DType::f64 ? DType::f64 : DType::f32, {c.batch, c.heads, c.queries},
                  lie == HeadLie::gaps ? Lie::gaps : Lie::dense)) {}
  static Shape queries(const AttentionCase& c) { return {c.batch, c.heads, c.queries, c.width}; }
  static Shape keys(const AttentionCase& c) { return {c.batch, c.kv_heads, c.keys, c.width}; }
};

template <class Check>
static void for_attention(const Check& check) {
  for (const AttentionCase& c : kAttentionCases) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      for (const HeadLie lie : {HeadLie::dense, HeadLie::swapped, HeadLie::gaps}) {
        SCOPED_TRACE(concat(dtype, " ", AttentionTwins::queries(c), " ", AttentionTwins::keys(c),
                            " ", static_cast<int>(lie)));
        check(c, AttentionTwins(c, dtype, lie));
      }
    }
  }
}

TEST_F(DeviceAttention, Forward) {
  for_attention([](const AttentionCase& c, const AttentionTwins& t) {
    for (const Device d : kBothDevices) {
      attention(t.q.on(d), t.k.on(d), t.v.on(d), c.options, t.out.on(d), t.lse.on(d));
    }
    t.out.expect_alike(4);
    if (c.width > 0) t.lse.expect_alike();
  });
}

TEST_F(DeviceAttention, WithoutLse) {
  const AttentionCase c{1, 2, 2, 9, 9, 12};
  const AttentionTwins t(c, DType::f32, HeadLie::dense);
  for (const Device d : kBothDevices) {
    attention(t.q.on(d), t.k.on(d), t.v.on(d), {}, t.out.on(d), {});
  }
  t.out.expect_alike(4);
}

TEST_F(DeviceAttention, Backward) {
  for_attention([](const AttentionCase& c, const AttentionTwins& t) {
    for (const Device d : kBothDevices) {
      attention(t.q.on(d), t.k.on(d), t.v.on(d), c.options, t.out.on(d), t.lse.on(d));
      attention_backward(t.q.on(d), t.k.on(d), t.v.on(d), t.out.on(d), t.lse.on(d), t.dout.on(d),
                         c.options, t.dq.on(d), t.dk.on(d), t.dv.on(d));
    }
    t.dq.expect_alike(8), t.dk.expect_alike(8), t.dv.expect_alike(8);
  });
}

TEST_F(DeviceAttention, TooWideHeadsAreRefused) {
  const AttentionTwins t({1, 1, 1, 2, 2, 257}, DType::f32, HeadLie::dense);
  EXPECT_THROW(attention(t.q.on(gpu), t.k.on(gpu), t.v.on(gpu), {}, t.out.on(gpu), {}),
               std::invalid_argument);
}

}  // namespace weft

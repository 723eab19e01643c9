// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/attention/attention.h"
#include "src/kernels/kernel.h"
#include "tests/cuda/twin.h"
#include "weft/error.h"
#include "weft/extend/score_mod.h"

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

/// An operand of attention.
class Heads {
 public:
  Heads(DType dtype, const Shape& shape, HeadLie lie, unsigned seed, bool random = true)
      : swaps_(lie == HeadLie::swapped), twin_(array(dtype, shape, lie, seed, random)) {}
  MemoryBlock on(Device device) const {
    return swaps_ ? exchanged(twin_.on(device), 1, 2) : twin_.on(device);
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

template <class Check> static void for_attention(const Check& check) {
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
      attention({t.q.on(d), t.k.on(d), t.v.on(d), t.out.on(d), t.lse.on(d), c.options});
    }
    t.out.expect_alike(4);
    if (c.width > 0) t.lse.expect_alike();
  });
}

TEST_F(DeviceAttention, WithoutLse) {
  const AttentionCase c{1, 2, 2, 9, 9, 12};
  const AttentionTwins t(c, DType::f32, HeadLie::dense);
  for (const Device d : kBothDevices) {
    attention({t.q.on(d), t.k.on(d), t.v.on(d), t.out.on(d), {}, {}});
  }
  t.out.expect_alike(4);
}

TEST_F(DeviceAttention, Backward) {
  for_attention([](const AttentionCase& c, const AttentionTwins& t) {
    for (const Device d : kBothDevices) {
      attention({t.q.on(d), t.k.on(d), t.v.on(d), t.out.on(d), t.lse.on(d), c.options});
      attention_backward({{t.q.on(d), t.k.on(d), t.v.on(d), t.out.on(d), t.lse.on(d), c.options},
                          t.dout.on(d),
                          t.dq.on(d),
                          t.dk.on(d),
                          t.dv.on(d),
                          {}});
    }
    t.dq.expect_alike(8), t.dk.expect_alike(8), t.dv.expect_alike(8);
  });
}

/// Operands of the changes of scores: mask, sinks, slopes and segments.
struct RuleTwins {
  Twin mask, added, sinks, slopes, segments, dmask;

  RuleTwins(const AttentionCase& c, DType dtype, bool broadcasts)
      : mask(Array::random(DType::boolean, mask_shape(c, broadcasts), Lie::dense, 11, 0, 2)),
        added(Array::random(dtype, mask_shape(c, broadcasts), Lie::dense, 12, -2, 2)),
        sinks(Array::random(dtype, {c.heads}, Lie::dense, 13, -1, 1)),
        slopes(Array::random(dtype, {c.heads}, Lie::dense, 14, 0, 1)),
        segments(Array::random(DType::i64, {c.batch, c.keys}, Lie::dense, 15, 0, 3)),
        dmask(Array(dtype, mask_shape(c, broadcasts), Lie::dense)) {}
  static Shape mask_shape(const AttentionCase& c, bool broadcasts) {
    if (broadcasts) return {1, c.heads, 1, c.keys};
    return {c.batch, c.heads, c.queries, c.keys};
  }
};

static AttentionArguments changed(const AttentionCase& c, const RuleTwins& t, int kind, Device d) {
  AttentionArguments options = c.options;
  if (kind == 0) options.window = 5;
  if (kind == 1) options.softcap = 2, options.sinks = t.sinks.on(d);
  if (kind == 2) options.mask = t.mask.on(d), options.causal = false;
  if (kind >= 3) options.mask = t.added.on(d), options.slopes = t.slopes.on(d);
  if (kind == 4) options.segments = t.segments.on(d), options.dropout = 0.3;
  if (kind == 4) options.random = {3, 7}, options.window = 9, options.softcap = 3;
  return options;
}

TEST_F(DeviceAttention, ChangesOfScores) {
  for (const AttentionCase& c : {AttentionCase{2, 4, 2, 37, 37, 16}, {1, 2, 1, 20, 70, 33}}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (int kind = 0; kind < 10; ++kind) {
        SCOPED_TRACE(concat(dtype, " ", c.queries, " kind ", kind));
        const AttentionTwins t(c, dtype, HeadLie::swapped);
        const RuleTwins rule(c, dtype, kind >= 5);
        const bool of_mask = kind % 5 >= 3;
        for (const Device d : kBothDevices) {
          const AttentionArguments options = changed(c, rule, kind % 5, d);
          attention({t.q.on(d), t.k.on(d), t.v.on(d), t.out.on(d), t.lse.on(d), options});
          attention_backward({{t.q.on(d), t.k.on(d), t.v.on(d), t.out.on(d), t.lse.on(d), options},
                              t.dout.on(d),
                              t.dq.on(d),
                              t.dk.on(d),
                              t.dv.on(d),
                              of_mask ? rule.dmask.on(d) : MemoryBlock()});
        }
        t.out.expect_alike(16), t.lse.expect_alike(16);
        t.dq.expect_alike(32), t.dk.expect_alike(32), t.dv.expect_alike(32);
        if (of_mask) rule.dmask.expect_alike(64);
      }
    }
  }
}

/// Halves scores of earlier keys, and hides every third key.
struct HalvedThirds {
  double factor = 0.5;

  template <class T> T score(T score, int64_t, int64_t, int64_t q, int64_t k) const {
    return k < q ? score * static_cast<T>(factor) : score;
  }
  template <class T> T slope(T, int64_t, int64_t, int64_t q, int64_t k) const {
    return k < q ? static_cast<T>(factor) : T(1);
  }
  bool mask(int64_t, int64_t h, int64_t, int64_t k) const { return (h + k) % 3 != 0; }
};

TEST_F(DeviceAttention, CustomMods) {
  const AttentionCase c{2, 4, 2, 37, 37, 16};
  const ScoreMod mod = score_mod_of<HalvedThirds>();
  const HalvedThirds values;
  const AttentionArguments options{
      .scale = {}, .query_offset = {}, .softcap = 2, .mod = &mod, .mod_bytes = &values};
  const AttentionTwins t(c, DType::f32, HeadLie::dense);
  const auto run = [&](Device d) {
    attention({t.q.on(d), t.k.on(d), t.v.on(d), t.out.on(d), t.lse.on(d), options});
    attention_backward({{t.q.on(d), t.k.on(d), t.v.on(d), t.out.on(d), t.lse.on(d), options},
                        t.dout.on(d),
                        t.dq.on(d),
                        t.dk.on(d),
                        t.dv.on(d),
                        {}});
  };
#ifdef WEFT_CUDA_EMULATED
  for (const Device d : kBothDevices) run(d);
  t.out.expect_alike(16), t.lse.expect_alike(16);
  t.dq.expect_alike(32), t.dk.expect_alike(32), t.dv.expect_alike(32);
#else
  EXPECT_THROW(run(gpu), std::invalid_argument);
#endif
}

TEST_F(DeviceAttention, TooWideHeadsAreRefused) {
  const AttentionTwins t({1, 1, 1, 2, 2, 257}, DType::f32, HeadLie::dense);
  EXPECT_THROW(attention({t.q.on(gpu), t.k.on(gpu), t.v.on(gpu), t.out.on(gpu), {}, {}}),
               std::invalid_argument);
}

}  // namespace weft

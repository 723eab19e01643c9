// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/fft/fft.h"

#include <algorithm>

#include "src/base/numeric.h"
#include "src/base/parallel.h"
#include "src/kernels/fft/plan.h"
#include "src/kernels/matmul/tasks.h"
#include "weft/error.h"

namespace weft {

/// Bytes of the buffers of sequences that are transformed together: they stay in the L2 cache.
static constexpr int64_t kBufferBytes = 512 << 10;

namespace {

/// The sequences of a block along a dim.
struct Sequences {
  const MemoryBlock& block;
  int dim;

  int64_t size() const { return block.shape[dim]; }
  int64_t step() const { return block.strides[dim]; }
  /// The first element of sequence `index`, in row-major order of the other dims.
  int64_t offset(int64_t index) const {
    int64_t offset = 0;
    for (int d = block.shape.ndim() - 1; d >= 0; --d) {
      if (d == dim) continue;
      offset += index % block.shape[d] * block.strides[d];
      index /= block.shape[d];
    }
    return offset;
  }
};

/// The most sequences that are transformed together.
constexpr int64_t kMostLanes = 16;

/// The first elements of sequences one after the other.
struct Starts {
  Starts(const Sequences& sequences, int64_t first, int64_t count) {
    for (int64_t l = 0; l < count; ++l) of[l] = sequences.offset(first + l);
  }
  int64_t of[kMostLanes];
};

/// A call: transforms are in lanes; a lane is one complex sequence, or two real ones.
template <class R> struct Transforms {
  Sequences out, in;
  const FourierPlan<R>& plan;
  bool inverse;
  R scale;
  int64_t count;

  bool real_in() const { return !is_complex(in.block.dtype); }
  bool real_out() const { return !is_complex(out.block.dtype); }
  int64_t per_lane() const { return real_in() || real_out() ? 2 : 1; }
};

template <class R> using Elements = Complex<R>;

/// Calls move(l, begin, end) for a few elements of each lane, then for the next ones: the lanes of
/// an element share cache lines.
template <class Move> void for_tiles(int64_t n, int64_t lanes, const Move& move) {
  constexpr int64_t kTile = 16;
  for (int64_t begin = 0; begin < n; begin += kTile) {
    for (int64_t l = 0; l < lanes; ++l) move(l, begin, std::min(n, begin + kTile));
  }
}

/// Fills lanes with complex sequences.
template <class R>
void load_complex(const Transforms<R>& t, int64_t first, int64_t lanes, Planes<R> x) {
  const auto* data = t.in.block.template as<Elements<R>>();
  const Starts starts(t.in, first, lanes);
  for_tiles(t.plan.size(), lanes, [&](int64_t l, int64_t begin, int64_t end) {
    const auto* from = data + starts.of[l];
    for (int64_t i = begin; i < end; ++i) {
      const Elements<R> value = from[i * t.in.step()];
      x.re[i * lanes + l] = value.re;
      x.im[i * lanes + l] = value.im;
    }
  });
}

template <class R>
void store_complex(const Transforms<R>& t, int64_t first, int64_t lanes, Planes<R> y) {
  auto* data = t.out.block.template as<Elements<R>>();
  const Starts starts(t.out, first, lanes);
  for_tiles(t.plan.size(), lanes, [&](int64_t l, int64_t begin, int64_t end) {
    auto* to = data + starts.of[l];
    for (int64_t i = begin; i < end; ++i) {
      to[i * t.out.step()] = {y.re[i * lanes + l] * t.scale, y.im[i * lanes + l] * t.scale};
    }
  });
}

/// Sequence number `which` (0 or 1) of lane l, or -1 behind the last one.
template <class R> int64_t sequence_of(const Transforms<R>& t, int64_t lane, int which) {
  const int64_t sequence = 2 * lane + which;
  return sequence < t.count ? sequence : -1;
}

/// Two real sequences are the parts of a complex one.
template <class R>
void load_real(const Transforms<R>& t, int64_t first, int64_t lanes, Planes<R> x) {
  for (int64_t l = 0; l < lanes; ++l) {
    for (const int which : {0, 1}) {
      R* to = which == 0 ? x.re : x.im;
      const int64_t sequence = sequence_of(t, first + l, which);
      const R* from = t.in.block.template as<R>() + t.in.offset(std::max<int64_t>(0, sequence));
      for (int64_t i = 0; i < t.plan.size(); ++i) {
        to[i * lanes + l] = sequence < 0 ? R(0) : from[i * t.in.step()];
      }
    }
  }
}

/// The transform z of a + ib gives those of the real a and b: (z[k] + conj z[-k]) / 2 and (z[k] -
/// conj z[-k]) / 2i.
template <class R>
void store_half(const Transforms<R>& t, int64_t first, int64_t lanes, Planes<R> y) {
  const R half = t.scale / 2;
  for (int64_t l = 0; l < lanes; ++l) {
    Elements<R>* to[2] = {};
    for (const int which : {0, 1}) {
      const int64_t sequence = sequence_of(t, first + l, which);
      if (sequence < 0) continue;
      to[which] = t.out.block.template as<Elements<R>>() + t.out.offset(sequence);
    }
    for (int64_t k = 0; k < t.out.size(); ++k) {
      const int64_t at = k * lanes + l, back = (k == 0 ? 0 : t.plan.size() - k) * lanes + l;
      const Elements<R> z{y.re[at], y.im[at]}, other{y.re[back], -y.im[back]};
      const Elements<R> sum = (z + other) * half, gap = (z - other) * half;
      to[0][k * t.out.step()] = sum;
      if (to[1]) to[1][k * t.out.step()] = {gap.im, -gap.re};
    }
  }
}

/// Sets z = a + ib of the frequencies of two real sequences. The imaginary parts of frequency 0 and
/// of n / 2 do not count.
template <class R>
void load_half(const Transforms<R>& t, int64_t first, int64_t lanes, Planes<R> x) {
  const int64_t n = t.plan.size();
  for (int64_t l = 0; l < lanes; ++l) {
    const Elements<R>* from[2] = {};
    for (const int which : {0, 1}) {
      const int64_t sequence = sequence_of(t, first + l, which);
      if (sequence < 0) continue;
      from[which] = t.in.block.template as<Elements<R>>() + t.in.offset(sequence);
    }
    for (int64_t k = 0; k < t.in.size(); ++k) {
      Elements<R> a = from[0][k * t.in.step()];
      Elements<R> b = from[1] ? from[1][k * t.in.step()] : Elements<R>(0);
      const int64_t back = k == 0 ? 0 : n - k;
      if (back == k || k == 0) a.im = b.im = 0;
      x.re[k * lanes + l] = a.re - b.im;
      x.im[k * lanes + l] = a.im + b.re;
      x.re[back * lanes + l] = a.re + b.im;
      x.im[back * lanes + l] = b.re - a.im;
    }
  }
}

template <class R>
void store_real(const Transforms<R>& t, int64_t first, int64_t lanes, Planes<R> y) {
  for (int64_t l = 0; l < lanes; ++l) {
    for (const int which : {0, 1}) {
      const int64_t sequence = sequence_of(t, first + l, which);
      if (sequence < 0) continue;
      const R* from = which == 0 ? y.re : y.im;
      R* to = t.out.block.template as<R>() + t.out.offset(sequence);
      for (int64_t i = 0; i < t.plan.size(); ++i) {
        to[i * t.out.step()] = from[i * lanes + l] * t.scale;
      }
    }
  }
}

template <class R> Planes<R> exchanged_if(bool inverse, Planes<R> x) {
  return inverse ? Planes<R>{x.im, x.re} : x;
}

template <class R> void transform_lanes(const Transforms<R>& t, int64_t first, int64_t lanes) {
  ScratchMemory scratch;
  const int64_t each = t.plan.buffer() * lanes;
  R* memory = scratch.take<R>(4 * each);
  const Planes<R> x{memory, memory + each}, y{memory + 2 * each, memory + 3 * each};
  if (t.real_in()) {
    load_real(t, first, lanes, x);
  } else {
    t.real_out() ? load_half(t, first, lanes, x) : load_complex(t, first, lanes, x);
  }
  const Planes<R> found = exchanged_if(
      t.inverse, t.plan.run(exchanged_if(t.inverse, x), exchanged_if(t.inverse, y), lanes));
  if (t.real_out()) return store_real(t, first, lanes, found);
  t.real_in() ? store_half(t, first, lanes, found) : store_complex(t, first, lanes, found);
}

template <class R> void transform_all(const Transforms<R>& t) {
  constexpr int64_t kLanes = 64 / sizeof(R);
  static_assert(kLanes <= kMostLanes);
  const int64_t bytes = 4 * t.plan.buffer() * static_cast<int64_t>(sizeof(R));
  const int64_t together = std::clamp<int64_t>(kBufferBytes / bytes, 1, kLanes);
  const int64_t lanes = (t.count + t.per_lane() - 1) / t.per_lane();
  const int64_t groups = (lanes + together - 1) / together;
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      transform_lanes(t, g * together, std::min(together, lanes - g * together));
    }
  };
  // Passes of one long sequence are divided instead.
  groups < 4 ? run(0, groups) : parallel_for(groups, grain_of(32 * t.plan.size()), run);
}

}  // namespace

void fourier_transform(const MemoryBlock& out, const MemoryBlock& in, int dim, bool inverse,
                       double scale) {
  if (in.device.kind != DeviceKind::cpu) {
    fail("fft: the tensor is on ", in.device, ", expected cpu");
  }
  if (out.numel() == 0) return;
  const int64_t n = is_complex(in.dtype) ? out.shape[dim] : in.shape[dim];
  const int64_t count = in.numel() / in.shape[dim];
  const auto run = [&]<class R>(Type<R>) {
    const auto plan = FourierPlan<R>::of(n);
    transform_all(
        Transforms<R>{{out, dim}, {in, dim}, *plan, inverse, static_cast<R>(scale), count});
  };
  real_dtype(in.dtype) == DType::f64 ? run(Type<double>{}) : run(Type<float>{});
}

}  // namespace weft

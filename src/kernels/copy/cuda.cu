// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/copy/copy.h"

#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/iteration/iteration.h"

namespace weft::cuda {

namespace {

/// Converts elements through C, which holds every value of both dtypes.
template <class C> struct ConvertKernel {
  int64_t elements;
  Nest<2> nest;
  void* out;
  DType out_dtype;
  const void* in;
  DType in_dtype;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < elements; i += thread.count) {
      const Offsets<2> at = nest.offsets(i);
      store_element(out, out_dtype, at.of[0], load_element<C>(in, in_dtype, at.of[1]));
    }
  }
};

/// Converts dense elements between f32 and a half, eight at a time.
template <class Out, class In> struct DenseConvertKernel {
  template <class T> using Run = Chunk<T, 8>;
  int64_t elements;
  Out* out;
  const In* in;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    const int64_t runs = elements / 8;
    for (int64_t r = thread.index; r < runs; r += thread.count) {
      const Run<In> from = reinterpret_cast<const Run<In>*>(in)[r];
      Run<Out> to;
      for (int i = 0; i < 8; ++i) to.element[i] = Out(static_cast<float>(from.element[i]));
      reinterpret_cast<Run<Out>*>(out)[r] = to;
    }
    for (int64_t i = runs * 8 + thread.index; i < elements; i += thread.count) {
      out[i] = Out(static_cast<float>(in[i]));
    }
  }
};

/// Copies elements of one size without conversion.
template <class Word> struct MoveKernel {
  int64_t elements;
  Nest<2> nest;
  Word* out;
  const Word* in;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < elements; i += thread.count) {
      const Offsets<2> at = nest.offsets(i);
      out[at.of[0]] = in[at.of[1]];
    }
  }
};

/// Sets element i to f(i).
template <class F> struct FillKernel {
  int64_t elements;
  Nest<1> nest;
  F f;
  void* out;
  DType dtype;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < elements; i += thread.count) {
      store_element(out, dtype, nest.offsets(i).of[0], f(i));
    }
  }
};

template <class C> struct Same {
  C value;
  WEFT_DEVICE C operator()(int64_t) const { return value; }
};

struct CountFrom {
  int64_t start;
  WEFT_DEVICE int64_t operator()(int64_t i) const { return start + i; }
};

}  // namespace

template <int kSides> static Nest<kSides> nest_of(const Iteration& loops) {
  Nest<kSides> nest;
  nest.ndim = loops.ndim();
  for (int d = 0; d < nest.ndim; ++d) {
    nest.sizes[d] = loops.size(d);
    for (int s = 0; s < kSides; ++s) nest.strides[s][d] = loops.stride(s, d);
  }
  return nest;
}

/// Returns false for blocks of other dtypes.
template <class Out, class In>
static bool convert_dense(const MemoryBlock& out, const MemoryBlock& in, const Stream& stream) {
  if (out.dtype != dtype_of<Out> || in.dtype != dtype_of<In>) return false;
  const DenseConvertKernel<Out, In> kernel{out.numel(), out.as<Out>(), in.as<In>()};
  launch(kernel, (kernel.elements + 7) / 8, stream);
  return true;
}

/// Converts dense, aligned elements of dtypes that training uses; returns false for others.
static bool convert_fast(const Iteration& loops, const Stream& stream) {
  const MemoryBlock &out = loops.block(0), &in = loops.block(1);
  if (!loops.is_dense(0) || !loops.is_dense(1) || !is_aligned(out.data) || !is_aligned(in.data)) {
    return false;
  }
  return convert_dense<bfloat16, float>(out, in, stream) ||
         convert_dense<float, bfloat16>(out, in, stream) ||
         convert_dense<float16, float>(out, in, stream) ||
         convert_dense<float, float16>(out, in, stream);
}

/// Copies between blocks on one device.
static void copy_here(const MemoryBlock& out, const MemoryBlock& in) {
  const Iteration loops("copy", out.shape, {&out, &in});
  const int64_t elements = loops.inner() * loops.outer();
  if (elements == 0) return;
  const Stream stream = current_stream(out.device);
  if (out.dtype != in.dtype) {
    if (is_complex(out.dtype)) refuse_complex("copy", out.dtype);
    if (convert_fast(loops, stream)) return;
    const auto convert = [&]<class C>(Type<C>) {
      launch(ConvertKernel<C>{elements, nest_of<2>(loops), out.data, out.dtype, in.data, in.dtype},
             elements, stream);
    };
    if (in.dtype == DType::u64 && is_floating(out.dtype)) return convert(Type<uint64_t>{});
    return visit_compute(in.dtype, convert);
  }
  const size_t size = size_of(out.dtype);
  if (loops.is_dense(0) && loops.is_dense(1)) {
    return copy_on_devices(out.data, in.data, static_cast<size_t>(elements) * size, stream);
  }
  visit_word(size, [&]<class Word>(Type<Word>) {
    launch(MoveKernel<Word>{elements, nest_of<2>(loops), out.as<Word>(), in.as<Word>()}, elements,
           stream);
  });
}

/// Copies between devices: send(to, from, bytes) moves dense elements of out's dtype.
template <class Send>
static void copy_by(const MemoryBlock& out, const MemoryBlock& in, const Send& send) {
  if (in.dtype != out.dtype || in.shape != out.shape || !in.is_dense()) {
    const DenseMemory dense(out.shape, out.dtype, in.device);
    weft::copy(dense.block, in);
    return copy_by(out, dense.block, send);
  }
  const auto bytes = static_cast<size_t>(in.numel()) * size_of(in.dtype);
  if (out.is_dense()) return send(out.data, in.data, bytes);
  const DenseMemory dense(out.shape, out.dtype, out.device);
  send(dense.block.data, in.data, bytes);
  weft::copy(out, dense.block);
}

void copy(const MemoryBlock& out, const MemoryBlock& in) {
  if (out.numel() == 0) return;
  if (out.device == in.device) return copy_here(out, in);
  copy_by(out, in, [&](void* to, const void* from, size_t bytes) {
    if (in.device.kind == DeviceKind::cpu) {
      return send_to_device(to, from, bytes, current_stream(out.device));
    }
    const Stream sender = current_stream(in.device);
    if (out.device.kind == DeviceKind::cpu) return read_from_device(to, from, bytes, sender);
    // The copy runs on the receiving device's stream; later work on `in` waits for it.
    const Stream stream = current_stream(out.device);
    Event::record(sender).wait(stream);
    copy_on_devices(to, from, bytes, stream);
    Event::record(stream).wait(sender);
  });
}

void transfer(const MemoryBlock& out, const MemoryBlock& in) {
  if (out.numel() == 0) return;
  const bool to_host = out.device.kind == DeviceKind::cpu;
  const MemoryBlock& host = to_host ? out : in;
  const MemoryBlock& there = to_host ? in : out;
  const Stream stream = current_stream(there.device);
  const auto bytes = static_cast<size_t>(host.numel()) * size_of(host.dtype);
  if (there.dtype == host.dtype && there.is_dense()) {
    return to_host ? copy_to_host(out.data, in.data, bytes, stream)
                   : copy_to_device(out.data, in.data, bytes, stream);
  }
  const DenseMemory dense(host.shape, host.dtype, there.device);
  if (to_host) {
    copy_here(dense.block, in);
    copy_to_host(out.data, dense.block.data, bytes, stream);
  } else {
    copy_to_device(dense.block.data, in.data, bytes, stream);
    copy_here(out, dense.block);
  }
}

template <class F> static void fill_by(const F& f, const MemoryBlock& out, const Nest<1>& nest) {
  const FillKernel<F> kernel{out.numel(), nest, f, out.data, out.dtype};
  launch(kernel, kernel.elements, current_stream(out.device));
}

void fill(const MemoryBlock& out, Number value) {
  if (is_complex(out.dtype)) refuse_complex("fill", out.dtype);
  const Nest<1> nest = nest_of<1>(Iteration("fill", out.shape, {&out}));
  if (is_integer(out.dtype)) return fill_by(Same<int64_t>{value.bits}, out, nest);
  fill_by(Same<double>{value.value}, out, nest);
}

void fill_range(const MemoryBlock& out, int64_t start) {
  fill_by(CountFrom{start}, out, nest_of(out));
}

}  // namespace weft::cuda

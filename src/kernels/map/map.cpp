// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/map/map.h"

#include <algorithm>
#include <optional>

#include "src/base/parallel.h"
#include "src/kernels/iteration/iteration.h"
#include "weft/error.h"

namespace weft {

/// Elements per call of a loop: converted or gathered data stays in the L1 cache.
static constexpr int64_t kMapChunk = 1024;
/// Inner lines shorter than this are gathered several at a time.
static constexpr int64_t kShortLine = 256;
/// Copies of an operand that stays the same along an inner line: one call of a loop reads as many.
static constexpr int64_t kRepeats = 256;
/// Lines are divided into parts of this size.
static constexpr int64_t kLinePart = 16384;
static constexpr int kMaxMapBlocks = cuda::kMaxMapSides;
static_assert(kMaxMapBlocks <= kMaxIterated);

/// A map and the loop chosen for it.
struct Mapping : MapCall {
  Mapping(const MapCall& call, MapLoop chosen) : MapCall(call), loop(chosen) {}

  MapLoop loop;
  /// The dtype in which the loop reads or writes each block.
  DType loop_dtypes[kMaxMapBlocks];
  /// Converts a line of a block to or from that dtype.
  LineConverter converters[kMaxMapBlocks];
};

/// Returns the loop for operands of `dtype`; std::invalid_argument when the functor has none.
template <class Loop> static Loop loop_for(const LoopsByType<Loop>& loops, DType dtype) {
  if (dtype == DType::u64 && loops[dtype]) return loops[dtype];
  const Loop loop = loops[compute_dtype(dtype)];
  if (!loop && is_complex(dtype)) fail("map: operands are ", dtype, ", expected real ones");
  if (!loop && is_floating(dtype)) fail("map: operands are ", dtype, ", expected integers");
  if (!loop) fail("map: operands are integers, expected floating ones");
  return loop;
}

DType MapCall::dtype() const {
  if (count == results) return compute_dtype(blocks[0]->dtype);
  bool floating = false, any_u64 = false, any_complex = false, any_wide = false;
  for (int i = results; i < count; ++i) {
    any_complex |= is_complex(blocks[i]->dtype);
    any_wide |= real_dtype(blocks[i]->dtype) == DType::f64;
    floating |= is_floating(blocks[i]->dtype);
    any_u64 |= blocks[i]->dtype == DType::u64;
  }
  if (any_complex) return any_wide ? DType::c128 : DType::c64;
  if (any_wide) return DType::f64;
  return floating ? DType::f32 : any_u64 ? DType::u64 : DType::i64;
}

/// Elements per call of a loop over dense blocks of other dtypes than the loop's: few, so that the
/// processor reads the next ones while it computes.
static constexpr int64_t kConverted = 512;

/// Calls the loop on dense elements [begin, end) of all blocks; through buffers, a part at a time,
/// unless all have the dtype of the loop.
static void run_dense(const Mapping& mapping, bool simple, int64_t begin, int64_t end) {
  const int64_t step = simple ? end - begin : kConverted;
  alignas(64) std::byte buffers[kMaxMapBlocks][kConverted * sizeof(Complex<double>)];
  char* data[kMaxMapBlocks];
  void* pointers[kMaxMapBlocks];
  int64_t bytes[kMaxMapBlocks];
  bool converts[kMaxMapBlocks];
  for (int i = 0; i < mapping.count; ++i) {
    const MemoryBlock& block = *mapping.blocks[i];
    bytes[i] = static_cast<int64_t>(size_of(block.dtype));
    data[i] = static_cast<char*>(block.data) + begin * bytes[i];
    bytes[i] *= step;
    converts[i] = block.dtype != mapping.loop_dtypes[i];
  }
  for (int64_t at = begin; at < end; at += step) {
    const int64_t n = std::min(step, end - at);
    for (int i = 0; i < mapping.count; ++i) {
      pointers[i] = converts[i] ? static_cast<void*>(buffers[i]) : data[i];
      if (converts[i] && i >= mapping.results) mapping.converters[i](buffers[i], 1, data[i], 1, n);
    }
    mapping.loop(mapping.functor, pointers, pointers + mapping.results, n);
    for (int i = 0; i < mapping.count; ++i) {
      if (converts[i] && i < mapping.results) mapping.converters[i](data[i], 1, buffers[i], 1, n);
      data[i] += bytes[i];
    }
  }
}

/// `length` elements of each of `lines` inner lines, for one call of the loop.
struct MapChunk {
  int64_t outer, inner, lines, length;
};

static bool is_direct(const Mapping& mapping, const Iteration& loops, int block,
                      const MapChunk& chunk) {
  if (mapping.blocks[block]->dtype != mapping.loop_dtypes[block]) return false;
  if (chunk.lines == 1) return loops.inner_stride(block) == 1;
  return chunk.length == loops.inner() && loops.is_dense(block);
}

/// Buffers of a chunk for blocks that are not dense or have another dtype than the loop.
struct MapBuffers {
  alignas(64) std::byte memory[kMaxMapBlocks][kMapChunk * sizeof(Complex<double>)];
  bool used[kMaxMapBlocks];

  Line line(const Mapping& mapping, int block, int64_t element) {
    const DType dtype = mapping.loop_dtypes[block];
    return {dtype, element_at(memory[block], element, dtype)};
  }
};

/// Moves a transposed block between its memory and `dense`, several adjacent lines at a time;
/// returns false, with nothing done, when the chunk's lines are not adjacent.
static bool move_side_by_side(const Iteration& loops, int block, const MapChunk& chunk,
                              const Line& dense, bool stores) {
  // Loops over narrow integers and complex numbers have no such moves.
  const bool is_wide = compute_dtype(dense.dtype) == dense.dtype && !is_complex(dense.dtype);
  if (!loops.is_transposed(block) || chunk.lines == 1 || !is_wide) return false;
  const int64_t plane = loops.size(loops.ndim() - 2);
  if (chunk.outer % plane + chunk.lines > plane) return false;
  visit_compute(dense.dtype, [&](auto type) {
    auto* elements = static_cast<typename decltype(type)::type*>(dense.data);
    for (int64_t j = 0; j < chunk.lines; j += kSideBySide, elements += kSideBySide * chunk.length) {
      const Line line = loops.line(block, chunk.outer + j, chunk.inner);
      const int64_t lines = std::min(kSideBySide, chunk.lines - j);
      if (stores) {
        store_side_by_side(line, elements, chunk.length, lines, chunk.length);
      } else {
        load_side_by_side(elements, chunk.length, line, lines, chunk.length);
      }
    }
  });
  return true;
}

/// Copies blocks [first, last) between their memory and the buffers.
static void move_chunk(const Mapping& mapping, const LineWalk& start, const MapChunk& chunk,
                       MapBuffers& buffers, int first, int last) {
  bool moved[kMaxMapBlocks];
  for (int i = first; i < last; ++i) {
    moved[i] =
        !buffers.used[i] || move_side_by_side(start.loops(), i, chunk, buffers.line(mapping, i, 0),
                                              i < mapping.results);
  }
  if (std::all_of(moved + first, moved + last, [](bool is) { return is; })) return;
  const auto move_lines = [&](const LineWalk& walk, int64_t j) {
    for (int i = first; i < last; ++i) {
      if (moved[i]) continue;
      const Line dense = buffers.line(mapping, i, j * chunk.length), &line = walk.line(i);
      const bool stores = i < mapping.results;
      const Line &to = stores ? line : dense, &from = stores ? dense : line;
      mapping.converters[i](to.data, to.stride, from.data, from.stride, chunk.length);
    }
  };
  if (chunk.lines == 1) return move_lines(start, 0);
  LineWalk walk = start;
  for (int64_t j = 0; j < chunk.lines; ++j, walk.next()) move_lines(walk, j);
}

/// Calls the loop on one chunk, which begins where `walk` is.
static void run_chunk(const Mapping& mapping, const LineWalk& walk, const MapChunk& chunk) {
  const Iteration& loops = walk.loops();
  MapBuffers buffers;
  void* pointers[kMaxMapBlocks];
  for (int i = 0; i < mapping.count; ++i) {
    buffers.used[i] = !is_direct(mapping, loops, i, chunk);
    pointers[i] = buffers.used[i] ? buffers.memory[i] : walk.line(i).data;
  }
  move_chunk(mapping, walk, chunk, buffers, mapping.results, mapping.count);
  mapping.loop(mapping.functor, pointers, pointers + mapping.results, chunk.lines * chunk.length);
  move_chunk(mapping, walk, chunk, buffers, 0, mapping.results);
}

/// Chooses the lines and the length of chunks: several whole lines when they are short, adjacent
/// lines when a block is transposed, otherwise one line.
static MapChunk chunk_of(const Mapping& mapping, const Iteration& loops) {
  const int64_t inner = loops.inner();
  if (inner < kShortLine) return {0, 0, kMapChunk / inner, inner};
  for (int i = 0; i < mapping.count; ++i) {
    if (loops.is_transposed(i)) return {0, 0, kSideBySide, kMapChunk / kSideBySide};
  }
  return {0, 0, 1, kMapChunk};
}

/// True when all blocks have the dtype of the loop and inner lines that are contiguous or, of
/// operands, one element.
static bool has_plain_lines(const Mapping& mapping, const Iteration& loops) {
  if (loops.inner() < kShortLine) return false;
  for (int i = 0; i < mapping.count; ++i) {
    const int64_t stride = loops.inner_stride(i);
    const bool repeats = stride == 0 && i >= mapping.results;
    if (mapping.blocks[i]->dtype != mapping.loop_dtypes[i] || (stride != 1 && !repeats)) {
      return false;
    }
  }
  return true;
}

/// A map over plain lines: its loop, and the bytes from one call of the loop on a line to the next,
/// 0 for a repeated operand. `copies` states which operands the loop reads copies of.
struct PlainLines {
  PlainLines(const Mapping& mapping, const Iteration& loops);

  MapLoop loop;
  int64_t bytes[kMaxMapBlocks], step = kLinePart;
  bool copies[kMaxMapBlocks] = {};
};

PlainLines::PlainLines(const Mapping& mapping, const Iteration& loops) : loop(mapping.loop) {
  int repeated = 0, one = 0;
  for (int i = mapping.results; i < mapping.count; ++i) {
    copies[i] = loops.inner_stride(i) == 0;
    repeated += copies[i];
    if (copies[i]) one = i;
  }
  const int operand = one - mapping.results;
  const bool is_f32 = loop == mapping.loops.on_cpu[DType::f32];
  if (repeated == 1 && operand < kMaxRepeated && is_f32 && mapping.loops.repeated[operand]) {
    loop = mapping.loops.repeated[operand];
    copies[one] = false;
  } else if (repeated > 0) {
    step = kRepeats;
  }
  for (int i = 0; i < mapping.count; ++i) {
    const auto size = static_cast<int64_t>(size_of(mapping.loop_dtypes[i]));
    bytes[i] = loops.inner_stride(i) == 0 ? 0 : step * size;
  }
}

/// Calls the loop on `length` elements of the line where `walk` is.
static void run_line(const Mapping& mapping, const LineWalk& walk, int64_t length,
                     const PlainLines& lines, MapBuffers& buffers) {
  void* pointers[kMaxMapBlocks];
  for (int i = 0; i < mapping.count; ++i) {
    pointers[i] = walk.line(i).data;
    if (!lines.copies[i]) continue;
    mapping.converters[i](buffers.memory[i], 1, pointers[i], 0, kRepeats);
    pointers[i] = buffers.memory[i];
  }
  if (length <= lines.step) {
    return lines.loop(mapping.functor, pointers, pointers + mapping.results, length);
  }
  for (int64_t left = length; left > 0; left -= lines.step) {
    lines.loop(mapping.functor, pointers, pointers + mapping.results, std::min(lines.step, left));
    for (int i = 0; i < mapping.count; ++i) {
      pointers[i] = static_cast<char*>(pointers[i]) + lines.bytes[i];
    }
  }
}

static void run_lines(const Mapping& mapping, const Iteration& loops) {
  const PlainLines lines(mapping, loops);
  const int64_t inner = loops.inner(), across = (inner + kLinePart - 1) / kLinePart;
  parallel_for(loops.outer() * across, grain_of(std::min(inner, kLinePart)),
               [&](int64_t begin, int64_t end) {
                 MapBuffers buffers;
                 std::optional<LineWalk> walk;
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t start = i % across * kLinePart;
                   if (walk && across == 1) {
                     walk->next();
                   } else {
                     walk.emplace(loops, i / across, start);
                   }
                   run_line(mapping, *walk, std::min(kLinePart, inner - start), lines, buffers);
                 }
               });
}

static void run_strided(const Mapping& mapping) {
  const Iteration loops("map", mapping.shape(), mapping.blocks, mapping.count);
  const int64_t inner = loops.inner(), outer = loops.outer();
  if (inner * outer == 0) return;
  if (has_plain_lines(mapping, loops)) return run_lines(mapping, loops);
  const MapChunk whole = chunk_of(mapping, loops);
  const int64_t across = (inner + whole.length - 1) / whole.length;
  const int64_t down = (outer + whole.lines - 1) / whole.lines;
  const bool line_by_line = across == 1 && whole.lines == 1;
  parallel_for(across * down, grain_of(whole.lines * whole.length),
               [&](int64_t begin, int64_t end) {
                 MapChunk chunk = whole;
                 std::optional<LineWalk> walk;
                 for (int64_t i = begin; i < end; ++i) {
                   chunk.outer = i / across * whole.lines;
                   chunk.inner = i % across * whole.length;
                   chunk.lines = std::min(whole.lines, outer - chunk.outer);
                   chunk.length = std::min(whole.length, inner - chunk.inner);
                   if (walk && line_by_line) {
                     walk->next();
                   } else {
                     walk.emplace(loops, chunk.outer, chunk.inner);
                   }
                   run_chunk(mapping, *walk, chunk);
                 }
               });
}

}  // namespace weft

namespace weft::host {

static void find_converters(Mapping& mapping) {
  for (int i = 0; i < mapping.count; ++i) {
    const DType own = mapping.blocks[i]->dtype, in_loop = mapping.loop_dtypes[i];
    mapping.converters[i] =
        i < mapping.results ? line_converter(own, in_loop) : line_converter(in_loop, own);
  }
}

/// The loop for the dtype that all operands and results have, when the functor has it; else null.
static MapLoop own_loop(const MapCall& call) {
  if (call.count == call.results) return nullptr;
  const DType dtype = call.blocks[call.results]->dtype;
  const bool mixed = std::any_of(call.blocks + (call.loops.gives_bool ? call.results : 0),
                                 call.blocks + call.count,
                                 [&](const auto* block) { return block->dtype != dtype; });
  return mixed ? nullptr : call.loops.on_cpu[dtype];
}

void run_map(const MapCall& call) {
  Mapping mapping(call, own_loop(call));
  const DType dtype = mapping.loop ? call.blocks[call.results]->dtype : call.dtype();
  const DType result = call.loops.gives_bool ? DType::boolean : dtype;
  if (!mapping.loop) mapping.loop = loop_for(call.loops.on_cpu, dtype);
  void* data[kMaxMapBlocks];
  bool dense = true, simple = true;
  for (int i = 0; i < call.count; ++i) {
    const MemoryBlock& block = *call.blocks[i];
    const bool alike = i == 0 || block.shape == call.shape();
    data[i] = block.data;
    mapping.loop_dtypes[i] = i < call.results ? result : dtype;
    if (i < call.results && !alike)
      fail("map: a result is ", block.shape, ", expected ", call.shape());
    dense &= alike && block.is_dense();
    simple &= block.dtype == mapping.loop_dtypes[i];
  }
  const int64_t n = call.shape().product();
  if (dense && simple && n <= kParallelGrain) {
    return mapping.loop(call.functor, data, data + call.results, n);
  }
  if (!dense || !simple) find_converters(mapping);
  if (!dense) return run_strided(mapping);
  parallel_for(n, kParallelGrain,
               [&](int64_t begin, int64_t end) { run_dense(mapping, simple, begin, end); });
}

}  // namespace weft::host

#ifdef WEFT_WITH_CUDA
namespace weft::cuda {

static DeviceMap device_map(const Iteration& loops, int results) {
  DeviceMap map{};
  map.ndim = loops.ndim();
  map.elements = loops.inner() * loops.outer();
  map.results = results;
  map.count = loops.count();
  map.dtype = loops.block(0).dtype;
  map.uniform = true;
  for (int d = 0; d < map.ndim; ++d) map.sizes[d] = loops.size(d);
  for (int s = 0; s < map.count; ++s) {
    const MemoryBlock& block = loops.block(s);
    map.sides[s].data = block.data;
    map.sides[s].dtype = block.dtype;
    for (int d = 0; d < map.ndim; ++d) map.sides[s].strides[d] = loops.stride(s, d);
    map.uniform &= block.dtype == map.dtype && loops.is_dense(s) && is_aligned(block.data);
  }
  return map;
}

void run_map(const MapCall& call) {
  const Device device = call.blocks[0]->device;
  for (int i = 0; i < call.count; ++i) {
    const MemoryBlock& block = *call.blocks[i];
    if (block.device != device) fail("map: a block is on ", block.device, ", expected ", device);
    if (i < call.results && block.shape != call.shape())
      fail("map: a result is ", block.shape, ", expected ", call.shape());
  }
  const auto& loops = call.loops.on_cuda;
  if (!loops[DType::f32] && !loops[DType::i64])
    fail("map: its functor has no kernel for a GPU, expected its file in weft_cuda_sources");
  const MapLaunch launch = loop_for(loops, call.dtype());
  const Iteration iteration("map", call.shape(), call.blocks, call.count);
  launch(call.functor, device_map(iteration, call.results), current_stream(device));
}

}  // namespace weft::cuda
#endif

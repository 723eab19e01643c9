// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "mesh/program.h"
#include "src/comm/reduce.h"
#include "src/device/cuda/streams.h"
#include "src/kernels/copy/bulk_copy.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/reduce/reduce.h"

namespace weft {

namespace {

/// Several blocks of one shape as rows that are contiguous in each of them.
class CommonRows {
 public:
  explicit CommonRows(std::span<const MemoryBlock> blocks) {
    const Shape& shape = blocks[0].shape;
    for (int d = shape.ndim() - 1; d >= 0; --d) {
      if (shape[d] == 1) continue;
      if (continues(blocks, d)) {
        loops_.back().size *= shape[d];
      } else {
        loops_.push_back({shape[d], d});
      }
    }
    bool contiguous = !loops_.empty() && std::all_of(blocks.begin(), blocks.end(), [&](auto& b) {
      return b.strides[loops_[0].dim] == 1;
    });
    if (contiguous) {
      row_ = loops_[0].size;
      loops_.erase(loops_.begin());
    }
  }

  /// Calls f(addresses, elements) for each row.
  template <class F> void for_each(std::span<const MemoryBlock> blocks, F f) const {
    std::vector<char*> at;
    at.reserve(blocks.size());
    for (const MemoryBlock& block : blocks) at.push_back(block.as<char>());
    visit(blocks, at, loops_.size(), f);
  }

 private:
  struct Loop {
    int64_t size;
    int dim;
  };

  /// True when dim `d` continues the last loop without a gap, in all blocks.
  bool continues(std::span<const MemoryBlock> blocks, int d) const {
    if (loops_.empty()) return false;
    const Loop& last = loops_.back();
    return std::all_of(blocks.begin(), blocks.end(), [&](const MemoryBlock& block) {
      return block.strides[d] == block.strides[last.dim] * last.size;
    });
  }

  template <class F>
  void visit(std::span<const MemoryBlock> blocks, std::vector<char*>& at, size_t depth,
             F& f) const {
    if (depth == 0) return f(at, row_);
    const Loop& loop = loops_[depth - 1];
    auto move = [&](int64_t steps) {
      for (size_t b = 0; b < blocks.size(); ++b) {
        at[b] +=
            blocks[b].strides[loop.dim] * steps * static_cast<int64_t>(size_of(blocks[b].dtype));
      }
    };
    for (int64_t i = 0; i < loop.size; ++i) {
      visit(blocks, at, depth - 1, f);
      move(1);
    }
    move(-loop.size);
  }

  /// Innermost first.
  std::vector<Loop> loops_;
  int64_t row_ = 1;
};

}  // namespace

/// The last of `blocks` = op of the others, element by element, in that order. All have one shape.
static void reduce_blocks(ReduceOp op, std::span<const MemoryBlock> blocks) {
  const std::span<const MemoryBlock> sources = blocks.first(blocks.size() - 1);
  const MemoryBlock& out = blocks.back();
  if (out.numel() == 0) return;
  if (cuda::kWithCuda && cuda::on_cuda(out)) {
    return cuda::reduce_blocks(op, sources, out, false);
  }
  std::vector<const void*> from(sources.size());
  CommonRows(blocks).for_each(blocks, [&](const std::vector<char*>& at, int64_t elements) {
    std::copy(at.begin(), at.end() - 1, from.begin());
    reduce_n(op, sources[0].dtype, from, {at.back(), out.dtype}, elements);
  });
}

/// Without data for a member that has no block.
static MemoryBlock source_part(const BoxRead& read, const BoxRead::Source& source,
                               std::span<const MemoryBlock* const> members) {
  const MemoryBlock* member = members[static_cast<size_t>(source.member)];
  return member ? member->part({source.offset, read.into.shape}) : MemoryBlock{};
}

static bool is_same_memory(const MemoryBlock& a, const MemoryBlock& b) {
  return a.data == b.data && a.strides == b.strides;
}

static void copy_block(const MemoryBlock& out, const MemoryBlock& in) {
  const size_t bytes = static_cast<size_t>(in.numel()) * size_of(in.dtype);
  if (out.device.kind == DeviceKind::cpu && bytes >= kBulkBytes && in.dtype == out.dtype &&
      in.is_dense() && out.is_dense()) {
    copy_bytes(out.data, in.data, bytes);
  } else {
    copy(out, in);
  }
}

static void read_one(const BoxRead& read, ReduceOp op, std::span<const MemoryBlock* const> members,
                     const MemoryBlock& out) {
  if (read.sources.size() == 1) {
    const MemoryBlock part = source_part(read, read.sources[0], members);
    if (part.data && !is_same_memory(part, out)) copy_block(out, part);
    return;
  }
  std::vector<MemoryBlock> blocks;
  blocks.reserve(read.sources.size() + 1);
  for (const BoxRead::Source& source : read.sources) {
    MemoryBlock part = source_part(read, source, members);
    if (part.data) blocks.push_back(part);
  }
  if (blocks.empty()) return;
  blocks.push_back(out);
  reduce_blocks(op, blocks);
}

int64_t read_boxes(const ReadProgram& program, ReduceOp op,
                   std::span<const MemoryBlock* const> members, const MemoryBlock& out) {
  if (program.zeroed) fill(out, 0);
  const auto element = static_cast<int64_t>(size_of(out.dtype));
  int64_t bytes = 0;
  // Each rank starts at another read, so that they do not all read the same memory at once.
  const size_t count = program.reads.size();
  for (size_t i = 0; i < count; ++i) {
    const BoxRead& read = program.reads[(i + static_cast<size_t>(program.self)) % count];
    read_one(read, op, members, out.part(read.into));
    for (const BoxRead::Source& source : read.sources) {
      if (source.member != program.self) bytes += read.into.shape.product() * element;
    }
  }
  return bytes;
}

}  // namespace weft

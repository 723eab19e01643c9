// SPDX-License-Identifier: Apache-2.0
#include "mesh/steps.h"

#include <algorithm>
#include <unordered_map>

#include "mesh/mesh_body.h"
#include "src/comm/collective_parts.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

using Kind = PlanStep::Kind;

static int index_of(const std::vector<int>& members, int rank) {
  return static_cast<int>(std::ranges::find(members, rank) - members.begin());
}

/// The rank with the same box that is first along all axes that do not cut the tensor.
static int first_with_box(const MeshGrid& grid, const Pattern& pattern, int rank) {
  Coordinates coordinates = grid.coordinates_of(rank);
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    if (!pattern[axis].is_shard()) coordinates[static_cast<size_t>(axis)] = 0;
  }
  return grid.rank_at(coordinates);
}

/// Groups members by their box: members that differ only along Partial axes hold the same one.
static std::vector<BoxRead> reads_from(const MeshGrid& grid, const Layout& from,
                                       const std::vector<int>& members, const Box& wanted,
                                       const Box& frame) {
  std::vector<BoxRead> reads;
  std::unordered_map<int, size_t> read_of;
  for (size_t m = 0; m < members.size(); ++m) {
    const Box box = from.box_of(members[m]);
    Box both = overlap(wanted, box);
    if (both.shape.product() == 0) continue;
    BoxRead::Source source{static_cast<int>(m), relative(both, box).offset};
    const int first = first_with_box(grid, from.sharding.pattern(), members[m]);
    const auto [found, is_new] = read_of.try_emplace(first, reads.size());
    if (!is_new) {
      reads[found->second].sources.push_back(std::move(source));
      continue;
    }
    reads.push_back({relative(both, frame), {std::move(source)}});
  }
  return reads;
}

static ReadProgram read_program(const MeshGrid& grid, const PlanStep& step,
                                const std::vector<int>& members) {
  const Pattern& from = step.from->sharding.pattern();
  const Pattern& to = step.to->sharding.pattern();
  ReadProgram program{
      .self = index_of(members, grid.rank()), .zeroed = makes_sums(grid, from, to), .reads = {}};
  if (counts_elsewhere(from, to, grid.coordinates())) return program;
  const Box& result = step.to->box;
  program.reads = reads_from(grid, *step.from, members, result, result);
  return program;
}

ReadProgram reads_of(const MeshGrid& grid, const Layout& from, const Axes& axes,
                     const Box& wanted) {
  std::vector<int> members = grid.members(axes, grid.coordinates());
  return {.self = index_of(members, grid.rank()),
          .reads = reads_from(grid, from, members, wanted, wanted)};
}

void PackedBoxes::add(const Box& box) {
  boxes.push_back(box);
  counts.push_back(box.shape.product());
  total += counts.back();
}

/// True when the boxes, in that order, are contiguous and fill a dense block of that shape.
static bool is_in_place(const PackedBoxes& parts, const Shape& block) {
  if (parts.total != block.product()) return false;
  Strides strides = dense_strides(block);
  int64_t next = 0;
  for (const Box& box : parts.boxes) {
    if (box.shape.product() == 0) continue;
    int64_t start = 0;
    for (int d = 0; d < block.ndim(); ++d) start += box.offset[d] * strides[d];
    if (start != next || !MemoryBlock{nullptr, f32, cpu, box.shape, strides}.is_dense())
      return false;
    next += box.shape.product();
  }
  return true;
}

void PackedBoxes::close(const Shape& block) { in_place = is_in_place(*this, block); }

PackedBoxes sent_boxes(const Layout& from, std::span<const Box> wanted) {
  PackedBoxes boxes;
  for (const Box& theirs : wanted) boxes.add(relative(overlap(from.box, theirs), from.box));
  boxes.close(from.box.shape);
  return boxes;
}

PackedBoxes received_boxes(const Layout& from, std::span<const int> members, const Box& wanted) {
  PackedBoxes boxes;
  for (const int rank : members) boxes.add(relative(overlap(from.box_of(rank), wanted), wanted));
  boxes.close(wanted.shape);
  return boxes;
}

static StepProgram program_of(MeshGrid& grid, const PlanStep& step) {
  StepProgram program;
  std::vector<int> members = grid.members(step.axes, grid.coordinates());
  if (step.kind != Kind::local) program.group = grid.group(step.axes);
  switch (step.kind) {
    case Kind::local:
    case Kind::exchange: program.read = read_program(grid, step, members); return program;
    case Kind::all_reduce:
    case Kind::all_gather: program.send = sent_boxes(*step.from, {&step.from->box, 1}); break;
    default: {
      std::vector<Box> made;
      for (const int rank : members) made.push_back(step.to->box_of(rank));
      program.send = sent_boxes(*step.from, made);
    }
  }
  if (step.kind == Kind::all_gather || step.kind == Kind::all_to_all) {
    program.recv = received_boxes(*step.from, members, step.to->box);
  }
  return program;
}

PlanProgram::PlanProgram(const Plan& plan)
    : words(concat("redistribute(", plan.from->dtype, ", ", plan.from->shape, ", ",
                   placements_in_words(plan.from->sharding), " -> ",
                   placements_in_words(plan.to->sharding), ")")),
      content(mixed(plan.from->hash, plan.to->hash)) {
  for (const PlanStep& step : plan.steps) steps.push_back(program_of(*plan.to->grid, step));
}

bool is_made_in_result(const Plan& plan, size_t i) {
  if (i + 2 != plan.steps.size()) return false;
  const PlanStep &step = plan.steps[i], &last = plan.steps[i + 1];
  bool is_one = step.kind == Kind::exchange && last.kind == Kind::exchange &&
                step.axes == last.axes && step.to->dtype == last.to->dtype &&
                step.to->shape == last.to->shape;
  if (!is_one || step.to->box.shape.product() == 0) return false;
  const Pattern& from = last.from->sharding.pattern();
  const Pattern& to = last.to->sharding.pattern();
  bool reduces = std::ranges::any_of(last.axes, [&](int axis) { return from[axis].is_partial(); });
  return !reduces && !makes_sums(*last.to->grid, from, to) && contains(last.to->box, step.to->box);
}

/// Calls f(addresses, elements) for each run of elements that is contiguous in all blocks, which
/// have one shape.
template <class F> static void for_each_run(std::span<const MemoryBlock> blocks, const F& f) {
  const Shape& shape = blocks[0].shape;
  int outer = shape.ndim();
  int64_t run = 1;
  const auto continues = [&](const MemoryBlock& block) { return block.strides[outer - 1] == run; };
  while (outer > 0 && (shape[outer - 1] == 1 || std::ranges::all_of(blocks, continues))) {
    run *= shape[--outer];
  }
  Dims index = Dims::filled(outer, 0);
  std::vector<char*> at(blocks.size());
  for (int64_t i = 0, runs = shape.product() / run; i < runs; ++i) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      int64_t offset = 0;
      for (int d = 0; d < outer; ++d) offset += index[d] * blocks[b].strides[d];
      at[b] = blocks[b].as<char>() + offset * static_cast<int64_t>(size_of(blocks[b].dtype));
    }
    f(at, run);
    for (int d = outer; d-- > 0 && ++index[d] == shape[d];) index[d] = 0;
  }
}

/// The last of `blocks` = op of the others, element by element, in that order. All have one shape.
static void reduce_blocks(ReduceOp op, std::span<const MemoryBlock> blocks) {
  const std::span<const MemoryBlock> sources = blocks.first(blocks.size() - 1);
  const MemoryBlock& out = blocks.back();
  if (out.numel() == 0) return;
  if (cuda::kWithCuda && cuda::on_cuda(out)) {
    return cuda::reduce_blocks(op, sources, out, false);
  }
  std::vector<const void*> from(sources.size());
  for_each_run(blocks, [&](const std::vector<char*>& at, int64_t elements) {
    std::copy(at.begin(), at.end() - 1, from.begin());
    reduce_n(op, sources[0].dtype, from, {at.back(), out.dtype}, elements);
  });
}

/// The data is null for a member that has no block.
static MemoryBlock source_part(const BoxRead& read, const BoxRead::Source& source,
                               std::span<const MemoryBlock* const> members) {
  const MemoryBlock* member = members[static_cast<size_t>(source.member)];
  return member ? member->part({source.offset, read.into.shape}) : MemoryBlock{};
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
    const bool is_there = part.data == out.data && part.strides == out.strides;
    if (part.data && !is_there) copy_block(out, part);
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

// SPDX-License-Identifier: Apache-2.0
#include "mesh/program.h"

#include <unordered_map>

#include "mesh/mesh_body.h"
#include "mesh/search.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

using Kind = PlanStep::Kind;

static int index_of(const std::vector<int>& members, int rank) {
  return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
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

static void make_parts(const PlanStep& step, const std::vector<int>& members,
                       StepProgram& program) {
  const Box &own = step.from->box, &result = step.to->box;
  for (int rank : members) {
    Box theirs = step.from->box_of(rank), made = step.to->box_of(rank);
    if (step.kind != Kind::all_gather) program.send.add(relative(overlap(own, made), own));
    if (step.kind != Kind::reduce_scatter) {
      program.recv.add(relative(overlap(theirs, result), result));
    }
  }
  if (step.kind == Kind::all_gather) program.send.add(relative(own, own));
  program.send.close(own.shape);
  program.recv.close(result.shape);
}

static StepProgram program_of(MeshGrid& grid, const PlanStep& step) {
  StepProgram program;
  std::vector<int> members = grid.members(step.axes, grid.coordinates());
  if (step.kind != Kind::local) program.group = grid.group(step.axes);
  switch (step.kind) {
    case Kind::local:
    case Kind::exchange: program.read = read_program(grid, step, members); break;
    case Kind::all_reduce:
      program.send.add(relative(step.from->box, step.from->box));
      program.send.in_place = true;
      break;
    default: make_parts(step, members, program);
  }
  return program;
}

PlanProgram::PlanProgram(const Plan& plan)
    : words(concat("redistribute(", plan.from->dtype, ", ", plan.from->shape, ", ")),
      content(mixed(plan.from->hash, plan.to->hash)) {
  std::ostringstream change;
  print_placements(change, plan.from->sharding);
  print_placements(change << " -> ", plan.to->sharding);
  words += change.str() + ")";
  for (const PlanStep& step : plan.steps) steps.push_back(program_of(*plan.to->grid, step));
}

bool is_made_in_result(const Plan& plan, size_t i) {
  if (i + 2 != plan.steps.size()) return false;
  const PlanStep &step = plan.steps[i], &last = plan.steps[i + 1];
  bool is_one = step.kind == Kind::exchange && last.kind == Kind::exchange &&
                step.axes == last.axes && step.to->dtype == last.to->dtype;
  if (!is_one || step.to->box.shape.product() == 0) return false;
  const Pattern& from = last.from->sharding.pattern();
  const Pattern& to = last.to->sharding.pattern();
  bool reduces = std::any_of(last.axes.begin(), last.axes.end(),
                             [&](int axis) { return from[axis].is_partial(); });
  return !reduces && !makes_sums(*last.to->grid, from, to) && contains(last.to->box, step.to->box);
}

}  // namespace weft

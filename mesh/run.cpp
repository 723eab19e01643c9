// SPDX-License-Identifier: Apache-2.0
#include "mesh/rows.h"
#include "mesh/steps.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

using Kind = PlanStep::Kind;

namespace {

/// The blocks that a rank reads in one phase of an exchange.
struct Phase {
  const ReadProgram& program;
  ReduceOp op;
  MemoryBlock out;
};

}  // namespace

MemoryBlock divided(const MemoryBlock& block, const Shape& shape) {
  if (block.shape == shape) return block;
  MemoryBlock made = block;
  made.shape = shape;
  made.strides = dense_strides(shape);
  if (block.is_dense() || shape.product() == 0) return made;
  int f = shape.ndim() - 1;
  for (int d = block.shape.ndim() - 1; d >= 0; --d) {
    int64_t stride = block.strides[d];
    for (int64_t left = block.shape[d]; left > 1; left /= shape[f--]) {
      made.strides[f] = stride;
      stride *= shape[f];
    }
  }
  return made;
}

namespace {

/// Reads phase by phase from the blocks that the members expose.
void read_phases(const Communicator& group, const Exchange& call, std::span<const Phase> phases) {
  std::vector<const MemoryBlock*> members;
  exchange(group, call, [&](int phase, std::span<const void* const> shown) {
    const Phase& now = phases[static_cast<size_t>(phase)];
    members.clear();
    for (const void* blocks : shown) {
      members.push_back(blocks ? static_cast<const MemoryBlock*>(blocks) + phase : nullptr);
    }
    return read_boxes(now.program, now.op, members, now.out);
  });
}

/// One run of a plan.
class PlanRun {
 public:
  PlanRun(const Plan& plan, const MemoryBlock& out)
      : plan_(plan), out_(divided(out, plan.steps.back().to->box.shape)) {
    if (plan.program && !is_strict_plan()) return;
    const Program steps = program_of(plan);
    check("redistribute", {&steps, 1});
    if (!plan.program) plan.program = std::make_shared<PlanProgram>(plan);
  }

  void run(const MemoryBlock& in) {
    MemoryBlock made;
    for (size_t i = 0; i < plan_.steps.size();) {
      const size_t end = phases_end(i);
      const MemoryBlock from = divided(i == 0 ? in : made, plan_.steps[i].from->box.shape);
      if (end == plan_.steps.size()) return steps(i, end, from, out_);
      const Layout& to = *plan_.steps[end - 1].to;
      std::vector<DenseMemory> kept;
      kept.emplace_back(to.box.shape, to.dtype, out_.device);
      steps(i, end, from, kept[0].block);
      made = kept[0].block;
      // Frees the block before, and what the step took.
      scratch_ = std::move(kept);
      i = end;
    }
  }

 private:
  const StepProgram& program(size_t i) const { return plan_.program->steps[i]; }

  /// Consecutive exchanges over one group are phases of one exchange.
  size_t phases_end(size_t i) const {
    constexpr auto most = static_cast<size_t>(kMaxPhases);
    size_t end = i + 1;
    if (plan_.steps[i].kind != Kind::exchange) return end;
    while (end < plan_.steps.size() && end - i < most && plan_.steps[end].kind == Kind::exchange &&
           plan_.steps[end].axes == plan_.steps[i].axes &&
           plan_.steps[end].to->shape == plan_.steps[i].to->shape) {
      ++end;
    }
    return end;
  }

  /// One step, or the phases of one exchange.
  void steps(size_t i, size_t end, const MemoryBlock& in, const MemoryBlock& out) {
    if (plan_.steps[i].kind == Kind::exchange) {
      exchange(i, end, in, out);
    } else if (plan_.steps[i].kind == Kind::local) {
      const MemoryBlock* member = &in;
      read_boxes(program(i).read, plan_.steps[i].op, {&member, 1}, out);
    } else {
      send_boxes(program(i), in, out, plan_.steps[i].kind, plan_.steps[i].op);
    }
  }

  void exchange(size_t begin, size_t end, const MemoryBlock& in, const MemoryBlock& out) {
    std::vector<MemoryBlock> shown;
    std::vector<Phase> phases;
    shown.reserve(end - begin);
    phases.reserve(end - begin);
    shown.push_back(readable(in, program(begin).read));
    for (size_t i = begin; i < end; ++i) {
      const bool is_last = i + 1 == end;
      MemoryBlock result = is_last ? out : intermediate(i, out);
      phases.push_back({program(i).read, plan_.steps[i].op, result});
      if (!is_last) shown.push_back(result);
    }
    read_phases(program(begin).group,
                {.blocks = shown,
                 .content = mixed(plan_.program->content, begin),
                 .words = plan_.program->words},
                phases);
  }

  /// Returns the block for the result of a phase that is not the last.
  MemoryBlock intermediate(size_t i, const MemoryBlock& out) {
    const Box& made = plan_.steps[i].to->box;
    if (is_made_in_result(plan_, i)) return out.part(relative(made, plan_.steps.back().to->box));
    return scratch(made.shape, out.dtype);
  }

  /// Peers reduce rows: returns a copy of a block whose rows are not contiguous.
  MemoryBlock readable(const MemoryBlock& in, const ReadProgram& program) {
    bool reduces = std::ranges::any_of(program.reads,
                                       [](const BoxRead& read) { return read.sources.size() > 1; });
    int last = in.shape.ndim() - 1;
    if (!reduces || last < 0 || in.shape[last] == 1 || in.strides[last] == 1) return in;
    const MemoryBlock dense = scratch(in.shape, in.dtype);
    copy(dense, in);
    return dense;
  }

  MemoryBlock scratch(const Shape& shape, DType dtype) {
    return scratch_.emplace_back(shape, dtype, out_.device).block;
  }

  const Plan& plan_;
  const MemoryBlock out_;
  /// The block between the last step and the next, and what the present step takes.
  std::vector<DenseMemory> scratch_;
};

}  // namespace

/// Copies the boxes of `block` into `memory`, dense and one after the other, or back.
static void pack(const PackedBoxes& parts, const MemoryBlock& block, void* memory, bool back) {
  auto* next = static_cast<char*>(memory);
  for (const Box& box : parts.boxes) {
    const MemoryBlock part = block.part(box);
    if (part.numel() == 0) continue;
    const MemoryBlock packed = dense_block(next, block.dtype, box.shape, block.device);
    back ? copy(part, packed) : copy(packed, part);
    next += part.numel() * static_cast<int64_t>(size_of(block.dtype));
  }
}

void send_boxes(const StepProgram& program, const MemoryBlock& in, const MemoryBlock& out,
                Kind kind, ReduceOp op) {
  const PackedBoxes &send = program.send, &recv = program.recv;
  Piece piece{.send = in.data,
              .recv = out.data,
              .dtype = in.dtype,
              .counts = send.counts,
              .recv_dtype = out.dtype,
              .device = out.device};
  std::vector<DenseMemory> scratch;
  if (!send.in_place || !in.is_dense()) {
    void* packed = scratch.emplace_back(Shape{send.total}, in.dtype, in.device).block.data;
    pack(send, in, packed, false);
    piece.send = packed;
  }
  const bool unpacks = !recv.boxes.empty() && !(recv.in_place && out.is_dense());
  if (unpacks) {
    piece.recv = scratch.emplace_back(Shape{recv.total}, out.dtype, out.device).block.data;
  }
  const Communicator& group = program.group;
  if (kind == Kind::all_gather) {
    piece.counts = recv.counts;
    group.all_gather({&piece, 1}).wait();
  } else if (kind == Kind::reduce_scatter) {
    group.reduce_scatter({&piece, 1}, op).wait();
  } else if (kind == Kind::all_reduce) {
    group.all_reduce({&piece, 1}, op).wait();
  } else {
    group.all_to_all(piece, recv.counts).wait();
  }
  if (unpacks) pack(recv, out, piece.recv, true);
}

static void check_blocks(const Plan& plan, const MemoryBlock& in, const MemoryBlock& out) {
  if (in.shape == plan.from->box.shape && in.dtype == plan.from->dtype &&
      out.shape == plan.to->box.shape && out.dtype == plan.to->dtype && out.is_dense()) {
    return;
  }
  fail("redistribute: blocks are ", in.shape, " ", in.dtype, " and ", out.shape, " ", out.dtype,
       ", expected ", plan.from->box.shape, " ", plan.from->dtype, " and a dense ",
       plan.to->box.shape, " ", plan.to->dtype);
}

void run(const Plan& plan, const MemoryBlock& in, const MemoryBlock& out) {
  check_blocks(plan, in, out);
  if (out.device.kind == DeviceKind::meta) return;
  if (plan.steps.empty()) {
    if (out.numel() != 0) copy(out, in);
  } else {
    PlanRun(plan_on(out.device.kind, plan), out).run(in);
  }
}

static uint64_t content_of(const Layout& from, std::span<const Box> wishes) {
  uint64_t content = from.hash;
  for (const Box& wish : wishes) {
    for (int64_t offset : wish.offset) content = mixed(content, static_cast<uint64_t>(offset));
    for (int64_t size : wish.shape) content = mixed(content, static_cast<uint64_t>(size));
  }
  return content;
}

static void fetch_here(const Layout& from, const MemoryBlock& in, const Box& wanted,
                       const MemoryBlock& out) {
  Box both = overlap(from.box, wanted);
  if (both.shape.product() == 0) return;
  copy(out.part(relative(both, wanted)), in.part(relative(both, from.box)));
}

void fetch(const Ref<Layout>& from, const MemoryBlock& in,
           const std::function<Box(int rank)>& wanted_of, const MemoryBlock& out) {
  if (out.device.kind == DeviceKind::meta) return;
  if (!from->grid) return fetch_here(*from, in, wanted_of(0), out);
  MeshGrid& grid = *from->grid;
  Axes axes = axes_cutting(*from);
  Box wanted = wanted_of(grid.rank());
  if (out.shape != wanted.shape || in.shape != from->box.shape) {
    fail("fetch: block and result are ", in.shape, " of ", *from, " and ", out.shape, ", expected ",
         from->box.shape, " and ", wanted.shape);
  }
  if (axes.empty()) return fetch_here(*from, in, wanted, out);
  std::vector<int> members = grid.members(axes, grid.coordinates());
  std::vector<Box> wishes;
  for (int rank : members) wishes.push_back(wanted_of(rank));
  Communicator group = grid.group(axes);
  if (!grid.in_memory(in.device.kind)) {
    return send_boxes({.group = group,
                       .send = sent_boxes(*from, wishes),
                       .recv = received_boxes(*from, members, wanted)},
                      in, out);
  }
  ReadProgram program = reads_of(grid, *from, axes, wanted);
  const Phase phase{program, ReduceOp::sum, out};
  read_phases(group, {.blocks = {&in, 1}, .content = content_of(*from, wishes), .words = "fetch"},
              {&phase, 1});
}

}  // namespace weft

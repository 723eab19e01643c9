// SPDX-License-Identifier: Apache-2.0
// Programs of steps: their producers, their defects, and their bytes.
#include <random>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "tests/tp/little_llama.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/extend/split_products.h"
#include "weft/fsdp.h"
#include "weft/moe.h"
#include "weft/optimizers.h"
#include "weft/pipeline_program.h"

namespace weft {
namespace {

using Act = ProgramAct;
using Programs = std::vector<Program>;

/// A sharding of a small model, and its mesh.
struct Way {
  const char* name;
  std::vector<MeshAxis> axes;
  FullyShardOptions options = {};
};

std::vector<Way> ways(const std::string& directory) {
  const std::vector<MeshAxis> three{{"dp", 3}}, grid{{"across", 2}, {"within", 2}};
  const Tier disk = Tier::disk(directory);
  return {{"one", {{"dp", 1}}},
          {"full_shard", three},
          {"kept", three, {.reshard_after_forward = false, .prefetch = 2}},
          {"zero1", three, {.strategy = Strategy::zero1()}},
          {"zero2", three, {.strategy = Strategy::zero2()}},
          {"ddp", three, {.strategy = Strategy::ddp(), .bucket_bytes = 3000}},
          {"hsdp", grid, {.strategy = Strategy::hsdp()}},
          {"within", grid, {.reshard_after_forward = "within"}},
          {"codes",
           grid,
           {.quantization = {.gather = i8, .reduce = i8, .block = 8, .within = "within"}}},
          {"bf16", three, {.precision = {.compute = bf16, .reduce = bf16}}},
          {"disk", three, {.offload = {.parameters = disk, .gradients = disk}}}};
}

void shard(TransformerModel& model, const DeviceMesh& mesh, const FullyShardOptions& options) {
  for (Module* block : model.blocks()) fully_shard(*block, mesh, options);
  fully_shard(model, mesh, options);
}

/// The programs of all ranks of a simulated mesh, in a step of each kind.
Programs scheduled(const Way& way, const StepKind& kind = {}) {
  Programs all;
  for (int rank = 0; rank < ranks_of(way.axes); ++rank) {
    const DeviceMesh mesh(fake_world(rank, ranks_of(way.axes)), way.axes);
    TransformerModel model(little_llama(4, 2));
    shard(model, mesh, way.options);
    all.push_back(schedule_of(model, kind));
  }
  return all;
}

std::string first_of(const std::vector<ProgramDefect>& defects) {
  return defects.empty() ? "" : concat(name_of(defects[0].fault), ": ", defects[0].text);
}

TEST(Steps, OfFullyShardedModelsHaveNoDefects) {
  const Scratch scratch;
  for (const Way& way : ways(scratch.root())) {
    for (const bool sync : {true, false}) {
      for (const bool updated : {true, false}) {
        for (const bool training : {true, false}) {
          const Programs all = scheduled(way, {training, sync, updated});
          EXPECT_EQ(first_of(defects_of(all)), "")
              << way.name << sync << updated << training << '\n'
              << text_of(all[0]);
        }
      }
    }
  }
}

TEST(Steps, OfAFullyShardedModelPredictItsBytes) {
  const Scratch scratch;
  for (const Way& way : ways(scratch.root())) {
    on_mesh(way.axes, [&](const DeviceMesh& mesh) {
      TransformerModel model(little_llama(4, 2));
      shard(model, mesh, way.options);
      model.materialize();
      const Placements rows =
          mesh.ndim() == 1 ? Placements{Shard(0)} : Placements{Shard(0), Shard(0)};
      const TensorOptions on_rows{.dtype = i64, .sharding = Sharding(mesh, rows)};
      // The first step records the order in which the next ones gather early.
      AdamW optimizer(model.named_parameters());
      for (int step = 0; step < 2; ++step) {
        if (step > 0) optimizer.step();
        optimizer.zero_grad();
        model.loss(some_ids({5, 4}, 1, on_rows), some_ids({5, 4}, 2, on_rows)).backward();
      }
      const Program program = schedule_of(model);
      const FullyShardBytes measured = measured_bytes(model);
      EXPECT_EQ(program.received(), measured.received) << way.name;
      EXPECT_EQ(program.slot_bytes(), measured.buffers) << way.name;
      EXPECT_LE(program.peak_bytes(), measured.buffers) << way.name;
    });
  }
}

TEST(Steps, OfATierOnDiskAreReadAndWritten) {
  const Scratch scratch;
  const Way way = ways(scratch.root()).back();
  const Program program = scheduled(way)[0];
  int64_t read = 0, written = 0;
  for (const ProgramStep& step : program.steps) {
    if (step.act == Act::read) read += step.bytes;
    if (step.act == Act::write) written += step.bytes;
  }
  // Blocks are read in forward and in backward, the root once; all gradients are written.
  EXPECT_GT(read, written);
  const std::string text = text_of(program);
  EXPECT_TRUE(has(text, "forward   read model.layers.0, buffer 1, ")) << text;
  EXPECT_TRUE(has(text, "backward  write sums of the root, buffer "));
  EXPECT_EQ(svg_of({&program, 1}).find("<svg "), 0U);
}

/// What one change of a program makes wrong.
struct Mutation {
  const char* name;
  ProgramFault fault;
  /// Changes the step at a position; false where there is nothing to change.
  std::function<bool(Programs&, size_t rank, size_t at)> change;
};

using Steps = std::vector<ProgramStep>;
long at_of(size_t i) { return static_cast<long>(i); }

auto dropped(Act act, bool is_started = false) {
  return [=](Programs& all, size_t rank, size_t at) {
    Steps& steps = all[rank].steps;
    if (steps[at].act != act || (is_started && steps[at].work < 0)) return false;
    steps.erase(steps.begin() + at_of(at));
    return true;
  };
}

auto repeated(Act act) {
  return [=](Programs& all, size_t rank, size_t at) {
    Steps& steps = all[rank].steps;
    if (steps[at].act != act || (act == Act::gather && steps[at].work < 0)) return false;
    const ProgramStep step = steps[at];
    steps.insert(steps.begin() + at_of(at), step);
    return true;
  };
}

/// Drops the wait for a step of that kind: for one whose slot is used next, or not.
auto without_wait(Act started, bool reads_slot) {
  return [=](Programs& all, size_t rank, size_t at) {
    Steps& steps = all[rank].steps;
    if (steps[at].act != started || steps[at].work < 0) return false;
    if (started == Act::reduce && (steps[at].slot >= 0) != reads_slot) return false;
    const int work = steps[at].work;
    std::erase_if(
        steps, [&](const ProgramStep& step) { return step.act == Act::wait && step.work == work; });
    return true;
  };
}

/// Moves a step that uses a slot to a place before or behind.
auto moved(Act act, Act to, bool is_later) {
  return [=](Programs& all, size_t rank, size_t at) {
    Steps& steps = all[rank].steps;
    const ProgramStep step = steps[at];
    if (step.act != act) return false;
    const auto is_slot = [&](const ProgramStep& other) {
      const bool same =
          to == Act::wait ? other.act == Act::wait && other.slot >= 0 : other.act == to;
      return same && (other.slot == step.slot ||
                      std::ranges::find(step.uses, other.slot) != step.uses.end());
    };
    steps.erase(steps.begin() + at_of(at));
    if (is_later) {
      const auto found = std::find_if(steps.begin() + at_of(at), steps.end(), is_slot);
      if (found == steps.end()) return false;
      steps.insert(found + 1, step);
      return true;
    }
    const auto before = std::make_reverse_iterator(steps.begin() + at_of(at));
    const auto found = std::find_if(before, steps.rend(), is_slot);
    if (found == steps.rend()) return false;
    steps.insert(found.base() - 1, step);
    return true;
  };
}

/// Changes one step in place.
auto changed_step(Act act, std::function<void(ProgramStep&)> change) {
  return [=](Programs& all, size_t rank, size_t at) {
    if (all[rank].steps[at].act != act || all[rank].mesh[0].second < 2) return false;
    change(all[rank].steps[at]);
    return true;
  };
}

/// Acquires a slot and keeps it.
bool leave_slot(Programs& all, size_t rank, size_t at) {
  all[rank].steps.insert(all[rank].steps.begin() + at_of(at),
                         {.act = Act::acquire, .slot = all[rank].add_slot({"a slot", 8})});
  return true;
}

std::vector<Mutation> mutations() {
  using Fault = ProgramFault;
  const auto swapped = [](Programs& all, size_t rank, size_t at) {
    Steps& steps = all[rank].steps;
    if (all.size() < 2 || steps[at].act != Act::gather || steps[at].axes.empty()) return false;
    for (size_t i = at + 1; i < steps.size(); ++i) {
      if (steps[i].axes != steps[at].axes || words_of(steps[i]) == words_of(steps[at])) continue;
      std::swap(steps[at].object, steps[i].object);
      std::swap(steps[at].verb, steps[i].verb);
      return true;
    }
    return false;
  };
  const auto lost = [](Programs& all, size_t rank, size_t at) {
    Steps& steps = all[rank].steps;
    if (all.size() < 2 || steps[at].act != Act::reduce || steps[at].axes.empty()) return false;
    const int work = steps[at].work;
    std::erase_if(steps, [&](const ProgramStep& step) { return step.work == work; });
    return true;
  };
  return {
      {"drop an acquire", Fault::not_acquired, dropped(Act::acquire)},
      {"repeat an acquire", Fault::acquired_twice, repeated(Act::acquire)},
      {"drop a release", Fault::not_released, dropped(Act::release)},
      {"repeat a release", Fault::released_twice, repeated(Act::release)},
      {"leave a slot", Fault::not_released, leave_slot},
      {"drop the wait of a gather", Fault::used_early, without_wait(Act::gather, true)},
      {"drop the wait of a read", Fault::used_early, without_wait(Act::read, true)},
      {"drop the wait of a sum", Fault::released_early, without_wait(Act::reduce, true)},
      {"drop the wait of a sum in place", Fault::not_waited, without_wait(Act::reduce, false)},
      {"repeat a wait", Fault::not_started, repeated(Act::wait)},
      {"drop a gather", Fault::not_started, dropped(Act::gather, true)},
      {"drop a sum", Fault::not_started, dropped(Act::reduce, true)},
      {"repeat a gather", Fault::started_twice, repeated(Act::gather)},
      {"compute before the wait", Fault::used_early, moved(Act::compute, Act::wait, false)},
      {"compute after the release", Fault::used_after_release,
       moved(Act::compute, Act::release, true)},
      {"release before the wait", Fault::released_early, moved(Act::release, Act::wait, false)},
      {"gather before the acquire", Fault::not_acquired, moved(Act::gather, Act::acquire, false)},
      {"swap collectives on one rank", Fault::order, swapped},
      {"lose a collective on one rank", Fault::order, lost},
      {"gather other parameters on one rank", Fault::order,
       changed_step(Act::gather, [](ProgramStep& step) { step.object += " of others"; })},
      {"scatter where others sum", Fault::order,
       changed_step(Act::reduce, [](ProgramStep& step) { step.verb = "broadcast"; })}};
}

/// Steps that name what does not exist.
std::vector<Mutation> misplacements() {
  using Fault = ProgramFault;
  return {{"use an unknown slot", Fault::misplaced,
           changed_step(Act::compute, [](ProgramStep& step) { step.uses.push_back(99); })},
          {"use an unknown axis", Fault::misplaced,
           changed_step(Act::gather, [](ProgramStep& step) { step.axes = "nowhere"; })},
          {"wait for nothing", Fault::misplaced,
           changed_step(Act::wait, [](ProgramStep& step) { step.work = -1; })},
          {"send to itself", Fault::misplaced, [](Programs& all, size_t rank, size_t at) {
             all[rank].steps.insert(all[rank].steps.begin() + at_of(at),
                                    {.act = Act::send, .verb = "send", .peer = all[rank].rank});
             return true;
           }}};
}

/// Faults that one change may have, by whether others use the slot before or after.
bool is_kin(ProgramFault found, ProgramFault expected) {
  using Fault = ProgramFault;
  if (expected == Fault::not_acquired && found == Fault::used_after_release) return true;
  return found == expected || (expected == Fault::not_released && found == Fault::acquired_twice);
}

TEST(Steps, BrokenProgramsAreRefusedByTheNameOfTheDefect) {
  const Scratch scratch;
  std::vector<Programs> sound;
  for (const Way& way : ways(scratch.root())) sound.push_back(scheduled(way));
  std::mt19937 random(5);
  std::vector<Mutation> all_mutations = mutations();
  std::ranges::move(misplacements(), std::back_inserter(all_mutations));
  ASSERT_GE(all_mutations.size(), 20U);
  for (const Mutation& mutation : all_mutations) {
    int made = 0;
    for (int round = 0; round < 2000 && made < 8; ++round) {
      Programs all = sound[random() % sound.size()];
      const size_t rank = random() % all.size(), at = random() % all[rank].steps.size();
      const int mutated = all[rank].rank;
      if (!mutation.change(all, rank, at)) continue;
      const std::vector<ProgramDefect> defects = defects_of(all);
      if (defects.empty() && mutation.fault == ProgramFault::order) continue;  // a group of one
      ++made;
      const std::string first = first_of(defects);
      const bool is_named = std::ranges::any_of(defects, [&](const ProgramDefect& defect) {
        return is_kin(defect.fault, mutation.fault) && has(defect.text, concat("rank ", mutated));
      });
      EXPECT_TRUE(is_named) << mutation.name << ": " << first;
      EXPECT_TRUE(has(error_of([&] { check("broken", all); }), "broken: ")) << mutation.name;
    }
    EXPECT_GT(made, 0) << mutation.name;
  }
}

TEST(Steps, NameStepAndRank) {
  Program program{.rank = 1, .mesh = {{"dp", 2}}};
  const int slot = program.add_slot({.name = "buffer 0", .bytes = 24});
  program.steps = {
      {.act = Act::acquire, .slot = slot},
      {.act = Act::gather, .verb = "unshard", .object = "a", .axes = "dp", .slot = slot, .work = 0},
      {.act = Act::compute, .verb = "compute", .object = "a", .uses = {slot}},
      {.act = Act::wait, .work = 0},
      {.act = Act::release, .slot = slot}};
  EXPECT_EQ(error_of([&] {
              check("step", {&program, 1});
            }),
            "step: used early: step 2: compute a uses buffer 0 before the wait for unshard a on "
            "rank 1, expected it after");
  std::swap(program.steps[2], program.steps[3]);
  check("step", {&program, 1}, 24);
  EXPECT_EQ(error_of([&] {
              check("step", {&program, 1}, 23);
            }),
            "step: memory: step 4: memory of slots is 24 bytes on rank 1, expected at most 23");
}

/// Each pair of ranks agrees on the order of its own collectives, but all four wait in a circle.
TEST(Steps, FindDeadlocksOfSeveralGroups) {
  Programs all;
  for (int rank = 0; rank < 4; ++rank) {
    Program& program = all.emplace_back(Program{.rank = rank, .mesh = {{"dp", 2}, {"tp", 2}}});
    for (const char* axis : {"dp", "tp"}) {
      program.steps.push_back({.act = Act::reduce, .verb = "all-reduce", .axes = axis});
    }
    if (rank == 1 || rank == 2) std::swap(program.steps[0], program.steps[1]);
  }
  EXPECT_EQ(first_of(defects_of(all)),
            "deadlock: rank 0 waits at the all-reduce for rank 2, which waits at the all-reduce, "
            "expected both at one collective");
  std::swap(all[1].steps[0], all[1].steps[1]);
  std::swap(all[2].steps[0], all[2].steps[1]);
  EXPECT_EQ(first_of(defects_of(all)), "");
}

/// What `work` makes of operands on `meta`, and what it does with those in memory.
void expect_measured(const DeviceMesh& mesh, bool has_peak,
                     const std::function<std::function<void()>(Device)>& made) {
  const std::function<void()> planned = made(meta), work = made(cpu);
  const Program program = program_of(planned);
  EXPECT_EQ(first_of(defects_of({&program, 1})), "");
  work();  // first runs make tables
  mesh.communicator().barrier();
  reset_peak_memory();
  const int64_t before = memory_statistics().total.peak;
  EXPECT_EQ(bytes_received(mesh, work), program.received()) << text_of(program);
  if (!has_peak) return;
  EXPECT_EQ(memory_statistics().total.peak - before, program.peak_bytes()) << text_of(program);
}

Tensor on(Device device, const Shape& shape, const DeviceMesh& mesh, const Placements& placements) {
  const Sharding sharding(mesh, placements, shape.ndim());
  return device == Device(meta) ? empty(shape, {f32, meta, sharding}) : numbers(shape, 1, sharding);
}

TEST(Steps, OfCallsPredictBytesAndPeaks) {
  for (const auto& axes :
       std::vector<std::vector<MeshAxis>>{{{"tp", 1}}, {{"tp", 3}}, {{"dp", 2}, {"tp", 2}}}) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      // A product whose operand has to be gathered, and a slice of a cut dim.
      expect_measured(mesh, true, [&](Device device) {
        const Tensor x = on(device, {7, 64}, mesh, {{"tp", Shard(0)}});
        const Tensor w = on(device, {64, 40}, mesh, {{"tp", Shard(1)}});
        return [=] { matmul(x, w); };
      });
      expect_measured(mesh, true, [&](Device device) {
        const Tensor x = on(device, {70, 64}, mesh, {{"tp", Shard(0)}});
        return [=] { mul(slice(x, 0, 5, 50), 2); };
      });
      expect_measured(mesh, true, [&](Device device) {
        const Tensor x = on(device, {70, 64}, mesh, {{"tp", Shard(0)}});
        return [=, &mesh] { x.redistribute({{"tp", Shard(1)}}).redistribute({}); };
      });
    });
  }
}

TEST(Steps, OfASplitProductOverlapItsParts) {
  on_mesh({{"tp", 3}}, [](const DeviceMesh& mesh) {
    const SplitProducts split{mesh["tp"], 3};
    const auto made = [&](Device device) {
      const Tensor x = on(device, {2, 9, 6}, mesh, {{"tp", Shard(1)}});
      const Tensor w = on(device, {5, 6}, mesh, {{"tp", Shard(0)}});
      return [=] { GatheredInput(x, split).linear(w, {}); };
    };
    expect_measured(mesh, true, made);
    expect_measured(mesh, false, [&](Device device) {
      const Tensor x = on(device, {2, 9, 6}, mesh, {{"tp", Shard(2)}});
      const Tensor w = on(device, {5, 6}, mesh, {{"tp", Shard(1)}});
      return [=] { linear_reduce_scatter(x, w, {}, 1, split); };
    });
    Program program = program_of(made(meta));
    const std::string text = text_of(program);
    EXPECT_TRUE(has(text,
                    "forward   gather part 2 over tp, 96 B\n"
                    "forward   wait for part 0\nforward   compute part 0\n"
                    "forward   wait for part 1\n"))
        << text;
    std::erase_if(program.steps, [](const ProgramStep& step) {
      return step.act == Act::wait && step.object == "part 1";
    });
    EXPECT_TRUE(has(first_of(defects_of({&program, 1})),
                    "used early: compute part 1 uses part 1 before the wait for gather part 1"));
    EXPECT_TRUE(has(visualize(program).svg, ">rank 0, stream 3</text>") || mesh.rank() > 0);
  });
}

/// Tokens of each rank go to all experts alike.
TEST(Steps, OfExpertsInChunksPredictBytes) {
  on_mesh({{"ep", 2}}, [](const DeviceMesh& mesh) {
    MoE experts({.dim = 6, .width = 5, .experts = 2, .router = {.top_k = 2}, .chunks = 2});
    parallelize(experts, mesh["ep"], {{"experts", ExpertParallel()}});
    experts.materialize(meta);
    const NoGrad no_grad;
    const Tensor x = on(meta, {2, 4, 6}, mesh, {{"ep", Shard(0)}});
    const Program program = program_of([&] { experts(x); });
    EXPECT_EQ(first_of(defects_of({&program, 1})), "");
    MoE real({.dim = 6, .width = 5, .experts = 2, .router = {.top_k = 2}, .chunks = 2});
    parallelize(real, mesh["ep"], {{"experts", ExpertParallel()}});
    real.materialize();
    const Tensor y = on(cpu, {2, 4, 6}, mesh, {{"ep", Shard(0)}});
    const Program measured = program_of([&] { real(y); }, DeviceKind::cpu);
    // Each of the two rows that a chunk's combine receives has its number, which no plan counts.
    EXPECT_EQ(program.received() + 2 * 2 * 8, measured.received())
        << text_of(program) << text_of(measured);
  });
}

TEST(Steps, OfPipelinesPredictTheirPeaks) {
  const PipelineMemory memory{.activation_bytes = {100, 50}, .output_bytes = {8, 8}};
  const PipelineProgram program = one_forward_one_backward(2, 2);
  const Programs all = programs_of(program, memory);
  EXPECT_EQ(first_of(defects_of(all)), "");
  EXPECT_EQ(all[0].peak_bytes(), 208);
  EXPECT_EQ(held_bytes(program, memory), (std::vector<int64_t>{208, 66}));
  EXPECT_EQ(visualize(all).svg.find("<svg "), 0U);
}

}  // namespace
}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <set>

#include "tests/support/collected_warnings.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/ranks.h"
#include "weft/safetensors.h"
#include "weft/storage.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// A state with one tensor, "w".
StateDict state_of(const Tensor& w) {
  StateDict state;
  state.tensors.emplace("w", w);
  return state;
}

/// Layouts of a tensor of two dims on meshes of one and two axes.
std::vector<Placements> layouts_of(int axes) {
  if (axes == 1) return {{Replicate()}, {Shard(0)}, {Shard(1)}};
  return {{Replicate(), Replicate()}, {Shard(0), Shard(1)},
          {Shard(1), Replicate()},    {Replicate(), Shard(0)},
          {Shard(0), Shard(0)},       Placements{Shard(0), Shard(0)}.cut_in_order(0, {"b", "a"})};
}

std::vector<MeshAxis> named_axes(const std::vector<int>& sizes) {
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < sizes.size(); ++i) axes.push_back({std::string(1, "abc"[i]), sizes[i]});
  return axes;
}

struct World {
  std::vector<int> sizes;
  int salt;
};

/// Tensors whose names and values do not depend on the mesh, laid out in ways that do.
StateDict state_on(const DeviceMesh& mesh, int salt, bool zero) {
  StateDict state;
  const std::vector<Placements> layouts = layouts_of(mesh.ndim());
  size_t number = static_cast<size_t>(salt);
  int64_t value = 1;
  for (const Shape& shape : {Shape{5, 7}, Shape{1, 3}, Shape{16, 2}, Shape{0, 4}, Shape{3, 129}}) {
    for (const DType dtype : {f32, bf16, i64, boolean}) {
      Tensor tensor =
          numbers(shape, value++, Sharding(mesh, layouts[number++ % layouts.size()]), dtype);
      if (zero) fill_(tensor, 0);
      state.tensors.emplace(concat("t", shape, dtype), tensor);
    }
  }
  // Parts of explicit sizes: nothing, two rows, and the others.
  std::vector<int64_t> sizes(static_cast<size_t>(mesh.axis_size(0)), 0);
  sizes.front() = salt % 2 ? 2 : 0;
  sizes.back() += 7 - sizes.front();
  Tensor parts = numbers({7, 3}, value++, Sharding(mesh, Placements{Shard{0, sizes}}));
  if (zero) fill_(parts, 0);
  state.tensors.emplace("parts", parts);
  state.tensors.emplace("scalar", zero ? zeros({}) : full({}, 2.5));
  state.tensors.emplace("whole", zero ? zeros({3, 2}) : numbers({3, 2}, 4));
  state.numbers = {{"step", zero ? 0 : 41}, {"seed", zero ? 0 : INT64_MIN}};
  return state;
}

void on_world(const World& world, const std::function<void(const DeviceMesh&)>& body) {
  on_mesh(named_axes(world.sizes), body);
}

TEST(Save, LoadsOntoAnyMeshAndLayout) {
  const std::vector<World> worlds = {{{1}, 0},    {{3}, 1},    {{4}, 2},
                                     {{2, 2}, 0}, {{2, 2}, 3}, {{3, 2}, 1}};
  for (const World& from : worlds) {
    const Scratch scratch;
    std::string path;
    on_world(from, [&](const DeviceMesh& mesh) {
      CheckpointSaver saver(mesh.communicator(), scratch.path("saved"));
      const std::string saved = saver.save(7, state_on(mesh, from.salt, false));
      if (mesh.rank() == 0) path = saved;
    });
    EXPECT_EQ(inspect_checkpoint(path).reason, "");
    ASSERT_EQ(inspect_checkpoint(path).verdict, Verdict::complete);
    for (const World& to : worlds) {
      on_world(to, [&](const DeviceMesh& mesh) {
        const StateDict expected = state_on(mesh, to.salt + 1, false);
        StateDict loaded = state_on(mesh, to.salt + 1, true);
        load(path, loaded);
        EXPECT_EQ(loaded.numbers, expected.numbers);
        for (const auto& [name, tensor] : expected.tensors) {
          EXPECT_EQ(loaded.tensors.at(name).to_vector<double>(), tensor.to_vector<double>())
              << name << " on rank " << mesh.rank();
        }
      });
    }
  }
}

TEST(Save, LoadingMarksEmptyPartsToo) {
  const Scratch scratch;
  on_mesh({{"a", 3}}, [&](const DeviceMesh& mesh) {
    const auto state = [&] {
      StateDict made;
      // Rank 2 holds nothing of it.
      made.tensors.emplace("few", zeros({2, 4}, {.sharding = Sharding(mesh, {Shard(0)})}));
      made.tensors.emplace("none", zeros({0, 4}, {.sharding = Sharding(mesh, {Shard(0)})}));
      return made;
    };
    CheckpointSaver saver(mesh.communicator(), scratch.path("saved"));
    const std::string path = saver.save(1, state());
    mesh.communicator().barrier();
    StateDict into = state();
    std::map<std::string, uint64_t> before;
    for (const auto& [name, tensor] : into.tensors) {
      before[name] = tensor.local().storage()->version();
    }
    load(path, into);
    // All ranks alike: what follows from a change may be a collective.
    for (const auto& [name, tensor] : into.tensors) {
      EXPECT_EQ(tensor.local().storage()->version(), before[name] + 1)
          << name << " on rank " << mesh.rank();
    }
  });
}

TEST(Save, MakesNoCollective) {
  const Scratch scratch;
  on_mesh({{"a", 2}, {"b", 2}}, [&](const DeviceMesh& mesh) {
    const Communicator world = mesh.communicator();
    CheckpointSaver saver(world, scratch.path("saved"), {.keep = 1});
    const StateDict state = state_on(mesh, 0, false);
    const int64_t collectives = mesh.traffic().collectives + world.traffic().collectives;
    const int64_t bytes = mesh.traffic().bytes + world.traffic().bytes;
    const std::string path = saver.save(1, state);
    saver.save_async(2, state);
    saver.wait();
    saver.save(3, state);
    EXPECT_EQ(mesh.traffic().collectives + world.traffic().collectives, collectives);
    EXPECT_EQ(mesh.traffic().bytes + world.traffic().bytes, bytes);
    // Neither does a rank that loads.
    world.barrier();
    StateDict into = state_on(mesh, 1, true);
    const int64_t before = mesh.traffic().collectives + world.traffic().collectives;
    load(newest_complete_checkpoint(scratch.path("saved")), into);
    EXPECT_EQ(mesh.traffic().collectives + world.traffic().collectives, before);
  });
}

TEST(Save, WritesReplicatedPartsOnceAndEvenly) {
  const Scratch scratch;
  std::string path;
  on_mesh({{"dp", 4}}, [&](const DeviceMesh& mesh) {
    StateDict state;
    for (int i = 0; i < 8; ++i) state.tensors.emplace(concat("w", i), numbers({64, 64}, i));
    CheckpointSaver saver(mesh.communicator(), scratch.path("saved"));
    const std::string saved = saver.save(0, state);
    if (mesh.rank() == 0) path = saved;
  });
  std::set<std::string> names;
  for (int rank = 0; rank < 4; ++rank) {
    const SafetensorsFile file(concat(path, "/rank-0000", rank, "-of-00004.safetensors"));
    EXPECT_EQ(file.entries().size(), 2u);
    for (const auto& entry : file.entries()) EXPECT_TRUE(names.insert(entry.name).second);
    EXPECT_EQ(file.metadata().at("DCP_VERSION"), "1.0");
  }
  EXPECT_EQ(names.size(), 8u);
}

TEST(Save, OverwritesNothing) {
  const Scratch scratch;
  run_ranks(1, [&](Communicator world) {
    StateDict state = state_of(numbers({3}));
    CheckpointSaver saver(world, scratch.path("saved"));
    const std::string path = saver.save(5, state);
    EXPECT_EQ(error_of([&] { saver.save(5, state); }),
              concat("checkpoint: ", path,
                     "/rank-00000-of-00001.safetensors exists, expected no file; "
                     "nothing is overwritten"));
    EXPECT_EQ(error_of([&] { saver.save(-1, state); }), "save: step must be at least 0, got -1");
  });
}

TEST(Save, RefusesWhatIsNoState) {
  const Scratch scratch;
  on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) {
    CheckpointSaver saver(mesh.communicator(), scratch.path("saved"));
    const auto error = [&](const Tensor& tensor) {
      StateDict state = state_of(tensor);
      return error_of([&] { saver.save(0, state); });
    };
    EXPECT_EQ(error(from_local(ones({2}), mesh, {Partial()}, {2})),
              "save: tensor \"w\" is laid out as mesh(dp=2)[P(sum)], expected no Partial; "
              "redistribute it first");
    EXPECT_EQ(error(empty({2}, {.device = meta})),
              "save: tensor \"w\" has no memory, expected some; call materialize first");
    EXPECT_EQ(error({}), "save: tensor \"w\" is undefined, expected a tensor");
    for (const char* key : {"__metadata__", "\xff"}) {
      StateDict state;
      state.tensors.emplace(key, ones({2}));
      EXPECT_NE(error_of([&] { saver.save(0, state); }).find("save: key of a tensor is "),
                std::string::npos);
      StateDict numbers;
      numbers.numbers.emplace("\xff", 1);
      EXPECT_EQ(error_of([&] { saver.save(0, numbers); }),
                "save: key of a number is \"\\xff\", expected UTF-8");
    }
  });
}

TEST(Save, NamesADirectoryThatCannotBeWritten) {
  const Scratch scratch;
  scratch.write("file", "not a directory");
  run_ranks(1, [&](Communicator world) {
    EXPECT_EQ(error_of([&] { CheckpointSaver(world, scratch.path("file")); }),
              concat("checkpoint: ", scratch.path("file"), " cannot be written: Not a directory"));
    EXPECT_EQ(
        error_of([&] { CheckpointSaver(world, scratch.path("file/below")); }),
        concat("checkpoint: ", scratch.path("file/below"), " cannot be written: Not a directory"));
    EXPECT_EQ(error_of([&] { CheckpointSaver(world, ""); }),
              "checkpoint: the directory is empty, expected a name");
    // Read-only even for root.
    EXPECT_EQ(error_of([&] { CheckpointSaver(world, "/proc/weft"); }),
              "checkpoint: /proc/weft cannot be written: No such file or directory");
  });
}

TEST(Save, WaitsForTheSaveUnderWay) {
  const Scratch scratch;
  run_ranks(1, [&](Communicator world) {
    const StateDict state = state_of(zeros({1 << 20}));
    CheckpointSaver saver(world, scratch.path("saved"));
    const std::string first = saver.save_async(1, state);
    const std::string second = saver.save_async(2, state);
    const std::string third = saver.save(3, state);
    EXPECT_FALSE(saver.is_saving());
    for (const std::string& path : {first, second, third}) {
      EXPECT_EQ(inspect_checkpoint(path).verdict, Verdict::complete);
    }
    // Nor does a second saver of the same run's name get in its way.
    CheckpointSaver other(world, scratch.path("saved"));
    EXPECT_EQ(inspect_checkpoint(other.save(3, state)).verdict, Verdict::complete);
  });
}

TEST(Save, KeepsTheNewestCompleteOnes) {
  const Scratch scratch;
  on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) {
    const Communicator world = mesh.communicator();
    StateDict state = state_of(numbers({4}, 0, Sharding(mesh, {Shard(0)})));
    CheckpointSaver saver(world, scratch.path("saved"), {.keep = 2});
    for (int step = 1; step <= 5; ++step) {
      saver.save(step, state);
      world.barrier();
      // An incomplete one counts for nothing, and goes with those that are as old.
      if (step == 2 && mesh.rank() == 1) {
        std::filesystem::remove(
            concat(list_checkpoints(scratch.path("saved"))[0], "/rank-00001-of-00002.safetensors"));
      }
      world.barrier();
    }
    std::vector<std::string> names;
    for (const std::string& path : list_checkpoints(scratch.path("saved"))) {
      names.push_back(std::filesystem::path(path).filename().string().substr(0, 13));
    }
    EXPECT_EQ(names, (std::vector<std::string>{"step-00000005", "step-00000004", "step-00000003"}));
  });
}

/// A newer checkpoint renamed to an old step, and a directory whose files are unreadable.
TEST(Save, RemovesNothingForItsName) {
  const Scratch scratch;
  const std::string directory = scratch.path("saved");
  std::string renamed, damaged;
  run_ranks(1, [&](Communicator world) {
    StateDict state = state_of(zeros({4}));
    CheckpointSaver saver(world, directory, {.keep = 1});
    const std::string name = directory + "/step-00000001-" + saver.generation();
    renamed = name;
    fs::rename(saver.save(50, state), renamed);
    damaged = saver.save(2, state);
    std::ofstream(damaged + "/rank-00000-of-00001.safetensors") << "short";
    const std::string empty = directory + "/step-00000003-" + saver.generation();
    fs::create_directory(empty);
    for (const int64_t step : {4, 5, 6}) saver.save(step, state);
    EXPECT_FALSE(fs::exists(empty));
    EXPECT_FALSE(fs::exists(directory + "/step-00000004-" + saver.generation()));
  });
  EXPECT_TRUE(fs::exists(renamed));
  EXPECT_TRUE(fs::exists(damaged));
}

TEST(Save, LeavesOtherRunsAlone) {
  const Scratch scratch;
  const std::string directory = scratch.path("runs/a/saved");
  run_ranks(1, [&](Communicator world) {
    StateDict state = state_of(zeros({4}));
    const auto saved = [&](bool continues, const std::vector<int64_t>& steps) {
      CheckpointSaver saver(world, directory, {.keep = 1, .continues = continues});
      for (const int64_t step : steps) saver.save(step, state);
      std::vector<int64_t> there;
      for (const std::string& path : list_checkpoints(directory)) {
        there.push_back(inspect_checkpoint(path).step);
      }
      return there;
    };
    using Steps = std::vector<int64_t>;
    EXPECT_EQ(saved(false, {1, 2, 3}), (Steps{3, 2}));
    EXPECT_EQ(saved(false, {4, 5, 6}), (Steps{6, 5, 3, 2}));
    EXPECT_EQ(saved(true, {7}), (Steps{7, 6}));
  });
}

/// The steps, newest first, and "?" at those that are not complete.
std::string steps_in(const std::string& directory) {
  std::string steps;
  for (const std::string& path : list_checkpoints(directory)) {
    const CheckpointReport report = inspect_checkpoint(path, {.depth = Inspection::headers});
    steps += concat(report.step, report.verdict == Verdict::complete ? " " : "? ");
  }
  return steps;
}

/// Saves steps 100 and 200 in one run, and goes on from 100 in another that keeps one.
std::string steps_after(const std::string& directory, int64_t resumed_step,
                        const std::vector<int64_t>& steps) {
  run_ranks(1, [&](Communicator world) {
    StateDict state = state_of(zeros({4}));
    CheckpointSaver before(world, directory);
    for (const int64_t step : {100, 200}) before.save(step, state);
    CheckpointSaver saver(world, directory,
                          {.keep = 1, .continues = true, .resumed_step = resumed_step});
    for (const int64_t step : steps) saver.save(step, state);
  });
  return steps_in(directory);
}

TEST(Save, CountsNothingThatTheRunPassedOver) {
  struct Case {
    int64_t resumed_step;
    std::vector<int64_t> steps;
    std::string left;
  };
  const std::vector<Case> cases = {
      {100, {150}, "200 150 100 "},      {100, {150, 300}, "300 200 150 "},
      {100, {250}, "250 200 100 "},      {100, {250, 300}, "300 250 "},
      {-1, {150, 300}, "300 200 150 "},  {-1, {0, 300}, "300 200 100 0 "},
      {-1, {250}, "250 200 "},           {0, {300}, "300 200 100 "},
      {0, {50, 300, 400}, "400 300 "},   {200, {300}, "300 200 "},
      {100, {150, 200}, "200 200 150 "},
  };
  for (const Case& c : cases) {
    const Scratch scratch;
    EXPECT_EQ(steps_after(scratch.path("saved"), c.resumed_step, c.steps), c.left)
        << "resumed from " << c.resumed_step << " and saved " << c.steps.back();
  }
}

TEST(Save, KeepsAllOfTheResumedStep) {
  const Scratch scratch;
  const std::string directory = scratch.path("saved");
  EXPECT_EQ(steps_after(directory, 100, {150, 200}), "200 200 150 ");
  run_ranks(1, [&](Communicator world) {
    StateDict state = state_of(zeros({4}));
    CheckpointSaver saver(world, directory, {.keep = 1, .continues = true, .resumed_step = 200});
    saver.save(300, state);
    EXPECT_EQ(steps_in(directory), "300 200 200 ");
    saver.save(400, state);
    EXPECT_EQ(steps_in(directory), "400 300 ");
  });
}

TEST(Save, StandsWhenOldOnesCannotBeRemoved) {
  const Scratch scratch;
  run_ranks(1, [&](Communicator world) {
    StateDict state = state_of(zeros({4}));
    const CollectedWarnings warnings;
    CheckpointSaver saver(world, scratch.path("saved"), {.keep = 1});
    const std::string first = saver.save(1, state);
    // A directory with a mount inside cannot be removed.
    const std::string inside = first + "/inside";
    std::filesystem::create_directory(inside);
    if (::mount("none", inside.c_str(), "tmpfs", 0, nullptr) != 0) {
      GTEST_SKIP() << "needs to mount";
    }
    saver.save(2, state);
    EXPECT_EQ(warnings.size(), 0u);
    const std::string third = saver.save(3, state);
    ::umount(inside.c_str());
    EXPECT_EQ(inspect_checkpoint(third).reason, "");
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_TRUE(has(warnings.first(), "the checkpoint of step 3 is saved, but remove: "));
  });
}

TEST(Save, RemovesOldOnesWhateverBecameOfTheSaveBefore) {
  for (const bool replaced : {false, true}) {
    const Scratch scratch;
    const std::string directory = scratch.path("saved");
    const CollectedWarnings warnings;
    run_ranks(1, [&](Communicator world) {
      StateDict state = state_of(zeros({4}));
      CheckpointSaver saver(world, directory, {.keep = 1});
      saver.save(1, state);
      saver.save(3, state);
      const std::string before = saver.save(2, state);
      EXPECT_EQ(steps_in(directory), "3 2 1 ");
      std::filesystem::remove_all(before);
      if (replaced) std::ofstream(before) << "no directory";
      saver.save(4, state);
    });
    EXPECT_EQ(steps_in(directory), "4 3 ");
    EXPECT_EQ(warnings.size(), replaced ? 1u : 0u);
  }
}

TEST(Save, SaysThatRanksDoNotFitTogether) {
  const Scratch scratch;
  const CollectedWarnings warnings;
  on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) {
    StateDict state = state_of(numbers({4}, 0, Sharding(mesh, {Shard(0)})));
    state.numbers["mine"] = mesh.rank();
    CheckpointSaver saver(mesh.communicator(), scratch.path("saved"));
    saver.save(1, state);
    mesh.communicator().barrier();
    saver.save(2, state);
  });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings.first().find("is MIXED: "), std::string::npos) << warnings.first();
}

TEST(Save, SaysWhatNobodyWaitedFor) {
  const Scratch scratch;
  const CollectedWarnings warnings;
  run_ranks(1, [&](Communicator world) {
    const StateDict state = state_of(zeros({1 << 20}));
    CheckpointSaver saver(world, scratch.path("saved"));
    const std::string path = saver.save_async(1, state);
    std::filesystem::create_directory(path + "/rank-00000-of-00001.safetensors");
  });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings.first().starts_with("a save without a later wait() failed: rename: "))
      << warnings.first();
}

TEST(Save, TellsTheGenerationsOfRunsApart) {
  const Scratch scratch;
  std::set<std::string> generations;
  for (int i = 0; i < 3; ++i) {
    on_mesh({{"dp", 3}}, [&](const DeviceMesh& mesh) {
      CheckpointSaver saver(mesh.communicator(), scratch.path("saved"));
      StateDict state = state_of(numbers({4}));
      EXPECT_NE(saver.save(1, state).find(saver.generation()), std::string::npos);
      EXPECT_EQ(saver.generation().size(), 16u);
      if (mesh.rank() == 0) generations.insert(saver.generation());
    });
  }
  EXPECT_EQ(generations.size(), 3u);
  EXPECT_EQ(list_checkpoints(scratch.path("saved")).size(), 3u);
}

}  // namespace
}  // namespace weft

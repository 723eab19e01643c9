// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/ranks.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One tensor of each dtype, of `rows` rows and 5 columns, cut along its rows if `sharded`.
StateDict state_of(const DeviceMesh& mesh, int64_t rows, bool sharded) {
  const Placements placements = sharded ? Placements{Shard(0)} : Placements{};
  StateDict state;
  for (const DType dtype : {f64, f32, i64, bf16, f16, f8_e4m3, f8_e5m2, u8, boolean}) {
    state.tensors.emplace(concat("t.", name_of(dtype)),
                          numbers({rows, 5}, 1, Sharding(mesh, placements), dtype));
  }
  return state;
}

/// Sets element `at` of the whole, row-major, on the rank that holds it.
void set(const Tensor& tensor, int64_t at, double value) {
  const Box box = tensor.box();
  const int64_t row = at / 5 - box.offset[0];
  if (row < 0 || row >= box.shape[0]) return;
  fill_(slice(slice(tensor.local(), 0, row, row + 1), 1, at % 5, at % 5 + 1), value);
}

struct Poison {
  const char* tensor;
  int64_t at;
  double value;
};

CheckpointReport saved(int ranks, bool sharded, int64_t async_bytes,
                       const std::vector<Poison>& poison) {
  const Scratch scratch;
  std::string path;
  on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
    StateDict state = state_of(mesh, 23, sharded);
    for (const auto& [tensor, at, value] : poison) set(state.tensors.at(tensor), at, value);
    CheckpointSaver saver(mesh.communicator(), scratch.path("saved"), {.async_bytes = async_bytes});
    const std::string own = saver.save_async(3, state);
    saver.wait();
    if (mesh.rank() == 0) path = own;
  });
  return inspect_checkpoint(path);
}

TEST(Finite, LoadTakesTheNewestOfARun) {
  const Scratch scratch;
  const std::string run = scratch.path("run");
  on_mesh({{"dp", 3}}, [&](const DeviceMesh& mesh) {
    StateDict state = state_of(mesh, 23, true);
    CheckpointSaver saver(mesh.communicator(), run);
    saver.save(1, state);
    set(state.tensors.at("t.f64"), 0, 7);
    const std::string newest = saver.save(2, state);
    saver.save(3, state);
    mesh.communicator().barrier();
    // The newest checkpoint loses a file, so the one before it is loaded.
    if (mesh.rank() == 0) {
      for (const auto& path : list_checkpoints(run)) {
        if (path > newest) fs::remove(path + "/rank-00001-of-00003.safetensors");
      }
    }
    mesh.communicator().barrier();
    StateDict loaded = state_of(mesh, 23, true);
    load(run, loaded);
    EXPECT_TRUE(loaded.tensors.at("t.f64").full_tensor().to_vector<double>() ==
                state.tensors.at("t.f64").full_tensor().to_vector<double>());
  });
  // A tensor of one device.
  StateDict plain{.tensors = {{"t.f64", zeros({23, 5}, {.dtype = f64})}}, .numbers = {}};
  EXPECT_FALSE(load_common_keys(run, plain).empty());
  EXPECT_EQ(plain.tensors.at("t.f64").to_vector<double>()[0], 7);
  fs::create_directories(scratch.path("lost"));
  for (const auto& path : list_checkpoints(run)) {
    const auto copy = scratch.path("lost") + "/" + fs::path(path).filename().string();
    fs::copy(path, copy);
    fs::remove(copy + "/rank-00000-of-00003.safetensors");
  }
  EXPECT_EQ(error_of([&] { load(scratch.path("lost"), plain); }),
            "load: " + scratch.path("lost") + " has no complete checkpoint, expected at least one");
}

TEST(Finite, CountsAndNamesTheFirstTensor) {
  for (const int ranks : {1, 3}) {
    for (const bool sharded : {false, true}) {
      // Elements written at once, and those written from the copy, meet within an element.
      for (const int64_t async_bytes : {-1, 0, 101, 1003}) {
        const auto report = [&](const std::vector<Poison>& poison) {
          return saved(ranks, sharded, async_bytes, poison);
        };
        const CheckpointReport good = report({});
        EXPECT_EQ(good.verdict, Verdict::complete) << good.reason;
        EXPECT_EQ(good.non_finite, 0);
        EXPECT_EQ(good.non_finite_tensor, "");
        for (const char* tensor : {"t.f64", "t.f32", "t.bf16", "t.f16"}) {
          for (const double value : {kNan, kInfinity, -kInfinity}) {
            const CheckpointReport bad = report({{tensor, 114, value}});
            EXPECT_EQ(bad.verdict, Verdict::complete) << bad.reason;
            EXPECT_EQ(bad.non_finite, 1) << tensor << ' ' << value;
            EXPECT_EQ(bad.non_finite_tensor, tensor);
          }
        }
        const CheckpointReport many = report({{"t.f16", 0, kNan},
                                              {"t.bf16", 113, -kInfinity},
                                              {"t.f32", 110, kNan},
                                              {"t.f32", 2, kInfinity}});
        EXPECT_EQ(many.non_finite, 4);
        EXPECT_EQ(many.non_finite_tensor, "t.f32");
      }
    }
  }
}

TEST(Finite, CallsTheLargestNumbersFinite) {
  const CheckpointReport report = saved(2, true, -1,
                                        {{"t.f64", 3, 1.7976931348623157e308},
                                         {"t.f32", 3, -3.4028234663852886e38},
                                         {"t.bf16", 3, 3.3895313892515355e38},
                                         {"t.f16", 3, -65504}});
  EXPECT_EQ(report.non_finite, 0) << report.non_finite_tensor;
}

TEST(Finite, IsRefusedWhereAsked) {
  const Scratch scratch;
  on_mesh({{"dp", 3}}, [&](const DeviceMesh& mesh) {
    StateDict state = state_of(mesh, 23, true);
    set(state.tensors.at("t.f32"), 40, kNan);
    CheckpointSaver saver(mesh.communicator(), scratch.path("saved"), {.refuse_non_finite = true});
    const std::string error = error_of<std::runtime_error>([&] { saver.save(4, state); });
    EXPECT_EQ(error, mesh.rank() != 1 ? "nothing"
                                      : "save: tensor \"t.f32\" at step 4 is not finite on rank 1 "
                                        "(1 elements of its file are NaN or infinite), expected "
                                        "finite values; clear refuse_non_finite (weft train "
                                        "--save-non-finite) to save them marked");
    mesh.communicator().barrier();
    EXPECT_EQ(newest_complete_checkpoint(scratch.path("saved")), "");
    EXPECT_EQ(saver.save(5, state_of(mesh, 23, true)).substr(0, 1), "/");
    mesh.communicator().barrier();
    EXPECT_EQ(inspect_checkpoint(newest_complete_checkpoint(scratch.path("saved"))).step, 5);
  });
}

TEST(Finite, NewestMeansTheNewestFiniteOne) {
  const Scratch scratch;
  const std::string directory = scratch.path("saved");
  std::map<int64_t, std::string> path;
  run_ranks(1, [&](Communicator world) {
    StateDict state{{{"w", zeros({3})}}, {}};
    CheckpointSaver saver(world, directory, {.keep = 2});
    const auto save = [&](int64_t step, double value) {
      fill_(state.tensors.at("w"), value);
      path[step] = saver.save(step, state);
    };
    const auto steps = [&] {
      std::vector<int64_t> found;
      for (const std::string& one : list_checkpoints(directory)) {
        found.push_back(inspect_checkpoint(one).step);
      }
      return found;
    };
    save(1, kNan);
    EXPECT_EQ(newest_complete_checkpoint(directory), path[1]);
    save(2, 0);
    save(3, 0);
    save(4, kNan);
    EXPECT_EQ(newest_complete_checkpoint(directory), path[3]);
    std::vector<std::string> passed;
    newest_complete_checkpoint(directory, [&](const std::string& one, const CheckpointReport& r) {
      passed.push_back(concat(one, ' ', name_of(r.verdict), ' ', r.non_finite));
    });
    EXPECT_EQ(passed, std::vector<std::string>{path[4] + " COMPLETE 3"});
    EXPECT_EQ(steps(), (std::vector<int64_t>{4, 3, 2}));
    // The newest finite one is never removed for others that are not.
    for (const int64_t step : {5, 6, 7}) save(step, kInfinity);
    EXPECT_EQ(steps(), (std::vector<int64_t>{7, 6, 5, 3}));
    EXPECT_EQ(newest_complete_checkpoint(directory), path[3]);
    for (const int64_t step : {8, 9}) save(step, 1);
    EXPECT_EQ(steps(), (std::vector<int64_t>{9, 8, 7}));
  });
}

TEST(Finite, IsNotKnownOfFormat1) {
  const std::string folder = WEFT_SOURCE_DIR "/tests/checkpoint/data/";
  EXPECT_EQ(inspect_checkpoint(list_checkpoints(folder + "format-1")[0]).non_finite, -1);
  EXPECT_EQ(newest_complete_checkpoint(folder + "format-1"),
            list_checkpoints(folder + "format-1")[0]);
  // It goes before a newer one that is known not to be finite.
  const Scratch scratch;
  const std::string directory = scratch.path("saved");
  std::filesystem::copy(folder + "format-1", directory, std::filesystem::copy_options::recursive);
  const std::string old = list_checkpoints(directory)[0];
  run_ranks(1, [&](Communicator world) {
    StateDict state{{{"w", zeros({3})}}, {}};
    fill_(state.tensors.at("w"), kNan);
    const std::string newer = CheckpointSaver(world, directory).save(1000, state);
    std::vector<std::string> passed;
    const auto note = [&](const std::string& path, const CheckpointReport&) {
      passed.push_back(path);
    };
    EXPECT_EQ(newest_complete_checkpoint(directory, note), old);
    EXPECT_EQ(passed, std::vector<std::string>{newer});
  });
}

}  // namespace
}  // namespace weft

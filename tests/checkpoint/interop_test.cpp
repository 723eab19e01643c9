// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/hugging_face.h"
#include "weft/ops/factories.h"
#include "weft/ranks.h"
#include "weft/safetensors.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

const std::string kFolder = WEFT_SOURCE_DIR "/tests/checkpoint/data/";

/// Every tensor of what lies at `path`, cut along its first dim.
StateDict loaded(const std::string& path, const DeviceMesh& mesh) {
  StateDict state;
  for (const auto& [name, entry] : checkpoint_contents(path).tensors) {
    const Placements placements = entry.shape.empty() ? Placements{} : Placements{Shard(0)};
    state.tensors.emplace(
        name, zeros(entry.shape, {.dtype = entry.dtype, .sharding = Sharding(mesh, placements)}));
  }
  load(path, state);
  return state;
}

/// A directory for each format that was ever released.
TEST(Interop, LoadsTheGoldenFilesOfAllFormats) {
  for (const auto& [format, non_finite] : std::map<std::string, int64_t>{{"1", -1}, {"2", 0}}) {
    const std::vector<std::string> found = list_checkpoints(kFolder + "format-" + format);
    ASSERT_EQ(found.size(), 1u);
    const CheckpointReport report = inspect_checkpoint(found[0]);
    EXPECT_EQ(report.verdict, Verdict::complete) << report.reason;
    EXPECT_EQ(report.ranks, 3);
    EXPECT_EQ(report.tensors, 11);
    EXPECT_EQ(report.non_finite, non_finite);
    for (const int ranks : {1, 2, 4}) {
      on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
        // Made from this file.
        const StateDict expected = loaded(kFolder + "dtypes.safetensors", mesh);
        const StateDict actual = loaded(found[0], mesh);
        ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
        for (const auto& [name, tensor] : expected.tensors) {
          const Tensor& own = actual.tensors.at("all/" + name);
          EXPECT_EQ(own.dtype(), tensor.dtype());
          const size_t bytes =
              static_cast<size_t>(tensor.local().numel()) * size_of(tensor.dtype());
          EXPECT_EQ(std::memcmp(own.block().data, tensor.block().data, bytes), 0) << name;
        }
      });
    }
  }
}

TEST(Interop, LoadsShardsThatPyTorchWrote) {
  for (const int ranks : {1, 2, 3}) {
    on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
      const StateDict state = loaded(kFolder + "dcp", mesh);
      ASSERT_EQ(state.tensors.size(), 3u);
      std::vector<double> rows, columns;
      for (int i = 0; i < 15; ++i) rows.push_back(i);
      for (int i = 0; i < 24; ++i) columns.push_back(100 + i);
      EXPECT_EQ(whole_values(state.tensors.at("rows")), rows);
      EXPECT_EQ(whole_values(state.tensors.at("columns")), columns);
      EXPECT_EQ(whole_values(state.tensors.at("whole")), (std::vector<double>{7, 8, 9}));
    });
  }
}

/// Shards whose tensor "w" [2] lies at `offsets`, one file each.
std::string write_shards(const Scratch& scratch, const std::vector<std::string>& offsets) {
  for (size_t i = 0; i < offsets.size(); ++i) {
    const std::string header =
        R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"w\":{\"saved_offsets\":)" + offsets[i] +
        R"(}}","DCP_VERSION":"1.0"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
    scratch.write_safetensors(concat("dcp/", i, ".safetensors"), header, "ab");
  }
  return scratch.path("dcp");
}

TEST(Interop, RefusesShardsThatDoNotMakeAWhole) {
  const auto error = [](const std::vector<std::string>& offsets) {
    const Scratch scratch;
    const std::string path = write_shards(scratch, offsets);
    return error_of([&] { checkpoint_contents(path); });
  };
  EXPECT_EQ(error({"[0]", "[2]"}), "nothing");
  EXPECT_NE(error({"[0]", "[3]"}).find("has 4 elements of [5] at [0] in the files, expected 5"),
            std::string::npos);
  EXPECT_NE(error({"[0]", "[1]"}).find(", expected each element once"), std::string::npos);
  EXPECT_NE(error({"[0]", "[0]"}).find(", expected each element once"), std::string::npos);
  EXPECT_NE(error({"[1]"}).find("has 2 elements of [3] at [0] in the files, expected 3"),
            std::string::npos);
  for (const char* bad : {"[-1]", "[0,0]", "[]", "0", "[4611686018427387904]", "[1.5]", "[null]"}) {
    EXPECT_NE(error({bad}).find("lacks saved_offsets of tensor \"w\" of shape [2]"),
              std::string::npos)
        << bad;
  }
  EXPECT_NE(error({"[0]}},\\\"x\\\":{\\\"y\\\":{"}).find("DCP_SHARDING_INFO"), std::string::npos);
}

TEST(Interop, TellsFromWhatShapesFollow) {
  const Scratch scratch;
  const auto write = [&](const char* shard, const std::string& offset) {
    const std::string header =
        R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"w\":{\"saved_offsets\":)" + offset +
        R"(}}"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
    scratch.write_safetensors(concat("dcp/shard-", shard, "-model-00001-of-00001.safetensors"),
                              header, "ab");
  };
  write("00001", "[0]");
  write("00002", "[2]");
  EXPECT_EQ(checkpoint_contents(scratch.path("dcp")).note,
            "shapes follow from the parts in 2 files, the last of shard 2");
  write("00004", "[4]");
  EXPECT_EQ(checkpoint_contents(scratch.path("dcp")).note,
            "shapes follow from the parts in 3 files, the last of shard 4; none is of shard 3");
  EXPECT_EQ(checkpoint_contents(list_checkpoints(kFolder + "format-1")[0]).note, "");
}

TEST(Interop, OpensMoreShardsThanAProcessMayOpenFiles) {
  const Scratch scratch;
  std::vector<std::string> offsets;
  for (int i = 0; i < 100; ++i) offsets.push_back(concat('[', 2 * i, ']'));
  const std::string path = write_shards(scratch, offsets);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{60, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  StateDict state{{{"w", zeros({200}, {.dtype = u8})}}, {}};
  const std::string error = error_of([&] { load(path, state); });
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(error, "nothing");
  EXPECT_EQ(state.tensors.at("w").to_vector<double>()[199], 'b');
}

TEST(Interop, ExportsWhatItLoadsAgain) {
  const Scratch scratch;
  const std::string from = list_checkpoints(kFolder + "format-1")[0];
  run_ranks(3, [&](Communicator world) {
    export_hugging_face(from, scratch.path("out"), world, {.prefix = "all/", .file_bytes = 300});
  });
  const TensorFiles out(scratch.path("out"));
  EXPECT_GT(out.files().size(), 1u);
  const SafetensorsFile original(kFolder + "dtypes.safetensors");
  EXPECT_EQ(out.names().size(), original.entries().size());
  for (const SafetensorsEntry& entry : original.entries()) {
    std::vector<std::byte> a(static_cast<size_t>(entry.bytes)), b(a.size());
    original.read(entry, 0, a);
    out.file(entry.name).read(out.entry(entry.name), 0, b);
    EXPECT_EQ(a, b) << entry.name;
    EXPECT_EQ(out.entry(entry.name).shape, entry.shape);
  }
  EXPECT_NE(error_of([&] {
              run_ranks(2, [&](Communicator world) {
                export_hugging_face(from, scratch.path("out"), world, {.prefix = "all/"});
              });
            }).find("expected a directory without a model; nothing is overwritten"),
            std::string::npos);
}

TEST(Interop, OfTwoExportsAtOnceOneIsWhole) {
  const Scratch scratch;
  const auto from = [&](char value) {
    std::string header = "{";
    for (int i = 0; i < 4; ++i) {
      header += concat(i ? "," : "", "\"", i, R"(":{"dtype":"U8","shape":[2],"data_offsets":[)",
                       2 * i, ",", 2 * i + 2, "]}");
    }
    return scratch.write_safetensors(concat(value, "/model.safetensors"), header + "}",
                                     std::string(8, value));
  };
  const std::string slow = from('s'), fast = from('f'), out = scratch.path("out");
  const auto exported = [&](const std::string& path, const std::function<void(int64_t)>& progress,
                            int64_t file_bytes = 100) {
    run_ranks(2, [&](Communicator world) {
      export_hugging_face(path, out, world,
                          {.prefix = "", .file_bytes = file_bytes, .progress = progress});
    });
  };
  // Files of a killed export do not disturb a later one.
  scratch.write("out/.model.safetensors.tmp", "left");
  for (const int64_t file_bytes : {100, 4}) {
    std::once_flag once;
    const auto meanwhile = [&](int64_t) {
      std::call_once(once, [&] { std::thread([&] { exported(fast, {}); }).join(); });
    };
    const std::string error = error_of([&] { exported(slow, meanwhile, file_bytes); });
    EXPECT_TRUE(has(error, "holds model.safetensors, expected a directory without a model"));
    EXPECT_TRUE(bytes_in(out + "/model.safetensors").ends_with("ffffffff"));
    EXPECT_EQ(std::distance(fs::directory_iterator(out), {}), 2);
    fs::remove(out + "/model.safetensors");
  }
}

}  // namespace
}  // namespace weft

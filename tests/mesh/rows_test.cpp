// SPDX-License-Identifier: Apache-2.0
#include "mesh/rows.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "mesh/mesh_body.h"
#include "src/kernels/copy/copy.h"
#include "tests/comm/mpi_backend.h"
#include "tests/mesh/by_messages.h"
#include "tests/mesh/whole.h"
#include "tests/support/processes.h"
#include "tests/support/scratch.h"
#include "weft/error.h"

namespace weft {

namespace {

/// Fetches rows in any order, with repetition: out[.., i, ..] = row indices[i].
void fetch_rows(const RowDim& rows, const MemoryBlock& in, const MemoryBlock& indices,
                const MemoryBlock& out) {
  if (out.device.kind == DeviceKind::meta) return;
  std::string mistake;
  const DistinctKeys named = distinct(keys_of(rows, indices, mistake));
  const Shape shape = rows.shape_of(static_cast<int64_t>(named.keys.size()));
  const Ref<Storage> memory =
      Storage::allocate(static_cast<size_t>(shape.product()) * size_of(in.dtype), in.device);
  const MemoryBlock fetched = dense_block(memory->data(), in.dtype, shape, in.device);
  if (!mistake.empty()) mistake = "fetch_rows: " + mistake;
  fetch_distinct_rows(rows, in, named.keys, fetched, mistake);
  const IndexBlock places(named.places, in.device);
  take_along(flat_if(rows.elements, out), fetched, places, rows.elements ? 0 : rows.dim);
}

/// Adds each rank's rows to this rank's part `out`, or replaces rows by them, ...: row i of
/// `values` goes to row indices[i]. `from` lays out the values.
void write_rows(const RowDim& to, const MemoryBlock& out, const Ref<Layout>& from,
                const MemoryBlock& indices, const MemoryBlock& values, WriteMode mode) {
  if (out.device.kind == DeviceKind::meta) return;
  std::string mistake;
  const std::vector<int64_t> keys = keys_of(to, indices, mistake);
  if (!mistake.empty()) mistake = "write_rows: " + mistake;
  const MemoryBlock given =
      mistake.empty() ? values : dense_block(nullptr, values.dtype, to.shape_of(0), values.device);
  const KeyedRows own = combined_rows(to, keys, given, mode);
  const KeyedRows received =
      send_distinct_rows(to, *from, axes_cutting(*from, to.dim), own.keys, own.rows, mistake);
  const IndexBlock places(received.places_in(to), out.device);
  const int dim = to.elements ? 0 : to.dim;
  if (mode != WriteMode::add) {
    write_along(flat_if(to.elements, out), received.rows, places, dim, mode);
    return;
  }
  const Ref<Storage> memory = Storage::allocate(
      static_cast<size_t>(out.numel()) * size_of(received.rows.dtype), out.device);
  const MemoryBlock sums = dense_block(memory->data(), received.rows.dtype, out.shape, out.device);
  write_along(flat_if(to.elements, sums), received.rows, places, dim, WriteMode::add);
  accumulate(out, sums);
}

/// How the ranks of a test reach each other.
enum class Way { threads, messages, processes, mpi };

void run(Way way, int ranks, const std::function<void(Communicator)>& body) {
  if (way == Way::mpi) return run_on_mpi(ranks, body);
  if (way == Way::processes) return run_processes(ranks, body);
  run_ranks(ranks, [&](Communicator world) {
    body(way == Way::threads ? world
                             : Communicator(std::make_shared<ByMessages>(world.transport())));
  });
}

DeviceMesh mesh_of(const std::vector<int>& sizes, const Communicator& world) {
  std::vector<MeshAxis> axes;
  for (size_t a = 0; a < sizes.size(); ++a) axes.push_back({std::to_string(a), sizes[a]});
  return DeviceMesh(world, axes);
}

int ranks_of(const std::vector<int>& sizes) {
  int ranks = 1;
  for (int size : sizes) ranks *= size;
  return ranks;
}

/// One rank's indices along a dim, and the lanes of its other dim.
struct Held {
  std::vector<int64_t> along, lanes;
};
Held held_by(const Lie& lie, const Shape& shape, int dim, const std::vector<int>& mesh, int rank) {
  const std::vector<int> at = coordinates_at(mesh, rank);
  return {indices(lie, dim, shape[dim], mesh, at), indices(lie, 1 - dim, shape[1 - dim], mesh, at)};
}

/// The pair (i, lane) as (row, column).
std::pair<int64_t, int64_t> element(int dim, int64_t i, int64_t lane) {
  return dim == 0 ? std::pair(i, lane) : std::pair(lane, i);
}

enum class Asking { random, none_on_some, all_of_one, all_twice };
constexpr Asking kAskings[] = {Asking::random, Asking::none_on_some, Asking::all_of_one,
                               Asking::all_twice};

/// The indices that a rank asks for along a dim of that size.
std::vector<int64_t> asked(Asking pattern, int64_t size, int64_t count, int rank) {
  std::vector<int64_t> made;
  std::mt19937 random(static_cast<unsigned>(rank * 7 + static_cast<int>(pattern)));
  if (size == 0 || (pattern == Asking::none_on_some && rank % 2 == 0)) return made;
  for (int64_t i = 0; i < count; ++i) {
    const auto drawn = static_cast<int64_t>(random() % static_cast<uint64_t>(2 * size)) - size;
    made.push_back(pattern == Asking::all_of_one  ? size - 1
                   : pattern == Asking::all_twice ? i % (2 * size) - size
                                                  : drawn);
  }
  return made;
}

/// The lie with dims 0 and 1 exchanged.
Lie turned(Lie lie) {
  for (Placement& placement : lie.placements) {
    if (placement.is_shard()) placement = Shard(1 - placement.dim());
  }
  return lie;
}

int64_t traffic_of(const DeviceMesh& mesh) { return mesh.body()->grid().traffic().bytes; }

/// Bytes of counts and keys that one rank gets by messages, in addition to rows.
int64_t bytes_of_requests(const LieOnMesh& one, const Shape& shape, int dim, int rank,
                          bool elements,
                          const std::function<std::vector<int64_t>(int)>& keys_of_rank) {
  const std::vector<int> at = coordinates_at(one.mesh, rank);
  const Held own = held_by(one.lie, shape, dim, one.mesh, rank);
  int64_t bytes = 0;
  for (int other = 0; other < ranks_of(one.mesh); ++other) {
    const std::vector<int> there = coordinates_at(one.mesh, other);
    bool is_peer = other != rank;
    for (size_t a = 0; a < there.size(); ++a) {
      is_peer = is_peer && (there[a] == at[a] || one.lie.placements[a].is_shard(dim));
    }
    if (!is_peer) continue;
    bytes += 8;
    std::set<std::pair<int64_t, int64_t>> wanted;
    const std::vector<int64_t> keys = keys_of_rank(other);
    for (size_t i = 0; i < keys.size(); ++i) {
      const int64_t index = keys[i] < 0 ? keys[i] + shape[dim] : keys[i];
      if (std::find(own.along.begin(), own.along.end(), index) == own.along.end()) continue;
      const auto lanes = static_cast<int64_t>(own.lanes.size());
      wanted.insert({index, elements ? (dim == 0 ? static_cast<int64_t>(i) % lanes
                                                 : static_cast<int64_t>(i) * lanes /
                                                       static_cast<int64_t>(keys.size()))
                                     : 0});
    }
    bytes += 8 * static_cast<int64_t>(wanted.size());
  }
  return bytes;
}

void check_fetch(const LieOnMesh& one, const Shape& shape, int dim, bool elements, Asking pattern,
                 bool by_messages, const Communicator& world) {
  const DeviceMesh mesh = mesh_of(one.mesh, world);
  const int rank = mesh.rank();
  const RowDim rows{layout_of(one.lie.on(mesh), shape, f32), dim, elements};
  const Held own = held_by(one.lie, shape, dim, one.mesh, rank);
  const auto lanes = static_cast<int64_t>(own.lanes.size());
  const int64_t count = 5;
  const auto asks = [&](int of) {
    const auto each = held_by(one.lie, shape, dim, one.mesh, of).lanes.size();
    std::vector<int64_t> made =
        asked(pattern, shape[dim], elements ? count * static_cast<int64_t>(each) : count, of);
    return made;
  };
  std::vector<int64_t> wanted = asks(rank);
  const int64_t n = elements ? (lanes ? static_cast<int64_t>(wanted.size()) / lanes : 0)
                             : static_cast<int64_t>(wanted.size());
  const Shape taken = dim == 0 ? Shape{n, lanes} : Shape{lanes, n};
  std::vector<float> in = values_of(one.lie, shape, one.mesh, rank);
  std::vector<float> out(static_cast<size_t>(n * lanes) + 1, 99.0f);
  const int64_t before = traffic_of(mesh);
  fetch_rows(rows, dense_block(in.data(), f32, rows.layout->box.shape),
             dense_block(wanted.data(), i64, elements ? taken : Shape{n}),
             dense_block(out.data(), f32, taken));
  const int64_t received = traffic_of(mesh) - before;
  std::set<std::pair<int64_t, int64_t>> remote;
  const std::vector<int> at = coordinates_at(one.mesh, rank);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < lanes; ++k) {
      const auto [r, c] = element(dim, i, k);
      const auto place = static_cast<size_t>(r * taken[1] + c);
      int64_t index = wanted[elements ? place : static_cast<size_t>(i)];
      if (index < 0) index += shape[dim];
      const auto [row, column] = element(dim, index, own.lanes[static_cast<size_t>(k)]);
      ASSERT_EQ(out[place], addend(one.lie, one.mesh, at, row, column))
          << "rank " << rank << ": " << i << ", " << k;
      if (std::find(own.along.begin(), own.along.end(), index) == own.along.end()) {
        remote.insert({index, k});
      }
    }
  }
  EXPECT_EQ(out.back(), 99.0f);
  const int64_t requests =
      by_messages ? bytes_of_requests(one, shape, dim, rank, elements, asks) : 0;
  EXPECT_EQ(received, static_cast<int64_t>(remote.size()) * 4 + requests) << "rank " << rank;
}

class Rows : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam() == Way::processes && !kForks) GTEST_SKIP() << "no forks under this sanitizer";
  }

  /// Calls f for the cases that the way can run.
  template <class F> void for_each_mesh(const F& f) {
    for (const LieOnMesh& one : lies_on_meshes()) {
      const int ranks = ranks_of(one.mesh);
      if (GetParam() == Way::mpi && ranks != mpirun_ranks()) continue;
      run(GetParam(), ranks, [&](Communicator world) { f(one, world); });
    }
  }
};

}  // namespace

TEST_P(Rows, FetchesWhatIsNamed) {
  for_each_mesh([](const LieOnMesh& one, const Communicator& world) {
    const bool by_messages = GetParam() == Way::messages || GetParam() == Way::mpi;
    for (const Shape& shape : {Shape{7, 3}, Shape{2, 5}, Shape{1, 1}, Shape{300, 40}}) {
      for (Asking pattern : kAskings) {
        for (bool elements : {false, true}) {
          check_fetch(one, shape, 0, elements, pattern, by_messages, world);
          check_fetch({one.mesh, turned(one.lie)}, shape, 1, elements, pattern, by_messages, world);
        }
      }
    }
    check_fetch(one, {0, 3}, 0, false, Asking::random, by_messages, world);
  });
}

namespace {

/// A tensor that is written, and the layout of the values, whose dim the exchange goes over.
struct WriteCase {
  std::vector<int> mesh;
  Lie to, from;
};

const std::vector<WriteCase>& write_cases() {
  static const std::vector<WriteCase> cases = {
      {{1}, {{Shard(0)}}, {{Shard(0)}}},
      {{3}, {{Shard(0)}}, {{Shard(0)}}},
      {{4}, {{Shard(0)}}, {{Shard(0)}}},
      {{4}, {{Shard(0)}}, {{Replicate()}}},
      {{3}, {{Replicate()}}, {{Shard(0)}}},
      {{2, 2}, {{Shard(0), Shard(1)}}, {{Shard(0), Shard(1)}}},
      {{2, 2}, {{Shard(0), Shard(0)}}, {{Shard(0), Shard(0)}, {{1, 0}}}},
      {{2, 2}, {{Shard(0), Replicate()}}, {{Shard(0), Shard(0)}}},
      {{2, 2}, {{Shard(0), Shard(0)}}, {{Shard(0), Replicate()}}},
  };
  return cases;
}

/// Element (i, lane) of the values, and the index that it goes to.
float value_at(int64_t i, int64_t lane) { return static_cast<float>((i * 5 + lane * 3) % 4 - 1); }
int64_t place_at(Asking pattern, int64_t size, int64_t i, int64_t lane) {
  if (pattern == Asking::all_of_one) return -1;
  if (pattern == Asking::all_twice) return i % size;
  return (i * 3 + lane + i / 4) % (2 * size) - size;
}

float written(WriteMode mode, float place, float value) {
  if (mode == WriteMode::add) return place + value;
  if (mode == WriteMode::multiply) return place * value;
  if (mode == WriteMode::max) return std::max(place, value);
  if (mode == WriteMode::min) return std::min(place, value);
  return value;
}

/// One case of a write: the whole tensor is [size, kLanes], the values [count, kLanes], or both
/// turned.
struct Write {
  WriteCase layouts;
  int64_t size, count;
  int dim;
  bool elements;
  Asking pattern;
  WriteMode mode;

  static constexpr int64_t kLanes = 5;
  Shape shape_of(int64_t rows) const {
    return dim == 0 ? Shape{rows, kLanes} : Shape{kLanes, rows};
  }
  Lie to() const { return dim == 0 ? layouts.to : turned(layouts.to); }
  Lie from() const { return dim == 0 ? layouts.from : turned(layouts.from); }
  int64_t place(int64_t i, int64_t lane) const {
    return place_at(pattern, size, i, elements ? lane : 0);
  }
  int64_t index(int64_t i, int64_t lane) const { return (place(i, lane) + 2 * size) % size; }
};

/// The elements (index, lane) of the whole tensor that change.
std::map<std::pair<int64_t, int64_t>, float> expected_of(const Write& one) {
  std::map<std::pair<int64_t, int64_t>, float> expected;
  for (int64_t i = 0; i < one.count; ++i) {
    for (int64_t lane = 0; lane < Write::kLanes; ++lane) {
      const int64_t index = one.index(i, lane);
      const auto [r, c] = element(one.dim, index, lane);
      auto& sum = expected.try_emplace({index, lane}, float(whole_value(r, c))).first->second;
      sum = written(one.mode, sum, value_at(i, lane));
    }
  }
  return expected;
}

/// Bytes that a rank receives from the ranks whose values it does not have.
int64_t bytes_of_write(const Write& one, int rank, bool by_messages) {
  const std::vector<int>& mesh = one.layouts.mesh;
  const Held made = held_by(one.to(), one.shape_of(one.size), one.dim, mesh, rank);
  const Lie from = one.from();
  int64_t bytes = 0;
  const std::vector<int> at = coordinates_at(mesh, rank);
  for (int peer = 0; peer < ranks_of(mesh); ++peer) {
    const std::vector<int> there = coordinates_at(mesh, peer);
    bool is_sender = peer != rank;
    for (size_t a = 0; a < there.size(); ++a) {
      is_sender = is_sender && (there[a] == at[a] || from.placements[a].is_shard(one.dim));
    }
    if (!is_sender) continue;
    const Held theirs = held_by(from, one.shape_of(one.count), one.dim, mesh, peer);
    std::set<std::pair<int64_t, int64_t>> sent;
    for (int64_t i : theirs.along) {
      for (int64_t lane : theirs.lanes) {
        const int64_t index = one.index(i, lane);
        if (std::find(made.along.begin(), made.along.end(), index) == made.along.end()) continue;
        sent.insert({index, one.elements ? lane : 0});
      }
    }
    const int64_t each = 8 + 4 * (one.elements ? 1 : int64_t(theirs.lanes.size()));
    bytes += int64_t(sent.size()) * each + (by_messages ? 8 : 0);
  }
  return bytes;
}

void check_write(const Write& one, bool by_messages, const Communicator& world) {
  const DeviceMesh mesh = mesh_of(one.layouts.mesh, world);
  const int rank = mesh.rank(), dim = one.dim;
  const Shape shape = one.shape_of(one.size), given = one.shape_of(one.count);
  const RowDim rows{layout_of(one.to().on(mesh), shape, f32), dim, one.elements};
  const Ref<Layout> layout = layout_of(one.from().on(mesh), given, f32);
  const Held own = held_by(one.from(), given, dim, one.layouts.mesh, rank);
  const Held made = held_by(one.to(), shape, dim, one.layouts.mesh, rank);
  const auto local = layout->box.shape;
  std::vector<float> values(static_cast<size_t>(local.product()) + 1);
  std::vector<int64_t> named(static_cast<size_t>(one.elements ? local.product() : local[dim]) + 1);
  for (size_t i = 0; i < own.along.size(); ++i) {
    for (size_t k = 0; k < own.lanes.size(); ++k) {
      const auto [r, c] = element(dim, int64_t(i), int64_t(k));
      const auto at = static_cast<size_t>(r * local[1] + c);
      values[at] = value_at(own.along[i], own.lanes[k]);
      named[one.elements ? at : i] = one.place(own.along[i], own.lanes[k]);
    }
  }
  std::vector<float> out = values_of(one.to(), shape, one.layouts.mesh, rank);
  const int64_t before = traffic_of(mesh);
  write_rows(rows, dense_block(out.data(), f32, rows.layout->box.shape), layout,
             dense_block(named.data(), i64, one.elements ? local : Shape{local[dim]}),
             dense_block(values.data(), f32, local), one.mode);
  const int64_t received = traffic_of(mesh) - before;
  const auto expected = expected_of(one);
  for (size_t i = 0; i < made.along.size(); ++i) {
    for (size_t k = 0; k < made.lanes.size(); ++k) {
      const auto [r, c] = element(dim, int64_t(i), int64_t(k));
      const auto found = expected.find({made.along[i], made.lanes[k]});
      const auto [row, column] = element(dim, made.along[i], made.lanes[k]);
      const float wanted =
          found == expected.end() ? float(whole_value(row, column)) : found->second;
      ASSERT_EQ(out[static_cast<size_t>(r * rows.layout->box.shape[1] + c)], wanted)
          << "rank " << rank << " at " << made.along[i] << ", " << made.lanes[k];
    }
  }
  EXPECT_EQ(received, bytes_of_write(one, rank, by_messages)) << "rank " << rank;
}

}  // namespace

TEST_P(Rows, AddsAndReplaces) {
  const bool by_messages = GetParam() == Way::messages || GetParam() == Way::mpi;
  for (const WriteCase& one : write_cases()) {
    const int ranks = ranks_of(one.mesh);
    if (GetParam() == Way::mpi && ranks != mpirun_ranks()) continue;
    run(GetParam(), ranks, [&](Communicator world) {
      for (WriteMode mode : {WriteMode::add, WriteMode::replace, WriteMode::multiply,
                             WriteMode::max, WriteMode::min}) {
        for (Asking pattern : {Asking::random, Asking::all_of_one, Asking::all_twice}) {
          for (bool elements : {false, true}) {
            for (int dim : {0, 1}) {
              check_write({one, 7, 9, dim, elements, pattern, mode}, by_messages, world);
              check_write({one, 2, 1, dim, elements, pattern, mode}, by_messages, world);
              check_write({one, 500, 700, dim, elements, pattern, mode}, by_messages, world);
            }
            check_write({one, 5, 0, 0, elements, pattern, mode}, by_messages, world);
          }
        }
      }
    });
  }
}

TEST_P(Rows, AnIndexOutOfRangeFailsOnAllRanks) {
  for_each_mesh([](const LieOnMesh& one, const Communicator& world) {
    const DeviceMesh mesh = mesh_of(one.mesh, world);
    const RowDim rows{layout_of(one.lie.on(mesh), {7, 3}, f32), 0};
    const int64_t lanes = rows.lanes();
    std::vector<float> in = values_of(one.lie, {7, 3}, one.mesh, mesh.rank());
    std::vector<float> out(static_cast<size_t>(2 * lanes) + 1);
    // In each group the rank with the coordinates 0 has the mistake.
    const std::vector<int> at = coordinates_at(one.mesh, mesh.rank());
    bool is_first = true, is_whole = true;
    for (size_t a = 0; a < at.size(); ++a) {
      const bool cuts = one.lie.placements[a].is_shard(0) && one.mesh[a] > 1;
      is_first = is_first && (at[a] == 0 || !cuts);
      is_whole = is_whole && !cuts;
    }
    std::vector<int64_t> wanted = {1, is_first ? 7 : 2};
    const auto fetch = [&] {
      fetch_rows(rows, dense_block(in.data(), f32, rows.layout->box.shape),
                 dense_block(wanted.data(), i64, {2}), dense_block(out.data(), f32, {2, lanes}));
    };
    EXPECT_TRUE(has(error_of(fetch), "index is 7, expected one of the 7 elements of dim 0"))
        << is_whole;
    // The ranks go on together.
    wanted[1] = 2;
    fetch();
  });
}

INSTANTIATE_TEST_SUITE_P(, Rows, testing::Values(Way::threads, Way::messages),
                         [](const auto& test) {
                           return test.param == Way::threads ? "threads" : "messages";
                         });
INSTANTIATE_TEST_SUITE_P(Shared, Rows, testing::Values(Way::processes),
                         [](const auto&) { return "processes"; });
#ifdef WEFT_WITH_MPI
INSTANTIATE_TEST_SUITE_P(Mpi, Rows, testing::Values(Way::mpi), [](const auto&) { return "mpi"; });
#endif

}  // namespace weft

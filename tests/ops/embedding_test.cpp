// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"
#include "weft/extend/tape.h"
#include "weft/ranks.h"

namespace weft {

static Tensors embedded(const Tensors& t) { return {embedding(t[0], t[1])}; }

TEST(Embedding, GathersRowsAndAddsTheirGradients) {
  Array weight = random_array({7, 3}, -2, 2), ids{{2, 4}, {6, 0, 3, 6, 1, 6, 0, 5}, i32};
  Array dy = random_array({2, 4, 3}, -1, 1, f32, 2);
  Array expected{{2, 4, 3}, {}}, gradient{{7, 3}, std::vector<double>(21)};
  for (size_t i = 0; i < 8; ++i) {
    for (size_t d = 0; d < 3; ++d) {
      const size_t at = static_cast<size_t>(ids.values[i]) * 3 + d;
      expected.values.push_back(weight.values[at]);
      gradient.values[at] += dy.values[i * 3 + d];
    }
  }
  Tensor w = weight.on();
  w.set_requires_grad();
  Tensor rows = embedding(w, ids.on());
  expect_close(whole(rows), expected, 0, "rows");
  backward({rows}, {dy.on()});
  expect_close(whole(w.grad()), gradient, 1e-6, "gradient");
}

TEST(Embedding, AgreesOnAnyLayout) {
  expect_agreement(embedded, {random_array({7, 5}, -2, 2), random_array({3, 5}, 0, 7, i64)},
                   {
                       {{{"x", 4}}, {{Shard(0)}, {Replicate()}}},
                       {{{"x", 3}}, {{Shard(0)}, {Shard(0)}}},
                       {{{"x", 4}}, {{Shard(1)}, {Replicate()}}},
                       {{{"x", 4}}, {{Replicate()}, {Shard(1)}}},
                       {{{"x", 2}, {"y", 2}}, {{Replicate(), Shard(0)}, {Shard(0), Replicate()}}},
                       {{{"x", 2}, {"y", 2}}, {{Shard(0), Shard(0)}, {Shard(0), Shard(1)}}},
                       {{{"x", 2}, {"y", 2}}, {{Shard(1), Shard(0)}, {Replicate(), Replicate()}}},
                   });
}

TEST(Embedding, AgreesWithMoreRanksThanRows) {
  expect_agreement(embedded, {random_array({3, 5}, -2, 2), random_array({7}, 0, 3, i64)},
                   {{{{"x", 4}}, {{Shard(0)}, {Replicate()}}}});
}

TEST(Embedding, LeavesAShardedVocabularyWhereItIs) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh mesh(world, {{"x", 4}});
    TrafficScope scope(Traffic::forbid);
    Tensor weight = ones({9, 2}, {.sharding = Sharding(mesh, {Shard(0)})});
    Tensor ids = zeros({3}, {.dtype = i64, .sharding = Sharding(mesh, {Replicate()})});
    weight.set_requires_grad();
    Tensor rows = embedding(weight, ids);
    EXPECT_TRUE(rows.sharding()[0] == Placement(Partial()));
    // Each rank computes only its rows of the gradient; they are not slices of a full gradient.
    backward({rows}, {ones({3, 2}, {.sharding = Sharding(mesh, {Replicate()})})});
    EXPECT_TRUE(weight.grad().sharding()[0] == Placement(Shard(0)));
  });
}

namespace {

/// Counts the gradients it receives, in its own memory.
struct CountingSink final : GradientSink {
  explicit CountingSink(const Shape& shape) : memory(zeros(shape)) {}
  Destination destination() override { return {memory, asked++ > 0}; }
  void complete() override { ++completed; }
  Tensor memory;
  int asked = 0, completed = 0;
};

}  // namespace

TEST(Embedding, WritesItsGradientWhereItBelongs) {
  Tensor weight = ones({4, 2}), ids = Array{{3}, {1, 3, 1}, i64}.on();
  auto sink = std::make_shared<CountingSink>(weight.shape());
  weight.set_requires_grad();
  set_gradient_sink(weight, sink);
  const int64_t in_place = engine_statistics().gradients_in_place;
  const int64_t copies = engine_statistics().gradient_copies;
  for (int pass = 0; pass < 2; ++pass) sum(embedding(weight, ids)).backward();
  EXPECT_EQ(engine_statistics().gradients_in_place, in_place + 2);
  EXPECT_EQ(engine_statistics().gradient_copies, copies);
  EXPECT_EQ(sink->memory.to_vector<double>(), (std::vector<double>{0, 0, 4, 4, 0, 0, 2, 2}));
  EXPECT_EQ(sink->completed, 2);
}

TEST(Embedding, SaysWhatIsWrong) {
  Tensor weight = zeros({7, 3});
  EXPECT_EQ(error_of([&] {
              embedding(weight, Array{{2}, {1, 7}, i64}.on());
            }),
            "embedding: id is 7, expected one below 7, the rows of the weight [7, 3]");
  EXPECT_EQ(error_of([&] {
              embedding(weight, Array{{1}, {-1}, i32}.on());
            }),
            "embedding: id is -1, expected one below 7, the rows of the weight [7, 3]");
  EXPECT_EQ(error_of([&] { embedding(weight, zeros({2})); }),
            "embedding: dtype of ids is f32, expected an integer one");
  EXPECT_EQ(error_of([&] { embedding(weight, Tensor()); }), "embedding: no tensor");
}

TEST(Embedding, NamesAnIdOnShardedRanks) {
  const std::string message = error_of([] {
    run_ranks(2, [](Communicator world) {
      DeviceMesh mesh(world, {{"x", 2}});
      Tensor weight = ones({4, 2}, {.sharding = Sharding(mesh, {Shard(0)})});
      embedding(weight, Array{{2}, {1, 9}, i64}.on(Sharding(mesh, {Replicate()})));
    });
  });
  EXPECT_NE(message.find("id is 9, expected one below 4"), std::string::npos) << message;
}

}  // namespace weft

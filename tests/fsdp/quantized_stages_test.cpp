// SPDX-License-Identifier: Apache-2.0
// Codes that move in two stages over joined axes.
#include <gtest/gtest.h>

#include "tests/fsdp/quantized_chain.h"
#include "tests/support/scratch.h"
#include "weft/error.h"
#include "weft/fsdp_options.h"
#include "weft/ranks.h"

namespace weft {
namespace {

std::vector<MeshAxis> axes_of(int across, int within) {
  return {{"across", across}, {"within", within}};
}

/// The meshes, on which some ranks have no part of a bias of 5, and the axis within a host.
std::vector<std::pair<std::vector<MeshAxis>, std::string>> joined_meshes() {
  return {{axes_of(2, 2), "within"}, {axes_of(2, 3), "within"},
          {axes_of(3, 2), "within"}, {axes_of(2, 4), "within"},
          {axes_of(2, 3), "across"}, {{{"a", 2}, {"b", 2}, {"c", 2}}, "b"}};
}

std::string name_of(const std::vector<MeshAxis>& axes) {
  std::string name;
  for (const MeshAxis& axis : axes) name += concat(axis.name, '=', axis.size, ' ');
  return name;
}

/// The sum over the 7 rows of `rows_of` of the greatest gradient that a row has: the step of the
/// codes of gradients of some rows is at most their share of it / 127.
double greatest_by_rows(int micro_steps) {
  double sum_of_rows = 0;
  for (int micro = 0; micro < micro_steps; ++micro) {
    for (int row = 0; row < 7; ++row) {
      manual_seed(3);
      Chain chain;
      chain.materialize();
      sum(square(chain(slice(rows_of({}, micro), 0, row, row + 1)))).backward();
      double most = 0;
      for (const auto& gradient : gradients_of(chain)) {
        for (const float value : gradient) most = std::max(most, std::abs(double{value}));
      }
      sum_of_rows += most;
    }
  }
  return sum_of_rows;
}

/// Two stages of codes, the second of sums with the errors of the first.
constexpr double kSteps = (2 + 1.0 / 127) / 127;

std::vector<FullyShardOptions> variants(const std::string& within) {
  const Quantization codes{.reduce = i8, .block = 8, .within = within};
  std::vector<FullyShardOptions> all(6, {.quantization = codes});
  all[1].quantization.error_feedback = true;
  all[2].offload.gradients = true;
  all[3].strategy = {"late", {{Replicate(), Partial(), Shard(0)}}};
  all[4].quantization.reduce = bf16;
  all[5].precision.reduce = bf16;
  return all;
}

TEST(QuantizedStages, SumsAreWithinTheStepsOfTheCodes) {
  const Values expected = plain_gradients(2);
  const double bound = kSteps * greatest_by_rows(2);
  double greatest = 0;
  for (const auto& gradient : expected) {
    for (const float value : gradient) greatest = std::max(greatest, std::abs(double{value}));
  }
  // Parts in another order would miss it.
  ASSERT_LT(bound, 0.2 * greatest);
  for (const auto& [axes, within] : joined_meshes()) {
    const Place place{"", axes};
    int number = 0;
    for (const FullyShardOptions& options : variants(within)) {
      for (const int64_t dim : {0, 1}) {
        const std::string name = concat(name_of(axes), within, ", variant ", number, " dim ", dim);
        run_ranks(place.ranks(), [&](Communicator world) {
          const Outcome outcome = outcome_of(place, world, options, dim);
          EXPECT_LT(distance(outcome.gradients, expected), bound) << name;
          EXPECT_EQ(distance(outcome.gradients, outcome_of(place, world, options, dim).gradients),
                    0)
              << name;
          expect_same_bytes(outcome.measured, outcome.predicted, name);
        });
      }
      ++number;
    }
  }
}

/// The codes are the same, whichever way they take.
TEST(QuantizedStages, GatherTheSameParameters) {
  for (const auto& [axes, within] : joined_meshes()) {
    const Place place{"", axes};
    for (const DType codes : {i8, f8_e4m3}) {
      for (const int64_t dim : {0, 1}) {
        run_ranks(place.ranks(), [&, axis = within](Communicator world) {
          FullyShardOptions options{.quantization = {.gather = codes, .block = 8, .within = ""}};
          const Outcome flat = outcome_of(place, world, options, dim);
          options.quantization.within = axis;
          const Outcome staged = outcome_of(place, world, options, dim);
          EXPECT_EQ(staged.gradients, flat.gradients) << name_of(place.axes);
          // Other ranks may have no part of a parameter, or receive none from across.
          if (world.rank() == 0) {
            EXPECT_EQ(staged.measured.by_axes.size(), 3U) << "two stages, and the gradients";
          }
          expect_same_bytes(staged.measured, staged.predicted, name_of(place.axes));
        });
      }
    }
  }
}

/// Bytes that the scatters of a step receive over some axes.
int64_t scattered_bytes(Chain& chain, const std::string& axes) {
  int64_t bytes = 0;
  for (const ProgramStep& step : schedule_of(chain).steps) {
    if (step.verb == "reduce-scatter" && step.axes == axes) bytes += step.bytes;
  }
  return bytes;
}

/// Across hosts a rank receives the codes of its part once from each host, not from each rank.
TEST(QuantizedStages, FewerBytesCrossTheSlowAxis) {
  for (const auto& [across, within] : {std::pair(2, 2), {2, 3}, {3, 2}, {2, 4}}) {
    run_ranks(across * within, [&, a = across, w = within](Communicator world) {
      DeviceMesh mesh(world, axes_of(a, w));
      const auto chain_with = [&](const char* stage) {
        const auto chain = std::make_shared<Chain>();
        shard(*chain, mesh, {.quantization = {.reduce = i8, .block = 8, .within = stage}});
        chain->materialize();
        return chain;
      };
      const auto flat = chain_with(""), staged = chain_with("within");
      const int64_t at_once = scattered_bytes(*flat, "across+within");
      EXPECT_EQ(scattered_bytes(*flat, "across"), 0);
      const auto received = [&](const char* axis) {
        return mesh[axis].communicator().traffic().bytes;
      };
      const int64_t before = received("across"), inside = received("within");
      sum(square((*staged)(rows_of(mesh, 0)))).backward();
      const int64_t crossed = received("across") - before;
      EXPECT_EQ(crossed, scattered_bytes(*staged, "across"));
      EXPECT_EQ(received("within") - inside, scattered_bytes(*staged, "within"));
      // In one stage each of the other hosts' ranks sends its own codes.
      EXPECT_EQ(crossed * (a * w - 1), at_once * (a - 1));
      const int64_t from_others = at_once / (a * w - 1) * (a - 1) * w;
      EXPECT_EQ(crossed * w, from_others);
    });
  }
}

/// With error feedback the sums of many steps are as near as those of one.
TEST(QuantizedStages, ErrorFeedbackReachesBothStages) {
  const int steps = 100;
  const Values once = plain_gradients(1);
  const double bound = 1.1 * kSteps * greatest_by_rows(1);
  for (const auto& [axes, within] : joined_meshes()) {
    const Place place{"", axes};
    run_ranks(place.ranks(), [&, mesh_axes = axes, axis = within](Communicator world) {
      DeviceMesh mesh(world, mesh_axes);
      const auto error_of = [&](bool feedback) {
        manual_seed(3);
        Chain chain;
        shard(chain, mesh,
              {.quantization = {
                   .reduce = i8, .block = 8, .error_feedback = feedback, .within = axis}});
        chain.materialize();
        for (int step = 0; step < steps; ++step) sum(square(chain(rows_of(mesh, 0)))).backward();
        Values total = once;
        for (auto& gradient : total) {
          for (float& value : gradient) value *= static_cast<float>(steps);
        }
        return distance(gradients_of(chain), total);
      };
      const double error = error_of(true);
      EXPECT_LT(error, bound) << name_of(mesh_axes);
      EXPECT_GT(error_of(false), 1.5 * error) << name_of(mesh_axes);
    });
  }
}

/// The axes over which gradients are scattered, in order.
std::vector<std::string> scatters(const Communicator& world, const std::vector<MeshAxis>& axes,
                                  const Quantization& quantization) {
  const DeviceMesh mesh(world, axes);
  Chain chain;
  fully_shard(chain, mesh, {.quantization = quantization});
  chain.materialize(meta);
  std::vector<std::string> all;
  for (const ProgramStep& step : schedule_of(chain).steps) {
    if (step.verb == "reduce-scatter") all.push_back(step.axes);
  }
  return all;
}

TEST(QuantizedStages, AreChosenWhereAnAxisStaysInAHost) {
  using Axes = std::vector<std::string>;
  const Quantization codes{.reduce = i8};
  const std::vector<MeshAxis> axes = axes_of(2, 4);
  const auto cluster = [](int ranks_per_host) { return fake_world(0, 8, ranks_per_host, false); };
  EXPECT_EQ(scatters(cluster(4), axes, codes), (Axes{"within", "across"}));
  EXPECT_EQ(scatters(cluster(8), axes, codes), Axes{"across+within"});
  EXPECT_EQ(scatters(cluster(1), axes, codes), Axes{"across+within"});
  EXPECT_EQ(scatters(cluster(2), {{"a", 2}, {"b", 2}, {"c", 2}}, codes), (Axes{"c", "a+b"}));
  EXPECT_EQ(scatters(cluster(4), {{"a", 2}, {"b", 2}, {"c", 2}}, codes), (Axes{"b+c", "a"}));
  EXPECT_EQ(scatters(cluster(4), {{"a", 2}, {"b", 1}, {"c", 4}}, codes), (Axes{"b+c", "a"}));
  EXPECT_EQ(scatters(cluster(4), {{"dp", 8}}, codes), Axes{"dp"});
  EXPECT_EQ(scatters(cluster(4), axes, {.reduce = i8, .within = ""}), Axes{"across+within"});
  EXPECT_EQ(scatters(cluster(8), axes, {.reduce = i8, .within = "within"}),
            (Axes{"within", "across"}));
  EXPECT_EQ(error_of([&] { scatters(cluster(8), axes, {.within = "within"}); }),
            "fully_shard: quantization within axis \"within\" has no dtypes, expected one of "
            "gathers or of gradients");
  EXPECT_EQ(error_of([&] { scatters(cluster(8), axes, {.reduce = i8, .within = "gpu"}); }),
            "fully_shard: axis within which codes move is \"gpu\", expected one of "
            "mesh(across=2, within=4), or an empty name");
}

}  // namespace
}  // namespace weft

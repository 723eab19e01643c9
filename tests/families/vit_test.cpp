// SPDX-License-Identifier: Apache-2.0
#include "examples/vit/vit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/families/family.h"
#include "tests/support/ranks.h"

namespace weft {
namespace {

const VitConfig kSmall{
    .image = 15, .patch = 5, .classes = 7, .dim = 96, .layers = 3, .heads = 4, .ffn = 67};

/// Compares every kept element with the reference's, which are at equal distances.
void expect_samples(const FamilyReference& reference, const std::string& what, const Tensor& whole,
                    double floor) {
  const auto values = whole.full_tensor().to_vector<double>();
  const auto expected = reference.tensor(what).to_vector<double>();
  const size_t step = (values.size() + expected.size() - 1) / expected.size();
  double largest = floor;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_LE(std::abs(values.at(i * step) - expected[i]), 1e-5 * largest) << what << ' ' << i;
  }
}

/// A key's bias has no gradient but rounding: it is compared with that of the key's weight.
double floor_of(const FamilyReference& reference, std::string name) {
  const size_t at = name.find("key.bias");
  if (at != std::string::npos) name.replace(at, 8, "key.weight");
  return reference.parameters()[name]["largest"].get<double>();
}

/// Shards by the styles along tp and by FSDP along dp; `mesh` is nullptr on one rank.
void expect_as_transformers(const std::vector<MeshAxis>& axes, const DeviceMesh* mesh) {
  const FamilyReference reference("../vit");
  Vit model(kSmall);
  std::vector<Placement> rows;
  for (const MeshAxis& axis : axes) {
    rows.push_back(axis.name == "tp" ? Placement(Replicate()) : Placement(Shard(0)));
    if (axis.name == "tp") parallelize(model, (*mesh)["tp"], model.styles());
  }
  if (!axes.empty() && axes[0].name == "dp") {
    for (const auto& unit : model.units()) fully_shard(unit, (*mesh)["dp"]);
    fully_shard(model, (*mesh)["dp"]);
  }
  model.materialize();
  load_vit(model, reference.folder());
  Tensor images = reference.tensor("images"), labels = reference.tensor("labels");
  if (mesh) {
    const Placements by_rows{std::span<const Placement>(rows)};
    images = distribute(images, *mesh, by_rows), labels = distribute(labels, *mesh, by_rows);
  }
  const Tensor logits = model(images);
  expect_samples(reference, "logits", logits, 0);
  const Tensor loss = cross_entropy(logits, labels);
  EXPECT_NEAR(loss.full_tensor().item(), reference.tensor("loss").to_vector<double>()[0], 1e-5);
  loss.backward();
  size_t compared = 0;
  for (const NamedParameter& named : model.named_parameters()) {
    const std::string name = name_in_vit_file(named.name());
    ASSERT_TRUE(named.parameter->grad()) << name;
    expect_samples(reference, "grad." + name, named.parameter->grad(), floor_of(reference, name));
    ++compared;
  }
  EXPECT_EQ(compared, reference.parameters().size());
}

void expect_on_ranks(const std::vector<MeshAxis>& axes) {
  run_ranks(ranks_of(axes), [&](const Communicator& world) {
    const DeviceMesh mesh(world, axes);
    expect_as_transformers(axes, &mesh);
  });
}

TEST(Vit, EqualsTransformersOnOneRank) { expect_as_transformers({}, nullptr); }

TEST(Vit, EqualsTransformersSharded) {
  expect_on_ranks({{"dp", 3}});
  expect_on_ranks({{"tp", 2}});
  expect_on_ranks({{"dp", 2}, {"tp", 2}});
}

TEST(Vit, RefusesAFileOfAnotherSize) {
  const FamilyReference reference("../vit");
  VitConfig config = kSmall;
  config.classes = 8;
  Vit model(config);
  model.materialize();
  EXPECT_THROW(load_vit(model, reference.folder()), std::invalid_argument);
}

TEST(Vit, BlocksNameWhatDoesNotFit) {
  TransformerConfig config = kSmall.encoder();
  EXPECT_THROW(transformer_block(config, 3), std::invalid_argument);
  config.kv_heads = 3;
  EXPECT_THROW(transformer_block(config), std::invalid_argument);
}

}  // namespace
}  // namespace weft

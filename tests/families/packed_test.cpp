// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/families/family.h"
#include "tests/support/ranks.h"
#include "weft/fsdp.h"
#include "weft/hugging_face.h"
#include "weft/ops.h"
#include "weft/ranks.h"
#include "weft/tensor_parallel.h"

// Rows packed with documents, against transformers' results for the documents in separate rows.

namespace weft {
namespace {

/// Encoders take no segments; two scalings follow the length of a row.
bool takes_long_segments(const std::string& name) {
  return name != "bert" && name != "modernbert" && name != "dynamic" && name != "longrope";
}

std::vector<std::string> packed_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(WEFT_SOURCE_DIR "/tests/reference/families")) {
    const std::string name = entry.path().stem().string();
    if (takes_long_segments(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Packed : public testing::TestWithParam<std::string> {};

void expect_packed_on_ranks(const FamilyReference& reference, const std::vector<MeshAxis>& axes,
                            bool recomputes) {
  run_ranks(ranks_of(axes), [&](Communicator world) {
    const DeviceMesh mesh(world, axes);
    std::vector<Placement> rows;
    for (const MeshAxis& axis : axes) {
      rows.push_back(axis.name == "tp" ? Placement(Replicate()) : Placement(Shard(0)));
    }
    FamilySetup setup{.documents = 3};
    setup.shard = [&](TransformerModel& model) {
      if (std::ranges::count(axes, "ep", &MeshAxis::name) > 0) {
        parallelize(model, mesh["ep"], expert_styles());
      }
      if (std::ranges::count(axes, "tp", &MeshAxis::name) > 0) {
        parallelize(model, mesh["tp"],
                    transformer_styles(model.config(), {.sequence_parallel = recomputes}));
      }
      for (Module* block : model.blocks()) block->set_recompute(recomputes);
      if (axes[0].name != "dp") return;
      for (const auto& unit : model.units()) fully_shard(unit, mesh["dp"]);
      fully_shard(model, mesh["dp"]);
    };
    setup.batch = [&](const Tensor& whole) {
      return distribute(whole, mesh, Placements(std::span<const Placement>(rows)));
    };
    expect_as_transformers(reference, setup);
  });
}

TEST_P(Packed, EqualsTransformersOfEachDocument) {
  expect_as_transformers(FamilyReference(GetParam()), {.documents = 3});
}

TEST_P(Packed, EqualsTransformersOfEachDocumentSharded) {
  const FamilyReference reference(GetParam());
  expect_packed_on_ranks(reference, {{"dp", 3}}, true);
  expect_packed_on_ranks(reference, {{"tp", 2}}, false);
  expect_packed_on_ranks(reference, {{"dp", 2}, {"tp", 2}}, true);
  if (reference.config().experts > 0) expect_packed_on_ranks(reference, {{"ep", 2}}, false);
}

/// A row of ids and the number of each token's document, of documents of these lengths.
struct PackedRow {
  std::vector<int64_t> ids, segments;

  explicit PackedRow(const std::vector<int64_t>& lengths) {
    for (size_t document = 0; document < lengths.size(); ++document) {
      for (int64_t i = 0; i < lengths[document]; ++i) {
        ids.push_back((static_cast<int64_t>(ids.size()) * 37 + 11) % 331);
        segments.push_back(static_cast<int64_t>(document));
      }
    }
  }
  Tensor tensor(const std::vector<int64_t>& values) const {
    return from_values(values, {1, static_cast<int64_t>(values.size())});
  }
};

std::vector<float> logits_of(TransformerModel& model, const Tensors& inputs) {
  const NoGrad no_grad;
  return model(inputs)[0].to_vector<float>();
}

double farthest(std::span<const float> a, std::span<const float> b) {
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return difference;
}

TEST_P(Packed, ATokenChangesItsOwnDocumentOnly) {
  const FamilyReference reference(GetParam());
  TransformerModel model(reference.config());
  load_hugging_face(model, reference.folder());
  const std::vector<int64_t> lengths = {9, 1, 17, 4};
  const PackedRow row(lengths);
  size_t begin = 0;
  const Tensor segments = row.tensor(row.segments);
  const std::vector<float> whole = logits_of(model, {row.tensor(row.ids), segments});
  for (const int64_t length : lengths) {
    const auto first = row.ids.begin() + static_cast<ptrdiff_t>(begin);
    const std::vector<int64_t> own(first, first + length);
    const std::vector<float> alone = logits_of(model, {row.tensor(own)});
    const std::span<const float> packed(whole.data() + begin * 331, alone.size());
    EXPECT_LE(farthest(packed, alone), 1e-5 * 30) << "document at " << begin;

    std::vector<int64_t> changed = row.ids;
    changed[begin] = (changed[begin] + 1) % 331;
    const std::vector<float> other = logits_of(model, {row.tensor(changed), segments});
    for (size_t token = 0; token < row.ids.size(); ++token) {
      const bool is_own = token >= begin && token < begin + static_cast<size_t>(length);
      const std::span<const float> a(whole.data() + token * 331, 331);
      const std::span<const float> b(other.data() + token * 331, 331);
      // An expert's product of another number of tokens may round in another way.
      const double bound = reference.config().experts > 0 ? 3e-4 : 0;
      EXPECT_EQ(farthest(a, b) <= bound, !is_own) << "token " << token << " from " << begin;
    }
    begin += static_cast<size_t>(length);
  }
}

INSTANTIATE_TEST_SUITE_P(References, Packed, testing::ValuesIn(packed_names()),
                         [](const auto& made) { return made.param; });

}  // namespace
}  // namespace weft

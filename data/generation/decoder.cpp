// SPDX-License-Identifier: Apache-2.0
#include "data/generation/decoder.h"

#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

Decoder::Decoder(TransformerModel& model, const DeviceMesh& mesh, int64_t context)
    : model_(model), mesh_(mesh), cache_{.context = context} {
  if (context < 1 || context > model.config().max_sequence) {
    fail("decode: number of tokens is ", context, ", expected 1 to ", model.config().max_sequence,
         ", those of the model");
  }
}

bool Decoder::changes_rotation(int64_t count) const {
  const RopeScaling& rope = model_.config().rope_scaling;
  return rope.kind == RopeScalingKind::longrope && position() > 0 &&
         position() <= rope.original_max && position() + count > rope.original_max;
}

Tensor Decoder::ids_of(std::span<const int64_t> tokens, int64_t rows) const {
  const std::vector<double> values(tokens.begin(), tokens.end());
  const Device device = model_.parameters()[0]->device();
  return from_values(values, {rows, static_cast<int64_t>(tokens.size()) / rows},
                     {DType::i64, device, Sharding(mesh_, {})});
}

std::vector<double> Decoder::next(std::span<const int64_t> tokens) {
  const bool changes = changes_rotation(static_cast<int64_t>(tokens.size()));
  seen_.insert(seen_.end(), tokens.begin(), tokens.end());
  if (changes) {
    // All keys rotate by other frequencies from here on.
    cache_ = {.context = cache_.context};
    tokens = seen_;
  }
  return model_.decode(ids_of(tokens, 1), cache_).full_tensor().to_vector<double>();
}

std::vector<std::vector<double>> Decoder::next(std::span<Decoder* const> decoders,
                                               std::span<const int64_t> tokens) {
  std::vector<std::vector<double>> logits(decoders.size());
  std::vector<size_t> together;
  std::vector<KeyValueCache*> caches;
  std::vector<int64_t> ids;
  for (size_t i = 0; i < decoders.size(); ++i) {
    Decoder& one = *decoders[i];
    if (one.changes_rotation(1)) {
      logits[i] = one.next(tokens.subspan(i, 1));
      continue;
    }
    one.seen_.push_back(tokens[i]);
    together.push_back(i);
    caches.push_back(&one.cache_);
    ids.push_back(tokens[i]);
  }
  if (together.empty()) return logits;
  const Decoder& any = *decoders[together[0]];
  const Tensor made = any.model_.decode(any.ids_of(ids, static_cast<int64_t>(ids.size())), caches);
  const std::vector<double> values = made.full_tensor().to_vector<double>();
  const size_t width = values.size() / together.size();
  for (size_t row = 0; row < together.size(); ++row) {
    const auto first = values.begin() + static_cast<ptrdiff_t>(row * width);
    logits[together[row]].assign(first, first + static_cast<ptrdiff_t>(width));
  }
  return logits;
}

}  // namespace weft

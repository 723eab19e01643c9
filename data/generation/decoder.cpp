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

std::vector<double> Decoder::next(std::span<const int64_t> tokens) {
  const RopeScaling& rope = model_.config().rope_scaling;
  const int64_t before = cache_.position, after = before + static_cast<int64_t>(tokens.size());
  const bool changes = rope.kind == RopeScalingKind::longrope && before > 0 &&
                       before <= rope.original_max && after > rope.original_max;
  seen_.insert(seen_.end(), tokens.begin(), tokens.end());
  if (changes) {
    // All keys rotate by other frequencies from here on.
    cache_ = {.context = cache_.context};
    tokens = seen_;
  }
  const std::vector<double> values(tokens.begin(), tokens.end());
  const Device device = model_.parameters()[0]->device();
  const Tensor ids = from_values(values, {1, static_cast<int64_t>(tokens.size())},
                                 {DType::i64, device, Sharding(mesh_, {})});
  return model_.decode(ids, cache_).full_tensor().to_vector<double>();
}

int64_t Decoder::cache_bytes() const {
  int64_t bytes = 0;
  for (const auto& [keys, values] : cache_.layers) {
    for (const Tensor& cached : {keys, values}) {
      if (cached) bytes += cached.local().numel() * static_cast<int64_t>(size_of(cached.dtype()));
    }
  }
  return bytes;
}

}  // namespace weft

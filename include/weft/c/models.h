// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "weft/c/core.h"
#include "weft/c/tensors.h"

/// A handle of a model: a transformer with its weights; used and freed as a `weft_mesh`, by
/// `weft_model_free`.
typedef struct weft_model {
  uint64_t id;
} weft_model;

/// Loads the weights of `directory`: a Hugging Face model (config.json and .safetensors files), or
/// a run of `weft train`, of which it takes the newest complete checkpoint. An axis of the mesh
/// called "tp" cuts the layers; ranks along other axes have all of them. Each rank reads its part,
/// as f32. Collective. WEFT_INVALID naming the file or the parameter
/// when something is missing or does not fit.
WEFT_C_API weft_status weft_model_load(const char* directory, weft_mesh mesh, weft_model* model);
/// Frees the handle. {0} is allowed. WEFT_INVALID for a freed one.
WEFT_C_API weft_status weft_model_free(weft_model model);

/// Returns the logits [batch, sequence, vocabulary] of token ids [batch, sequence], integers.
/// Collective. Ids without a mesh are the same on each rank. WEFT_INVALID for ids that are out of
/// the vocabulary, and for longer sequences than the model takes.
WEFT_C_API weft_status weft_model_forward(weft_model model, weft_tensor ids, weft_tensor* result);
/// Continues `count` token ids by up to `most` tokens, writes them to `tokens`, which has room for
/// so many, and sets `*written` to their number: fewer only at the model's longest sequence.
/// `temperature` 0 takes the likeliest token; otherwise tokens are drawn with `seed`. Collective:
/// the ids of the first rank of the mesh count.
WEFT_C_API weft_status weft_model_generate(weft_model model, int64_t count, const int64_t* ids,
                                           double temperature, uint64_t seed, int64_t most,
                                           int64_t* tokens, int64_t* written);

/// Saves `count` tensors under the names of a text, "weights,bias", as the checkpoint of a step (at
/// least 0) in `directory`, and waits until the files of all ranks are on the disk. Collective.
/// Saving a step again keeps the older checkpoint, and weft_load takes the newer one. WEFT_INVALID
/// when the number of names differs, or another job saves to the directory.
WEFT_C_API weft_status weft_save(const char* directory, int64_t step, const char* names, int count,
                                 const weft_tensor* tensors);
/// Fills `count` tensors, wherever they lie, with those of a checkpoint: a directory of
/// `weft_save` or a run, of which it takes the newest complete checkpoint, one of PyTorch's
/// distributed checkpoint, or a .safetensors file. It may have more tensors. Collective on ranks
/// that are connected. WEFT_INVALID when a name is missing, or a shape or dtype
/// differs.
WEFT_C_API weft_status weft_load(const char* path, const char* names, int count,
                                 const weft_tensor* tensors);
/// Makes the tensor called `name` of a checkpoint, as `weft_load` finds it.
WEFT_C_API weft_status weft_load_tensor(const char* path, const char* name, weft_mesh mesh,
                                        const char* placements, weft_tensor* result);

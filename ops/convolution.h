// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/ops/convolution.h"
#include "weft/ops/shapes.h"

namespace weft {

inline constexpr int kImageDims = 3;

/// True for a number of an op's structure: products of two are far from 2^63.
inline bool is_image_number(int64_t number) { return number >= 0 && number <= int64_t{1} << 30; }

/// The factors of the dims of an image behind batch and channels: "~s0 ~s1".
inline std::string image_dims(int ndim, const char* prefix) {
  std::string text;
  for (int d = 0; d < ndim; ++d) text += concat(" ", prefix, d);
  return text;
}

/// One number a dim from a list of one or of all; std::invalid_argument for others, and for
/// numbers below `least`.
inline std::vector<int64_t> each_dim(const char* what, const char* name, std::vector<int64_t> given,
                                     int ndim, int64_t least) {
  if (given.size() == 1) given.resize(static_cast<size_t>(ndim), given[0]);
  if (std::ssize(given) != ndim) {
    fail(what, ": ", name, " has ", given.size(), " numbers, expected 1 or ", ndim,
         ", one for each dim of the image");
  }
  for (const int64_t number : given) {
    if (number < least) fail(what, ": ", name, " must be at least ", least, ", got ", number);
  }
  return given;
}

/// `x` with a batch of 1 if it has none; std::invalid_argument unless it is an image of `ndim`
/// dims.
inline Tensor batched_image(const char* what, const Tensor& x, int ndim) {
  check_tensor(what, x);
  if (x.ndim() != ndim + 1 && x.ndim() != ndim + 2) {
    fail(what, ": x is ", x.shape(), ", expected ", ndim + 2, " dims, or ", ndim + 1,
         " without a batch");
  }
  return x.ndim() == ndim + 1 ? unsqueeze(x, 0) : x;
}
/// A result without the batch that `x` had not.
inline Tensor like_batch_of(const Tensor& x, int ndim, const Tensor& result) {
  return x.ndim() == ndim + 1 ? squeeze(result, 0) : result;
}

}  // namespace weft

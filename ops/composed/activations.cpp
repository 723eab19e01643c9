// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/activations.h"

#include <algorithm>

#include "ops/dims.h"
#include "ops/promotion.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

Tensor leaky_relu(const Tensor& a, double slope) {
  check_tensor("leaky_relu", a);
  return where(greater(a, 0), a, mul(a, slope));
}

Tensor prelu(const Tensor& a, const Tensor& slopes) {
  check_tensor("prelu", a, slopes);
  const int64_t channels = a.ndim() < 2 ? 1 : a.size(1), given = slopes.numel();
  if (slopes.ndim() > 1 || (given != 1 && given != channels)) {
    fail("prelu: weight is ", slopes.shape(), ", expected one number or ", channels,
         ", the channels");
  }
  Shape shape;
  for (int d = 0; d < a.ndim(); ++d) shape.push_back(d == 1 ? given : 1);
  return where(greater(a, 0), a, mul(a, reshape(slopes, shape)));
}

/// `of` where a is not positive, from elements whose powers do not overflow, and a elsewhere.
template <class F> static Tensor below_zero(const char* what, const Tensor& a, const F& of) {
  check_tensor(what, a);
  const Tensor is_positive = greater(a, 0);
  return where(is_positive, a, of(masked_fill(a, is_positive, 0)));
}

Tensor elu(const Tensor& a, double alpha) {
  return below_zero("elu", a, [&](const Tensor& x) { return mul(expm1(x), alpha); });
}
Tensor celu(const Tensor& a, double alpha) {
  if (alpha == 0) fail("celu: alpha is 0, expected another number");
  return below_zero("celu", a, [&](const Tensor& x) { return mul(expm1(div(x, alpha)), alpha); });
}
Tensor selu(const Tensor& a) { return mul(elu(a, 1.6732632423543772), 1.0507009873554805); }

Tensor hardtanh(const Tensor& a, double low, double high) {
  check_tensor("hardtanh", a);
  if (!(low <= high)) fail("hardtanh: min_val is ", low, ", expected at most max_val, ", high);
  return masked_fill(masked_fill(a, less_equal(a, low), low), greater_equal(a, high), high);
}
Tensor hardsigmoid(const Tensor& a) { return div(hardtanh(add(a, 3), 0, 6), 6); }
Tensor hardswish(const Tensor& a) { return mul(a, hardsigmoid(a)); }

Tensor softplus(const Tensor& a, double beta, double threshold) {
  check_tensor("softplus", a);
  if (beta == 0) fail("softplus: beta is 0, expected another number");
  const Tensor scaled = mul(a, beta), is_great = greater(scaled, threshold);
  return where(is_great, a, div(log1p(exp(masked_fill(scaled, is_great, 0))), beta));
}
Tensor logsigmoid(const Tensor& a) { return neg(softplus(neg(a))); }
Tensor mish(const Tensor& a) { return mul(a, tanh(softplus(a))); }
Tensor softsign(const Tensor& a) { return div(a, add(abs(a), 1)); }
Tensor tanhshrink(const Tensor& a) { return sub(a, tanh(a)); }

Tensor softshrink(const Tensor& a, double bound) {
  check_tensor("softshrink", a);
  if (!(bound >= 0)) fail("softshrink: lambd must be at least 0, got ", bound);
  return sub(a, clip(a, -bound, bound));
}
Tensor hardshrink(const Tensor& a, double bound) {
  check_tensor("hardshrink", a);
  return masked_fill(a, less_equal(abs(a), bound), 0);
}
Tensor threshold(const Tensor& a, double least, double value) {
  check_tensor("threshold", a);
  return masked_fill(a, less_equal(a, least), value);
}

Tensor glu(const Tensor& a, int dim) {
  check_tensor("glu", a);
  const int at = normalized_dim("glu", dim, a.ndim());
  const int64_t half = a.size(at) / 2;
  if (a.size(at) % 2 != 0)
    fail("glu: dim ", at, " of ", a.shape(), " is ", a.size(at), ", expected an even size");
  return mul(slice(a, at, 0, half), sigmoid(slice(a, at, half, 2 * half)));
}

Tensor normalize(const Tensor& a, double order, int dim, double eps) {
  check_tensor("normalize", a);
  if (a.ndim() == 0) return squeeze(normalize(unsqueeze(a, 0), order, dim, eps), 0);
  return div(a, clip(vector_norm(a, order, {dim}, true), eps));
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int dim, double eps) {
  check_tensor("cosine_similarity", a, b);
  const Tensors both = broadcast_tensors({a, b});
  if (both[0].ndim() == 0) return cosine_similarity(unsqueeze(a, 0), unsqueeze(b, 0), dim, eps);
  return sum(mul(normalize(both[0], 2, dim, eps), normalize(both[1], 2, dim, eps)), {dim});
}

Tensor pairwise_distance(const Tensor& a, const Tensor& b, double order, double eps, bool keepdim) {
  check_tensor("pairwise_distance", a, b);
  return vector_norm(add(sub(a, b), eps), order, {-1}, keepdim);
}

Tensor pdist(const Tensor& a, double order) {
  check_tensor("pdist", a);
  if (a.ndim() != 2) fail("pdist: tensor is ", a.shape(), ", expected 2 dims");
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < a.size(0); ++i) {
    for (int64_t j = i + 1; j < a.size(0); ++j) first.push_back(i), second.push_back(j);
  }
  const auto rows = [&](const std::vector<int64_t>& which) {
    return take(a, from_values(which, {std::ssize(which)}, options_next_to(a, i64)), 0);
  };
  return vector_norm(sub(rows(first), rows(second)), order, {1});
}

Tensor local_response_norm(const Tensor& a, int64_t size, double alpha, double beta, double k) {
  check_tensor("local_response_norm", a);
  if (size < 1) fail("local_response_norm: size must be at least 1, got ", size);
  if (a.ndim() < 3)
    fail("local_response_norm: tensor is ", a.shape(), ", expected at least 3 dims");
  const Tensor squares = pad(mul(a, a), 1, size / 2, (size - 1) / 2);
  Tensor total = slice(squares, 1, 0, a.size(1));
  for (int64_t i = 1; i < size; ++i) total = add(total, slice(squares, 1, i, i + a.size(1)));
  return div(a, pow(add(mul(total, alpha / static_cast<double>(size)), k), beta));
}

Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias) {
  check_tensor("bilinear", a, b, weight);
  if (weight.ndim() != 3 || a.ndim() < 1 || b.ndim() < 1 || weight.size(1) != a.size(-1) ||
      weight.size(2) != b.size(-1)) {
    fail("bilinear: weight is ", weight.shape(), ", expected [o, i, j] for inputs ", a.shape(),
         " and ", b.shape());
  }
  const Tensor y = sum(mul(tensordot(a, weight, {-1}, {1}), unsqueeze(b, -2)), {-1});
  return bias ? add(y, bias) : y;
}

/// Checks a size of images and returns its quotient by `r`.
static int64_t quotient_of(const char* what, const Tensor& a, int dim, int64_t r) {
  if (a.size(dim) % r == 0) return a.size(dim) / r;
  fail(what, ": dim ", a.ndim() + dim, " of ", a.shape(), " is ", a.size(dim),
       ", expected a multiple of ", r);
}

static void check_images(const char* what, const Tensor& a, int dims, int64_t r) {
  check_tensor(what, a);
  if (r < 1) fail(what, ": factor must be at least 1, got ", r);
  if (a.ndim() < dims) fail(what, ": tensor is ", a.shape(), ", expected at least ", dims, " dims");
}

/// a [first, middle...] with `middle` dims instead of the last three, in the order `order` of the
/// last ones, as [first, last...].
static Tensor reordered(const Tensor& a, const std::vector<int64_t>& middle,
                        const std::vector<int>& order, const std::vector<int64_t>& last) {
  const int leading = a.ndim() - 3;
  Shape split, joined;
  std::vector<int> dims;
  for (int d = 0; d < leading; ++d) {
    split.push_back(a.size(d)), joined.push_back(a.size(d));
    dims.push_back(d);
  }
  for (const int64_t size : middle) split.push_back(size);
  for (const int d : order) dims.push_back(leading + d);
  for (const int64_t size : last) joined.push_back(size);
  return reshape(permute(reshape(a, split), dims), joined);
}

Tensor pixel_shuffle(const Tensor& a, int64_t r) {
  check_images("pixel_shuffle", a, 3, r);
  const int64_t channels = quotient_of("pixel_shuffle", a, -3, r * r), h = a.size(-2),
                w = a.size(-1);
  return reordered(a, {channels, r, r, h, w}, {0, 3, 1, 4, 2}, {channels, h * r, w * r});
}

Tensor pixel_unshuffle(const Tensor& a, int64_t r) {
  check_images("pixel_unshuffle", a, 3, r);
  const int64_t h = quotient_of("pixel_unshuffle", a, -2, r),
                w = quotient_of("pixel_unshuffle", a, -1, r);
  const int64_t channels = a.size(-3);
  return reordered(a, {channels, h, r, w, r}, {0, 2, 4, 1, 3}, {channels * r * r, h, w});
}

Tensor channel_shuffle(const Tensor& a, int64_t groups) {
  check_images("channel_shuffle", a, 3, groups);
  const int64_t each = quotient_of("channel_shuffle", a, 1 - a.ndim(), groups);
  Shape split{a.size(0), groups, each};
  for (int d = 2; d < a.ndim(); ++d) split.push_back(a.size(d));
  return reshape(transpose(reshape(a, split), 1, 2), a.shape());
}

/// The element of a dim of n that lies at place s, which may be outside.
static int64_t source_of(int64_t s, int64_t n, std::string_view mode) {
  if (mode == "replicate") return std::clamp<int64_t>(s, 0, n - 1);
  return s < 0 ? -s : s >= n ? 2 * (n - 1) - s : s;
}

Tensor pad_as(const Tensor& given, const std::vector<int64_t>& pads, std::string_view mode) {
  check_tensor("pad", given);
  if (mode != "reflect" && mode != "replicate" && mode != "circular")
    fail("pad: mode is ", in_quotes(mode), ", expected constant, reflect, replicate or circular");
  if (pads.size() % 2 != 0 || std::ssize(pads) / 2 > given.ndim()) {
    fail("pad: number of pads is ", pads.size(), ", expected two for each of up to ", given.ndim(),
         " dims");
  }
  Tensor a = given;
  for (size_t i = 0; i < pads.size(); i += 2) {
    const int dim = given.ndim() - 1 - static_cast<int>(i / 2);
    const int64_t n = given.size(dim), before = pads[i], behind = pads[i + 1];
    const int64_t most = mode == "reflect" ? n - 1 : mode == "circular" ? n : INT64_MAX;
    if (std::max(before, behind) > most) {
      fail("pad: pad of dim ", dim, " is ", std::max(before, behind), ", expected at most ", most,
           " with mode ", in_quotes(mode));
    }
    if (n < 1 || n + before + behind < 0)
      fail("pad: dim ", dim, " of ", given.shape(), " is too small for pads ", before, " and ",
           behind, ", expected at least ", std::max<int64_t>(1, -before - behind));
    // What is removed comes around from nowhere.
    const int64_t first = std::max<int64_t>(0, -before);
    const int64_t kept = n - first - std::max<int64_t>(0, -behind);
    std::vector<int64_t> sources;
    for (int64_t s = -before; s < n + behind; ++s) {
      const int64_t around = kept > 0 ? first + ((s - first) % kept + kept) % kept : first;
      sources.push_back(mode == "circular" ? around : source_of(s, n, mode));
    }
    a = take(a, from_values(sources, {std::ssize(sources)}, options_next_to(a, i64)), dim);
  }
  return a;
}

}  // namespace weft

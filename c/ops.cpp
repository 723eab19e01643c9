// SPDX-License-Identifier: Apache-2.0
#include "weft/c/ops.h"

#include <string_view>
#include <vector>

#include "c/guarded.h"
#include "weft/linalg.h"
#include "weft/ops.h"

namespace weft::c {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using WithNumber = Tensor (*)(const Tensor&, const Number&);
using Reduction = Tensor (*)(const Tensor&, const std::vector<int>&, bool);

static weft_status apply(const char* function, Unary op, weft_tensor a, weft_tensor* result) {
  return makes(function, result, [&](const Call& call) { return op(call.tensor(a, "a")); });
}

static weft_status apply(const char* function, Binary op, weft_tensor a, weft_tensor b,
                         weft_tensor* result) {
  return makes(function, result,
               [&](const Call& call) { return op(call.tensor(a, "a"), call.tensor(b, "b")); });
}

static weft_status apply(const char* function, WithNumber op, weft_tensor a, double b,
                         weft_tensor* result) {
  return makes(function, result, [&](const Call& call) { return op(call.tensor(a, "a"), b); });
}

static weft_status reduce(const char* function, Reduction op, weft_tensor a, int count,
                          const int* dims, int keepdims, weft_tensor* result) {
  return makes(function, result, [&](const Call& call) {
    call.check_at_least(0, count, "count");
    if (count > 0) call.check(dims, "dims");
    return op(call.tensor(a, "a"), std::vector<int>(dims, dims + count), keepdims != 0);
  });
}

}  // namespace weft::c

using weft::c::apply;
using weft::c::Call;
using weft::c::makes;
using weft::c::reduce;

// Each function passes its name on, with which the texts of its errors begin.

weft_status weft_add(weft_tensor a, weft_tensor b, weft_tensor* result) {
  return apply(__func__, weft::add, a, b, result);
}
weft_status weft_sub(weft_tensor a, weft_tensor b, weft_tensor* result) {
  return apply(__func__, weft::sub, a, b, result);
}
weft_status weft_mul(weft_tensor a, weft_tensor b, weft_tensor* result) {
  return apply(__func__, weft::mul, a, b, result);
}
weft_status weft_div(weft_tensor a, weft_tensor b, weft_tensor* result) {
  return apply(__func__, weft::div, a, b, result);
}
weft_status weft_pow(weft_tensor a, weft_tensor b, weft_tensor* result) {
  return apply(__func__, weft::pow, a, b, result);
}
weft_status weft_maximum(weft_tensor a, weft_tensor b, weft_tensor* result) {
  return apply(__func__, weft::maximum, a, b, result);
}
weft_status weft_minimum(weft_tensor a, weft_tensor b, weft_tensor* result) {
  return apply(__func__, weft::minimum, a, b, result);
}
weft_status weft_matmul(weft_tensor a, weft_tensor b, weft_tensor* result) {
  return apply(__func__, weft::matmul, a, b, result);
}
weft_status weft_embedding(weft_tensor weight, weft_tensor ids, weft_tensor* result) {
  return apply(__func__, weft::embedding, weight, ids, result);
}
weft_status weft_add_number(weft_tensor a, double b, weft_tensor* result) {
  return apply(__func__, weft::add, a, b, result);
}
weft_status weft_mul_number(weft_tensor a, double b, weft_tensor* result) {
  return apply(__func__, weft::mul, a, b, result);
}
weft_status weft_pow_number(weft_tensor a, double b, weft_tensor* result) {
  return apply(__func__, weft::pow, a, b, result);
}
weft_status weft_abs(weft_tensor a, weft_tensor* result) {
  return apply(__func__, weft::abs, a, result);
}
weft_status weft_exp(weft_tensor a, weft_tensor* result) {
  return apply(__func__, weft::exp, a, result);
}
weft_status weft_log(weft_tensor a, weft_tensor* result) {
  return apply(__func__, weft::log, a, result);
}
weft_status weft_sqrt(weft_tensor a, weft_tensor* result) {
  return apply(__func__, weft::sqrt, a, result);
}
weft_status weft_tanh(weft_tensor a, weft_tensor* result) {
  return apply(__func__, weft::tanh, a, result);
}
weft_status weft_sigmoid(weft_tensor a, weft_tensor* result) {
  return apply(__func__, weft::sigmoid, a, result);
}
weft_status weft_relu(weft_tensor a, weft_tensor* result) {
  return apply(__func__, weft::relu, a, result);
}
weft_status weft_gelu(weft_tensor a, weft_tensor* result) {
  return apply(__func__, weft::gelu, a, result);
}
weft_status weft_silu(weft_tensor a, weft_tensor* result) {
  return apply(__func__, weft::silu, a, result);
}
weft_status weft_softmax(weft_tensor a, weft_tensor* result) {
  return apply(__func__, weft::softmax, a, result);
}
weft_status weft_sum(weft_tensor a, int count, const int* dims, int keepdims, weft_tensor* result) {
  return reduce(__func__, weft::sum, a, count, dims, keepdims, result);
}
weft_status weft_mean(weft_tensor a, int count, const int* dims, int keepdims,
                      weft_tensor* result) {
  return reduce(__func__, weft::mean, a, count, dims, keepdims, result);
}
weft_status weft_max(weft_tensor a, int count, const int* dims, int keepdims, weft_tensor* result) {
  return reduce(__func__, weft::max, a, count, dims, keepdims, result);
}
weft_status weft_min(weft_tensor a, int count, const int* dims, int keepdims, weft_tensor* result) {
  return reduce(__func__, weft::min, a, count, dims, keepdims, result);
}

weft_status weft_argmax(weft_tensor a, int dim, weft_tensor* result) {
  return makes(__func__, result,
               [&](const Call& call) { return weft::argmax(call.tensor(a, "a"), dim); });
}

weft_status weft_linear(weft_tensor x, weft_tensor w, weft_tensor bias, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    const weft::Tensor& in = call.tensor(x, "x");
    const weft::Tensor& weight = call.tensor(w, "w");
    return bias.id == 0 ? weft::linear(in, weight)
                        : weft::linear(in, weight, call.tensor(bias, "bias"));
  });
}

weft_status weft_einsum(const char* equation, int count, const weft_tensor* operands,
                        weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    call.check(equation, "equation");
    return weft::einsum(equation, call.tensors(count, operands, "operands"));
  });
}

weft_status weft_solve(weft_tensor a, weft_tensor b, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return weft::linalg::solve(call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

weft_status weft_reshape(weft_tensor a, int ndim, const int64_t* shape, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return weft::reshape(call.tensor(a, "a"), call.shape(ndim, shape));
  });
}

weft_status weft_transpose(weft_tensor a, int dim0, int dim1, weft_tensor* result) {
  return makes(__func__, result,
               [&](const Call& call) { return weft::transpose(call.tensor(a, "a"), dim0, dim1); });
}

weft_status weft_slice(weft_tensor a, int dim, int64_t start, int64_t stop, int64_t step,
                       weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return weft::slice(call.tensor(a, "a"), dim, start, stop, step);
  });
}

weft_status weft_cat(int count, const weft_tensor* tensors, int dim, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return weft::cat(call.tensors(count, tensors, "tensors"), dim);
  });
}

weft_status weft_cast(weft_tensor a, weft_dtype dtype, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return weft::cast(call.tensor(a, "a"), call.dtype(dtype));
  });
}

weft_status weft_mse_loss(weft_tensor a, weft_tensor b, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return weft::mse_loss(call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

weft_status weft_cross_entropy(weft_tensor logits, weft_tensor targets, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return weft::cross_entropy(call.tensor(logits, "logits"), call.tensor(targets, "targets"));
  });
}

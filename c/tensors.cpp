// SPDX-License-Identifier: Apache-2.0
#include "weft/c/tensors.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "c/guarded.h"
#include "c/texts.h"
#include "weft/block.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

using weft::DType;
using weft::Shape;
using weft::Tensor;
using weft::c::Call;
using weft::c::guarded;
using weft::c::makes;

static_assert(static_cast<int>(DType::boolean) == WEFT_BOOL && WEFT_C128 + 1 == weft::kDTypes);
static_assert(static_cast<int>(DType::f64) == WEFT_F64 && static_cast<int>(DType::i64) == WEFT_I64);

namespace weft::c {

/// Returns dtype, device and layout of a tensor that a function makes.
static TensorOptions options_in(const Call& call, weft_dtype dtype, weft_mesh mesh,
                                const char* placements, int ndim) {
  TensorOptions options{.dtype = call.dtype(dtype)};
  options.sharding = sharding_in(call, mesh, placements, ndim);
  if (options.sharding) options.device = options.sharding.mesh().device();
  return options;
}

static Tensor from_memory(const Call& call, const void* values, const Shape& shape,
                          const TensorOptions& options) {
  if (shape.product() > 0) call.check(values, "values");
  if (options.dtype == DType::boolean) {
    // Fortran compilers have other bytes than 1 for true.
    const auto* bytes = static_cast<const uint8_t*>(values);
    std::vector<uint8_t> truths(bytes, bytes + shape.product());
    for (uint8_t& truth : truths) truth = truth != 0;
    return from_values(truths.data(), truths.size(), options.dtype, shape, options);
  }
  return from_values(values, static_cast<size_t>(shape.product()), options.dtype, shape, options);
}

/// Copies a tensor's elements, of this rank or whole, to a caller's array.
static void copy_out(const Call& call, const Tensor& tensor, bool is_whole, weft_dtype dtype,
                     int64_t count, void* values) {
  if (call.dtype(dtype) != tensor.dtype()) {
    fail(call.function, ": dtype is ", call.dtype(dtype), ", expected ", tensor.dtype(),
         ", that of the tensor; weft_cast converts it");
  }
  const NoGrad no_grad;
  const int64_t elements = is_whole ? tensor.numel() : tensor.local().numel();
  if (count != elements) {
    fail(call.function, ": count is ", count, ", expected ", elements, ", the elements of ",
         is_whole ? "the tensor" : "this rank's part");
  }
  if (elements > 0) call.check(values, "values");
  const Tensor whole = is_whole && tensor.is_sharded() ? tensor.full_tensor() : tensor.local();
  if (elements == 0) return;
  const Tensor dense = contiguous(whole.to(cpu));
  std::memcpy(values, dense.block().data, static_cast<size_t>(elements) * size_of(dense.dtype()));
}

static void write_dims(const Call& call, const Dims& dims, int capacity, int64_t* to,
                       const char* name) {
  if (capacity < dims.ndim()) {
    fail(call.function, ": capacity is ", capacity, ", expected at least ", dims.ndim(),
         ", the tensor's number of dims");
  }
  if (dims.ndim() > 0) call.check(to, name);
  std::copy(dims.begin(), dims.end(), to);
}

/// Keeps a text until the next one.
static const char* given(std::string text) {
  std::string& kept = ThreadState::current().text;
  kept = std::move(text);
  return kept.c_str();
}

}  // namespace weft::c

weft_status weft_from_array(const void* values, weft_dtype dtype, int ndim, const int64_t* shape,
                            weft_mesh mesh, const char* placements, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return from_memory(call, values, call.shape(ndim, shape),
                       options_in(call, dtype, mesh, placements, ndim));
  });
}

weft_status weft_from_local(const void* values, weft_dtype dtype, int ndim, const int64_t* shape,
                            weft_mesh mesh, const char* placements, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    const weft::DeviceMesh& over = call.mesh(mesh);
    const Tensor part = from_memory(call, values, call.shape(ndim, shape),
                                    {.dtype = call.dtype(dtype), .device = over.device()});
    return weft::from_local(part, over, weft::c::placements_in(call, placements));
  });
}

weft_status weft_full(double value, weft_dtype dtype, int ndim, const int64_t* shape,
                      weft_mesh mesh, const char* placements, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return weft::full(call.shape(ndim, shape), value,
                      options_in(call, dtype, mesh, placements, ndim));
  });
}

weft_status weft_normal(double mean, double deviation, weft_dtype dtype, int ndim,
                        const int64_t* shape, weft_mesh mesh, const char* placements,
                        weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return weft::normal(call.shape(ndim, shape), mean, deviation,
                        options_in(call, dtype, mesh, placements, ndim));
  });
}

weft_status weft_uniform(double low, double high, weft_dtype dtype, int ndim, const int64_t* shape,
                         weft_mesh mesh, const char* placements, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return weft::uniform(call.shape(ndim, shape), low, high,
                         options_in(call, dtype, mesh, placements, ndim));
  });
}

weft_status weft_tensor_free(weft_tensor tensor) {
  return guarded(__func__,
                 [&](const Call& call) { call.free(tensor.id, weft::c::kTensor, "tensor"); });
}

weft_status weft_scope_begin(uint64_t* scope) {
  return guarded(__func__, [&](const Call& call) {
    call.check(scope, "scope");
    *scope = weft::c::last_number();
  });
}

weft_status weft_scope_end(uint64_t scope, int count, const weft_tensor* kept) {
  return guarded(__func__, [&](const Call& call) {
    call.check_at_least(0, count, "count");
    if (count > 0) call.tensors(count, kept, "kept");
    std::erase_if(weft::c::ThreadState::current().objects, [&](const auto& object) {
      const auto is_it = [&](weft_tensor tensor) { return tensor.id == object.first; };
      return (object.first & ~uint64_t{0} >> 8) > scope && !std::any_of(kept, kept + count, is_it);
    });
  });
}

weft_status weft_tensor_dtype(weft_tensor tensor, weft_dtype* dtype) {
  return guarded(__func__, [&](const Call& call) {
    call.check(dtype, "dtype");
    *dtype = static_cast<weft_dtype>(call.tensor(tensor, "tensor").dtype());
  });
}

weft_status weft_tensor_ndim(weft_tensor tensor, int* ndim) {
  return guarded(__func__, [&](const Call& call) {
    call.check(ndim, "ndim");
    *ndim = call.tensor(tensor, "tensor").ndim();
  });
}

weft_status weft_tensor_shape(weft_tensor tensor, int capacity, int64_t* shape) {
  return guarded(__func__, [&](const Call& call) {
    write_dims(call, call.tensor(tensor, "tensor").shape(), capacity, shape, "shape");
  });
}

weft_status weft_tensor_local_shape(weft_tensor tensor, int capacity, int64_t* shape) {
  return guarded(__func__, [&](const Call& call) {
    write_dims(call, call.tensor(tensor, "tensor").local().shape(), capacity, shape, "shape");
  });
}

weft_status weft_tensor_local_offset(weft_tensor tensor, int capacity, int64_t* offset) {
  return guarded(__func__, [&](const Call& call) {
    write_dims(call, call.tensor(tensor, "tensor").box().offset, capacity, offset, "offset");
  });
}

weft_status weft_tensor_describe(weft_tensor tensor, const char** text) {
  return guarded(__func__, [&](const Call& call) {
    call.check(text, "text");
    *text = weft::c::given(weft::concat(call.tensor(tensor, "tensor")));
  });
}

weft_status weft_to_array(weft_tensor tensor, weft_dtype dtype, int64_t count, void* values) {
  return guarded(__func__, [&](const Call& call) {
    copy_out(call, call.tensor(tensor, "tensor"), true, dtype, count, values);
  });
}

weft_status weft_local_to_array(weft_tensor tensor, weft_dtype dtype, int64_t count, void* values) {
  return guarded(__func__, [&](const Call& call) {
    copy_out(call, call.tensor(tensor, "tensor"), false, dtype, count, values);
  });
}

weft_status weft_item(weft_tensor tensor, double* value) {
  return guarded(__func__, [&](const Call& call) {
    call.check(value, "value");
    const Tensor& found = call.tensor(tensor, "tensor");
    if (found.numel() != 1) {
      weft::fail(call.function, ": shape of the tensor is ", found.shape(), ", expected 1 element");
    }
    const weft::NoGrad no_grad;
    *value = (found.is_sharded() ? found.full_tensor() : found).item();
  });
}

weft_status weft_redistribute(weft_tensor tensor, const char* placements, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    return call.tensor(tensor, "tensor").redistribute(weft::c::placements_in(call, placements));
  });
}

weft_status weft_explain(weft_tensor tensor, const char* placements, const char** text) {
  return guarded(__func__, [&](const Call& call) {
    call.check(text, "text");
    *text = weft::c::given(
        weft::explain(call.tensor(tensor, "tensor"), weft::c::placements_in(call, placements)));
  });
}

weft_status weft_set_requires_grad(weft_tensor tensor, int requires_grad) {
  return guarded(__func__, [&](const Call& call) {
    Tensor found = call.tensor(tensor, "tensor");
    found.set_requires_grad(requires_grad != 0);
  });
}

weft_status weft_backward(weft_tensor tensor) {
  return guarded(__func__, [&](const Call& call) { call.tensor(tensor, "tensor").backward(); });
}

weft_status weft_grad(weft_tensor tensor, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    const Tensor gradient = call.tensor(tensor, "tensor").grad();
    if (!gradient) {
      weft::fail(call.function, ": the tensor's gradient is missing, expected one; call ",
                 "weft_set_requires_grad on it, and weft_backward on a result");
    }
    return gradient;
  });
}

weft_status weft_zero_grad(weft_tensor tensor) {
  return guarded(__func__, [&](const Call& call) { call.tensor(tensor, "tensor").set_grad({}); });
}

weft_status weft_assign(weft_tensor to, weft_tensor from) {
  return guarded(__func__, [&](const Call& call) {
    const weft::NoGrad no_grad;
    weft::copy_(call.tensor(to, "to"), call.tensor(from, "from"));
  });
}

// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <filesystem>
#include <thread>

#include "tests/c/calls.h"
#include "tests/support/scratch.h"

namespace weft {

static const std::string kReference = WEFT_SOURCE_DIR "/tests/reference/grouped";

/// Words of the error of a wrong call.
struct WrongUse {
  const char* words;
  std::function<weft_status()> call;
};

/// Expects that each call fails by the caller's mistake and sets no result.
static void expect_refused(const std::vector<WrongUse>& uses) {
  for (const auto& [words, call] : uses) expect_failure(call(), WEFT_INVALID, words);
}

TEST(WrongUses, OfThreadsThatAreNotConnected) {
  std::thread([] {
    EXPECT_STREQ(weft_last_error(), "");
    int number = 0;
    weft_mesh mesh = {0};
    weft_tensor x = {0};
    const double value = 1;
    EXPECT_OK(weft_from_array(&value, WEFT_F64, 0, nullptr, {0}, "", &x));
    expect_refused(
        {{"weft_rank: the calling thread is not connected", [&] { return weft_rank(&number); }},
         {"weft_size: the calling thread is not connected", [&] { return weft_size(&number); }},
         {"weft_barrier: the calling thread is not connected", [] { return weft_barrier(); }},
         {"weft_mesh_create: the calling thread is not",
          [&] { return weft_mesh_create("a", &mesh); }},
         {"weft_save: the calling thread", [&] { return weft_save("/nowhere", 1, "x", 1, &x); }},
         {"weft_run: body is NULL", [] { return weft_run(1, nullptr, nullptr); }},
         {"number of ranks is 0", [] { return weft_run(0, call_function, nullptr); }},
         {"number of ranks is 2000", [] { return weft_run(2000, call_function, nullptr); }},
         {"set_num_threads", [] { return weft_set_num_threads(0); }}});
    EXPECT_OK(weft_disconnect());
  }).join();
}

TEST(WrongUses, OfMeshesAndHandles) {
  on_ranks(2, [] {
    weft_mesh made = {0}, mesh = mesh_of("rows"), freed = mesh_of("rows");
    int number = 0;
    weft_tensor x = tensor_of({1, 2}, {2}), gone = tensor_of({1, 2}, {2}), result = {0};
    EXPECT_OK(weft_mesh_free(freed));
    EXPECT_OK(weft_tensor_free(gone));
    const auto create = [&](const char* axes) { return weft_mesh_create(axes, &made); };
    expect_refused(
        {{"weft_rank: rank is NULL", [] { return weft_rank(nullptr); }},
         {"weft_size: size is NULL", [] { return weft_size(nullptr); }},
         {"weft_mesh_create: result is NULL", [] { return weft_mesh_create("a", nullptr); }},
         {"weft_mesh_create: axes is NULL", [&] { return create(nullptr); }},
         {"expected a form such as", [&] { return create(""); }},
         {"expected a form such as", [&] { return create("=2"); }},
         {"sizes of at least 1", [&] { return create("rows=0"); }},
         {"sizes of at least 1", [&] { return create("rows=two"); }},
         {"sizes of at least 1", [&] { return create("rows=99999999999"); }},
         {"at most one axis without a size", [&] { return create("a,b"); }},
         {"7", [&] { return create("rows=7"); }},
         {"\"a\"", [&] { return create("a=1,a=2"); }},
         {"columns", [&] { return weft_mesh_axis_size(mesh, "columns", &number); }},
         {"axis is NULL", [&] { return weft_mesh_axis_size(mesh, nullptr, &number); }},
         {"size is NULL", [&] { return weft_mesh_axis_size(mesh, "rows", nullptr); }},
         {"coordinate is NULL", [&] { return weft_mesh_coordinate(mesh, "rows", nullptr); }},
         {"mesh is an empty handle", [&] { return weft_mesh_coordinate({0}, "rows", &number); }},
         {"mesh is freed", [&] { return weft_mesh_axis_size(freed, "rows", &number); }},
         {"weft_mesh_free: mesh is freed", [&] { return weft_mesh_free(freed); }},
         {"weft_tensor_free: tensor is freed", [&] { return weft_tensor_free(gone); }},
         {"weft_exp: a is freed", [&] { return weft_exp(gone, &result); }},
         {"weft_add: b is an empty handle", [&] { return weft_add(x, {0}, &result); }},
         {"a is a mesh, expected a tensor", [&] { return weft_exp({mesh.id}, &result); }},
         {"mesh is a tensor, expected a mesh", [&] { return weft_mesh_free({x.id}); }},
         {"a is not a handle", [&] { return weft_exp({0x1234}, &result); }},
         {"a is freed or of another", [&] { return weft_exp({x.id + 1000000}, &result); }},
         {"model is a tensor", [&] { return weft_model_free({x.id}); }}});
    EXPECT_EQ(result.id, 0);
    EXPECT_EQ(made.id, 0);
    std::thread([&] {
      expect_failure(weft_exp(x, &result), WEFT_INVALID,
                     "weft_exp: a is freed or of another thread");
    }).join();
  });
}

TEST(WrongUses, OfArrays) {
  on_ranks(2, [] {
    int rank = 0;
    EXPECT_OK(weft_rank(&rank));
    const weft_mesh mesh = mesh_of("rows");
    const std::vector<double> values(12, 1);
    weft_tensor made = {0}, x = tensor_of(values, {4, 3}, mesh, "S(0)");
    const auto from = [&](int ndim, Sizes shape, weft_mesh over, const char* placements,
                          int dtype = WEFT_F64) {
      return weft_from_array(values.data(), dtype, ndim, shape.data(), over, placements, &made);
    };
    const Sizes sizes = {4, 3};
    std::vector<double> array(12);
    int64_t one[1];
    expect_refused(
        {{"values is NULL",
          [&] { return weft_from_array(nullptr, WEFT_F64, 2, sizes.data(), mesh, "", &made); }},
         {"result is NULL",
          [&] {
            return weft_from_array(values.data(), WEFT_F64, 2, sizes.data(), mesh, "", nullptr);
          }},
         {"shape is NULL",
          [&] { return weft_from_array(values.data(), WEFT_F64, 2, nullptr, mesh, "", &made); }},
         {"ndim is -1", [&] { return from(-1, {}, mesh, ""); }},
         {"ndim is 33", [&] { return from(33, Sizes(33, 1), mesh, ""); }},
         {"shape[1] must be at least 0, got -3",
          [&] {
            return from(2, {4, -3}, mesh, "");
          }},
         {"expected fewer than 2^60 elements",
          [&] {
            return from(3, {1LL << 40, 1LL << 40, 1}, mesh, "");
          }},
         {"dtype is 17, expected 0 to 16", [&] { return from(2, sizes, mesh, "", 17); }},
         {"without a mesh", [&] { return from(2, sizes, {0}, "S(0)"); }},
         {"placement is \"X\", expected R, S(0)", [&] { return from(2, sizes, mesh, "X"); }},
         {"placement is \"S(0\"", [&] { return from(2, sizes, mesh, "S(0"); }},
         {"placement is \"S(0: 1+)\"", [&] { return from(2, sizes, mesh, "S(0: 1+)"); }},
         {"placement is \"P(prod)\"", [&] { return from(2, sizes, mesh, "P(prod)"); }},
         {"placement is \"\"", [&] { return from(2, sizes, mesh, "R,"); }},
         {"S(5)", [&] { return from(2, sizes, mesh, "S(5)"); }},
         {"S(0: 1+4)", [&] { return from(2, sizes, mesh, "S(0: 1+4)"); }},
         {"number of placements is 2", [&] { return from(2, sizes, mesh, "R,R"); }},
         {"columns", [&] { return from(2, sizes, mesh, "columns=S(0)"); }},
         {"before all of them or before none", [&] { return from(2, sizes, mesh, "rows=S(0),R"); }},
         {"mesh is an empty handle",
          [&] {
            return weft_from_local(values.data(), WEFT_F64, 2, sizes.data(), {0}, "", &made);
          }},
         {"dtype is f32, expected f64",
          [&] { return weft_to_array(x, WEFT_F32, 12, array.data()); }},
         {"count is 11, expected 12", [&] { return weft_to_array(x, WEFT_F64, 11, array.data()); }},
         {"values is NULL", [&] { return weft_to_array(x, WEFT_F64, 12, nullptr); }},
         {"expected 6, the elements of this rank's part",
          [&] { return weft_local_to_array(x, WEFT_F64, 12, array.data()); }},
         {"capacity is 1, expected at least 2", [&] { return weft_tensor_shape(x, 1, one); }},
         {"shape is NULL", [&] { return weft_tensor_local_shape(x, 2, nullptr); }},
         {"offset is NULL", [&] { return weft_tensor_local_offset(x, 2, nullptr); }},
         {"ndim is NULL", [&] { return weft_tensor_ndim(x, nullptr); }},
         {"dtype is NULL", [&] { return weft_tensor_dtype(x, nullptr); }},
         {"text is NULL", [&] { return weft_tensor_describe(x, nullptr); }},
         {"text is NULL", [&] { return weft_explain(x, "R", nullptr); }},
         {"expected 1 element", [&] { return weft_item(x, array.data()); }},
         {"value is NULL", [&] { return weft_item(x, nullptr); }},
         {"redistribute", [&] { return weft_redistribute(tensor_of(values, sizes), "R", &made); }},
         {"placement is", [&] { return weft_redistribute(x, "T(0)", &made); }}});
    // Parts whose other sizes differ.
    const int64_t mine[] = {2, 3 + rank};
    expect_refused(
        {{"from_local",
          [&] { return weft_from_local(values.data(), WEFT_F64, 2, mine, mesh, "S(0)", &made); }}});
    EXPECT_EQ(made.id, 0);
  });
}

TEST(WrongUses, OfOperations) {
  on_ranks(2, [] {
    const weft_mesh rows = mesh_of("rows"), columns = mesh_of("columns");
    const std::vector<double> values(12, 1);
    weft_tensor made = {0}, x = tensor_of(values, {4, 3}, rows, "S(0)");
    const weft_tensor other = tensor_of(values, {4, 3}, columns, "S(0)");
    const weft_tensor long_row = tensor_of(values, {1, 12}, rows);
    const weft_tensor square = tensor_of(std::vector<double>(9, 1), {3, 3}, rows);
    weft_tensor whole = {0};
    EXPECT_OK(weft_cast(x, WEFT_I64, &whole));
    const int seven = 7;
    const int64_t five = 5;
    const weft_tensor both[] = {x, {0}};
    weft_tensor leaf = tensor_of(values, {4, 3}, rows, "S(0)"), derived = {0};
    EXPECT_OK(weft_set_requires_grad(leaf, 1));
    EXPECT_OK(weft_exp(leaf, &derived));
    expect_refused(
        {{"weft_add: result is NULL", [&] { return weft_add(x, x, nullptr); }},
         {"add", [&] { return weft_add(x, long_row, &made); }},
         {"matmul", [&] { return weft_matmul(x, x, &made); }},
         {"mesh", [&] { return weft_add(x, other, &made); }},
         {"7", [&] { return weft_sum(x, 1, &seven, 0, &made); }},
         {"dims is NULL", [&] { return weft_sum(x, 1, nullptr, 0, &made); }},
         {"count must be at least 0, got -1", [&] { return weft_sum(x, -1, &seven, 0, &made); }},
         {"argmax", [&] { return weft_argmax(x, 2, &made); }},
         {"reshape", [&] { return weft_reshape(x, 1, &five, &made); }},
         {"transpose", [&] { return weft_transpose(x, 0, 2, &made); }},
         {"slice", [&] { return weft_slice(x, 0, 0, 4, 0, &made); }},
         {"count must be at least 1, got 0", [&] { return weft_cat(0, both, 0, &made); }},
         {"tensors is NULL", [&] { return weft_cat(2, nullptr, 0, &made); }},
         {"tensors[1] is an empty handle", [&] { return weft_cat(2, both, 0, &made); }},
         {"equation is NULL", [&] { return weft_einsum(nullptr, 1, both, &made); }},
         {"einsum", [&] { return weft_einsum("ij,jk->", 1, both, &made); }},
         {"dtype is 99", [&] { return weft_cast(x, 99, &made); }},
         {"singular",
          [&] {
            return weft_solve(square, tensor_of(values, {3, 4}, rows), &made);
          }},
         {"linear", [&] { return weft_linear(x, long_row, {0}, &made); }},
         {"embedding", [&] { return weft_embedding(x, x, &made); }},
         {"cross_entropy", [&] { return weft_cross_entropy(x, long_row, &made); }},
         {"mse_loss", [&] { return weft_mse_loss(x, long_row, &made); }},
         {"requires_grad", [&] { return weft_set_requires_grad(derived, 0); }},
         {"requires_grad", [&] { return weft_set_requires_grad(whole, 1); }},
         {"backward", [&] { return weft_backward(derived); }},
         {"backward", [&] { return weft_backward(x); }},
         {"gradient is missing", [&] { return weft_grad(x, &made); }},
         {"weft_assign: from is an empty handle", [&] { return weft_assign(x, {0}); }},
         {"copy_", [&] { return weft_assign(x, long_row); }}});
    EXPECT_EQ(made.id, 0);
  });
}

TEST(WrongUses, OfFilesAndModels) {
  const Scratch scratch;
  const std::string folder = scratch.path("run"), file = scratch.write("file", "no checkpoint");
  on_ranks(2, [&] {
    const weft_mesh mesh = mesh_of("tp");
    weft_model model = {0}, none = {0};
    EXPECT_OK(weft_model_load(kReference.c_str(), mesh, &model));
    weft_tensor x = tensor_of({1, 2, 3}, {3}, mesh), made = {0}, ids = {0};
    const weft_tensor both[] = {x, x};
    EXPECT_OK(weft_save(folder.c_str(), 5, "x", 1, &x));
    EXPECT_OK(weft_cast(tensor_of({1, 2, 300, 4}, {2, 2}, mesh), WEFT_I64, &ids));
    weft_tensor single = {0};
    EXPECT_OK(weft_cast(x, WEFT_F32, &single));
    const weft_tensor other = tensor_of({1, 2}, {2}, mesh);
    const int64_t prompt[] = {1}, beyond[] = {1000};
    std::array<int64_t, 4> tokens;
    int64_t written = 0;
    const auto generate = [&](int64_t count, const int64_t* start, double temperature,
                              int64_t most) {
      return weft_model_generate(model, count, start, temperature, 0, most, tokens.data(),
                                 &written);
    };
    const std::string nowhere = scratch.path("nowhere");
    expect_refused(
        {{"nowhere is missing", [&] { return weft_model_load(nowhere.c_str(), mesh, &none); }},
         {"has no weights", [&] { return weft_model_load(scratch.root().c_str(), mesh, &none); }},
         {"directory is NULL", [&] { return weft_model_load(nullptr, mesh, &none); }},
         {"mesh is an empty handle",
          [&] { return weft_model_load(kReference.c_str(), {0}, &none); }},
         {"result is NULL", [&] { return weft_model_load(kReference.c_str(), mesh, nullptr); }},
         {"model is an empty handle", [&] { return weft_model_forward(none, ids, &made); }},
         {"ids", [&] { return weft_model_forward(model, x, &made); }},
         {"300", [&] { return weft_model_forward(model, ids, &made); }},
         {"count must be at least 1, got 0", [&] { return generate(0, prompt, 0, 4); }},
         {"ids is NULL", [&] { return generate(1, nullptr, 0, 4); }},
         {"most must be at least 1, got 0", [&] { return generate(1, prompt, 0, 0); }},
         {"temperature", [&] { return generate(1, prompt, -1, 4); }},
         {"1000", [&] { return generate(1, beyond, 0, 4); }},
         {"nowhere", [&] { return weft_load(nowhere.c_str(), "x", 1, &x); }},
         {"path is NULL", [&] { return weft_load(nullptr, "x", 1, &x); }},
         {"file", [&] { return weft_load(file.c_str(), "x", 1, &x); }},
         {"tensor \"y\" is not in", [&] { return weft_load(folder.c_str(), "y", 1, &x); }},
         {"expected f32 [3]", [&] { return weft_load(folder.c_str(), "x", 1, &single); }},
         {"expected f64 [2]", [&] { return weft_load(folder.c_str(), "x", 1, &other); }},
         {"expected 2, one for each", [&] { return weft_load(folder.c_str(), "x", 2, both); }},
         {"expected different ones", [&] { return weft_load(folder.c_str(), "x,x", 2, both); }},
         {"expected different ones", [&] { return weft_load(folder.c_str(), "x,", 2, both); }},
         {"names is NULL", [&] { return weft_load(folder.c_str(), nullptr, 1, &x); }},
         {"tensor \"z\" is not in",
          [&] { return weft_load_tensor(folder.c_str(), "z", mesh, "", &made); }},
         {"name is NULL",
          [&] { return weft_load_tensor(folder.c_str(), nullptr, mesh, "", &made); }},
         {"step must be at least 0", [&] { return weft_save(folder.c_str(), -1, "x", 1, &x); }},
         {"directory is NULL", [&] { return weft_save(nullptr, 1, "x", 1, &x); }},
         {"file", [&] { return weft_save(file.c_str(), 1, "x", 1, &x); }},
         {"tensors is NULL", [&] { return weft_save(folder.c_str(), 6, "x", 1, nullptr); }}});
    EXPECT_EQ(values_of(x), (std::vector<double>{1, 2, 3}));
    EXPECT_EQ(made.id, 0);
    EXPECT_EQ(none.id, 0);
  });
}

/// Returns a failure on rank 1, the status of a barrier on the others.
static weft_status fail_on_rank_1(void* data) {
  int rank = 0;
  if (weft_rank(&rank) != WEFT_OK) return WEFT_FAILED;
  if (rank != 1) return weft_barrier();
  weft_tensor result = {0};
  return data ? WEFT_MEMORY : weft_exp({0}, &result);
}

TEST(WrongUses, OfOneRankEndTheOthers) {
  expect_failure(weft_run(3, fail_on_rank_1, nullptr), WEFT_INVALID, "weft_exp: a is an empty");
  int data = 0;
  expect_failure(weft_run(3, fail_on_rank_1, &data), WEFT_FAILED,
                 "weft_run: the body of rank 1 returned status 4");
}

}  // namespace weft

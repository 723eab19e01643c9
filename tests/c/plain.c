/* SPDX-License-Identifier: Apache-2.0 */
/* A program of C11: solves least squares whose rows are on several ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

static void check(weft_status status, int line) {
  if (status == WEFT_OK) return;
  fprintf(stderr, "line %d: status %d: %s\n", line, (int)status, weft_last_error());
  exit(1);
}
#define CHECK(call) check(call, __LINE__)

int main(void) {
  double part[3 * 2], found[2];
  int rank, size;
  weft_mesh mesh = {0};
  weft_tensor a = {0}, at = {0}, gram = {0}, x = {0}, b = {0}, atb = {0};
  const int64_t shape[] = {3, 2}, solution_shape[] = {2, 1};
  const double solution[] = {2, -3};

  if (strlen(weft_version()) < 5) return 1;
  if (weft_rank(&rank) != WEFT_INVALID || !strstr(weft_last_error(), "weft_rank: ")) return 1;
  CHECK(weft_connect());
  CHECK(weft_connect());
  CHECK(weft_rank(&rank));
  CHECK(weft_size(&size));
  for (int i = 0; i < 3; ++i) {
    part[2 * i] = 1.0 / (3 * rank + i + 1);
    part[2 * i + 1] = (3 * rank + i) % 2 ? 0.5 : -1;
  }
  CHECK(weft_mesh_create("rows", &mesh));
  CHECK(weft_from_local(part, WEFT_F64, 2, shape, mesh, "S(0)", &a));
  CHECK(weft_from_array(solution, WEFT_F64, 2, solution_shape, mesh, NULL, &x));
  CHECK(weft_matmul(a, x, &b));
  CHECK(weft_transpose(a, 0, 1, &at));
  CHECK(weft_matmul(at, a, &gram));
  CHECK(weft_matmul(at, b, &atb));
  CHECK(weft_tensor_free(x));
  CHECK(weft_solve(gram, atb, &x));
  CHECK(weft_to_array(x, WEFT_F64, 2, found));
  if ((found[0] - 2) * (found[0] - 2) > 1e-24 || (found[1] + 3) * (found[1] + 3) > 1e-24) return 1;
  CHECK(weft_disconnect());
  if (weft_tensor_free(a) != WEFT_INVALID) return 1;
  CHECK(weft_tensor_free((weft_tensor){0}));
  /* Handles that are left at the end of the program do no harm. */
  CHECK(weft_connect());
  CHECK(weft_mesh_create("rows", &mesh));
  CHECK(weft_full(1, WEFT_F32, 2, shape, mesh, "S(0)", &a));
  return 0;
}

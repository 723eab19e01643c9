/* SPDX-License-Identifier: Apache-2.0 */
/* Fits a polynomial to 1000 points, of which each rank holds some, in C. Run it alone, or on several
   ranks: weft run -n 3 -- ./c_least_squares. The output is the same. */
#include <stdio.h>
#include <stdlib.h>
#include <weft.h>

enum { POINTS = 1000, COEFFICIENTS = 4 };

/* Ends the program with the text of a call that failed; the other ranks end, too. */
static void check(weft_status status) {
  if (status == WEFT_OK) return;
  fprintf(stderr, "%s\n", weft_last_error());
  exit(1);
}

/* Point i: t in [-1, 1), y = 1 - 2 t + 3 t^2 and a deviation of up to 0.05. */
static double t_of(int i) { return 2.0 * i / POINTS - 1; }
static double y_of(int i) {
  const double t = t_of(i);
  return 1 - 2 * t + 3 * t * t + 0.1 * ((i * 37 % 100) / 99.0 - 0.5);
}

int main(void) {
  int rank, size;
  check(weft_connect());
  check(weft_rank(&rank));
  check(weft_size(&size));

  /* This rank's points, in memory of the program: rows [1, t, t^2, t^3]. */
  const int begin = POINTS * rank / size, end = POINTS * (rank + 1) / size, mine = end - begin;
  double* rows = malloc(sizeof(double) * (size_t)mine * COEFFICIENTS);
  double* values = malloc(sizeof(double) * (size_t)mine);
  if (!rows || !values) return 1;
  for (int i = 0; i < mine; ++i) {
    double power = 1;
    for (int j = 0; j < COEFFICIENTS; ++j) {
      rows[i * COEFFICIENTS + j] = power;
      power *= t_of(begin + i);
    }
    values[i] = y_of(begin + i);
  }

  weft_mesh mesh = {0};
  weft_tensor a = {0}, b = {0}, at = {0}, gram = {0}, right = {0}, x = {0}, fit = {0}, loss = {0};
  const int64_t shape_of_a[] = {mine, COEFFICIENTS}, shape_of_b[] = {mine, 1};
  check(weft_mesh_create("rows", &mesh));
  check(weft_from_local(rows, WEFT_F64, 2, shape_of_a, mesh, "S(0)", &a));
  check(weft_from_local(values, WEFT_F64, 2, shape_of_b, mesh, "S(0)", &b));
  free(rows);
  free(values);

  /* The normal equations a^T a x = a^T b: each rank multiplies its rows, and the sums of the 4 x 4
     results are all that the ranks exchange. */
  check(weft_transpose(a, 0, 1, &at));
  check(weft_matmul(at, a, &gram));
  check(weft_matmul(at, b, &right));
  check(weft_solve(gram, right, &x));
  check(weft_matmul(a, x, &fit));
  check(weft_mse_loss(fit, b, &loss));

  double coefficients[COEFFICIENTS], mean_square = 0;
  check(weft_to_array(x, WEFT_F64, COEFFICIENTS, coefficients));
  check(weft_item(loss, &mean_square));
  if (rank == 0) {
    printf("y = %.4f %+.4f t %+.4f t^2 %+.4f t^3\n", coefficients[0], coefficients[1],
           coefficients[2], coefficients[3]);
    printf("mean of squared deviations: %.3e\n", mean_square);
  }
  check(weft_disconnect()); /* frees all handles */
  return 0;
}

! SPDX-License-Identifier: Apache-2.0
! Columns of air: in each time step, Fortran computes the diffusion along each column, and a network
! that runs in weft adds the heating. Each rank has some of the columns. Run it alone, or on several
! ranks: weft run -n 3 -- ./fortran_columns. The output is the same.
program fortran_columns
  use weft
  implicit none
  integer, parameter :: levels = 16, hidden = 24, columns = 10, steps = 50
  real(c_double), parameter :: dt = 0.05_c_double
  integer(c_int) :: rank, ranks
  integer(c_int64_t) :: scope
  integer :: first, last, step
  real(c_double), allocatable :: t(:, :), heating(:, :)
  real(c_double) :: mean, difference
  type(weft_mesh) :: mesh
  ! A network of two layers, tanh(x w1^T + b1) w2^T + b2. Here its weights are random;
  ! weft_load_tensor reads those of a trained one from a file.
  type(weft_tensor) :: w1, b1, w2, b2, state, average

  call weft_check(weft_connect())
  call weft_check(weft_rank(rank))
  call weft_check(weft_size(ranks))
  call weft_check(weft_mesh_create("columns"//c_null_char, mesh))
  call weft_check(weft_manual_seed(1_c_int64_t))
  call make(w1, [hidden, levels])
  call make(b1, [hidden])
  call make(w2, [levels, hidden])
  call make(b2, [levels])

  first = columns*rank/ranks + 1
  last = columns*(rank + 1)/ranks
  allocate (t(levels, first:last), heating(levels, first:last))
  call start(t)

  do step = 1, steps
    call weft_check(weft_scope_begin(scope))
    call network(t, heating)
    if (step == 1) difference = maxval(abs(heating - by_loops(t)))
    t = t + dt*(diffusion(t) + heating)
    if (step == steps) then
      state = tensor_of(t)
      call weft_check(weft_mean(state, 0, [0], 0, average))
      call weft_check(weft_item(average, mean))
    end if
    call weft_check(weft_scope_end(scope, 0, [state]))
  end do

  if (difference > 1e-12_c_double) error stop 'the network differs from its loops'
  if (rank == 0) print '(a, i0, a, f0.8)', 'mean temperature after ', steps, ' steps: ', mean
  call weft_check(weft_disconnect())

contains

  !> Makes a tensor of random weights, equal on all ranks.
  subroutine make(tensor, shape)
    type(weft_tensor), intent(inout) :: tensor
    integer, intent(in) :: shape(:)
    call weft_check(weft_normal(0.0_c_double, 0.2_c_double, WEFT_F64, size(shape), &
        int(shape, c_int64_t), mesh, c_null_char, tensor))
  end subroutine

  subroutine start(x)
    real(c_double), intent(out) :: x(:, first:)
    integer :: level, column
    do column = first, last
      do level = 1, levels
        x(level, column) = sin(0.3_c_double*level) + 0.1_c_double*column
      end do
    end do
  end subroutine

  !> The columns of all ranks as one tensor [columns, levels], of which each rank has a part.
  function tensor_of(x) result(tensor)
    real(c_double), intent(in), contiguous :: x(:, :)
    type(weft_tensor) :: tensor
    call weft_check(weft_from_local(x, WEFT_F64, 2, int([size(x, 2), levels], c_int64_t), mesh, &
        "S(0)"//c_null_char, tensor))
  end function

  !> Sets y to the network's results for this rank's columns.
  subroutine network(x, y)
    real(c_double), intent(in), contiguous :: x(:, :)
    real(c_double), intent(out), contiguous :: y(:, :)
    type(weft_tensor) :: inner, outer
    call weft_check(weft_linear(tensor_of(x), w1, b1, inner))
    call weft_check(weft_tanh(inner, outer))
    call weft_check(weft_linear(outer, w2, b2, inner))
    call weft_check(weft_local_to_array(inner, WEFT_F64, size(y, kind=c_int64_t), y))
  end subroutine

  !> The same, by Fortran.
  function by_loops(x) result(y)
    real(c_double), intent(in) :: x(:, :)
    real(c_double) :: y(levels, size(x, 2))
    real(c_double) :: a1(levels, hidden), c1(hidden), a2(hidden, levels), c2(levels)
    integer :: column
    call weft_check(weft_to_array(w1, WEFT_F64, size(a1, kind=c_int64_t), a1))
    call weft_check(weft_to_array(b1, WEFT_F64, size(c1, kind=c_int64_t), c1))
    call weft_check(weft_to_array(w2, WEFT_F64, size(a2, kind=c_int64_t), a2))
    call weft_check(weft_to_array(b2, WEFT_F64, size(c2, kind=c_int64_t), c2))
    do column = 1, size(x, 2)
      y(:, column) = matmul(tanh(matmul(x(:, column), a1) + c1), a2) + c2
    end do
  end function

  !> The second difference along each column, whose ends are insulated.
  function diffusion(x) result(change)
    real(c_double), intent(in) :: x(:, :)
    real(c_double) :: change(size(x, 1), size(x, 2))
    change(2:levels - 1, :) = x(3:levels, :) - 2*x(2:levels - 1, :) + x(1:levels - 2, :)
    change(1, :) = x(2, :) - x(1, :)
    change(levels, :) = x(levels - 1, :) - x(levels, :)
  end function
end program

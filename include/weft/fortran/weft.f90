! SPDX-License-Identifier: Apache-2.0
! weft in Fortran: the functions of <weft.h>, which documents them, under the same names. Each
! returns a status; weft_check stops the program with the text of one that is not WEFT_OK.
!
! Texts that are passed to weft end with c_null_char; "" // c_null_char stands for NULL. Arrays are
! contiguous. weft sees the dims of a Fortran array in reverse order: a(m, n) is [n, m], and its
! placement S(0) cuts the last dim of Fortran, n.
module weft
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  implicit none
  private :: error_unit

  integer(c_int), parameter :: WEFT_OK = 0, WEFT_INVALID = 1, WEFT_FAILED = 2, &
      WEFT_COMMUNICATION = 3, WEFT_MEMORY = 4
  integer(c_int), parameter :: WEFT_F32 = 0, WEFT_BF16 = 1, WEFT_F16 = 2, WEFT_F64 = 3, &
      WEFT_I32 = 4, WEFT_I64 = 5, WEFT_U8 = 6, WEFT_BOOL = 7, WEFT_I8 = 8, WEFT_I16 = 9, &
      WEFT_U16 = 10, WEFT_U32 = 11, WEFT_U64 = 12, WEFT_F8_E4M3 = 13, WEFT_F8_E5M2 = 14, &
      WEFT_C64 = 15, WEFT_C128 = 16

  type, bind(c) :: weft_mesh
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: weft_tensor
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: weft_model
    integer(c_int64_t) :: id = 0
  end type

  interface
    type(c_ptr) function weft_version() bind(c)
      import
    end function
    type(c_ptr) function weft_last_error() bind(c)
      import
    end function
    integer(c_int) function weft_connect() bind(c)
      import
    end function
    integer(c_int) function weft_disconnect() bind(c)
      import
    end function
    integer(c_int) function weft_run(ranks, body, data) bind(c)
      import
      integer(c_int), value :: ranks
      type(c_funptr), value :: body
      type(c_ptr), value :: data
    end function
    integer(c_int) function weft_rank(rank) bind(c)
      import
      integer(c_int), intent(out) :: rank
    end function
    integer(c_int) function weft_size(size) bind(c)
      import
      integer(c_int), intent(out) :: size
    end function
    integer(c_int) function weft_barrier() bind(c)
      import
    end function
    integer(c_int) function weft_manual_seed(seed) bind(c)
      import
      integer(c_int64_t), value :: seed
    end function
    integer(c_int) function weft_set_num_threads(threads) bind(c)
      import
      integer(c_int), value :: threads
    end function
    integer(c_int) function weft_mesh_create(axes, mesh) bind(c)
      import
      character(kind=c_char), intent(in) :: axes(*)
      type(weft_mesh), intent(inout) :: mesh
    end function
    integer(c_int) function weft_mesh_axis_size(mesh, axis, size) bind(c)
      import
      type(weft_mesh), value :: mesh
      character(kind=c_char), intent(in) :: axis(*)
      integer(c_int), intent(out) :: size
    end function
    integer(c_int) function weft_mesh_coordinate(mesh, axis, coordinate) bind(c)
      import
      type(weft_mesh), value :: mesh
      character(kind=c_char), intent(in) :: axis(*)
      integer(c_int), intent(out) :: coordinate
    end function
    integer(c_int) function weft_mesh_free(mesh) bind(c)
      import
      type(weft_mesh), value :: mesh
    end function
    integer(c_int) function weft_from_array( &
        values, dtype, ndim, shape, mesh, placements, result) bind(c)
      import
      type(*), intent(in) :: values(*)
      integer(c_int), value :: dtype, ndim
      integer(c_int64_t), intent(in) :: shape(*)
      type(weft_mesh), value :: mesh
      character(kind=c_char), intent(in) :: placements(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_from_local( &
        values, dtype, ndim, shape, mesh, placements, result) bind(c)
      import
      type(*), intent(in) :: values(*)
      integer(c_int), value :: dtype, ndim
      integer(c_int64_t), intent(in) :: shape(*)
      type(weft_mesh), value :: mesh
      character(kind=c_char), intent(in) :: placements(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_full(value, dtype, ndim, shape, mesh, placements, result) bind(c)
      import
      real(c_double), value :: value
      integer(c_int), value :: dtype, ndim
      integer(c_int64_t), intent(in) :: shape(*)
      type(weft_mesh), value :: mesh
      character(kind=c_char), intent(in) :: placements(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_normal( &
        mean, deviation, dtype, ndim, shape, mesh, placements, result) bind(c)
      import
      real(c_double), value :: mean, deviation
      integer(c_int), value :: dtype, ndim
      integer(c_int64_t), intent(in) :: shape(*)
      type(weft_mesh), value :: mesh
      character(kind=c_char), intent(in) :: placements(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_uniform( &
        low, high, dtype, ndim, shape, mesh, placements, result) bind(c)
      import
      real(c_double), value :: low, high
      integer(c_int), value :: dtype, ndim
      integer(c_int64_t), intent(in) :: shape(*)
      type(weft_mesh), value :: mesh
      character(kind=c_char), intent(in) :: placements(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_tensor_free(tensor) bind(c)
      import
      type(weft_tensor), value :: tensor
    end function
    integer(c_int) function weft_scope_begin(scope) bind(c)
      import
      integer(c_int64_t), intent(out) :: scope
    end function
    integer(c_int) function weft_scope_end(scope, count, kept) bind(c)
      import
      integer(c_int64_t), value :: scope
      integer(c_int), value :: count
      type(weft_tensor), intent(in) :: kept(*)
    end function
    integer(c_int) function weft_tensor_dtype(tensor, dtype) bind(c)
      import
      type(weft_tensor), value :: tensor
      integer(c_int), intent(out) :: dtype
    end function
    integer(c_int) function weft_tensor_ndim(tensor, ndim) bind(c)
      import
      type(weft_tensor), value :: tensor
      integer(c_int), intent(out) :: ndim
    end function
    integer(c_int) function weft_tensor_shape(tensor, capacity, shape) bind(c)
      import
      type(weft_tensor), value :: tensor
      integer(c_int), value :: capacity
      integer(c_int64_t), intent(inout) :: shape(*)
    end function
    integer(c_int) function weft_tensor_local_shape(tensor, capacity, shape) bind(c)
      import
      type(weft_tensor), value :: tensor
      integer(c_int), value :: capacity
      integer(c_int64_t), intent(inout) :: shape(*)
    end function
    integer(c_int) function weft_tensor_local_offset(tensor, capacity, offset) bind(c)
      import
      type(weft_tensor), value :: tensor
      integer(c_int), value :: capacity
      integer(c_int64_t), intent(inout) :: offset(*)
    end function
    integer(c_int) function weft_tensor_describe(tensor, text) bind(c)
      import
      type(weft_tensor), value :: tensor
      type(c_ptr), intent(out) :: text
    end function
    integer(c_int) function weft_to_array(tensor, dtype, count, values) bind(c)
      import
      type(weft_tensor), value :: tensor
      integer(c_int), value :: dtype
      integer(c_int64_t), value :: count
      type(*) :: values(*)
    end function
    integer(c_int) function weft_local_to_array(tensor, dtype, count, values) bind(c)
      import
      type(weft_tensor), value :: tensor
      integer(c_int), value :: dtype
      integer(c_int64_t), value :: count
      type(*) :: values(*)
    end function
    integer(c_int) function weft_item(tensor, value) bind(c)
      import
      type(weft_tensor), value :: tensor
      real(c_double), intent(out) :: value
    end function
    integer(c_int) function weft_redistribute(tensor, placements, result) bind(c)
      import
      type(weft_tensor), value :: tensor
      character(kind=c_char), intent(in) :: placements(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_explain(tensor, placements, text) bind(c)
      import
      type(weft_tensor), value :: tensor
      character(kind=c_char), intent(in) :: placements(*)
      type(c_ptr), intent(out) :: text
    end function
    integer(c_int) function weft_set_requires_grad(tensor, requires_grad) bind(c)
      import
      type(weft_tensor), value :: tensor
      integer(c_int), value :: requires_grad
    end function
    integer(c_int) function weft_backward(tensor) bind(c)
      import
      type(weft_tensor), value :: tensor
    end function
    integer(c_int) function weft_grad(tensor, result) bind(c)
      import
      type(weft_tensor), value :: tensor
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_zero_grad(tensor) bind(c)
      import
      type(weft_tensor), value :: tensor
    end function
    integer(c_int) function weft_assign(to, from) bind(c)
      import
      type(weft_tensor), value :: to, from
    end function
    integer(c_int) function weft_add(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a, b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_sub(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a, b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_mul(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a, b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_div(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a, b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_pow(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a, b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_maximum(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a, b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_minimum(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a, b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_add_number(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a
      real(c_double), value :: b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_mul_number(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a
      real(c_double), value :: b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_pow_number(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a
      real(c_double), value :: b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_abs(a, result) bind(c)
      import
      type(weft_tensor), value :: a
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_exp(a, result) bind(c)
      import
      type(weft_tensor), value :: a
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_log(a, result) bind(c)
      import
      type(weft_tensor), value :: a
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_sqrt(a, result) bind(c)
      import
      type(weft_tensor), value :: a
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_tanh(a, result) bind(c)
      import
      type(weft_tensor), value :: a
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_sigmoid(a, result) bind(c)
      import
      type(weft_tensor), value :: a
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_relu(a, result) bind(c)
      import
      type(weft_tensor), value :: a
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_gelu(a, result) bind(c)
      import
      type(weft_tensor), value :: a
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_silu(a, result) bind(c)
      import
      type(weft_tensor), value :: a
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_softmax(a, result) bind(c)
      import
      type(weft_tensor), value :: a
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_sum(a, count, dims, keepdims, result) bind(c)
      import
      type(weft_tensor), value :: a
      integer(c_int), value :: count, keepdims
      integer(c_int), intent(in) :: dims(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_mean(a, count, dims, keepdims, result) bind(c)
      import
      type(weft_tensor), value :: a
      integer(c_int), value :: count, keepdims
      integer(c_int), intent(in) :: dims(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_max(a, count, dims, keepdims, result) bind(c)
      import
      type(weft_tensor), value :: a
      integer(c_int), value :: count, keepdims
      integer(c_int), intent(in) :: dims(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_min(a, count, dims, keepdims, result) bind(c)
      import
      type(weft_tensor), value :: a
      integer(c_int), value :: count, keepdims
      integer(c_int), intent(in) :: dims(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_argmax(a, dim, result) bind(c)
      import
      type(weft_tensor), value :: a
      integer(c_int), value :: dim
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_matmul(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a, b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_linear(x, w, bias, result) bind(c)
      import
      type(weft_tensor), value :: x, w, bias
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_einsum(equation, count, operands, result) bind(c)
      import
      character(kind=c_char), intent(in) :: equation(*)
      integer(c_int), value :: count
      type(weft_tensor), intent(in) :: operands(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_solve(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a, b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_reshape(a, ndim, shape, result) bind(c)
      import
      type(weft_tensor), value :: a
      integer(c_int), value :: ndim
      integer(c_int64_t), intent(in) :: shape(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_transpose(a, dim0, dim1, result) bind(c)
      import
      type(weft_tensor), value :: a
      integer(c_int), value :: dim0, dim1
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_slice(a, dim, start, stop, step, result) bind(c)
      import
      type(weft_tensor), value :: a
      integer(c_int), value :: dim
      integer(c_int64_t), value :: start, stop, step
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_cat(count, tensors, dim, result) bind(c)
      import
      integer(c_int), value :: count, dim
      type(weft_tensor), intent(in) :: tensors(*)
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_cast(a, dtype, result) bind(c)
      import
      type(weft_tensor), value :: a
      integer(c_int), value :: dtype
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_embedding(weight, ids, result) bind(c)
      import
      type(weft_tensor), value :: weight, ids
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_mse_loss(a, b, result) bind(c)
      import
      type(weft_tensor), value :: a, b
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_cross_entropy(logits, targets, result) bind(c)
      import
      type(weft_tensor), value :: logits, targets
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_model_load(directory, mesh, model) bind(c)
      import
      character(kind=c_char), intent(in) :: directory(*)
      type(weft_mesh), value :: mesh
      type(weft_model), intent(inout) :: model
    end function
    integer(c_int) function weft_model_free(model) bind(c)
      import
      type(weft_model), value :: model
    end function
    integer(c_int) function weft_model_forward(model, ids, result) bind(c)
      import
      type(weft_model), value :: model
      type(weft_tensor), value :: ids
      type(weft_tensor), intent(inout) :: result
    end function
    integer(c_int) function weft_model_generate( &
        model, count, ids, temperature, seed, most, tokens, written) bind(c)
      import
      type(weft_model), value :: model
      integer(c_int64_t), value :: count, seed, most
      integer(c_int64_t), intent(in) :: ids(*)
      real(c_double), value :: temperature
      integer(c_int64_t), intent(inout) :: tokens(*)
      integer(c_int64_t), intent(out) :: written
    end function
    integer(c_int) function weft_save(directory, step, names, count, tensors) bind(c)
      import
      character(kind=c_char), intent(in) :: directory(*), names(*)
      integer(c_int64_t), value :: step
      integer(c_int), value :: count
      type(weft_tensor), intent(in) :: tensors(*)
    end function
    integer(c_int) function weft_load(path, names, count, tensors) bind(c)
      import
      character(kind=c_char), intent(in) :: path(*), names(*)
      integer(c_int), value :: count
      type(weft_tensor), intent(in) :: tensors(*)
    end function
    integer(c_int) function weft_load_tensor(path, name, mesh, placements, result) bind(c)
      import
      character(kind=c_char), intent(in) :: path(*), name(*), placements(*)
      type(weft_mesh), value :: mesh
      type(weft_tensor), intent(inout) :: result
    end function
  end interface

contains

  !> Stops the program, on standard error with the text of the call that failed.
  subroutine weft_check(status)
    integer(c_int), intent(in) :: status
    if (status == WEFT_OK) return
    write (error_unit, '(a)') weft_text(weft_last_error())
    error stop 1
  end subroutine

  !> Returns a text that weft gave out.
  function weft_text(address) result(text)
    type(c_ptr), intent(in) :: address
    character(:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer :: length, i
    interface
      integer(c_size_t) function strlen(text) bind(c)
        import
        type(c_ptr), value :: text
      end function
    end interface
    length = int(strlen(address))
    call c_f_pointer(address, characters, [length])
    allocate (character(length) :: text)
    do i = 1, length
      text(i:i) = characters(i)
    end do
  end function
end module

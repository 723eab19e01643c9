// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

/// Marks the functions with C linkage that libweft.so exports.
#ifdef __cplusplus
#define WEFT_C_API extern "C" __attribute__((visibility("default")))
#else
#define WEFT_C_API __attribute__((visibility("default")))
#endif

/// The outcome of a call. Unless it is WEFT_OK, the call changed none of its arguments, and
/// `weft_last_error` is one sentence about it.
typedef int weft_status;
enum {
  WEFT_OK = 0,
  /// The caller's mistake: a wrong handle, shape, dtype, placement or file.
  WEFT_INVALID = 1,
  /// The system, a file or a library failed.
  WEFT_FAILED = 2,
  /// Another rank failed, ended, or made another call. All later calls of the ranks fail, too.
  WEFT_COMMUNICATION = 3,
  /// The memory is exhausted.
  WEFT_MEMORY = 4
};

/// A handle of a mesh: ranks in a grid with named axes. {0} is none: the array of one rank. A
/// handle is used by the thread that made it, and refused by others. It is freed once, by
/// `weft_mesh_free`, `weft_disconnect`, or at the end of the body of `weft_run` that made it; a
/// freed handle is refused, too.
typedef struct weft_mesh {
  uint64_t id;
} weft_mesh;

/// Returns the version of the library, "0.1.0".
WEFT_C_API const char* weft_version(void);

/// Returns the text of the calling thread's last call that failed, as one sentence without a line
/// end; "" when none did. Valid until the next one fails.
WEFT_C_API const char* weft_last_error(void);

/// Makes the process a rank of the job that `weft run`, mpirun, srun or torchrun started, or the
/// only rank of a process that is alone. Collective: waits up to 10 minutes for the other ranks. In
/// a program of MPI it comes after MPI_Init, and rank r is MPI's rank r. Has no effect when the
/// thread is connected already. WEFT_INVALID when the launcher's variables make no sense,
/// WEFT_FAILED when a rank is missing or is another build.
WEFT_C_API weft_status weft_connect(void);

/// Frees all handles of the thread, which is then not connected. A later `weft_connect` connects it
/// again. Communicates nothing.
WEFT_C_API weft_status weft_disconnect(void);

/// Calls `body(data)` on each of `ranks` ranks, which are threads of this process, and waits for
/// all; in a process that is a rank of a job, calls it once on that rank, and `ranks` is 1 or the
/// size of the job. A rank is connected within `body`, which makes its own handles. When one
/// returns another status than WEFT_OK, the calls of the other ranks fail, and this call returns
/// the first failure. WEFT_INVALID for a number of ranks out of 1 to 1024, or other than the job's.
WEFT_C_API weft_status weft_run(int ranks, weft_status (*body)(void* data), void* data);

/// Sets `*rank` to the number of the calling rank, from 0 on. WEFT_INVALID when it is not
/// connected; so below.
WEFT_C_API weft_status weft_rank(int* rank);
/// Sets `*size` to the number of ranks.
WEFT_C_API weft_status weft_size(int* size);
/// Waits until all ranks have called it: at most 10 minutes, then WEFT_COMMUNICATION.
WEFT_C_API weft_status weft_barrier(void);

/// Starts the random numbers of this rank again from `seed`, which must be equal on all ranks.
WEFT_C_API weft_status weft_manual_seed(uint64_t seed);
/// Sets how many threads compute for this rank, 1 to 1024. Before, it has an equal share of the
/// cores of its host. WEFT_INVALID for another number.
WEFT_C_API weft_status weft_set_num_threads(int threads);

/// Makes a mesh of all ranks from a text such as "rows=2,columns=3": names of axes and their sizes,
/// the last axis varying fastest. One axis may have no size and gets the remaining ranks: "rows" is
/// a mesh of one axis. Collective. WEFT_INVALID when the sizes do not multiply to the number of
/// ranks, and for a text of another form.
WEFT_C_API weft_status weft_mesh_create(const char* axes, weft_mesh* mesh);
/// Sets `*size` to the number of ranks along an axis. WEFT_INVALID for an axis that the mesh lacks.
WEFT_C_API weft_status weft_mesh_axis_size(weft_mesh mesh, const char* axis, int* size);
/// Sets `*coordinate` to this rank's position along an axis, from 0 on. WEFT_INVALID for an axis
/// that the mesh lacks.
WEFT_C_API weft_status weft_mesh_coordinate(weft_mesh mesh, const char* axis, int* coordinate);
/// Frees the handle; tensors keep their mesh. {0} is allowed. WEFT_INVALID for a freed one.
WEFT_C_API weft_status weft_mesh_free(weft_mesh mesh);

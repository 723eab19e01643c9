# What builds for NVIDIA GPUs, WEFT_CUDA: ON by nvcc; EMULATED the same kernels by the C++ compiler,
# for a device of the tests that is not there; OFF none.

if(WEFT_CUDA STREQUAL "ON")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin REQUIRED)
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()

# weft_cuda_flags(target): how nvcc compiles what includes weft's headers. CMake 3.25 does not know
# C++20 for CUDA.
function(weft_cuda_flags target)
  if(WEFT_CUDA)
    target_compile_definitions(${target} INTERFACE WEFT_WITH_CUDA)
  endif()
  if(WEFT_CUDA STREQUAL "ON")
    set(host -fno-math-errno,-fno-trapping-math,-Wall,-Wextra,${WEFT_MACHINE})
    if(WEFT_OPENMP)
      string(APPEND host ,-fopenmp)
    endif()
    target_compile_options(${target} INTERFACE
      "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr;-Xcompiler=${host}>")
  endif()
endfunction()

# weft_cuda_sources(target file...): those hold kernels. nvcc compiles them, host code and all; for
# the emulated device the C++ compiler; without CUDA, .cu files are left out.
function(weft_cuda_sources target)
  foreach(file ${ARGN})
    if(WEFT_CUDA STREQUAL "ON")
      set_source_files_properties(${file} TARGET_DIRECTORY ${target}
        PROPERTIES LANGUAGE CUDA)
    elseif(WEFT_CUDA AND file MATCHES "\\.cu$")
      set_source_files_properties(${file} TARGET_DIRECTORY ${target}
        PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
    endif()
    if(WEFT_CUDA OR NOT file MATCHES "\\.cu$")
      target_sources(${target} PRIVATE ${file})
    endif()
  endforeach()
endfunction()

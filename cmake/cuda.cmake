# Sources for NVIDIA GPUs, by the value of WEFT_CUDA. ON: compiled by nvcc. EMULATED: the same
# kernels compiled by the C++ compiler, for the emulated device of the tests. OFF: none.

if(WEFT_CUDA STREQUAL "ON")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin REQUIRED)
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know nvcc's flag for C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()

  # Attention by cuDNN, if it and its front end (headers only) are installed.
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h)
  if(CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY AND CUDNN_FRONTEND_INCLUDE_DIR)
    add_library(cudnn_frontend INTERFACE)
    # Graphs as JSON, which weft does not write, would double their compile time.
    target_compile_definitions(cudnn_frontend INTERFACE WEFT_WITH_CUDNN
      $<$<COMPILE_LANGUAGE:CXX>:NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING>
      $<$<COMPILE_LANGUAGE:CXX>:CUDNN_FRONTEND_SKIP_JSON_LIB>)
    # Hidden from nvcc, which does not need it: a path within the clone would keep other clones from
    # using its cached kernels.
    target_include_directories(cudnn_frontend SYSTEM INTERFACE
      ${CUDNN_INCLUDE_DIR} $<$<COMPILE_LANGUAGE:CXX>:${CUDNN_FRONTEND_INCLUDE_DIR}>)
  else()
    message(STATUS "cuDNN or its front end is not there: attention by weft's own kernels "
      "(CUDNN_INCLUDE_DIR, CUDNN_LIBRARY, CUDNN_FRONTEND_INCLUDE_DIR)")
  endif()

  # Collectives between processes by NCCL, if it is installed with the toolkit or as a Python
  # package.
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    add_library(nccl INTERFACE)
    target_include_directories(nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
  else()
    message(STATUS "NCCL is not there: ranks on GPUs are threads of one process "
      "(NCCL_INCLUDE_DIR, NCCL_LIBRARY)")
  endif()
endif()

# weft_cuda_flags(target): nvcc's flags for sources that include weft's headers. Its front end does
# not know gnu::tls_model (warning 1835) but passes it on.
function(weft_cuda_flags target)
  if(WEFT_CUDA)
    target_compile_definitions(${target} INTERFACE
      WEFT_WITH_CUDA $<$<STREQUAL:${WEFT_CUDA},EMULATED>:WEFT_CUDA_EMULATED>)
    if(WEFT_CUDA STREQUAL "EMULATED" OR TARGET nccl)
      target_compile_definitions(${target} INTERFACE WEFT_WITH_NCCL)
    endif()
  endif()
  if(WEFT_CUDA STREQUAL "ON")
    target_include_directories(${target} SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
    set(host -fno-math-errno,-fno-trapping-math,-Wall,-Wextra,${WEFT_MACHINE})
    if(WEFT_OPENMP)
      string(APPEND host ,-fopenmp)
    endif()
    target_compile_options(${target} INTERFACE
      "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-diag-suppress=1835;-Xcompiler=${host}>")
  endif()
endfunction()

# weft_cuda_unity(target file...): adds the files in groups of four, each included by one source.
# CMake's own unity builds do not support CUDA. Names in anonymous namespaces of a folder's files
# must differ, because the files may share a group.
function(weft_cuda_unity target)
  while(ARGN)
    list(SUBLIST ARGN 0 4 files)
    list(GET files 0 first)
    string(MAKE_C_IDENTIFIER ${first} first)
    list(REMOVE_ITEM ARGN ${files})
    list(TRANSFORM files REPLACE "(.+)" "#include \"${CMAKE_CURRENT_SOURCE_DIR}/\\1\"\n")
    string(CONCAT text ${files})
    set(unity ${CMAKE_CURRENT_BINARY_DIR}/unity_${first}.cu)
    file(CONFIGURE OUTPUT ${unity} CONTENT "${text}" @ONLY)
    target_sources(${target} PRIVATE ${unity})
  endwhile()
endfunction()

# weft_cuda_sources(target file... [ALONE file...]): adds sources that contain kernels. nvcc
# compiles them including host code; for the emulated device the C++ compiler does; without CUDA,
# .cu files are left out. ALONE: files with separate options.
function(weft_cuda_sources target)
  cmake_parse_arguments(ARG "" "" "ALONE" ${ARGN})
  set(files ${ARG_UNPARSED_ARGUMENTS})
  if(WEFT_CUDA STREQUAL "ON" AND WEFT_UNITY)
    weft_cuda_unity(${target} ${files})
    set(files)
  endif()
  foreach(file ${files} ${ARG_ALONE})
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

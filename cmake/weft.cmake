# The compile settings of all targets of weft, and the two functions that the folders use.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # Also caches objects compiled with a precompiled header; one cache serves every clone.
  set(CCACHE ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# weft_precompiles(target [folder...]): for a target that compiles a precompiled header of public
# headers and headers of the folders. ccache ignores comments and could restore that of another
# clone, but g++ recognizes a header that it already contains by its text: they are hashed here.
function(weft_precompiles target)
  if(CCACHE)
    set(patterns ${CMAKE_SOURCE_DIR}/include/weft/*.h)
    foreach(folder ${ARGN})
      list(APPEND patterns ${CMAKE_SOURCE_DIR}/${folder}/*.h)
    endforeach()
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${patterns})
    list(JOIN headers ":" headers)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_EXTRAFILES=${headers};${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/cuda.cmake)
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(range-v3 REQUIRED)
if(WEFT_ONEDNN)
  find_package(dnnl REQUIRED)
endif()
if(WEFT_OPENMP)
  find_package(OpenMP REQUIRED)
endif()

# The flags and include paths of every object, and the libraries that all layers may use.
add_library(weft_build INTERFACE)
target_include_directories(weft_build INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
set(WEFT_CXX_FLAGS
  -fno-math-errno -fno-trapping-math -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # clang does not know all warnings of g++ that single files turn off, reports the deprecated
  # buffer within std::stable_sort of libstdc++ 12, and reports loops that it cannot vectorise.
  list(APPEND WEFT_CXX_FLAGS
    -Wno-unknown-warning-option -Wno-deprecated-declarations -Wno-pass-failed)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(WEFT_BASELINE x86-64-v3)
  # g++ by default halves AVX-512 vectors; full vectors take 0.65 cycles per exp instead of 1.1.
  set(WEFT_VECTORS -mprefer-vector-width=512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(WEFT_BASELINE armv8-a)
  set(WEFT_VECTORS "")
else()
  message(FATAL_ERROR "CMAKE_SYSTEM_PROCESSOR is ${CMAKE_SYSTEM_PROCESSOR}, expected x86_64 or "
    "aarch64; weft is not tried on other processors")
endif()
# Vectors of 512 bits are passed between weft's own functions only, so that their ABI does not
# matter.
if(WEFT_NATIVE)
  set(WEFT_MACHINE -march=native)
else()
  set(WEFT_MACHINE -march=${WEFT_BASELINE})
  list(APPEND WEFT_CXX_FLAGS -Wno-psabi)
endif()
target_compile_options(weft_build INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${WEFT_CXX_FLAGS};${WEFT_MACHINE}>")
weft_cuda_flags(weft_build)
target_link_libraries(weft_build INTERFACE Threads::Threads)
if(WEFT_OPENMP)
  target_link_libraries(weft_build INTERFACE OpenMP::OpenMP_CXX)
  target_compile_definitions(weft_build INTERFACE WEFT_WITH_OPENMP)
else()
  target_compile_options(weft_build INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>)
endif()
if(WEFT_SANITIZE)
  # Checks of each dereferenced pointer take a third of the time, and find little that the address
  # sanitizer does not. The library is checked for undefined behaviour, its tests are not.
  target_compile_options(weft_build INTERFACE
    -fsanitize=${WEFT_SANITIZE} -fno-sanitize=null,alignment,object-size,vptr
    -fno-sanitize-recover=all -fno-omit-frame-pointer -O1
    $<IF:$<BOOL:$<TARGET_PROPERTY:WEFT_IS_TEST>>,-fno-sanitize=undefined$<SEMICOLON>-g0,-g1>)
  target_link_options(weft_build INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()
if(WEFT_COVERAGE)
  target_compile_options(weft_build INTERFACE --coverage -fprofile-update=atomic -O0 -g1)
  target_link_options(weft_build INTERFACE --coverage)
endif()

# weft_floor(name): the OBJECT library of one layer; its folders add their files by target_sources.
# A source with separate flags is automatically excluded from unity files.
function(weft_floor name)
  add_library(weft_${name} OBJECT)
  set_target_properties(weft_${name} PROPERTIES
    UNITY_BUILD "${WEFT_UNITY}" UNITY_BUILD_BATCH_SIZE 8)
  target_link_libraries(weft_${name} PRIVATE weft_build)
  foreach(flag ${WEFT_VECTORS})
    target_compile_options(weft_${name} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:${flag}> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${flag}>)
  endforeach()
endfunction()

# weft_loads(target NAME library source): the source loads the shared library when it first needs it
# (src/base/loaded_library.h), by WEFT_<NAME>_FILE, or else from WEFT_<NAME>_DIRECTORY.
function(weft_loads target name library source)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${library}
    OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  if(NOT text MATCHES "SONAME +([^ \n]+)")
    message(FATAL_ERROR "${library} is not a shared library with a SONAME")
  endif()
  set(file ${CMAKE_MATCH_1})
  get_filename_component(directory ${library} DIRECTORY)
  set_property(SOURCE ${source} TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_DEFINITIONS
    WEFT_${name}_FILE="${file}" WEFT_${name}_DIRECTORY="${directory}")
endfunction()

# The files that `cmake --install` installs, and the package for find_package(weft). Each component
# is a Debian package: library, development, program, python.

if(SKBUILD)
  # A wheel's folder weft/ is a prefix with the same folders on every system. A wheel has no
  # symbolic links: the library is one file.
  set(CMAKE_INSTALL_LIBDIR lib)
  set_target_properties(weft PROPERTIES VERSION ${WEFT_ABI})
  set(namelink NAMELINK_SKIP)
  if(WEFT_CUDA STREQUAL "ON")
    # NVIDIA's wheels install the libraries that this one loads there.
    set_target_properties(weft PROPERTIES INSTALL_RPATH
      "$ORIGIN/../../nvidia/cu13/lib;$ORIGIN/../../nvidia/cudnn/lib;$ORIGIN/../../nvidia/nccl/lib")
  endif()
  # A linker script, for -lweft.
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/libweft.so
    CONTENT "INPUT(-l:libweft.so.${WEFT_ABI})\n")
else()
  set(namelink NAMELINK_COMPONENT development)
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(WEFT_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

install(TARGETS weft EXPORT weft
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library ${namelink}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(SKBUILD)
  install(FILES ${PROJECT_BINARY_DIR}/libweft.so DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# Loaded by name from the folder of the library.
get_property(mpi_libraries GLOBAL PROPERTY WEFT_MPI_LIBRARIES)
if(mpi_libraries)
  add_dependencies(weft ${mpi_libraries})
  install(TARGETS ${mpi_libraries}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.h" PATTERN "*.f90")
install(EXPORT weft NAMESPACE weft:: FILE weft-targets.cmake
  DESTINATION ${WEFT_PACKAGE_DIR} COMPONENT development)

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/weft-config.cmake.in ${PROJECT_BINARY_DIR}/weft-config.cmake
  INSTALL_DESTINATION ${WEFT_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
# Before 1.0, minor versions may be incompatible.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weft-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/weft-config.cmake ${PROJECT_BINARY_DIR}/weft-config-version.cmake
  DESTINATION ${WEFT_PACKAGE_DIR} COMPONENT development)

if(TARGET weft_program)
  file(RELATIVE_PATH WEFT_PROGRAM_TO_LIBRARY
    ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(weft_program PROPERTIES INSTALL_RPATH "$ORIGIN/${WEFT_PROGRAM_TO_LIBRARY}")
  install(TARGETS weft_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()

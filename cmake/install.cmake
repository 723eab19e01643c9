# The files that `cmake --install` installs, and the package for find_package(weft).

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(WEFT_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

install(TARGETS weft EXPORT weft
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weft
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT weft NAMESPACE weft:: FILE weft-targets.cmake DESTINATION ${WEFT_PACKAGE_DIR})

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/weft-config.cmake.in ${PROJECT_BINARY_DIR}/weft-config.cmake
  INSTALL_DESTINATION ${WEFT_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
# Before 1.0, minor versions may be incompatible.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weft-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/weft-config.cmake ${PROJECT_BINARY_DIR}/weft-config-version.cmake
  DESTINATION ${WEFT_PACKAGE_DIR})

if(TARGET weft_program AND NOT SKBUILD)
  file(RELATIVE_PATH WEFT_PROGRAM_TO_LIBRARY
    ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(weft_program PROPERTIES INSTALL_RPATH "$ORIGIN/${WEFT_PROGRAM_TO_LIBRARY}")
  install(TARGETS weft_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

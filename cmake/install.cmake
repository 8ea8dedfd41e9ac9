# install: library, header, licence, CMake package, pkg-config file, command line tool with its manual page and completions.
include(CMakePackageConfigHelpers)

install(TARGETS tensorgrad EXPORT tensorgradTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/tensorgrad DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET tensorgrad_cli)
  install(TARGETS tensorgrad_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The manual page and the completions of shells are what the tool prints from its own table of options.
  if(NOT CMAKE_CROSSCOMPILING AND UNIX)
    set(printed ${PROJECT_BINARY_DIR}/printed)
    file(MAKE_DIRECTORY ${printed})
    add_custom_command(TARGET tensorgrad_cli POST_BUILD VERBATIM
                       COMMAND $<TARGET_FILE:tensorgrad_cli> man > ${printed}/tensorgrad.1
                       COMMAND $<TARGET_FILE:tensorgrad_cli> completion bash > ${printed}/tensorgrad
                       COMMAND $<TARGET_FILE:tensorgrad_cli> completion zsh > ${printed}/_tensorgrad
                       COMMAND $<TARGET_FILE:tensorgrad_cli> completion fish > ${printed}/tensorgrad.fish)
    install(FILES ${printed}/tensorgrad.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${printed}/tensorgrad DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${printed}/_tensorgrad DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${printed}/tensorgrad.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tensorgrad)
configure_package_config_file(cmake/tensorgradConfig.cmake.in tensorgradConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(tensorgradConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tensorgradConfig.cmake ${PROJECT_BINARY_DIR}/tensorgradConfigVersion.cmake
        DESTINATION ${package_folder})
install(EXPORT tensorgradTargets NAMESPACE tensorgrad:: DESTINATION ${package_folder})

# A prefix relative to the file itself, so that an installed tree may be moved.
file(RELATIVE_PATH pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
endif()
# A static library needs what it uses on every link line; a shared one brings it along.
set(pc_libs "")
set(pc_cflags "")
if(BUILD_SHARED_LIBS)
  set(pc_cflags " -DTG_SHARED")
else()
  set(pc_libs " -lm -pthread")
  foreach(library IN LISTS CMAKE_DL_LIBS)
    string(APPEND pc_libs " -l${library}")
  endforeach()
endif()
configure_file(cmake/tensorgrad.pc.in tensorgrad.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tensorgrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Installs the headers, one static library per folder, the program, and the files for find_package(ingot).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ingot)
install(TARGETS ingot_options ingot_core ingot_comm ingot_ops ingot_nn ingot_optim ingot_formats ingot_data ingot_console
        ingot_config ingot_train ingot_parallel ingot_memory ingot_plan ingot_checkpoint ingot_run ingot_sweep ingot_profile
        EXPORT ingot_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ingot RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ingot/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ingot FILES_MATCHING PATTERN "*.h")
install(EXPORT ingot_targets NAMESPACE ingot:: DESTINATION ${package_dir})

configure_package_config_file(cmake/ingot-config.cmake.in ${PROJECT_BINARY_DIR}/ingot-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ingot-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ingot-config.cmake ${PROJECT_BINARY_DIR}/ingot-config-version.cmake
        DESTINATION ${package_dir})

# `make install`: the program, the headers as they are in the tree, the archives, and a package for
# find_package(casemate), which gives casemate::casemate.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# All that `cmake --install` copies, so that it can be built without the rest.
add_custom_target(casemate_installed)

if(TARGET casemate_program)
    add_dependencies(casemate_installed casemate_program)
    install(TARGETS casemate_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
        COMPONENT program)
endif()

# For backends of others, to be put inside a place of theirs (docs/writing-a-backend.md).
add_dependencies(casemate_installed casemate-place-guest)
install(TARGETS casemate-place-guest RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/casemate"
    COMPONENT library)

get_property(library GLOBAL PROPERTY CASEMATE_LIBRARY)
add_dependencies(casemate_installed casemate_fmt ${library})
install(TARGETS casemate_headers casemate_fmt ${library} EXPORT casemate
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/casemate"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT library
    FILES_MATCHING PATTERN "*.h" PATTERN "*_test.h" EXCLUDE PATTERN "agent" EXCLUDE)

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/casemate")
install(EXPORT casemate NAMESPACE casemate:: DESTINATION "${package}" COMPONENT library)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/casemateConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES
    "${PROJECT_SOURCE_DIR}/cmake/casemateConfig.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/ThirdParty.cmake"
    "${CMAKE_BINARY_DIR}/casemateConfigVersion.cmake"
    DESTINATION "${package}" COMPONENT library)

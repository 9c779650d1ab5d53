# `make package`: two Debian packages. `casemate` has the program with its manual page, completions
# and documents; `libcasemate-dev` what find_package(casemate) needs, and depends on what it links.
if(NOT TARGET casemate_program)
    return()
endif()

set(written "${CMAKE_BINARY_DIR}/packaging")
configure_file("${PROJECT_SOURCE_DIR}/packaging/changelog.Debian.in"
    "${written}/changelog.Debian" @ONLY)
add_custom_command(OUTPUT "${written}/casemate.1.gz" "${written}/casemate.bash"
                          "${written}/_casemate" "${written}/casemate.fish"
                          "${written}/changelog.gz" "${written}/changelog.Debian.gz"
    COMMAND /usr/bin/python3 "${PROJECT_SOURCE_DIR}/packaging/write_man.py"
            "$<TARGET_FILE:casemate_program>" "${written}/casemate.1.gz"
    COMMAND "$<TARGET_FILE:casemate_program>" completion bash > "${written}/casemate.bash"
    COMMAND "$<TARGET_FILE:casemate_program>" completion zsh > "${written}/_casemate"
    COMMAND "$<TARGET_FILE:casemate_program>" completion fish > "${written}/casemate.fish"
    COMMAND gzip -9nc "${PROJECT_SOURCE_DIR}/CHANGELOG.md" > "${written}/changelog.gz"
    COMMAND gzip -9nc "${written}/changelog.Debian" > "${written}/changelog.Debian.gz"
    DEPENDS casemate_program "${PROJECT_SOURCE_DIR}/packaging/write_man.py"
            "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
    VERBATIM)
file(GLOB documents CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/*.md")
list(APPEND documents "${PROJECT_SOURCE_DIR}/README.md")
add_custom_command(OUTPUT "${written}/docs/README.md"
    COMMAND /usr/bin/python3 "${PROJECT_SOURCE_DIR}/packaging/write_docs.py" "${written}/docs"
            ${documents}
    DEPENDS "${PROJECT_SOURCE_DIR}/packaging/write_docs.py" ${documents}
    VERBATIM)
add_custom_target(casemate_written ALL
    DEPENDS "${written}/casemate.1.gz" "${written}/docs/README.md")
add_dependencies(casemate_installed casemate_written)

install(FILES "${written}/casemate.1.gz" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1"
    COMPONENT program)
install(FILES "${written}/casemate.bash" RENAME casemate
    DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT program)
install(FILES "${written}/_casemate"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions" COMPONENT program)
install(FILES "${written}/casemate.fish"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT program)
install(DIRECTORY "${written}/docs/" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/casemate"
    COMPONENT program FILES_MATCHING PATTERN "*.md")
install(FILES "${PROJECT_SOURCE_DIR}/packaging/copyright" "${written}/changelog.gz"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/casemate" COMPONENT program)
install(FILES "${PROJECT_SOURCE_DIR}/packaging/copyright" "${written}/changelog.gz"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/libcasemate-dev" COMPONENT library)

# What Debian's own tools want of a package. EXCLUDE_FROM_ALL: `make install` leaves it out.
install(FILES "${written}/changelog.Debian.gz"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/casemate" COMPONENT program EXCLUDE_FROM_ALL)
install(FILES "${written}/changelog.Debian.gz"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/libcasemate-dev" COMPONENT library EXCLUDE_FROM_ALL)
install(FILES "${PROJECT_SOURCE_DIR}/packaging/casemate.lintian-overrides" RENAME casemate
    DESTINATION "${CMAKE_INSTALL_DATADIR}/lintian/overrides" COMPONENT program EXCLUDE_FROM_ALL)
install(FILES "${PROJECT_SOURCE_DIR}/packaging/libcasemate-dev.lintian-overrides"
    RENAME libcasemate-dev
    DESTINATION "${CMAKE_INSTALL_DATADIR}/lintian/overrides" COMPONENT library EXCLUDE_FROM_ALL)

# The development packages of scripts/packages/run.txt: what the archives are linked with. Not fmt,
# which is one of the archives, nor toml++, which the program alone reads with.
file(STRINGS "${PROJECT_SOURCE_DIR}/scripts/packages/run.txt" linked REGEX "^(lib|zlib).*-dev$")
list(FILTER linked EXCLUDE REGEX "^lib(fmt|tomlplusplus)-dev$")
list(JOIN linked ", " linked)

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # `casemate_installed` builds what is packed
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME casemate)
set(CPACK_PACKAGE_CONTACT "Casemate authors <casemate@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program library)
set(CPACK_DEB_COMPONENT_INSTALL ON)
# Modes of what is packed, whatever the umask of whoever packs.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME casemate)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
# Programs of a sandbox are run by Debian's own interpreter.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "python3")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "skopeo, uidmap")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libcasemate-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "${linked}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "casemate, cmake")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
"The command line: runs a program that a model wrote inside a boundary that
you chose. Sandboxes are made of the kernel's own means: namespaces, a system
call filter, limits by control group. Files go in, declared outputs come back,
and what would be weaker than was asked for is refused.")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
"The C++ library behind casemate: headers, static archives and the CMake
package that gives casemate::casemate.")
include(CPack)

# Speed of the build only; nothing here changes what is built.

# The base directory and "no hash of the working directory" let several checkouts of this project
# share one cache: their absolute paths differ, their sources do not.
find_program(CASEMATE_CCACHE ccache)
mark_as_advanced(CASEMATE_CCACHE)
if(CASEMATE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env
        "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" "CCACHE_NOHASHDIR=1" "${CASEMATE_CCACHE}")
endif()

find_program(CASEMATE_MOLD mold)
mark_as_advanced(CASEMATE_MOLD)
if(CASEMATE_MOLD)
    add_link_options(-fuse-ld=mold)
endif()

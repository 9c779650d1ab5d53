# Third-party libraries that users of the installed library link too. All are Debian 12 packages;
# archives are linked statically, glibc dynamically: a program starts in a quarter of the time of one
# that loads them all.

find_package(Threads REQUIRED)

# 1.81 by name: Debian's unversioned Boost is 1.74, and the two cannot be installed together.
set(Boost_USE_STATIC_LIBS ON)
# Debian 12's CMake is a release older than its Boost 1.81 and would warn of what it cannot know.
set(Boost_NO_WARN_NEW_VERSIONS ON)
find_package(Boost 1.81 EXACT REQUIRED COMPONENTS json)

# Imports NAME::NAME from its static archive. The headers are in the compiler's default path.
function(casemate_import_archive name)
    find_library(CASEMATE_${name}_ARCHIVE "lib${name}.a" REQUIRED)
    mark_as_advanced(CASEMATE_${name}_ARCHIVE)
    if(TARGET ${name}::${name})
        return()
    endif()
    add_library(${name}::${name} STATIC IMPORTED GLOBAL)
    set_target_properties(${name}::${name} PROPERTIES
        IMPORTED_LOCATION "${CASEMATE_${name}_ARCHIVE}")
endfunction()

# libarchive: its tar reader needs no more of what it can be linked with than these two.
casemate_import_archive(archive)
casemate_import_archive(crypto)
casemate_import_archive(idn2)
casemate_import_archive(psl)
casemate_import_archive(seccomp)
casemate_import_archive(ssl)
casemate_import_archive(unistring)
casemate_import_archive(utf8proc)
casemate_import_archive(z)
casemate_import_archive(zstd)
set_target_properties(utf8proc::utf8proc PROPERTIES INTERFACE_COMPILE_DEFINITIONS UTF8PROC_STATIC)
target_link_libraries(ssl::ssl INTERFACE crypto::crypto)
target_link_libraries(idn2::idn2 INTERFACE unistring::unistring)
target_link_libraries(psl::psl INTERFACE idn2::idn2 unistring::unistring)

# `make install`: the program. PREFIX as CMAKE_INSTALL_PREFIX.
include(GNUInstallDirs)
if(TARGET casemate_program)
    install(TARGETS casemate_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

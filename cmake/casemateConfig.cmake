# find_package(casemate): the library casemate::casemate, and the third-party archives it links.
include("${CMAKE_CURRENT_LIST_DIR}/ThirdParty.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/casemate.cmake")

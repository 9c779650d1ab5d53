#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// Opens, for this process's mount namespace, the directory that `image` is a descriptor of in
// another's. Throws `std::system_error`; ESTALE when its path leads to another one here.
sys::UniqueFd reopen_image(int image);

// Shows an image in `root`, the empty root of a sandbox: read-only views of the image's
// directories, copies of its links and small files. Of `etc`, `home` and `var` the directory is the
// sandbox's own and what is in it is shown. Left out is what a sandbox has of its own: /proc, /sys,
// /dev, /tmp, /run, /var/tmp, /var/run, /home/user, /casemate, the identity files of /etc, and the
// work directory where it lies at the top. Devices, FIFOs and sockets are left out where they would
// be copied, and what is not readable for everybody; inside of a view they are what they are, on a
// mount without devices.
//
// Whoever owns the image may change it meanwhile: nothing is followed through a link, and what is
// shown is what was looked at. Each view costs time in every call, and copies cost memory: of both
// there is a bounded number. Returns those of `etc`, `home` and `var` that hold more than that, for
// `merge_image_directory` once the root's own files are there. Throws `std::system_error`;
// EOPNOTSUPP for more than 256 directories at the top.
std::vector<std::string> show_image(int image, int root, std::string_view work_dir);

// Lays what the root's directory of that name holds over the image's, as one more mount; what
// `show_image` would leave out is hidden.
void merge_image_directory(int image, int root, const std::string& name);

}  // namespace casemate::guest

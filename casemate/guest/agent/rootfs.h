#pragma once

#include <cstdint>
#include <string>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// Where the one file system that programs can write to is mounted for the agent. A call detaches
// it from its own mount namespace once it has bound what is its own.
inline constexpr char kQuotaDirectory[] = "/.quota";
// Of the programs' user; on the same file system.
inline constexpr char kHomeDirectory[] = "/home/user";
// Where a call mounts what it alone may see of the host; empty in one that sees nothing.
inline constexpr char kCallDirectory[] = "/casemate/call";

// Where a container's keeper has the template, in its own mount namespace: there is no room there
// for a state directory or an image, which it would cover. The runtime needs devices, and no
// terminal.
inline constexpr char kContainerTemplate[] = "/dev/pts";
// Where the linux backend's keeper has it: the same, or /dev where that is not there. Asked once in
// a process and those that it clones.
const char* template_directory();

// Device nodes of a template's own, or views of the machine's where it may make none.
enum class TemplateDevices : std::uint8_t { nodes, views };

// The program's user inside.
inline constexpr unsigned kUserId = 1000;

// What the roots of the image `host` have in common, made once by the keeper and shown read-only to
// every sandbox of its: a view of the machine's /usr with the links beside it, the few files of
// /etc that programs need, a /dev of five harmless devices, and the places where a sandbox mounts
// what is its own. Nothing of /home, /root, /var, /run, /opt, /srv, /mnt; /sys is absent. Files
// are copies and directories of many files are views, because each mount costs time in every
// sandbox, call and program.
//
// Does not protect what the machine keeps readable for everybody in /usr and in the files of /etc
// named in rootfs.cc. The sandboxes of one keeper see each other's work directories as empty ones.
class RootTemplate {
 public:
  // Gives the calling process, root of the machine or of a user namespace, a mount namespace of its
  // own in which the template lies over `place`, a constant. Throws `std::system_error`.
  explicit RootTemplate(const char* place);

  // How it has its devices.
  TemplateDevices devices() const { return devices_kind_; }

  // Makes the place where sandboxes mount their work directory; an absolute path.
  void add_work_dir(const std::string& path);

 private:
  friend class ImageTemplate;
  const char* place_;
  TemplateDevices devices_kind_ = TemplateDevices::nodes;
  // The machine's /dev, by a descriptor from before the template lay over it.
  sys::UniqueFd devices_;
  sys::UniqueFd root_;
};

// A template for one sandbox of another image, which lies over the other while this lives: what is
// cloned then has it for its root. Shown of the image is what image_root.h says; /dev, /casemate
// and the identity files of /etc are as in the other.
class ImageTemplate {
 public:
  // `image` is its root directory, open in whatever mount namespace. Throws `std::system_error`.
  ImageTemplate(const RootTemplate& beside, int image, const std::string& work_dir);
  ~ImageTemplate();
  ImageTemplate(const ImageTemplate&) = delete;
  ImageTemplate& operator=(const ImageTemplate&) = delete;

 private:
  void detach() noexcept;

  const char* place_;
  sys::UniqueFd attached_;
};

// Whether something lies over parts of /proc, as engines do it in a container: then nobody mounts
// one in a user namespace. Throws `std::system_error`.
bool proc_is_covered();

// What a sandbox has of its own in its root.
struct RootPlan {
  // Absolute; in the template.
  std::string work_dir;
  std::uint64_t disk_bytes = 0;
  std::uint64_t disk_inodes = 0;
  // User 1000 is all there is: programs own what this makes.
  bool one_id = false;
};

// Makes a view of the keeper's template this process's root, with a /proc of its own: `proc`, of
// the sandbox's pid namespace, mounted before it had a user namespace, or else one that is made
// here. What the machine mounts or drops below /usr is followed until `furnish_root`.
//
// The caller was cloned from the keeper and has every capability of a user namespace that owns its
// mount and pid namespaces; umask 0. Throws `std::system_error`.
void enter_root(sys::UniqueFd proc);
// Then, one tmpfs, bounded by the plan, behind the work directory, the home directory and a machine
// id of its own.
void furnish_root(const RootPlan& plan);

// The same for pid 1 of a container whose root is a keeper's template, read-only, with a /proc that
// the runtime has mounted.
void furnish_container(const RootPlan& plan);

}  // namespace casemate::guest

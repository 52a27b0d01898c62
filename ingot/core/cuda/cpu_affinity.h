// The CPUs that are near a device, and the CPUs on which a process may run.
#pragma once

#include <filesystem>
#include <string>

namespace ingot {

// Returns the CPUs of the NUMA node of a PCI device, such as "0-31,64-95", or "" if the system does not say.
// bus: "0000:C1:00.0", in either case.
std::string cpus_near(const std::string& bus, const std::filesystem::path& devices = "/sys/bus/pci/devices");

// Binds the calling thread, and all threads that it starts from then on, to the CPUs of such a list. Does
// nothing and returns false if the thread may not use every CPU of the machine, because a launcher has then
// placed it, or if the list names no CPU.
bool bind_to_cpus(const std::string& list);

}  // namespace ingot

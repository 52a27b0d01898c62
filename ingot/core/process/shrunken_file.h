// If another program truncates a mapped file, or its disk fails, reading it raises SIGBUS. This handler
// ends the process with one clear line that names the file, and with the exit code of damaged data.
#pragma once

#include <cstddef>
#include <string>

namespace ingot {

struct MappedRange;

// Registers [begin, begin + size_bytes) as a mapping of the file `path`. The caller passes the result to
// remove_mapped_range before it unmaps the memory. Returns null, which remove_mapped_range accepts, if
// memory is short. Thread-safe.
MappedRange* add_mapped_range(const void* begin, size_t size_bytes, const std::string& path) noexcept;
void remove_mapped_range(MappedRange* range) noexcept;

// Names a folder of files that the process has not completed; the handler below removes it, because no
// destructor runs there. Empty: none. One thread calls this.
void remove_if_a_file_shrinks(const std::string& folder);

// Installs the SIGBUS handler: a SIGBUS in a mapped file ends the process with exit code 3 and the file's
// name on stderr; any other SIGBUS has its default effect. For a program's main(). Does nothing if a
// SIGBUS handler is already installed.
void explain_shrunken_files();

}  // namespace ingot

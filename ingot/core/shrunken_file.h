// A mapped file that another program makes shorter, or whose disk fails, is a SIGBUS for who reads it: here
// it becomes one clear line that names the file, and the exit code of damaged data.
#pragma once

#include <cstddef>
#include <string>

namespace ingot {

struct MappedRange;

// Says that [begin, begin + size_bytes) is the file `path`; the result goes to remove_mapped_range before the
// memory is unmapped. Null (which remove_mapped_range takes) if there is no memory for it. Thread-safe.
MappedRange* add_mapped_range(const void* begin, size_t size_bytes, const std::string& path) noexcept;
void remove_mapped_range(MappedRange* range) noexcept;

// From now on a SIGBUS in a mapped file ends the process with exit code 3 and the file's name on stderr. Any
// other SIGBUS does what it did. For a program's main(); a handler that is already installed is kept.
void explain_shrunken_files();

}  // namespace ingot

// The three kinds of error: the user's (bad input), ours (internal), the run's (NaN loss, out of memory).
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace ws {

/// A user's mistake: says what was wrong, where (op, shapes, layer path) and what to do. The CLI prints it as one line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Something only the run could find: a non-finite loss, a label out of range, memory that is not there.
class RuntimeError : public Error {
 public:
  using Error::Error;
};

/// A loss or gradient norm that is NaN or infinite; nothing was updated.
class NonFiniteError : public RuntimeError {
 public:
  using RuntimeError::RuntimeError;
};

/// A step whose plan needs more than the machine, the container or its memory budget has; nothing was allocated.
class MemoryError : public Error {
 public:
  MemoryError(const std::string& message, int64_t needed, int64_t available, int64_t batch)
      : Error(message), needed_bytes(needed), available_bytes(available), fitting_batch(batch) {}
  int64_t needed_bytes, available_bytes;
  int64_t fitting_batch;  // the largest that fits; 0 where none does, the step has no batch or the limit is a budget
};

/// A broken invariant of ours; the message asks for a report.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace ws

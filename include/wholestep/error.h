// The three kinds of error: the user's (bad input), ours (internal), the run's (NaN loss, out of memory).
#pragma once
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

/// A broken invariant of ours; the message asks for a report.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace ws

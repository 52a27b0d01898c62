"""The errors of Ingot. Each is an ingot.Error and the exception that Python itself raises for such a fault.

`exit_code` is the code with which the program `ingot` ends in that case.
"""
import re as _re


class Error(RuntimeError):
    """A fault that Ingot reports: the message says what was wrong, what was expected and the fix."""

    exit_code = 1


class UsageError(Error, ValueError):
    """A value that an argument or a key of the configuration cannot have."""

    exit_code = 2


class ArgumentTypeError(Error, TypeError):
    """An argument of a type that the function does not take."""

    exit_code = 2


class UnknownNameError(Error, KeyError):
    """A name of a weight that the model has not."""

    exit_code = 2
    __str__ = Error.__str__  # KeyError's shows the message in quotes


class DataError(Error, ValueError):
    """A file or data that are missing, damaged, too short or of another kind."""

    exit_code = 3


class OutOfMemoryError(Error, MemoryError):
    """Memory ran out, or the run was refused because it would not fit."""

    exit_code = 4


class NumericsError(Error, ArithmeticError):
    """A loss or a gradient that is not finite; the weights are unchanged."""

    exit_code = 5


class DiskError(Error, OSError):
    """A file that could not be written."""

    exit_code = 6


_BY_CODE = {kind.exit_code: kind for kind in (UsageError, DataError, OutOfMemoryError, NumericsError, DiskError)}
# What messages say of the command line, in Python's words. Commands in backticks stay.
_WORDS = (
    (r"--set (['\"]?)([\w.]+)=([^\s,;)'\"]+)\1", r'set={"\2": \3}'),
    (r"--data (\w+)", r"data=\1"),
    (r"--init (\w+)|train\.init_from \(--init\)", r"train.init_from"),
    (r"\bwithout --resume\b", "without resume=True"),
    (r"--resume-anyway", "resume_anyway=True"),
    (r"--resume\b", "resume=True"),
    (r"--out\b", "out="),
)


def _in_pythons_words(message):
    pieces = message.split("`")
    for i in range(0, len(pieces), 2):
        for pattern, words in _WORDS:
            pieces[i] = _re.sub(pattern, words, pieces[i])
    return "`".join(pieces)


def of_exit_code(exit_code, message):
    """Returns the exception for an error of the library."""
    return _BY_CODE.get(exit_code, Error)(_in_pythons_words(message))

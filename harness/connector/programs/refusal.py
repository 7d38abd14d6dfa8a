"""How to classify an exception of a hosted connector: the answer to the call that raised it."""

import os
import traceback

import template


def answer(error, package, spent=True, beside=""):
    """A `raise` or an `assert` in the package's own code, or in a file of the folder `beside`, is a refusal, as is one of
    the host's; every other exception is unforeseen, as is one that ends an engine. `spent`: the package's exceptions leave
    the process unfit for later jobs."""
    frames = traceback.extract_tb(error.__traceback__)
    at = frames[-1]
    own, ends_engine = isinstance(error, template.Refusal), getattr(error, "ends_engine", False)
    of_package = lambda frame: f"/{package}/" in frame.filename or (beside and frame.filename.startswith(beside))
    deliberate = own or (not ends_engine and of_package(at) and (at.line or "").startswith(("raise", "assert")))
    text = f"{type(error).__name__}: {error}" if str(error) else f"{type(error).__name__} in `{at.line}`"
    if not deliberate:  # where the package called what raised
        traceback.print_exception(error)  # shown with the result
        text = str(error) or f"in `{at.line}`"
        at = next((frame for frame in reversed(frames) if of_package(frame)), at)
    return {
        "state": "refused" if deliberate else "raised",
        "type": type(error).__name__,
        "text": text,
        "file": os.path.basename(at.filename),
        "line": at.lineno,
        "spent": spent and not own,
    }

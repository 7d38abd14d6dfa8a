"""Independent generator of KV-CTS golden tensors: NumPy views only, no code or layout arithmetic shared with the C++."""

FORMAT_VERSION = 1
TAG_VERSION = 1


class GoldenError(Exception):
    """One clear sentence: what was expected, what was found, what to do."""

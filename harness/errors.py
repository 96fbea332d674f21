"""The errors that a user can cause, in one place. The command line prints them as one message and exits with 2."""

from attnbench.variants.errors import (
    BadParameter,
    BadVariant,
    UnknownVariant,
    Unsupported,
    UserError,
    did_you_mean,
)

__all__ = [
    "BadData",
    "BadDatabase",
    "BadParameter",
    "BadVariant",
    "DataUnavailable",
    "Diverged",
    "UnknownData",
    "UnknownDevice",
    "UnknownForm",
    "UnknownMetric",
    "UnknownScale",
    "UnknownSuite",
    "UnknownVariant",
    "Unsupported",
    "UserError",
    "did_you_mean",
]


class UnknownSuite(UserError):
    """A name that no suite has."""


class UnknownScale(UserError):
    """A scale that the suite does not offer."""


class UnknownForm(UserError):
    """A form that none of the variants asked for has."""


class UnknownMetric(UserError):
    """A metric that is not defined in `metrics.py`."""


class UnknownDevice(UserError):
    """A device that torch does not know or this machine does not have."""


class UnknownData(UserError):
    """A data set that the catalogue does not list."""


class DataUnavailable(UserError):
    """A data set that is not in the cache and could not be fetched."""


class BadData(UserError):
    """A download or cached file whose hash is not the recorded one."""


class BadDatabase(UserError):
    """A database that cannot be opened, read or written, or that another program made."""


class Diverged(Exception):
    """Training met a loss that is not finite. Becomes a `diverged` row."""

    def __init__(self, step: int, last_finite_loss: float | None) -> None:
        self.step = step
        self.last_finite_loss = last_finite_loss
        last = "none was finite" if last_finite_loss is None else f"last finite loss {last_finite_loss:.6g}"
        super().__init__(f"the loss was not finite at step {step} ({last})")

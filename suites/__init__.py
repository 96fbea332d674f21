"""The questions, one file each. A suite file declares a `SUITE` and a `measure` (or, where the clock runs, a `prepare`)."""

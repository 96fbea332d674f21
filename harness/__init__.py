"""How one case is run, measured and stored."""

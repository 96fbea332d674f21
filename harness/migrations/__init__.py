"""How older databases become current ones, one file a revision; `harness/store/schema.py` runs them.

To add one: change `harness/store/tables.py`, then write `versions/vNNNN_what.py` with the next number, which names its
predecessor as `down_revision`. Tests hold the result against the tables and carry rows through every revision.
"""

"""Claims made up for a test, of one protocol, and how rows are judged by them."""

import math

from attnbench.harness.spec import Point
from attnbench.reports.published.claims import Claim, Order, Subject
from attnbench.reports.published.protocol import Protocol
from attnbench.reports.verdicts import verdict

PROTOCOL = Protocol("test", "as published", "paper", Point(key_width=64), Point(protocol="code"))
LOSS = "retrieval_loss"


def claim(test, suite="capacity", **more):
    facts = {"axis": "pairs", "protocol": PROTOCOL, "point": Point(), "note": "", **more}
    return Claim("an-id", "Something is so.", "arXiv:2102.11174, Fig. 2", suite, test=test, **facts)


def ruling(claim, rows):
    return verdict(claim, rows).ruling


def order(*groups, at=(20,), better="lower", quantity=LOSS, equal_at_most=-math.inf, reaches_at_most=0.001):
    subjects = tuple(tuple(one if isinstance(one, Subject) else Subject(one) for one in group) for group in groups)
    return claim(Order(subjects, at, quantity, better, equal_at_most, reaches_at_most))

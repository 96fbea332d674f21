"""How many bytes: peak of a training step and of prefill, and the state that decoding carries.

One attention operation in float32, each case in a process of its own. The peak counts bytes held by tensors beyond the
inputs, workspaces included; the process and its libraries do not count.

Source: arXiv:2102.11174, section 6.3, gives gigabytes of whole models.
"""

from attnbench.harness.lab import Lab
from attnbench.harness.peak import peak_bytes, tensor_bytes
from attnbench.harness.spec import Grid, Suite
from attnbench.suites.tasks.operation import FORMS, check, forms_of, operation, points

METRICS = {"training": "training_peak_bytes", "prefill": "prefill_peak_bytes", "decoding": "decode_state_bytes"}


SUITE = Suite(
    name="memory",
    title="Memory",
    question="How many bytes, in training, prefill and decoding?",
    source="arXiv:2102.11174, section 6.3",
    module=__name__,
    axis="tokens",
    metrics=tuple(METRICS.values()),
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "delta"),
            points=points(32, batch=1, heads=2, key_width=16),
            timeout_seconds=60,
            seconds_per_case=3,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m64", "dpfp-nu1", "delta"),
            points=points(256, 4096, batch=1, heads=4, key_width=64),
            timeout_seconds=120,
            seconds_per_case=3,
        ),
    },
    forms=FORMS,
    check=check,
    forms_for=lambda point: forms_of(point.text("phase")),
    isolates=True,
)


def measure(lab: Lab) -> None:
    """Peak or state bytes of one case."""
    phase = lab.case.point.text("phase")
    ready = operation(lab)
    if phase == "decoding":
        assert ready.memory is not None
        lab.record(METRICS[phase], tensor_bytes(ready.memory))
        return
    ready.call()
    lab.record(METRICS[phase], peak_bytes(ready.call, lab.device))

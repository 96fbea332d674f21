"""How many bytes: peak of a training step and of prefill, the state that decoding carries, and a whole model's training step.

Operations are one attention in float32; the peak counts bytes held by tensors beyond the inputs, workspaces included. A
model is a language model in a training step with Adam, its weights, gradients and moments included. Each case has a process of its
own; the process and its libraries do not count.

Beside every peak stands what was predicted for it on tensors without contents, and the error. Where a model's
prediction takes more than half of the device's memory, it is predicted only: so the published sizes can be asked for anywhere.

Source: arXiv:2102.11174, section 6.3, gives gigabytes of whole models.
"""

import contextlib

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from attnbench.harness.costs import adam_step, training_bytes, twice
from attnbench.harness.devices import room_here
from attnbench.harness.errors import Unsupported
from attnbench.harness.lab import Lab
from attnbench.harness.peak import peak_bytes, tensor_bytes
from attnbench.harness.predicted import predicted_peak_bytes
from attnbench.harness.spec import Grid, Suite
from attnbench.suites.tasks.language import points as language
from attnbench.suites.tasks.language.costing import Step, step_of
from attnbench.suites.tasks.language.steps import MODEL, as_language, check, model_point
from attnbench.suites.tasks.operation import FORMS, forms_of, operation, points

METRICS = {
    "training": "training_peak_bytes",
    "prefill": "prefill_peak_bytes",
    "decoding": "decode_state_bytes",
    MODEL: "model_peak_bytes",
}
# share of the device's memory up to which a model is measured and not only predicted
_MEASURED_UP_TO = 0.5


SUITE = Suite(
    name="memory",
    title="Memory",
    question="How many bytes, in training, prefill and decoding?",
    source="arXiv:2102.11174, section 6.3",
    module=__name__,
    axis="tokens",
    metrics=(*METRICS.values(), "predicted_peak_bytes", "prediction_error"),
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "delta"),
            points=(
                *points(32, batch=1, heads=2, key_width=16),
                model_point(language.tiny(), batch=2),
            ),
            timeout_seconds=60,
            seconds_per_case=3,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m64", "dpfp-nu1", "delta"),
            points=(
                *points(256, 4096, batch=1, heads=4, key_width=64),
                model_point(language.point(context=256)),
            ),
            timeout_seconds=120,
            seconds_per_case=3,
        ),
        "paper": Grid(
            variants=("softmax", "linear", "delta", "dpfp-nu1", "performer-m16"),
            points=(model_point(language.small()), model_point(language.medium())),
            timeout_seconds=3600,
            seconds_per_case=30,
        ),
    },
    forms=FORMS,
    check=check,
    forms_for=lambda point: forms_of(point.text("phase")),
    isolates=True,
)


def measure(lab: Lab) -> None:
    """Peak or state bytes of one case, and what was predicted for it."""
    phase = lab.case.point.text("phase")
    if phase == MODEL:
        _measure_model(lab)
        return
    ready = operation(lab)
    if phase == "decoding":
        assert ready.memory is not None
        lab.record(METRICS[phase], tensor_bytes(ready.memory))
        return
    ready.call()
    measured = peak_bytes(ready.call, lab.device)
    lab.record(METRICS[phase], measured)
    # token by token the prediction would take longer than the operation, by far
    if lab.case.form != "recurrent":
        # nor can it be told of a kernel that looks into its inputs
        with contextlib.suppress(Unsupported), FakeTensorMode():
            _record_prediction(lab, predicted_peak_bytes(operation(lab).call, lab.device.type), measured)


def _measure_model(lab: Lab) -> None:
    point = as_language(lab.case.point)
    step = step_of(lab, point)
    predicted = training_bytes(step.model, step.loss, step.layers, step.at_once, lab.device.type)
    room = room_here(lab.case.device)
    measured = None
    if room is None or predicted <= _MEASURED_UP_TO * room.bytes:
        measured = _held_by(step, lab.device)
        lab.record(METRICS[MODEL], measured)
    _record_prediction(lab, predicted, measured)


def _held_by(step: Step, device: torch.device) -> int:
    """The most bytes of a real training step, from the weights on."""
    model = step.model(step.layers).to(device)
    weights = tensor_bytes(dict(model.named_parameters()))
    return weights + peak_bytes(twice(adam_step(model, step.loss, step.at_once)), device)


def _record_prediction(lab: Lab, predicted: int, measured: int | None) -> None:
    lab.record("predicted_peak_bytes", predicted)
    if measured:
        lab.record("prediction_error", predicted / measured - 1)

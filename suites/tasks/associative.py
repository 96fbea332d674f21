"""Associative retrieval: write pairs of a key symbol and a value symbol, then ask for the value of one key.

    k = W_K [onehot(value); e(key)] + b_K        q = W_Q e(key) + b_Q        beta = sigmoid(w . [onehot(value); e(key)] + b)

The embeddings e and the projections are learned; values are one-hot, so what is read is a vector over value symbols.
Nothing here is as large as symbols x features: a projection of a one-hot vector is a row of a table, and where the
variant has a readout form, what is read is a weighted count of the written values.

Two protocols. `text` is what the paper says: every key of an evaluation sequence is asked for, and what is random in a
variant is drawn once for evaluation. `code` is what the released code does, and what the published logs came from: see
`Protocol`.

Source: arXiv:2102.11174, section 6.1 and appendix D; widths and initialisation from its released code.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnbench.harness.errors import BadParameter, did_you_mean
from attnbench.harness.lab import Lab
from attnbench.harness.spec import Point, Setting
from attnbench.harness.training import Stopping, train
from attnbench.variants.contract import Variant

LEARNING_RATE = 1e-3
EVALUATION_SEQUENCES = 20
READOUT = "readout"
FORMS = (READOUT, "gram", "chunkwise", "recurrent")
METRICS = (
    "retrieval_loss",
    "last_retrieval_loss",
    "retrieval_accuracy",
    "training_steps",
    "milliseconds_per_step",
)


@dataclass(frozen=True)
class Protocol:
    """Where a protocol departs from the text of the paper.

    `most_queries` asks at most so many keys of an evaluation sequence, those with the smallest numbers. `redraws` draws what
    is random in a variant anew for every evaluation sequence. `patience` is added to that of the point, in evaluations.
    With `evaluates_short`, evaluation sequences have one write a symbol, however long training sequences are. `slow` names
    variants that are trained with a tenth of the learning rate and four times the batch.
    """

    most_queries: int | None = None
    redraws: bool = False
    patience: int = 0
    evaluates_short: bool = False
    slow: frozenset[str] = frozenset()


PROTOCOLS = {
    "text": Protocol(),
    # its loop stops at more than `patience` evaluations, not at as many; it evaluates S writes where it trains on 2S
    "code": Protocol(most_queries=200, redraws=True, patience=1, evaluates_short=True, slow=frozenset({"fwm"})),
}


@dataclass(frozen=True)
class Sequences:
    """Written pairs keys, values [B,T] and what is asked: queries, targets [B,N]. All are symbol numbers."""

    keys: Tensor
    values: Tensor
    queries: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> "Sequences":
        """The same sequences on a device."""
        return Sequences(*(part.to(device) for part in (self.keys, self.values, self.queries, self.targets)))


class Retrieval(nn.Module):
    """The model around the memory: `symbols` keys and as many values, one head of width `key_width`."""

    def __init__(self, variant: Variant, symbols: int, key_width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.variant = variant
        self.symbols = symbols
        embedding_width = int(2.2 * symbols)
        # the released code: Xavier for softmax attention, whose memory grows, and 1/sqrt(key width) for all others
        is_xavier = variant.state_floats(key_width, symbols, 2) > variant.state_floats(key_width, symbols, 1)
        bound = key_width**-0.5

        def uniform(*shape: int, limit: float) -> nn.Parameter:
            return nn.Parameter((2 * torch.rand(*shape, generator=generator) - 1) * limit)

        written_width = symbols + embedding_width
        write_limit = math.sqrt(6 / (written_width + key_width)) if is_xavier else bound
        query_limit = math.sqrt(6 / (embedding_width + key_width)) if is_xavier else bound
        self.embedding = nn.Parameter(torch.randn(symbols, embedding_width, generator=generator))
        self.key_of_value = uniform(symbols, key_width, limit=write_limit)
        self.key_of_embedding = uniform(embedding_width, key_width, limit=write_limit)
        self.key_bias = uniform(key_width, limit=written_width**-0.5)
        self.query_of_embedding = uniform(embedding_width, key_width, limit=query_limit)
        self.query_bias = uniform(key_width, limit=embedding_width**-0.5)
        if "beta" in variant.inputs:
            self.beta_of_value = uniform(symbols, limit=written_width**-0.5)
            self.beta_of_embedding = uniform(embedding_width, limit=written_width**-0.5)
            self.beta_bias = uniform(1, limit=written_width**-0.5)

    def read(self, asked: Sequences, form: str, draws: Tensor | None) -> Tensor:
        """What the memory answers to each query, [B,N,symbols]."""
        k, q, beta = self.inputs(asked)
        if form != READOUT:
            values = nn.functional.one_hot(asked.values, self.symbols).to(k.dtype).unsqueeze(2)  # B T 1 V
            return read_after_writing(self.variant, form, q, k, values, beta, draws)
        assert self.variant.readout is not None
        given: dict[str, Tensor | None] = {} if beta is None else {"beta": beta}
        if self.variant.draws is not None:
            given["draws"] = draws
        weights = self.variant.readout(q, k, **given)[:, :, 0]  # B N T
        answer = weights.new_zeros(*weights.shape[:2], self.symbols)
        return answer.scatter_add(2, asked.values.unsqueeze(1).expand_as(weights), weights)

    def inputs(self, asked: Sequences) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys [B,T,1,K], queries [B,N,1,K] and betas [B,T,1] from tables of one row a symbol."""
        key_table = self.embedding @ self.key_of_embedding + self.key_bias
        query_table = self.embedding @ self.query_of_embedding + self.query_bias
        lookup = nn.functional.embedding
        k = lookup(asked.keys, key_table) + lookup(asked.values, self.key_of_value)
        q = lookup(asked.queries, query_table)
        beta = None
        if "beta" in self.variant.inputs:
            logits = (
                (self.embedding @ self.beta_of_embedding)[asked.keys]
                + self.beta_of_value[asked.values]
                + self.beta_bias
            )
            beta = torch.sigmoid(logits).unsqueeze(2)
        return k.unsqueeze(2), q.unsqueeze(2), beta


def read_after_writing(
    variant: Variant, form: str, q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None, draws: Tensor | None
) -> Tensor:
    """What N queries [B,N,H,K] read after all T writes, [B,N,V], by an ordinary form and one head.

    All tokens but the last are written once; the last one is written for each query, which it then reads with.
    """
    batch, asked = q.shape[:2]
    memory = None
    if k.shape[1] > 1:
        unread = torch.zeros_like(k[:, :-1])
        beta_before = None if beta is None else beta[:, :-1]
        _, memory = variant.apply(form, unread, k[:, :-1], v[:, :-1], beta_before, None, draws)
        memory = {name: tensor.repeat_interleave(asked, dim=0) for name, tensor in memory.items()}

    def last(x: Tensor) -> Tensor:
        return x[:, -1:].repeat_interleave(asked, dim=0)

    each = q.reshape(batch * asked, 1, *q.shape[2:])
    read, _ = variant.apply(form, each, last(k), last(v), None if beta is None else last(beta), memory, draws)
    return read[:, 0, 0].reshape(batch, asked, -1)


def squared_error(answer: Tensor, targets: Tensor) -> Tensor:
    """Half the squared error against the one-hot target, mean over queries: a scalar. Answering zero gives 0.5."""
    right = answer.gather(2, targets.unsqueeze(2)).squeeze(2)
    return (0.5 * (answer.square().sum(2) - 2 * right + 1)).mean()


def check(point: Point) -> None:
    """Refuse a protocol that there is not. Raises BadParameter."""
    if (protocol := point.text("protocol")) not in PROTOCOLS:
        raise BadParameter(f"no protocol '{protocol}'. {did_you_mean(protocol, PROTOCOLS)}")


def point(**settings: Setting) -> Point:
    """A point of the paper's protocol, with `settings` added or in place of its own."""
    published = Point(
        protocol="text", key_width=64, batch=32, max_steps=100_000, evaluate_every=100, patience=10, target=0.001
    )
    return Point({**published, **settings})


def measure_retrieval(lab: Lab, symbols: int, length: int, repeats: bool) -> None:
    """Train on fresh sequences of `length` writes, evaluate on others with every key queried; record losses, accuracy, load.

    The point holds protocol, key_width, batch, max_steps, evaluate_every, patience (evaluations) and target (loss).
    """
    point, variant, form = lab.case.point, lab.mechanism(), lab.case.form
    protocol = PROTOCOLS[point.text("protocol")]
    key_width, batch, learning_rate = point.integer("key_width"), point.integer("batch"), LEARNING_RATE
    if variant.name in protocol.slow:
        batch, learning_rate = 4 * batch, learning_rate / 10
    model = Retrieval(variant, symbols, key_width, lab.generator("init")).to(lab.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    training_data = lab.generator("data", "training")
    sequences = Sampler(symbols, length, repeats)
    evaluated = Sampler(symbols, symbols if protocol.evaluates_short else length, repeats, protocol.most_queries)
    best = {"accuracy": 0.0}
    current = {"accuracy": 0.0, "keys": 0.0}

    def evaluation_draws(*parts: int) -> Tensor | None:
        return lab.draws(1, key_width, "evaluation", *(parts if protocol.redraws else ()))

    def denominator(step: int) -> float:
        return median_denominator(model, evaluated, lab, evaluation_draws(step, 0))

    def loss_of_step(step: int) -> Tensor:
        asked = sequences(training_data, batch, False).to(lab.device)
        return squared_error(model.read(asked, form, lab.draws(1, key_width, "training", step)), asked.targets)

    def evaluate(step: int) -> float:
        data = lab.generator("data", "evaluation", step)
        loss = right = 0.0
        queries, keys = 0, 0
        for sequence in range(EVALUATION_SEQUENCES):
            asked = evaluated(data, 1, True).to(lab.device)
            answer = model.read(asked, form, evaluation_draws(step, sequence))
            count = asked.targets.shape[1]
            loss += squared_error(answer, asked.targets).item() * count
            right += (answer.argmax(2) == asked.targets).sum().item()
            queries += count
            keys += len(torch.unique(asked.keys))
        current["accuracy"] = right / queries
        current["keys"] = keys / EVALUATION_SEQUENCES
        return loss / queries

    if variant.denominators is not None:
        lab.record("denominator_at_start", denominator(0))
    training = train(
        loss_of_step,
        evaluate,
        optimiser,
        Stopping(
            point.integer("max_steps"),
            point.integer("evaluate_every"),
            point.integer("patience") + protocol.patience,
            point.number("target"),
        ),
        progress=lab.progress,
        on_best=lambda step: best.update(accuracy=current["accuracy"]),
    )
    lab.record("retrieval_loss", training.best_loss)
    lab.record("last_retrieval_loss", training.last_loss)
    lab.record("retrieval_accuracy", best["accuracy"])
    lab.record("distinct_keys", current["keys"])
    lab.record("training_steps", training.steps)
    lab.record("training_seconds", training.training_seconds + training.evaluation_seconds)
    lab.record("milliseconds_per_step", 1e3 * training.training_seconds / training.steps)
    if variant.denominators is not None:
        lab.record("denominator_at_end", denominator(training.steps))
    if variant.feature_width is not None:
        lab.record("feature_width", variant.feature_width(key_width))
    if variant.features is not None:
        lab.record("feature_rank", feature_rank(lab, key_width))
    lab.curve("evaluation_loss", "step", [step for step, _ in training.curve], [loss for _, loss in training.curve])


def median_denominator(model: Retrieval, sequences: "Sampler", lab: Lab, draws: Tensor | None) -> float:
    """The median over queries of z . phi(q), before an epsilon is added to it, in the model's own dtype."""
    variant = model.variant
    assert variant.denominators is not None
    data = lab.generator("data", "denominators")
    found = []
    with torch.no_grad():
        for _ in range(EVALUATION_SEQUENCES):
            k, q, beta = model.inputs(sequences(data, 1, True).to(lab.device))
            given = {} if variant.draws is None else {"draws": draws}
            found.append(variant.denominators(q, k, beta, **given).flatten())
    return torch.cat(found).median().item()


def feature_rank(lab: Lab, key_width: int) -> int:
    """How many dimensions the features of Gaussian keys span: the rank of D + 64 feature vectors, in float64."""
    variant = lab.mechanism()
    assert variant.features is not None
    assert variant.feature_width is not None
    width = variant.feature_width(key_width)
    keys = torch.randn(1, width + 64, 1, key_width, generator=lab.generator("rank"), dtype=torch.float64)
    draws = lab.draws(1, key_width, "rank")
    given = {} if draws is None else {"draws": draws.cpu()}
    return int(torch.linalg.matrix_rank(variant.features(keys, **given)[0, :, 0]).item())


class Sampler:
    """Draws sequences: `sampler(generator, batch, asks_all)`. One query a sequence in training, every written key in evaluation,
    or the `most_queries` with the smallest numbers.
    """

    def __init__(self, symbols: int, length: int, repeats: bool, most_queries: int | None = None) -> None:
        self.symbols, self.length, self.repeats, self.most_queries = symbols, length, repeats, most_queries

    def __call__(self, generator: torch.Generator, batch: int, asks_all: bool) -> Sequences:
        """Keys and values drawn with replacement where `repeats`, else as two independent permutations."""
        keys, values = self._symbols(generator, batch), self._symbols(generator, batch)
        if asks_all:
            assert batch == 1
            queries = torch.unique(keys)[: self.most_queries].unsqueeze(0)
        else:
            asked = torch.randint(self.length, (batch, 1), generator=generator)
            queries = keys.gather(1, asked)
        # the value that counts is the one written last under the key
        position = torch.arange(self.length)
        written = (keys.unsqueeze(1) == queries.unsqueeze(2)) * (position + 1)  # B N T
        targets = values.gather(1, written.argmax(2))
        return Sequences(keys, values, queries, targets)

    def _symbols(self, generator: torch.Generator, batch: int) -> Tensor:
        if self.repeats:
            return torch.randint(self.symbols, (batch, self.length), generator=generator)
        return torch.rand(batch, self.symbols, generator=generator).argsort(1)

import contextlib
import itertools
import random
import re
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from attnbench.variants import find
from attnbench.variants.compose import Parts
from attnbench.variants.compose import check as check_parts
from attnbench.variants.contract import Composition
from attnbench.variants.errors import BadParameter, UnknownVariant, UserError
from attnbench.variants.names import PATTERN, parse, spell
from attnbench.variants.registry import everything, spelled

VOCABULARY = everything().vocabulary


def is_legal(composition: Composition) -> bool:
    """Whether the mathematics allows it and there is a base to call it by (identity and tanh name no sum rule)."""
    feature_map, rule = VOCABULARY.feature_maps[composition.feature_map], VOCABULARY.write_rules[composition.write_rule]
    norms = tuple(VOCABULARY.normalisations[name] for name in sorted(composition.normalisations))
    try:
        check_parts(Parts(feature_map, rule, norms, dict(composition.numbers), composition.options))
    except BadParameter:
        return False
    return bool(feature_map.base) or rule.bare == feature_map.name


def every_composition() -> list[Composition]:
    """All that are legal, each number being 1."""
    found = []
    for feature_map, rule in itertools.product(VOCABULARY.feature_maps.values(), VOCABULARY.write_rules.values()):
        numbers = tuple((letter.name, 1) for letter in feature_map.letters)
        for norms, options in itertools.product(
            subsets(VOCABULARY.normalisations), subsets((*feature_map.options, *rule.options))
        ):
            composition = Composition(feature_map.name, rule.name, numbers, norms, options)
            if is_legal(composition):
                found.append(composition)
    return found


def subsets(words) -> list[frozenset[str]]:
    return [frozenset(some) for size in range(len(words) + 1) for some in itertools.combinations(sorted(words), size)]


def numbered(composition: Composition, number: int) -> Composition:
    """The composition with another number: `dpfp-nu7` from `dpfp-nu1`."""
    return replace(composition, numbers=tuple((letter, number) for letter, _ in composition.numbers))


COMPOSITIONS = every_composition()
MODIFIED_TWICE = [one for one in COMPOSITIONS if spelled(one).count("+") > 1]
compositions = st.sampled_from(COMPOSITIONS)
numbers = st.integers(1, 300)


@given(compositions, numbers)
def test_every_legal_composition_spells_to_a_name_that_parses_back_to_it(composition, number):
    composition = numbered(composition, number)
    name = spell(composition, VOCABULARY)
    assert PATTERN.fullmatch(name)
    assert parse(name, VOCABULARY) == composition


def test_no_two_compositions_share_a_name():
    both = [*COMPOSITIONS, *(numbered(one, 2) for one in COMPOSITIONS if one.numbers)]
    assert len(both) > 100
    assert len({spelled(one) for one in both}) == len(both)


@given(compositions, numbers)
def test_every_legal_name_is_found_under_itself(composition, number):
    name = spelled(numbered(composition, number))
    # a file can give a composition a name of its own (none does with these parts), and is then the only way to spell it
    assert find(name).name == name


@given(st.sampled_from(MODIFIED_TWICE), numbers, st.randoms(use_true_random=False))
def test_another_order_of_the_modifiers_is_refused_with_the_canonical_name(composition, number, order):
    composition = numbered(composition, number)
    name = spell(composition, VOCABULARY)
    base, *modifiers = name.split("+")
    shuffled = order.sample(modifiers, len(modifiers))
    assume(shuffled != modifiers)
    with pytest.raises(UnknownVariant, match=f"is spelled '{re.escape(name)}'."):
        parse("+".join([base, *shuffled]), VOCABULARY)


@given(st.sampled_from([one for one in COMPOSITIONS if one.numbers]), numbers, st.integers(1, 3))
def test_leading_zeros_are_refused_with_the_canonical_name(composition, number, zeros):
    composition = numbered(composition, number)
    name = spell(composition, VOCABULARY)
    padded = re.sub(r"(-[a-z]+)([0-9]+)", lambda found: found[1] + "0" * zeros + found[2], name)
    with pytest.raises(UnknownVariant, match=f"^'{re.escape(padded)}' is spelled '{re.escape(name)}'.$"):
        parse(padded, VOCABULARY)


@given(compositions, numbers, st.data())
def test_upper_case_blanks_and_underscores_are_refused_with_the_canonical_name(composition, number, data):
    composition = numbered(composition, number)
    name = spell(composition, VOCABULARY)
    others = {name.upper(), name.title(), f" {name}", f"{name}\n", name.replace("-", "_")} - {name}
    other = data.draw(st.sampled_from(sorted(others)))
    with pytest.raises(UnknownVariant, match=f"is spelled '{re.escape(name)}'."):
        parse(other, VOCABULARY)


@given(compositions, numbers)
def test_a_restated_default_is_refused_with_the_canonical_name(composition, number):
    composition = numbered(composition, number)
    rule = VOCABULARY.write_rules[composition.write_rule]
    name = spell(composition, VOCABULARY)
    defaults = [norm for norm in rule.normalisations if norm in composition.normalisations]
    for norm in defaults:
        restated = f"{name}+{VOCABULARY.normalisations[norm].modifier}"
        with pytest.raises(UnknownVariant, match=f"is spelled '{re.escape(name)}'."):
            parse(restated, VOCABULARY)
    for norm in set(VOCABULARY.normalisations) - composition.normalisations - set(rule.normalisations):
        restated = f"{name}+no{VOCABULARY.normalisations[norm].modifier}"
        with pytest.raises(UnknownVariant, match=f"is spelled '{re.escape(name)}'."):
            parse(restated, VOCABULARY)


@given(st.text("abdelnoprsu12+-_ ", max_size=12) | st.text(max_size=12))
def test_any_text_is_a_canonical_name_or_refused_as_a_mistake_of_the_user(text):
    # anything else that is raised fails the test
    with contextlib.suppress(UserError):
        assert spell(parse(text, VOCABULARY), VOCABULARY) == text


@given(st.randoms(use_true_random=False))
def test_joined_pieces_of_names_are_a_canonical_name_or_refused_as_a_mistake_of_the_user(order: random.Random):
    bases = [*VOCABULARY.bases(), *VOCABULARY.synonyms(), "softmax"]
    words = order.sample([*VOCABULARY.modifiers(), "sum", "softmax", ""], order.randint(0, 3))
    stem = order.choice(bases) + order.choice(["", "-nu1", "-m8", "-nu0", "-m", "-q4", "-nu1-nu1"])
    text = "+".join([stem, *words])
    with contextlib.suppress(UserError):
        assert find(text).name == text


@pytest.mark.parametrize(
    ("other", "canonical"),
    [
        ("linear+delta", "delta"),
        ("linear+attnnorm", "linear"),
        ("linear+sum", "linear"),
        ("linear+fwm+nosumnorm", "linear+fwm"),
        ("linear+gated", "gated"),
        ("delta+sumnorm", "delta"),
        ("delta+l2norm+nosumnorm", "delta+l2norm"),
        ("delta+fixedbeta+attnnorm", "delta+attnnorm+fixedbeta"),
        ("delta+attnnorm+attnnorm", "delta+attnnorm"),
        ("performer-m064", "performer-m64"),
        ("performer-m8+delta+scaled", "performer-m8+scaled+delta"),
        ("performer-m8+fixeddraws+scaled", "performer-m8+scaled+fixeddraws"),
        ("favor-m64", "performer-m64"),
        ("elu1", "linear"),
        ("elu1+delta", "delta"),
        ("dpfp-nu2+DELTA", "dpfp-nu2+delta"),
        ("dpfp_nu2", "dpfp-nu2"),
        ("Softmax", "softmax"),
    ],
)
def test_another_spelling_is_refused_with_the_canonical_one(other, canonical):
    with pytest.raises(UnknownVariant, match=f"^'{re.escape(other)}' is spelled '{re.escape(canonical)}'.$"):
        find(other)
    assert find(canonical).name == canonical


@pytest.mark.parametrize(
    ("name", "near"),
    [("dfpf-nu1", "dpfp-nu1"), ("sofmax", "softmax"), ("liner", "linear"), ("fwp91", "fwp1991"), ("gate", "gated")],
)
def test_an_unknown_name_is_refused_with_the_known_ones_and_the_nearest(name, near):
    with pytest.raises(UnknownVariant) as refused:
        find(name)
    assert str(refused.value) == (
        f"no variant '{name}'. Known: delta, dpfp-nu1, fwm, fwp1991, gated, linear, performer-m64, softmax, xl. "
        f"Did you mean '{near}'?"
    )


def test_a_name_that_is_near_nothing_gets_no_guess():
    with pytest.raises(UnknownVariant, match=r"^no variant 'xyzzy'\. Known: delta, .*, softmax, xl\.$"):
        find("xyzzy")


def test_an_unknown_modifier_is_refused_with_the_known_ones_and_the_nearest():
    with pytest.raises(UnknownVariant) as refused:
        find("delta+atnnorm")
    message = str(refused.value)
    assert message.startswith("'delta+atnnorm': no modifier '+atnnorm'. Known: attnnorm, delta, fixedbeta, ")
    assert message.endswith(" Did you mean 'attnnorm'?")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("dpfp-nu0", "dpfp needs nu (products per component) from 1 up, got nu=0. Use 'dpfp-nu1'."),
        ("performer-m0", "performer needs m (random directions) from 1 up, got m=0. Use 'performer-m1'."),
        ("performer", "'performer' needs m (random directions). Did you mean 'performer-m64'?"),
        ("dpfp", "'dpfp' needs nu (products per component). Did you mean 'dpfp-nu1'?"),
        ("dpfp+delta", "'dpfp+delta' needs nu (products per component). Did you mean 'dpfp-nu1'?"),
        ("dpfp-m2", "'dpfp-m2': dpfp takes -nu<number>, got '-m2'."),
        ("dpfp-nu1-nu2", "'dpfp-nu1-nu2': dpfp takes -nu<number>, got '-nu2'."),
        ("dpfp-nu-1", "'dpfp-nu-1': dpfp takes -nu<number>, got '-nu'."),
        ("linear-m4", "'linear-m4': linear takes no number, got '-m4'."),
        ("softmax+delta", "'softmax+delta' names two write rules, softmax and delta; a variant has one."),
        ("delta+fwm", "'delta+fwm' names two write rules, delta and fwm; a variant has one."),
        ("dpfp-nu1+delta+gated", "'dpfp-nu1+delta+gated' names two write rules, delta and gated; a variant has one."),
        ("linear+softmax", "the softmax rule works on identity features only, got elu1."),
        ("linear+scaled", "'linear+scaled': +scaled does not go with elu1 features and the sum rule."),
        ("linear+fixedbeta", "'linear+fixedbeta': +fixedbeta does not go with elu1 features and the sum rule."),
        ("delta+sumnorm+nosumnorm", "'delta+sumnorm+nosumnorm' both adds and drops the sum normalisation."),
        (
            "linear+l2norm+sumnorm",
            "'linear+l2norm+sumnorm' divides the features twice, by l2 and sum normalisation; one is enough.",
        ),
        (
            "linear+sumnorm+l2norm",
            "'linear+sumnorm+l2norm' divides the features twice, by l2 and sum normalisation; one is enough.",
        ),
        (
            "softmax+attnnorm",
            "the softmax rule takes no attention normalisation (+attnnorm). Allowed: none.",
        ),
        ("fwm+attnnorm", "the fwm rule takes no attention normalisation (+attnnorm). Allowed: sum, l2."),
        ("fwm+sumnorm", "sum normalisation (+sumnorm) needs features of one sign; tanh has both."),
        (
            "performer-m8+scaled+delta+nosumnorm",
            "+scaled moves the scale of the features, which the delta rule cannot follow without a division of features.",
        ),
    ],
)
def test_what_the_mathematics_does_not_allow_is_refused_with_a_reason(name, says):
    with pytest.raises(BadParameter) as refused:
        find(name)
    assert str(refused.value) == says


@pytest.mark.parametrize(
    ("name", "key_width", "says"),
    [
        (
            "dpfp-nu64",
            64,
            "dpfp needs nu from 1 to 63 at K=64 (beyond K - 1 its features repeat), got nu=64. Use 'dpfp-nu63'.",
        ),
        ("dpfp-nu1", 1, "dpfp needs a key width of at least 2, got K=1."),
        (
            "dpfp-nu9+delta",
            8,
            "dpfp needs nu from 1 to 7 at K=8 (beyond K - 1 its features repeat), got nu=9. Use 'dpfp-nu7'.",
        ),
    ],
)
def test_a_number_that_does_not_fit_the_key_width_is_refused_where_the_width_is_known(name, key_width, says):
    with pytest.raises(BadParameter) as refused:
        find(name).check(key_width)
    assert str(refused.value) == says


def test_a_number_that_fits_the_key_width_is_accepted():
    find("dpfp-nu63").check(64)
    find("performer-m512").check(64)
    find("linear").check(1)

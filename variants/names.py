"""The names of variants: one canonical spelling per composition.

    name(-letters number)*(+modifier)*        performer-m64+scaled+delta, delta+attnnorm, dpfp-nu2

The base is a feature map's (`linear` is elu1, `performer` is favor) or, where a rule has a bare map, the rule's own
(`delta` is elu1 with the delta rule). Modifiers follow in one order: options of the map, the rule, the attention
normalisation, the division of features, options of the rule. A default is never spelled.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from attnbench.variants.contract import Composition, FeatureMap, Normalisation, WriteRule
from attnbench.variants.errors import BadParameter, UnknownVariant, did_you_mean

PATTERN = re.compile(r"[a-z][a-z0-9]*(-[a-z]+[0-9]+)*(\+[a-z][a-z0-9]*)*")


@dataclass(frozen=True)
class Vocabulary:
    """The parts that names are made of, by their names."""

    feature_maps: Mapping[str, FeatureMap]
    write_rules: Mapping[str, WriteRule]
    normalisations: Mapping[str, Normalisation]

    def bases(self) -> Mapping[str, tuple[str, str]]:
        """Base name -> (feature map, write rule)."""
        maps = {one.base: (one.name, "sum") for one in self.feature_maps.values() if one.base}
        return {**maps, **{rule.name: (rule.bare, rule.name) for rule in self.write_rules.values() if rule.bare}}

    def synonyms(self) -> Mapping[str, tuple[str, str]]:
        """Bases by which a map is also known: its own name."""
        return {one.name: (one.name, "sum") for one in self.feature_maps.values() if one.base}

    def modifiers(self) -> list[str]:
        """Every modifier that some name can carry."""
        spelled = {rule.name for rule in self.write_rules.values() if not rule.maps and rule.name != "sum"}
        for norm in self.normalisations.values():
            spelled |= {norm.modifier, f"no{norm.modifier}"}
        for feature_map in self.feature_maps.values():
            spelled |= set(feature_map.options)
        for rule in self.write_rules.values():
            spelled |= set(rule.options)
        return sorted(spelled)


def spell(composition: Composition, vocabulary: Vocabulary) -> str:
    """The canonical name of a composition."""
    feature_map = vocabulary.feature_maps[composition.feature_map]
    rule = vocabulary.write_rules[composition.write_rule]
    words: list[str] = []
    if rule.bare == feature_map.name:
        base = rule.name
    else:
        base = feature_map.base
        if rule.name != "sum":
            words.append(rule.name)
    numbers = dict(composition.numbers)
    base += "".join(f"-{letter.name}{numbers[letter.name]}" for letter in feature_map.letters)
    before = [option for option in feature_map.options if option in composition.options]
    default = frozenset(rule.normalisations)
    # a division of features takes the place of another, so only a bare absence is spelled
    divides = {norm.name for norm in vocabulary.normalisations.values() if norm.features is not None}
    for norm in sorted(vocabulary.normalisations.values(), key=lambda one: (one.features is not None, one.name)):
        if norm.name in composition.normalisations and norm.name not in default:
            words.append(norm.modifier)
        elif norm.name in default and norm.name not in composition.normalisations:
            replaced = norm.name in divides and bool(divides & composition.normalisations)
            if not replaced:
                words.append(f"no{norm.modifier}")
    after = [option for option in rule.options if option in composition.options]
    return "+".join([base, *before, *words, *after])


def parse(name: str, vocabulary: Vocabulary, others: Iterable[str] = ()) -> Composition:
    """The composition that `name` stands for.

    `others` are known names that are no composition, for the hint. Raises UnknownVariant for an unknown name and for any
    but the canonical spelling, BadParameter for numbers and modifiers that do not fit.
    """
    composition = _read(name, vocabulary, others)
    canonical = spell(composition, vocabulary)
    if canonical != name:
        raise UnknownVariant(f"'{name}' is spelled '{canonical}'.")
    return composition


def _read(name: str, vocabulary: Vocabulary, others: Iterable[str]) -> Composition:
    """The composition meant by `name`, however it is spelled."""
    stem, *modifiers = name.strip().lower().replace("_", "-").split("+")
    base, *numbers = stem.split("-")
    bases = vocabulary.bases()
    meaning = bases.get(base) or vocabulary.synonyms().get(base)
    if meaning is None:
        known = [*(_example(one, vocabulary) for one in bases), *others]
        raise UnknownVariant(f"no variant '{name}'. {did_you_mean(name, known)}")
    feature_map = vocabulary.feature_maps[meaning[0]]
    composition = Composition(meaning[0], meaning[1], _numbers(name, numbers, feature_map))
    return _modified(name, composition, modifiers, vocabulary)


def _example(base: str, vocabulary: Vocabulary) -> str:
    """A base with numbers that it takes: `dpfp-nu1`."""
    feature_map = vocabulary.feature_maps[vocabulary.bases()[base][0]]
    return base + "".join(f"-{letter.name}{letter.example}" for letter in feature_map.letters)


def _numbers(name: str, pieces: list[str], feature_map: FeatureMap) -> tuple[tuple[str, int], ...]:
    """The numbers of a name, in the order of the map's letters. Raises BadParameter."""
    found: dict[str, int] = {}
    for piece in pieces:
        match = re.fullmatch(r"([a-z]+)([0-9]+)", piece)
        if match is None or match[1] not in {letter.name for letter in feature_map.letters} or match[1] in found:
            takes = " and ".join(f"-{letter.name}<number>" for letter in feature_map.letters) or "no number"
            raise BadParameter(f"'{name}': {feature_map.base or feature_map.name} takes {takes}, got '-{piece}'.")
        found[match[1]] = int(match[2])
    for letter in feature_map.letters:
        if letter.name not in found:
            raise BadParameter(
                f"'{name}' needs {letter.name} ({letter.meaning}). Did you mean '{feature_map.base}-{letter.name}{letter.example}'?"
            )
    feature_map.check(0, found)
    return tuple((letter.name, found[letter.name]) for letter in feature_map.letters)


def _modified(name: str, composition: Composition, modifiers: list[str], vocabulary: Vocabulary) -> Composition:
    """The composition with the modifiers applied, in whatever order they came. Raises BadParameter, UnknownVariant."""
    norms = {norm.modifier: norm for norm in vocabulary.normalisations.values()}
    rules = [word for word in modifiers if word in vocabulary.write_rules]
    if len(set(rules)) > 1:
        raise BadParameter(f"'{name}' names two write rules, {' and '.join(rules)}; a variant has one.")
    if rules:
        if composition.write_rule not in ("sum", rules[0]):
            raise BadParameter(
                f"'{name}' names two write rules, {composition.write_rule} and {rules[0]}; a variant has one."
            )
        composition = replace(composition, write_rule=rules[0])
    rule, feature_map = vocabulary.write_rules[composition.write_rule], vocabulary.feature_maps[composition.feature_map]
    added: set[str] = set()
    dropped: set[str] = set()
    options: set[str] = set()
    for word in modifiers:
        if word in vocabulary.write_rules:
            continue
        if word in norms:
            added.add(norms[word].name)
        elif word.startswith("no") and word[2:] in norms:
            dropped.add(norms[word[2:]].name)
        elif word in feature_map.options or word in rule.options:
            options.add(word)
        elif word in vocabulary.modifiers():
            raise BadParameter(
                f"'{name}': +{word} does not go with {feature_map.name} features and the {rule.name} rule."
            )
        else:
            raise UnknownVariant(f"'{name}': no modifier '+{word}'. {did_you_mean(word, vocabulary.modifiers())}")
    if both := added & dropped:
        raise BadParameter(f"'{name}' both adds and drops the {', '.join(sorted(both))} normalisation.")
    divides = {norm.name for norm in norms.values() if norm.features is not None}
    kept = set(rule.normalisations) - dropped
    if added & divides:
        kept -= divides
    if len(twice := sorted((kept | added) & divides)) > 1:
        raise BadParameter(
            f"'{name}' divides the features twice, by {' and '.join(twice)} normalisation; one is enough."
        )
    return replace(composition, normalisations=frozenset(kept | added), options=frozenset(options))

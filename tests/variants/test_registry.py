import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from attnbench import variants
from attnbench.variants import find, listed, registry
from attnbench.variants.errors import BadVariant, UnknownVariant

WHOLE = """
from attnbench.variants import Form, Variant

def recurrent(q, k, v, memory=None):
    return v, {}

VARIANT = Variant(
    name="NAME",
    formula="o_t = v_t",
    source="made up",
    forms={"recurrent": Form(recurrent)},
    state_floats=lambda K, V, T: 0,
)
"""


@pytest.fixture
def dropped_in(tmp_path, monkeypatch):
    """A function that puts a file beside the project's own, for one test."""

    def drop(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        monkeypatch.delitem(sys.modules, f"{variants.__name__}.{path.stem}", raising=False)
        return path

    monkeypatch.setattr(variants, "__path__", [*variants.__path__, str(tmp_path)])
    registry.everything.cache_clear()
    yield drop
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"{variants.__name__}.{path.stem}", None)
        if hasattr(variants, path.stem):
            delattr(variants, path.stem)
    registry.everything.cache_clear()


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    """The address of a variant file with this text."""
    (folder / name).write_text(textwrap.dedent(text))
    return str(folder / name)


def in_a_new_process(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def refusal_in_a_new_process(folder: Path, name: str) -> str:
    """What a BadVariant says to a process that looks `name` up."""
    ended = in_a_new_process(
        folder,
        "from attnbench.variants import find\n"
        "from attnbench.variants.errors import BadVariant\n"
        f"try: find({name!r})\n"
        "except BadVariant as problem: print(problem)",
    )
    assert ended.stderr == ""
    return ended.stdout


# drop-in files


def test_a_file_dropped_in_is_found_and_listed_by_itself(dropped_in):
    path = dropped_in("copying.py", WHOLE.replace("NAME", "copying"))
    variant = find("copying")
    assert variant.name == "copying"
    assert variant.origins == (path,)
    assert listed() == [*registry.LISTED, "copying"]


def test_a_feature_map_dropped_in_composes_with_every_rule(dropped_in):
    path = dropped_in(
        "square.py",
        """
        from attnbench.variants import FeatureMap

        FEATURE_MAP = FeatureMap(
            name="square", base="square", formula="phi(x) = x^2", source="made up",
            features=lambda x, draws=None: x * x, width=lambda K: K, is_nonnegative=True,
        )
        """,
    )
    of_others = {"fla-chunk", "fla-recurrent"}
    assert set(find("square").forms) == {"recurrent", "chunkwise", "parallel", "step", *of_others}
    assert path in find("square+delta").origins
    assert find("square+gated").inputs == ("q", "k", "v", "beta")


def test_a_composition_dropped_in_has_a_name_of_its_own_and_no_other(dropped_in):
    dropped_in(
        "paper.py",
        """
        from attnbench.variants import Composition, Named

        VARIANT = Named(
            name="mydelta", formula="as the paper has it", source="made up",
            composition=Composition("dpfp", "delta", (("nu", 2),), frozenset({"sum"})),
        )
        """,
    )
    assert find("mydelta").formula == "as the paper has it"
    assert find("mydelta").state_floats(8, 3, 100) == 3 * 32
    with pytest.raises(UnknownVariant, match=r"^'dpfp-nu2\+delta' is spelled 'mydelta'\.$"):
        find("dpfp-nu2+delta")


def test_a_composition_of_unknown_parts_is_refused_with_the_nearest(dropped_in):
    dropped_in(
        "paper.py",
        """
        from attnbench.variants import Composition, Named

        VARIANT = Named(name="mine", formula="", source="", composition=Composition("elu", "delta"))
        """,
    )
    with pytest.raises(
        BadVariant, match=r"^variant 'mine': no feature map 'elu'\. Known: dpfp, .* Did you mean 'elu1'\?$"
    ):
        find("mine")


FUSED = """
from pathlib import Path

from attnbench.variants import Form, Fused

def forms(parts):
    if parts.write_rule.name != "sum":
        return {}
    both = parts.feature_map.name, sorted(norm.name for norm in parts.normalisations), dict(parts.numbers)
    return {"FORM": Form(lambda q, k, v, memory=None, draws=None: (v, {"told": both}), origins=(Path(__file__),))}

FUSED = Fused(name="mine", forms=forms)
"""


def test_forms_of_whole_compositions_dropped_in_join_those_that_they_serve(dropped_in):
    path = dropped_in("mine.py", FUSED.replace("FORM", "fast"))
    dpfp = find("dpfp-nu2")
    assert dpfp.forms["fast"].call(None, None, 1) == (1, {"told": ("dpfp", ["attention"], {"nu": 2})})
    assert dpfp.forms["fast"].origins == (path,)
    assert path not in dpfp.origins
    assert "fast" not in find("delta").forms


def test_a_form_of_a_whole_composition_takes_no_other_forms_place(dropped_in):
    dropped_in("mine.py", FUSED.replace("FORM", "chunkwise"))
    with pytest.raises(
        BadVariant, match=r"^variant 'linear' has a form 'chunkwise' already; FUSED 'mine' gives it another\.$"
    ):
        find("linear")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "import no_such_module",
            "attnbench.variants.mine does not import: ModuleNotFoundError: No module named 'no_such",
        ),
        ("def f(:", "attnbench.variants.mine does not import: SyntaxError: "),
        ("x = 1", "mine.py must export one of FEATURE_MAP, WRITE_RULE, NORMALISATION, VARIANT, FUSED, got none."),
        ("VARIANT = FEATURE_MAP = 1", "FUSED, got FEATURE_MAP, VARIANT."),
        ("VARIANT = 1", "VARIANT in {path} has the type int."),
        (WHOLE.replace("NAME", "My_Own"), "an exported VARIANT is called 'My_Own'; a name is lower-case letters"),
        (WHOLE.replace("NAME", "fwp1991"), "VARIANT 'fwp1991' is exported by both {fwp1991} and {path}."),
        (
            WHOLE.replace("NAME", "delta"),
            "the VARIANT in {path} is called 'delta', which is taken. Give it another name.",
        ),
    ],
)
def test_a_bad_file_dropped_in_is_refused_with_its_path_and_reason(dropped_in, text, says):
    path = dropped_in("mine.py", text)
    with pytest.raises(BadVariant) as refused:
        find("softmax")
    own = Path(variants.__file__).with_name("fwp1991.py")
    assert says.format(path=path, fwp1991=own) in str(refused.value)


# a file by its path


def test_a_path_names_a_variant_with_and_without_the_attribute(tmp_path):
    address = write(tmp_path, WHOLE.replace("NAME", "copying") + "OTHER = VARIANT\n")
    for one in (address, f"{address}:VARIANT", f"{address}:OTHER"):
        variant = find(one)
        assert variant.name == "copying"
        assert variant.origins == (Path(address),)


def test_a_folder_may_have_py_in_its_name(tmp_path):
    folder = tmp_path / ".pyenv" / "my.py:files"
    folder.mkdir(parents=True)
    assert find(write(folder, WHOLE.replace("NAME", "copying")) + ":VARIANT").name == "copying"


def test_a_relative_path_works(tmp_path, monkeypatch):
    write(tmp_path, WHOLE.replace("NAME", "copying"))
    monkeypatch.chdir(tmp_path)
    assert find("mine.py:VARIANT").origins == (tmp_path / "mine.py",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import no_such_module", "{path} does not import: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:", "{path} does not import: SyntaxError: "),
        ("x = 1", "{path} has no VARIANT; it needs VARIANT = Variant(...)."),
        (WHOLE.replace("VARIANT", "MINE"), "{path} has no VARIANT; it needs VARIANT = Variant(...). It has MINE."),
        ("VARIANT = 'delta'", "VARIANT in {path} must be a Variant, got str."),
        (
            WHOLE.replace("NAME", "linear"),
            "VARIANT in {path} is called 'linear', which is taken. Give it another name.",
        ),
        (WHOLE.replace("NAME", "fwp1991"), "VARIANT in {path} is called 'fwp1991', which is taken."),
        (WHOLE.replace("NAME", "dpfp-nu7+delta"), "is called 'dpfp-nu7+delta', which is taken."),
        (
            WHOLE.replace("NAME", "My Own"),
            "VARIANT in {path} is called 'My Own'; a name is lower-case letters and digits",
        ),
        (
            WHOLE.replace('"recurrent": Form', '"chunkwise": Form'),
            "variant 'NAME' needs a form 'recurrent', the oracle for all others; got ['chunkwise'].",
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_path_and_reason(tmp_path, text, says):
    path = write(tmp_path, text)
    with pytest.raises(BadVariant) as refused:
        find(f"{path}:VARIANT")
    assert says.format(path=path) in str(refused.value)


def test_a_file_that_lacks_a_field_is_refused_with_the_field(tmp_path):
    path = write(tmp_path, WHOLE.replace('    formula="o_t = v_t",\n', ""))
    # in a process without the enforced annotations of the tests, which word it in their own way
    assert refusal_in_a_new_process(tmp_path, path) == (
        f"{path} does not import: TypeError: Variant.__init__() missing 1 required positional argument: 'formula'\n"
    )


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadVariant, match=r"^no variant file .*nowhere\.py\.$"):
        find(f"{tmp_path}/nowhere.py:VARIANT")


# installed packages


def installed(folder: Path, value: str, text: str) -> Path:
    """A distribution as pip leaves it in a folder of sys.path: a module, and metadata that names an entry point."""
    (folder / "their_module.py").write_text(textwrap.dedent(text))
    metadata = folder / "theirs-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[attnbench.variants]\ntheirs = {value}\n")
    return folder


def test_the_variant_of_an_installed_package_is_found_and_listed(tmp_path):
    installed(tmp_path, "their_module:VARIANT", WHOLE.replace("NAME", "theirs"))
    ended = in_a_new_process(
        tmp_path,
        "from attnbench.variants import find, listed; print('theirs' in listed(), find('theirs').origins[0].name)",
    )
    assert (ended.stdout, ended.stderr) == ("True their_module.py\n", "")


@pytest.mark.parametrize(
    ("value", "text", "says"),
    [
        (
            "their_module:VARIANT",
            "raise OSError('no licence')",
            "entry point 'theirs' of group attnbench.variants (their_module:VARIANT) does not import: no licence.",
        ),
        (
            "their_module:x",
            "x = 1",
            "entry point 'theirs' of group attnbench.variants (their_module:x) must name a FEATURE_MAP, WRITE_RULE, "
            "NORMALISATION, VARIANT, FUSED, got int.",
        ),
        (
            "their_module:VARIANT",
            WHOLE.replace("NAME", "delta"),
            "their_module.py is called 'delta', which is taken. Give it another name.",
        ),
    ],
)
def test_a_bad_entry_point_is_refused_with_its_name_and_reason(tmp_path, value, text, says):
    installed(tmp_path, value, text)
    assert says in refusal_in_a_new_process(tmp_path, "softmax")


# the list


def test_every_listed_variant_is_found_under_its_name():
    assert [find(name).name for name in listed()] == listed()


def test_every_part_is_listed_at_least_once():
    variants = [find(name) for name in listed()]
    origins = {origin for variant in variants for origin in variant.origins}
    origins |= {origin for variant in variants for form in variant.forms.values() for origin in form.origins}
    assert origins >= set(registry.everything().origins.values())


def test_every_variant_says_its_formula_its_source_and_the_files_it_is_made_of():
    for name in listed():
        variant = find(name)
        assert variant.formula
        assert variant.source.startswith(("arXiv:", "doi:"))
        assert variant.origins
        assert all(origin.is_file() for origin in variant.origins)


def test_importing_the_package_imports_no_torch():
    program = (
        "import sys, attnbench.variants; print('torch' in sys.modules, 'attnbench.variants.registry' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "False False\n"


def test_an_unknown_attribute_of_the_package_is_an_error():
    with pytest.raises(AttributeError, match=r"module 'attnbench\.variants' has no attribute 'nothing'"):
        _ = variants.nothing

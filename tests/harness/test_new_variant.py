import subprocess
import sys

import pytest

from attnbench.harness.checks import check
from attnbench.harness.errors import UserError
from attnbench.harness.new_variant import write_variant
from attnbench.variants import find


@pytest.mark.parametrize("name", ["fading", "fading-a2+fast"])
def test_a_new_variant_passes_every_check_as_it_is_written(tmp_path, name):
    path = write_variant(name, tmp_path)
    variant = find(f"{path}:VARIANT")
    assert variant.name == name
    assert [str(finding) for finding in check(variant) if finding.state != "passed"] == []


def test_a_new_variant_is_a_short_file_that_says_its_own_name(tmp_path):
    path = write_variant("fading-a2", tmp_path)
    assert path == tmp_path / "fading_a2.py"
    text = path.read_text()
    assert text.startswith('"""fading-a2: ')
    assert "NAME" not in text
    assert 30 <= len(text.splitlines()) <= 40


def test_a_new_variant_works_as_a_drop_in_file(tmp_path):
    write_variant("fading", tmp_path)
    program = (
        "import sys, attnbench.variants as variants; variants.__path__.append(sys.argv[1]); "
        "print(variants.find('fading').forms['step'].tokens, 'fading' in variants.listed())"
    )
    run = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "1 True\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Fading_2", "'Fading_2' cannot name a variant: a name is lower-case letters and digits, .* Try 'fading2'."),
        ("", "'' cannot name a variant: .* Try 'mine'."),
        ("../fading", "'../fading' cannot name a variant: .* Try 'fading'."),
        ("delta", "'delta' is taken, or reads as a variant made of known parts. Give the new one another name."),
        ("fwp1991", "'fwp1991' is taken"),
        ("favor", "'favor' is taken"),
        ("dpfp-nu7", "'dpfp-nu7' is taken"),
        ("delta+mine", "'delta\\+mine' is taken"),
    ],
)
def test_a_name_that_is_not_legal_or_not_free_is_refused(tmp_path, name, says):
    with pytest.raises(UserError, match=f"^{says}"):
        write_variant(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(
        UserError, match=r"^no folder .*nowhere to write 'fading' into. Make it first, or name another.$"
    ):
        write_variant("fading", tmp_path / "nowhere")


def test_a_file_that_is_there_already_is_left_as_it_is(tmp_path):
    (tmp_path / "fading.py").write_text("mine")
    with pytest.raises(
        UserError, match=r"fading\.py is there already and is left as it is\. Give the variant another name\."
    ):
        write_variant("fading", tmp_path)
    assert (tmp_path / "fading.py").read_text() == "mine"


def test_a_file_that_the_system_does_not_take_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"^cannot write .*a\.py: File name too long\. Name a folder"):
        write_variant("a" * 300, tmp_path)

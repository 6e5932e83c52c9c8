"""Manual pages: one for each verb, with what its help says."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from controller.cli.main import main as partition_controller
from controller.cli.pctl.main import main
from controller.cli.pctl.man import pages
from controller.cli.pctl_examples import EXAMPLES
from tests.cli.test_examples import verbs

PAGES = {**dict(pages(main, "pctl")), **dict(pages(partition_controller, "partition-controller"))}


@pytest.mark.parametrize("verb", sorted(verbs(main)))
def test_each_verb_has_a_page_with_its_examples(verb: str) -> None:
    page = PAGES[f"pctl {verb}"]
    title = f"PCTL {verb.upper()}".replace(" ", "-").replace("-", "\\-")
    assert page.startswith(f'.TH "{title}"')
    assert page.index(".SH NAME") < page.index(".SH SYNOPSIS") < page.index(".SH EXAMPLES")
    examples = page[page.index(".SH EXAMPLES") :].replace("\\-", "-").replace("\\e", "\\")
    assert [line for line in examples.splitlines() if line.startswith("pctl")] == [
        f"pctl {line}" for line in EXAMPLES[verb]
    ]


def test_the_daemon_has_its_pages() -> None:
    assert {
        "partition-controller",
        "partition-controller run",
        "partition-controller playground",
    } <= PAGES.keys()
    assert "\\-\\-zookeeper" in PAGES["partition-controller run"]
    assert "\\-\\-to TEXT" not in PAGES["pctl"]


def test_the_name_is_the_whole_first_sentence() -> None:
    assert (
        "in and below LOGDIR... into the lake\n.SH SYNOPSIS" in dict(pages(main, "pctl"))["pctl lake update"]
    )


def test_a_page_has_both_names_of_help() -> None:
    @click.command(context_settings={"help_option_names": ["-h", "--help"]})
    def own() -> None:
        """Own."""

    ((_, page),) = pages(own, "own")
    assert "\n.B \\-h, \\-\\-help\n" in page


def test_nothing_is_read_as_a_request() -> None:
    @click.command()
    @click.option("--odd", help=".so /etc/passwd")
    def odd(odd: str) -> None:
        """'quoted' first. C:\\temp follows."""

    (_, page), *others = pages(odd, "odd")
    assert not others
    assert "\n\\&.so /etc/passwd\n" in page
    assert "odd \\- \\&'quoted' first\n" in page
    assert "C:\\etemp follows." in page


def test_they_are_written(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["man", str(tmp_path / "man1")], prog_name="pctl")
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "man1").iterdir())) == len(PAGES)
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(main, ["man", str(tmp_path / "file")], prog_name="pctl")
    assert (refused.exit_code, "File exists" in refused.output) == (1, True)

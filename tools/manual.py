"""Write the manual page of the command, from the help of all its subcommands.

python tools/manual.py man/fedldp.1

The wheel installs it: `man fedldp` then finds it, in an environment too.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import fedldp
from fedldp.cli.app import fedldp as command_line

sys.path.insert(0, str(Path(__file__).parent / "site"))
from reference import commands


def manual() -> str:
    """Return the page, in the macros man(7)."""
    (_, summary, whole), *others = commands(command_line, "fedldp")
    parts = [
        f'.TH FEDLDP 1 "" "fedldp {fedldp.__version__}" "User commands"',
        ".SH NAME",
        rf"fedldp \- {text(summary).rstrip('.')}",
        ".SH SYNOPSIS",
        r".B fedldp",
        r"[\-\-version] [\-\-help]",
        r".I command",
        r"[\-\-help] [options]",
        ".SH DESCRIPTION",
        *verbatim(without_usage(whole)),
        ".PP",
        "The commands server and agent come with fedldp\\-fleet.",
    ]
    for path, _, help_text in others:
        parts += [f".SH {text(path)}", *verbatim(help_text)]
    return "\n".join(parts) + "\n"


def without_usage(help_text: str) -> str:
    """Return a help without its first line, which the synopsis says."""
    return help_text.partition("\n")[2].lstrip("\n")


def verbatim(help_text: str) -> Iterator[str]:
    """Yield lines that are printed as they stand."""
    yield ".nf"
    for line in help_text.rstrip().split("\n"):
        escaped = text(line)
        yield rf"\&{escaped}" if escaped[:1] in (".", "'") else escaped
    yield ".fi"


def text(line: str) -> str:
    """Return a line in which no character is a macro, and hyphens can be copied."""
    return line.replace("\\", r"\e").replace("-", r"\-")


def main(target: Path) -> None:
    """Write the page."""
    target.parent.mkdir(exist_ok=True)
    target.write_text(manual(), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

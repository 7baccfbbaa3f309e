"""Build what is published: sdist and wheel, twice and byte by byte the same, and an SBOM.

    python tools/release.py dist

The two builds are made from the tracked files, in two folders, with another umask, time zone,
locale, hash seed and age of the files. All dates in them are that of the last commit. The SBOM
(CycloneDX, JSON) lists what `pip install 'fedldp[all]'` installs with this wheel today, into the
environment in which tests/tools/test_dist.py then tries it out. It is made twice, too, and
validated. `SHA256SUMS` has the digests of all of them.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUMS = "SHA256SUMS"
SPECIFICATION = "1.6"  # of CycloneDX
EXTRAS = "all"
ENVIRONMENT = ROOT / ".venv-dist"  # where the wheel is tried out
PYTHON = ENVIRONMENT / "bin" / "python"
# Two machines on which a build must give the same.
MACHINES: tuple[tuple[str, int, Mapping[str, str]], ...] = (
    ("a", 0o022, {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"}),
    ("another folder", 0o077, {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"}),
)


def main(out: Path) -> None:
    """Build everything into a folder, which is emptied first."""
    epoch = _output("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    with tempfile.TemporaryDirectory() as temporary:
        built = []
        for number, (name, umask, environment) in enumerate(MACHINES):
            place = Path(temporary) / name
            copy(place / "source", age=number * 86_400)
            built.append(place / "dist")
            _run(
                *(sys.executable, "-m", "build", "--outdir", built[-1], place / "source"),
                env={**os.environ, **environment, "SOURCE_DATE_EPOCH": epoch},
                umask=umask,
            )
        if found := list(differences(*built)):
            sys.exit("the two builds differ:\n" + "\n".join(found))
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(built[0], out)
    [wheel] = out.glob("*.whl")
    install(wheel)
    boms = [sbom(wheel) for _ in range(2)]
    if boms[0] != boms[1]:
        sys.exit("the two SBOMs differ")
    (out / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json").write_bytes(boms[0])
    sums = [f"{_digest(path)}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / SUMS).write_text("".join(sums))
    sys.stdout.write("".join(sums))


def copy(folder: Path, age: int) -> None:
    """Copy the tracked files to a folder, as if they were so many seconds old."""
    for name in _output("git", "ls-files", "-z", cwd=ROOT).split("\0")[:-1]:
        target = folder / name
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
            os.utime(target, (target.stat().st_mtime - age,) * 2)


def differences(one: Path, other: Path) -> Iterator[str]:
    """Yield what differs between two folders of archives: names, contents, and where."""
    names = {path.name for path in (*one.iterdir(), *other.iterdir())}
    for name in sorted(names):
        first, second = one / name, other / name
        if not (first.exists() and second.exists()):
            yield f"{name}: was built only once"
        elif first.read_bytes() != second.read_bytes():
            before, after = _members(first), _members(second)
            members = [each for each in before | after if before.get(each) != after.get(each)]
            yield f"{name}: {', '.join(members[:5]) or 'its own header'}"


def _members(archive: Path) -> dict[str, object]:
    """Return what an archive has of each member: its content, mode, date and owner."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {
                each.filename: (wheel.read(each), each.external_attr, each.date_time)
                for each in wheel.infolist()
            }
    with tarfile.open(archive) as sdist:
        return {
            each.name: (each.chksum, each.mode, each.mtime, each.uid, each.gid, each.uname)
            for each in sdist.getmembers()
        }


def install(wheel: Path) -> None:
    """Install a wheel with its extras, and nothing else, into an environment of its own."""
    _run(sys.executable, "-m", "venv", "--clear", "--without-pip", ENVIRONMENT)
    pip = sys.executable, "-m", "pip", "--python", PYTHON, "install", "--quiet"
    _run(*pip, "--only-binary", ":all:", f"{wheel}[{EXTRAS}]")


def sbom(wheel: Path) -> bytes:
    """Return the SBOM of what was installed with a wheel, which has its digest; it is valid."""
    words = ["environment", "--output-reproducible", "--spec-version", SPECIFICATION]
    words += ["--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", PYTHON]
    document = json.loads(_output(sys.executable, "-m", "cyclonedx_py", *words))
    own = document["metadata"]["component"]
    own["purl"] = f"pkg:pypi/{own['name']}@{own['version']}"
    own["hashes"] = [{"alg": "SHA-256", "content": _digest(wheel)}]
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    if error := invalid(text):
        sys.exit(f"the SBOM is not valid: {error}")
    return text.encode()


def invalid(text: str) -> str:
    """Return why a text is not a valid SBOM; empty if it is one."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.from_version(SPECIFICATION)).validate_str(text)
    return "" if error is None else str(error)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(*words: object, env: Mapping[str, str] | None = None, umask: int = -1) -> None:
    subprocess.run(list(map(str, words)), check=True, env=env, umask=umask)  # noqa: S603


def _output(*words: object, cwd: Path | None = None) -> str:
    texts = list(map(str, words))
    done = subprocess.run(texts, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd)  # noqa: S603
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))

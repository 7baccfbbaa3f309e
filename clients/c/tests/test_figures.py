"""The figures of README.md can be measured, and a small plan stays small."""

import importlib.util
import shutil
import subprocess

import pytest
from c_vehicle import FOLDER
from targets import TESTS


def figures():
    """Return the module that measures."""
    spec = importlib.util.spec_from_file_location("figures", FOLDER / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def need_of(tmp_path):
    """What a plan needs on a processor."""
    for program in ("arm-none-eabi-gcc", "qemu-system-arm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} not found: make test-c says what to install")
    module, plugin = figures(), tmp_path / "trace.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(plugin), str(TESTS / "trace_plugin.c")]
    subprocess.run(command, check=True)
    return lambda name, processor: module.need_of(module.plans()[name], processor, tmp_path, plugin)


@pytest.mark.parametrize("processor", ["Cortex-M0+", "Cortex-M3", "Cortex-M4"])
def test_what_a_number_in_one_bit_needs(processor, need_of):
    need = need_of("a number in one bit", processor)
    assert 0 < need.flash < 8 * 1024
    assert 0 < need.memory < 1024
    assert 0 < need.instructions < 20_000


@pytest.mark.parametrize("processor", ["Cortex-M3", "Cortex-M4"])
def test_what_directions_need(processor, need_of):
    need = need_of("directions of 36 numbers", processor)
    assert 0 < need.flash <= 9 * 1024
    assert 0 < need.memory <= 1024
    assert 0 < need.instructions <= 226_000


def test_the_readme_has_a_place_for_figures():
    module = figures()
    before, _, rest = (FOLDER / "README.md").read_text("utf-8").partition(module.BEGIN)
    assert before
    assert rest.count(module.END) == 1
    assert "| Cortex-M3 |" in rest

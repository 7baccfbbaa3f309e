"""The runner: the same results whatever the number of cores, the order, and what went wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_runs
from extracts import census
from small_runs import KNOWN, MEANS, MODELS, finished

import fedldp
from fedldp.errors import DomainError
from fedldp.mechanisms import Duchi, Optimal
from fedldp_reproduction import runner
from fedldp_reproduction.experiments import jobs
from fedldp_reproduction.experiments.jobs import ExperimentJob
from fedldp_reproduction.runner import reproduce


def kept(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*.json")}


def test_points_are_the_means_of_the_runs(tmp_path):
    (result,) = finished(tmp_path)
    profile = KNOWN.profile("test")
    places = [(point.series, point.x) for point in result.points]
    assert places == [(name, x) for name in ("pm", "hm-tp") for x in profile.epsilons]
    errors = {}
    for text in kept(tmp_path).values():
        document = json.loads(text)
        errors[document["job"]["way"]["mechanism"], document["job"]["epsilon"]] = document["errors"]
    for point in result.points:
        runs = errors[point.series, point.x]
        assert (point.y, point.runs) == (pytest.approx(np.mean(runs)), len(runs))
        assert point.low < point.y < point.high
    assert (result.key, result.paper, result.y_log) == ("means-gaussian", "Fig. 7", True)
    assert result.synthetic
    assert "SYNTHETIC Gaussian" in result.data[0]
    assert any("3 runs" in line for line in result.settings)


def test_two_processes_give_what_one_gives(tmp_path):
    figures = (MEANS, MODELS)
    first = finished(tmp_path / "one", figures)
    second = finished(tmp_path / "two", figures, jobs=2)
    assert first == second
    assert kept(tmp_path / "one") == kept(tmp_path / "two")


def test_figures_in_any_order_share_their_jobs(tmp_path):
    models, means = finished(tmp_path / "a", (MODELS, MEANS))
    assert finished(tmp_path / "b", (MEANS, MODELS)) == [means, models]
    seen = []
    assert finished(tmp_path / "b", (MODELS,), progress=lambda *now: seen.append(now)) == [models]
    assert {done for done, *_ in seen} == {seen[0][1]}  # nothing was left to do


def test_without_privacy_there_is_one_job_for_all_epsilons(tmp_path):
    (result,) = finished(tmp_path, (replace(MODELS, series=("non-private",)),))
    assert len(kept(tmp_path)) == 1
    assert len({point.y for point in result.points}) == 1
    assert [point.x for point in result.points] == list(KNOWN.profile("test").epsilons)


@pytest.mark.parametrize(
    "spoilt", ["", "{", "[]", '{"errors": [1.0]}', '{"errors": [NaN, NaN, NaN]}', '{"errors": 3}']
)
def test_a_spoilt_file_is_computed_again(tmp_path, spoilt):
    whole = finished(tmp_path)
    files = kept(tmp_path)
    path = next(tmp_path.rglob("*.json"))
    path.write_text(spoilt)
    assert finished(tmp_path) == whole
    assert kept(tmp_path) == files


def test_progress_counts_up_and_says_how_long(tmp_path):
    seen = []
    finished(tmp_path, progress=lambda *now: seen.append(now))
    assert [done for done, *_ in seen] == list(range(5))
    assert {total for _, total, _ in seen} == {4}
    assert seen[0][2] is None
    assert all(seconds >= 0 for *_, seconds in seen[1:])
    assert seen[-1][2] == 0


def test_what_was_finished_before_an_error_is_kept(tmp_path, monkeypatch):
    whole = finished(tmp_path / "whole")
    real, calls = runner.run, []

    def failing(job, *arrays):
        calls.append(job)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(job, *arrays)

    monkeypatch.setattr(runner, "run", failing)
    with pytest.raises(KeyboardInterrupt):
        finished(tmp_path / "part")
    assert len(kept(tmp_path / "part")) == 2
    assert finished(tmp_path / "part") == whole
    assert len(calls) == 5


VICTIM = """
import sys
from pathlib import Path
from small_runs import MEANS, MODELS, finished
for result in finished(Path(sys.argv[1]), (MEANS, MODELS), jobs=2):
    print(result)
"""


def test_killed_and_started_again(tmp_path):
    """A process that is killed, again and again, ends with the result of one that was not."""
    whole = finished(tmp_path / "whole", (MEANS, MODELS))
    folder, survived = tmp_path / "killed", None
    environment = os.environ | {"PYTHONPATH": str(Path(small_runs.__file__).parent)}
    for number in range(8):
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # its workers too can be killed
        )
        before = len(kept(folder))
        while victim.poll() is None and number < 3:
            if len(kept(folder)) > before:
                os.killpg(victim.pid, signal.SIGKILL)
                break
            time.sleep(0.001)
        text, _ = victim.communicate()
        if victim.returncode == 0:
            survived = text
            break
    assert survived == "".join(f"{result}\n" for result in whole)
    assert kept(folder) == kept(tmp_path / "whole")
    assert number > 0  # it was killed at least once


def test_what_is_not_at_hand_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path))
    figure = replace(MODELS, data=("br", "wisdm"))
    (result,) = finished(tmp_path, (figure,))
    assert {point.panel for point in result.points} == {"SYNTHETIC census like Brazil"}
    assert any("fedldp data fetch wisdm" in line for line in result.settings)
    (empty,) = finished(tmp_path, (replace(figure, data=("wisdm",), claims=MODELS.claims),))
    assert empty.points == ()
    assert not empty.synthetic


def test_a_file_in_the_place_of_what_is_missing(tmp_path):
    x = fedldp.source(1).uniform((60, 100))
    np.savez(tmp_path / "v.npz", X=x, y=np.where(x[:, 0] > 0.5, 1, -1))
    figure = replace(KNOWN.figure("svm"), data=("vehicle",), series=("pm",), claims=())
    (result,) = finished(tmp_path, (figure,), data={"vehicle": tmp_path / "v.npz"})
    assert {point.panel for point in result.points} == {"Vehicle, 60-row subset"}
    assert not result.synthetic


def test_two_extracts_of_the_same_title(tmp_path):
    figure = replace(
        KNOWN.figure("means"),
        data=("mx", "br"),
        series=("pm", "pm-sub"),
        claims=("means-pm-sub",),
    )
    data = {name: census(tmp_path / name, name) for name in figure.data}
    (result,) = finished(tmp_path / "runs", (figure,), data=data)
    panels = [f"{name}: IPUMS, your own extract" for name in figure.data]
    assert list(dict.fromkeys(point.panel for point in result.points)) == panels
    assert len(result.verdicts) == 1


def test_an_extract_that_changed_is_measured_again(tmp_path):
    figure = replace(KNOWN.figure("means"), data=("br",), series=("pm",), claims=())
    files = []
    for first in (1, 1, 0):
        data = {"br": census(tmp_path / "br", first=first)}
        finished(tmp_path / "runs", (figure,), data=data)
        files.append(len(kept(tmp_path / "runs")))
    assert files[0] == files[1] < files[2]


def test_an_extract_without_a_target_is_left_out(tmp_path):
    data = {"mx": census(tmp_path / "mx", "mx")}
    linear = replace(MODELS, key="linear", objective="squared", data=("mx",))
    both = replace(MODELS, data=("mx", "br"))
    first, second = finished(tmp_path / "runs", (both, linear), data=data)
    assert {point.panel for point in first.points} == {"SYNTHETIC census like Brazil"}
    (said,) = (line for line in first.settings if "left out" in line)
    assert said.startswith("mx: IPUMS, your own extract is left out: it has no target for 'logis")
    assert "`above`" in said
    assert {point.panel for point in second.points} == {"mx: IPUMS, your own extract"}
    assert not any("left out" in line for line in second.settings)
    above = {"mx": census(tmp_path / "mx", "mx", head="above = 0\n")}
    (third,) = finished(tmp_path / "runs", (both,), data=above)
    assert len({point.panel for point in third.points}) == 2


def test_samples_know_whether_the_data_are_the_papers(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(runner, "verdicts", lambda measured: seen.append(measured.samples) or ())
    figure = replace(KNOWN.figure("means"), data=("mx", "br"), series=("pm",))
    data = {"mx": census(tmp_path / "mx", "mx", head="paper = true\n")}
    finished(tmp_path / "runs", (figure,), data=data)
    assert {(sample.panel[:3], sample.stand_in) for sample in seen[0].all} == {
        ("mx:", False),
        ("SYN", True),
    }


def test_errors_that_are_not_finite_stop_the_runner(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "run", lambda job, *_: [float("nan")] * job.runs)
    with pytest.raises(DomainError, match="must hold the finite errors of 3 runs of pm"):
        finished(tmp_path)


# In one of some fifty cancellations a thread of joblib 1.6 still looks for a job that is gone: a
# KeyError of its own, which it prints. The next jobs are done all the same.
@pytest.mark.filterwarnings("ignore:Exception in thread ExecutorManagerThread")
def test_jobs_are_cancelled_in_silence():
    """Warnings are errors here, also that of joblib."""
    numbers = np.zeros((1000, 2), np.float32)
    whole = ExperimentJob("", "x", KNOWN.ways["pm"], 1.0, 0, 1, 1)
    work = [replace(whole, first=first) for first in range(50)]
    going_on = runner.done(work, (numbers,), 2)
    next(going_on)
    going_on.close()
    assert len(list(runner.done(work[:3], (numbers,), 2))) == 3  # and again


def test_discretized_figures_are_judged_beside_the_continuous_ones(tmp_path):
    figure = replace(KNOWN.figure("logistic-discretized"), data=("br",), series=("pm", "hm-tp"))
    (result,) = finished(tmp_path, (figure,))
    ways = [json.loads(text)["job"]["way"] for text in kept(tmp_path).values()]
    assert {way["outputs"] for way in ways if way["mechanism"] == "pm"} == {None, 2001}
    (verdict,) = result.verdicts
    shown, others = verdict.evidence.split("At other ε:")
    assert "over 2 places" in shown  # of pm and hm-tp at ε = 4
    assert "over 2 places" in others


def test_over_outputs_and_over_bits(tmp_path):
    outputs = replace(KNOWN.figure("svm-outputs"), series=("pm", "three-outputs"), claims=())
    bits = replace(KNOWN.figure("bits"), data=("gaussian-0",), claims=())
    (first,), (second,) = finished(tmp_path, (outputs,)), finished(tmp_path / "bits", (bits,))
    assert [(point.series, point.x) for point in first.points] == [
        ("pm", 3),
        ("pm", 33),
        ("three-outputs", 3),
        ("three-outputs", 33),
    ]
    assert first.points[2].y == first.points[3].y
    assert first.x_log
    asked = {json.loads(text)["job"]["way"]["k"] for text in kept(tmp_path / "bits").values()}
    assert asked == {1}  # one answer in a report, whose bits are counted
    assert second.x_label == "bits of one answer"
    sampled = [(point.series, point.x) for point in second.points if point.runs]
    assert sampled == [("hm-tp", 2), ("optimal", 1), ("optimal", 2)]
    computed = {(point.series, point.x): point.y for point in second.points if not point.runs}
    assert computed.keys() == set(sampled)
    assert computed["optimal", 1] == pytest.approx(Duchi(4.0).worst_case_variance, rel=1e-6)
    four = Optimal(4.0, outputs=4).worst_case_variance
    assert computed["optimal", 2] == pytest.approx(four)


def test_each_fold_has_the_rate_that_is_best_on_its_training_rows(tmp_path, monkeypatch):
    """Training errors choose, and errors on what was held out are reported."""

    def made_up(job, *_):
        # Two folds and three rates; the replicates of the second rate are best on training rows
        # of the first fold, and those of the third on those of the second.
        train = [[[3.0, 3.0], [1.0, 2.0], [2.0, 2.0]], [[3.0, 3.0], [2.0, 2.0], [0.0, 3.0]]]
        test = [[[0.1, 0.1], [0.2, 0.3], [0.1, 0.1]], [[0.1, 0.1], [0.1, 0.1], [0.4, 0.5]]]
        if not job.rates:
            return np.full(job.shape, 0.7).tolist()
        both = np.stack([train, test], axis=1)[job.first : job.first + job.runs]
        return both[:, :, :, : job.replicates].tolist()

    monkeypatch.setattr(runner, "run", made_up)
    figure = replace(MODELS, series=("hm-tp", "baseline"))
    (result,) = finished(tmp_path, (figure,))
    found = {point.series: point for point in result.points}
    assert found["hm-tp"].y == pytest.approx((0.2 + 0.3 + 0.4 + 0.5) / 4)
    assert (found["hm-tp"].runs, found["baseline"].runs) == (4, 2)
    rates = replace(KNOWN.figure("logistic-rate"), series=("hm-tp",), claims=(), epsilon=4.0)
    before = len(kept(tmp_path))
    (over,) = finished(tmp_path, (rates,))
    assert {point.x: round(point.y, 3) for point in over.points} == {1: 0.1, 4: 0.175, 32: 0.275}
    assert len(kept(tmp_path)) == before  # they were trained already


def test_models_are_shown_beside_those_of_hm(tmp_path):
    figure = replace(MODELS, series=("hm", "hm-tp", "laplace", "converged"))
    (result,) = finished(tmp_path, (figure,))
    title = "SYNTHETIC census like Brazil"
    panels = {panel: set() for panel in (title, f"{title}: minus hm")}
    for point in result.points:
        panels[point.panel].add(point.series)
    assert panels == {title: set(figure.series), f"{title}: minus hm": {"hm-tp"}}


def test_theory_needs_no_jobs(tmp_path):
    figure = replace(KNOWN.figure("density"), title="Another title")
    (result,) = finished(tmp_path, (figure,))
    assert (result.key, result.title) == ("density", "Another title")
    assert kept(tmp_path) == {}


def test_an_unknown_profile_is_refused(tmp_path):
    with pytest.raises(DomainError, match="there is no profile 'slow'"):
        list(reproduce((MEANS,), "slow", {}, tmp_path, 1, lambda *_: None))


def test_the_version_is_part_of_the_key(monkeypatch):
    job = ExperimentJob("", "x", KNOWN.ways["pm"], 1.0, 0, 1, 1)
    before = job.key
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "VERSION", jobs.VERSION + 1)
        assert job.key != before
    monkeypatch.setattr(jobs, "__version__", f"{fedldp.__version__}.1")
    assert job.key != before


def test_numbers_get_their_share_of_the_budget(tmp_path):
    figure = replace(KNOWN.figure("means"), data=("mx",), series=("hm-tp",), claims=())
    finished(tmp_path, (figure,))
    spent = {json.loads(text)["job"]["epsilon"] for text in kept(tmp_path).values()}
    assert sorted(spent) == pytest.approx([x * 5 / 19 for x in KNOWN.profile("test").epsilons])

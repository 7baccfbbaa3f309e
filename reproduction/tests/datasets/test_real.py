"""Real files, where they are available: set FEDLDP_DATA to the folder that has them."""

import os
from pathlib import Path

import numpy as np

from fedldp import datasets

FOLDER = Path(os.environ.get("FEDLDP_DATA", ""))

if (watches := FOLDER / "wisdm2019_watch_36users.csv.gz").exists():

    def test_wisdm_2019():
        data = datasets.load("wisdm2019", watches)
        assert len(data) == data.about.rows
        assert data.dimensions == 43
        assert len(np.unique(data.vehicle_ids)) == 36
        features, targets = data.examples("logistic").read(slice(None, None, 50))
        assert np.abs(features).max() == 1
        assert (np.unique(features[:, 2:-1]) == [-1, 1]).all()
        assert 0.3 < np.mean(targets > 0) < 0.4


if (subset := FOLDER / "vehicle_subset.npz").exists():

    def test_vehicle_subset():
        data = datasets.load("vehicle", subset)
        assert data.title == "Vehicle, 1,860-row subset"
        assert data.dimensions == 101
        assert len(np.unique(data.vehicle_ids)) == 23
        assert np.mean(data.examples("hinge").read(slice(None))[1] > 0) == 0.55


if (records := FOLDER / "WISDM_ar_v1.1_raw.txt").exists():

    def test_wisdm():
        data = datasets.load("wisdm", records)
        assert len(data) in (1_098_207, 1_098_208)
        assert data.dimensions == 43
        assert len(np.unique(data.vehicle_ids)) == 36

"""Errors that say what was probably meant, and integers of NumPy in the place of plain ones."""

import numpy as np
import pytest
from samples import ATTRIBUTE_SAMPLES

import fedldp
from fedldp import Schema, source
from fedldp.errors import DomainError, UnknownName
from fedldp.learn.layers import Dense
from fedldp.learn.networks import Network
from fedldp.learn.objectives import Softmax, objective


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("speed = {min = 0, max = 130}", "Did you mean 'low' for 'min' and 'high' for 'max'?"),
        ("speed = {low = 0, hihg = 130}", "Did you mean 'high' for 'hihg'?"),
        ("speed = {Low = 0, High = 9}", "Did you mean 'low' for 'Low' and 'high' for 'High'?"),
        ('city = {labels = ["a", "b"]}', "Did you mean 'categories' for 'labels'?"),
        ('city = {categorys = ["a", "b"]}', "Did you mean 'categories' for 'categorys'?"),
    ],
)
def test_a_table_says_what_was_meant(text, hint):
    with pytest.raises(DomainError) as caught:
        Schema.from_toml(text)
    assert str(caught.value).endswith(hint)


def test_a_table_of_known_words_gets_no_hint():
    with pytest.raises(DomainError) as caught:
        Schema.from_toml("speed = {low = 0}")
    assert "Did you mean" not in str(caught.value)


def test_every_word_that_is_suggested_is_one_of_an_attribute():
    for word, right in fedldp.schema.attributes._MEANT.items():
        assert right in fedldp.schema.attributes._ENTRIES
        assert word not in fedldp.schema.attributes._ENTRIES


def test_the_case_of_a_name_does_not_hide_what_was_meant():
    with pytest.raises(UnknownName, match=r"did you mean 'hm-tp'\?"):
        fedldp.mechanism("HM-TP", 1.0)


def test_a_mean_points_to_bins():
    plan = fedldp.Plan(Schema.of(speed=(0, 130)), 2.0)
    mean = plan.simulate({"speed": [50.0] * 100}, source(1)).estimate()["speed"]
    with pytest.raises(DomainError, match="give the attribute bins"):
        mean.quantile(0.5)


def test_integers_of_numpy_are_integers():
    assert Softmax(np.int64(6)) == Softmax(6)
    assert objective("softmax").with_outputs(np.int32(3)) == Softmax(3)
    assert Dense(np.int64(4)) == Dense(4)
    plain = Network.perceptron(5, Softmax(3), hidden=(4,))
    assert Network.perceptron(np.int64(5), Softmax(np.int64(3)), hidden=(np.int64(4),)) == plain
    assert plain.to_json() == Network.perceptron(5, Softmax(np.uint8(3)), hidden=(4,)).to_json()
    with pytest.raises(DomainError, match="outputs must be at least 2"):
        Softmax(2.0)


ENTRIES = {
    key
    for samples in ATTRIBUTE_SAMPLES.values()
    for attribute in samples
    for key in attribute.table()
}


@pytest.mark.parametrize("entry", sorted(ENTRIES))
def test_no_entry_of_an_attribute_is_forgotten(entry):
    misspelt = entry + entry[-1]
    with pytest.raises(DomainError, match=f"Did you mean '{entry}' for '{misspelt}'"):
        Schema.from_toml(f'[x]\n{misspelt} = "y"')

"""What the paper measures: means and models on its data sets.

`material` has the data, `jobs` the runs on them, `samples` the errors of finished runs, `verdicts`
what they say about the paper's claims, and `explained` the settings in words.
"""

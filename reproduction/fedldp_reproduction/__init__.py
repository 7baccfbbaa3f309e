"""The figures, tables and claims of Zhao et al. (2020), computed again with fedldp.

Start at `command`, which is `fedldp-reproduce`. It calls `runner`, which makes a `Result` of each
figure, and hands the results to `pages`:

    figures.toml ──► figures ──► runner ──► Result ──► pages
    what is drawn                  │         points, verdicts, settings
                                   ├── theory       figures that need no data: formulas, lemmas,
                                   │                misprints, the claims about variances
                                   └── experiments  figures that are measured
                                         datasets ──► material ──► jobs ──► samples ──► verdicts

`results` defines `Point`, `Verdict` and `Result`, the values that all parts exchange; `environment`
says with which packages and at which commit they were computed. `datasets` holds the data sets of
the paper; they register with fedldp by entry point, so that `fedldp data list` shows them. `items`
lists every numbered item of the paper and what implements or checks it: `make paper-map` writes it
to docs/paper-map.md.

Nothing in fedldp imports this package.
"""

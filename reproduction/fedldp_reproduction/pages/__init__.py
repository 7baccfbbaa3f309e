"""Finished figures for people: `drawing` pictures, `report` one HTML page, `publish` Markdown."""

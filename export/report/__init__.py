"""One HTML page with everything in it: text, tables, figures and pictures; no network access."""

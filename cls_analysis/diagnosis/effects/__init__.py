"""Effect, not only shape: what removing dimensions or normalising changes, for neighbours and for a classifier."""

"""Fine-tuning with and without normalisation: one run, a grid of runs, the outcomes."""

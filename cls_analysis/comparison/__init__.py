"""What fine-tuning changed: two encoders on the same rows."""

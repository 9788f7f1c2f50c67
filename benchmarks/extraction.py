"""Extraction of [CLS] vectors against the neighbours: CPU seconds with one thread, interleaved, best of several.

    python benchmarks/extraction.py [--rows 2000] [--repeats 3] [--data DIR]

DIR holds GLUE's official SST-2/ and MRPC/ folders; the rows are a seeded sample of both training sets.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import transformers

import cls_analysis as ca
from cls_analysis.checkpoints import find_checkpoint


def load_rows(data: Path, rows: int) -> list[str]:
    """Half SST-2, half MRPC first sentences, shuffled: mixed lengths."""
    sst2 = ca.load_texts("glue/sst2@train", data_dir=data).sample(rows // 2).text
    mrpc = ca.load_texts("glue/mrpc@train", data_dir=data).sample(rows - rows // 2).text
    texts = sst2 + mrpc
    return [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]


def contenders(texts: list[str]) -> dict:
    """Name -> function that returns (n, d) vectors of the last layer."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    folder = find_checkpoint("embedded", None, trust_remote_code=False).location
    encoder = ca.Encoder.from_pretrained("embedded", device="cpu")
    word = Transformer(folder)
    sentence_transformer = SentenceTransformer(
        modules=[word, Pooling(encoder.hidden_size, pooling_mode="cls")], device="cpu"
    )
    pipeline = transformers.pipeline("feature-extraction", model=folder, device="cpu")

    def padded_to_128() -> np.ndarray:
        rows = []
        with torch.inference_mode():
            for start in range(0, len(texts), 32):
                batch = encoder.tokenizer(
                    texts[start : start + 32],
                    padding="max_length",
                    truncation=True,
                    max_length=128,
                    return_tensors="pt",
                )
                rows.append(encoder.model(**batch).last_hidden_state[:, 0].clone())
        return torch.cat(rows).numpy()

    def by_pipeline(batch_size: int) -> np.ndarray:
        return np.stack([np.asarray(tokens[0][0]) for tokens in pipeline(texts, batch_size=batch_size)])

    return {
        "cls_analysis": lambda: ca.extract_vectors(encoder, texts)[encoder.n_layers],
        "cls_analysis, all layers": lambda: ca.extract_vectors(encoder, texts, layers="all")[encoder.n_layers],
        "sentence-transformers": lambda: sentence_transformer.encode(texts, show_progress_bar=False),
        "padded to 128": padded_to_128,
        "pipeline, its default batch": lambda: by_pipeline(1),
        "pipeline, batches of 32": lambda: by_pipeline(32),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "glue")
    parser.add_argument("--only", help="names separated by semicolons")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    texts = load_rows(options.data, options.rows)
    runs = contenders(texts)
    if options.only:
        runs = {name: runs[name] for name in options.only.split(";")}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    vectors: dict[str, np.ndarray] = {}
    for _ in range(options.repeats):
        for name, run in runs.items():
            start = time.process_time()
            vectors[name] = run()
            seconds[name].append(time.process_time() - start)
    base_name = next(iter(runs))
    base = min(seconds[base_name])
    reference = vectors[base_name]
    print(f"{len(texts)} rows, one thread, CPU seconds, best of {options.repeats}")
    print(f"{'':30}{'best':>8}{'worst':>8}{'ratio':>8}{'max |diff|':>12}")
    for name, times in seconds.items():
        difference = float(np.abs(vectors[name] - reference).max())
        print(f"{name:30}{min(times):8.2f}{max(times):8.2f}{min(times) / base:8.2f}{difference:12.1e}")


if __name__ == "__main__":
    main()

"""``fold``: from a classifier with a norm to a stock checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

from cls_analysis.encoder.loading import quiet_transformers
from cls_analysis.errors import DataError
from cls_analysis.files import make_folder
from cls_analysis.normalization import fold_norm, load_classifier

#: Files of a tokenizer, which go along where they lie beside the weights.
TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "spiece.model", "*.model")


def fold_checkpoint(checkpoint: Path, out: Path) -> Path:
    """Write the stock checkpoint, with the tokenizer that lies beside the classifier.

    Raises
    ------
    ClsAnalysisError
        If the folder holds no classifier with a norm, the norm cannot be folded, or OUT is there already.
    """
    if out.exists():
        raise DataError(f"{out}: there already; give another folder")
    folded = fold_norm(load_classifier(checkpoint))
    make_folder(out.parent)
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with quiet_transformers():
            folded.save_pretrained(part)
        for pattern in TOKENIZER:
            for path in checkpoint.glob(pattern):
                if not path.name.endswith(".safetensors"):
                    shutil.copy2(path, part)
        part.rename(out)
    except OSError as error:
        raise DataError(f"{out}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return out

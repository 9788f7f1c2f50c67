"""Vectors of texts, in blocks, and of words, through a frozen encoder."""

from cls_analysis.extraction.blocks import (
    BATCH_TOKENS,
    Block,
    Extraction,
    ExtractionReport,
    compute_profile,
    extract_vectors,
    plan_batches,
    profile_blocks,
    reduce_rows,
    shard_blocks,
)
from cls_analysis.extraction.words import WordVectors, extract_tokens

__all__ = [
    "BATCH_TOKENS",
    "Block",
    "Extraction",
    "ExtractionReport",
    "WordVectors",
    "compute_profile",
    "extract_tokens",
    "extract_vectors",
    "plan_batches",
    "profile_blocks",
    "reduce_rows",
    "shard_blocks",
]

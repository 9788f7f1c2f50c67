"""Vectors that exist already: arrays in memory and matrices in files, read block by block."""

from cls_analysis.matrices.formats import READERS
from cls_analysis.matrices.matrix import Matrix
from cls_analysis.matrices.profiles import profile_matrix, profile_vectors

__all__ = ["READERS", "Matrix", "profile_matrix", "profile_vectors"]

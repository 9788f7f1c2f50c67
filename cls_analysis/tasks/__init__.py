"""What a task is: its rows, labels, metrics and halves."""

from cls_analysis.tasks.task import Task, load_task

__all__ = ["Task", "load_task"]

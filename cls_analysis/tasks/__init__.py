"""What a task is: its rows, labels, metrics and halves."""

from cls_analysis.tasks.answering import AnsweringTask
from cls_analysis.tasks.loading import load_task
from cls_analysis.tasks.parsing import ParsingTask
from cls_analysis.tasks.task import Task
from cls_analysis.tasks.texts import TextTask

__all__ = ["AnsweringTask", "ParsingTask", "Task", "TextTask", "load_task"]

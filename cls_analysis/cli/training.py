"""The commands finetune, layers and fold."""
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cls_analysis.cli.options import (
    DataDir,
    Device,
    Dtype,
    Encoding,
    LabelColumn,
    MaxLength,
    OnMissing,
    PairColumn,
    Revision,
    TextColumn,
    TrustRemoteCode,
)
from cls_analysis.cli.progress import run_bar
from cls_analysis.cli.values import names, note, numbers, read_options

TASK_HELP = (
    "glue/NAME, sample:NAME, trec:DIR, TRAIN.csv[,DEV.csv] with --metric, ud:TRAIN.conllu[,DEV.conllu] or "
    "squad:TRAIN.json[,DEV.json]."
)


def finetune(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the study; resumes what is there.")],
    model: Annotated[str | None, typer.Argument(help="Hub name, folder, or 'embedded'.")] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Argument(metavar="TASK...", help=TASK_HELP),
    ] = None,
    grid: Annotated[Path | None, typer.Option(metavar="FILE", help="TOML file with these options; flags win.")] = None,
    norms: Annotated[
        list[str] | None, typer.Option(metavar="[LABEL=]NAME[(OPTION=X)],...", help="Arms, as in none,batchnorm.")
    ] = None,
    positions: Annotated[list[str] | None, typer.Option(help="cls, pooled.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each arm and rate.")] = None,
    first_seed: Annotated[int | None, typer.Option(help="The first seed.")] = None,
    head: Annotated[
        str | None, typer.Option(help="stock: the architecture's own; linear: one layer on the raw vector.")
    ] = None,
    train: Annotated[str | None, typer.Option(help="all, head, or top-K: the last K blocks and the head.")] = None,
    learning_rates: Annotated[list[str] | None, typer.Option(metavar="X,...", help="Tried for every arm.")] = None,
    optimizer: Annotated[list[str] | None, typer.Option(help="adamw, sgd.")] = None,
    clip: Annotated[list[str] | None, typer.Option(help="Largest gradient norm, or off.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training rows.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps, instead of --epochs.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows of a step.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Of weights, not of biases.")] = None,
    warmup: Annotated[float | None, typer.Option(help="Share of the steps over which the rate rises.")] = None,
    early_stopping: Annotated[
        int | None, typer.Option(metavar="EPOCHS", help="Stop after so many without a better selecting half.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Instead of the task's own.")] = None,
    limit: Annotated[int | None, typer.Option(help="Train on a seeded, stratified sample of so many rows.")] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Statistics at cls from this Profile of the training rows.")
    ] = None,
    rates_from: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Each arm's one learning rate, as that study chose it.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes.")] = None,
    save_models: Annotated[bool, typer.Option("--save-models", help="Keep each run's classifier.")] = False,
    dtype: Dtype = "float32",
    device: Device = "auto",
    max_length: MaxLength = None,
    data_dir: DataDir = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    encoding: Encoding = "utf-8",
    on_missing: OnMissing = "error",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Fine-tune with and without normalisation, over seeds and learning rates: runs.csv, outcomes, figures.

    Example: cls-analysis finetune bert-base-uncased glue/rte --norms none,batchnorm,standardize --seeds 10 --out study
    """
    arguments = locals()
    from cls_analysis.workflows.finetuning import plan_study, remarks, run_study
    from cls_analysis.workflows.grids import merge_options, model_and_tasks, read_grid_file
    from cls_analysis.workflows.options import EncoderOptions, TextOptions
    from cls_analysis.workflows.outcomes import write_outcomes

    given = read_grid_file(grid) if grid else {}
    flags = {
        "norms": tuple(norms or ()),
        "positions": tuple(names(positions)),
        "learning_rates": numbers("--learning-rates", learning_rates),
        "optimizer": tuple(names(optimizer)),
        "clip": tuple(names(clip)),
        "seeds": seeds,
        "first_seed": first_seed,
        "head": head,
        "train": train,
        "epochs": epochs,
        "steps": steps,
        "batch_size": batch_size,
        "weight_decay": weight_decay,
        "warmup": warmup,
        "early_stopping": early_stopping,
        "metric": metric,
    }
    study = plan_study(
        *model_and_tasks(model, tasks, given),
        out,
        options=merge_options(flags, given),
        text_options=read_options(TextOptions, arguments | {"limit": limit or given.get("limit")}),
        encoder_options=read_options(EncoderOptions, arguments),
        profile=profile,
        rates_from=rates_from,
        save_models=save_models,
    )
    for line in remarks(study):
        note(line)
    run_study(study, jobs=jobs, progress=run_bar, note=note)
    outcome = write_outcomes(study)
    typer.echo(outcome.text, nl=False)
    for path in outcome.files:
        note(f"wrote {path}")


def layers(
    model: Annotated[str, typer.Argument(help="Hub name, folder, or 'embedded'.")],
    tasks: Annotated[list[str], typer.Argument(metavar="TASK...", help=TASK_HELP)],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs; resumes what is there.")],
    freeze: Annotated[
        list[str] | None,
        typer.Option(metavar="none,K,...", help="Embeddings and blocks 1 to K do not move; 0: embeddings alone."),
    ] = None,
    truncate: Annotated[
        list[str] | None, typer.Option(metavar="K,...", help="Blocks 1 to K are kept, the head on top of them.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each point and rate; 5 by default.")] = None,
    first_seed: Annotated[int | None, typer.Option(help="The first seed.")] = None,
    head: Annotated[
        str | None, typer.Option(help="stock: the architecture's own; linear: one layer on the raw vector.")
    ] = None,
    learning_rates: Annotated[
        list[str] | None, typer.Option(metavar="X,...", help="Tried for every point; 1e-4,1e-3 by default.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the training rows.")] = 3,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps, instead of --epochs.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows of a step.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Of weights, not of biases.")] = None,
    warmup: Annotated[float | None, typer.Option(help="Share of the steps over which the rate rises.")] = None,
    metric: Annotated[str | None, typer.Option(help="Instead of the task's own.")] = None,
    limit: Annotated[int | None, typer.Option(help="Train on a seeded, stratified sample of so many rows.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes.")] = None,
    save_models: Annotated[bool, typer.Option("--save-models", help="Keep each run's model.")] = False,
    dtype: Dtype = "float32",
    device: Device = "auto",
    max_length: MaxLength = None,
    data_dir: DataDir = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    encoding: Encoding = "utf-8",
    on_missing: OnMissing = "error",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """How much of a task needs which layers: tuned with the first blocks frozen, or with the last ones cut off.

    Example: cls-analysis layers bert-base-uncased glue/rte --freeze none,0,4,8,12 --truncate 4,8 --seeds 3 --out curves
    """
    arguments = locals()
    from cls_analysis.workflows.finetuning import remarks, run_study
    from cls_analysis.workflows.grids import merge_options
    from cls_analysis.workflows.layers import plan_layers, summary, write_curves
    from cls_analysis.workflows.options import EncoderOptions, TextOptions

    wanted = ("seeds", "first_seed", "head", "epochs", "steps", "batch_size", "weight_decay", "warmup", "metric")
    flags = {name: arguments[name] for name in wanted}
    flags["learning_rates"] = numbers("--learning-rates", learning_rates)
    study = plan_layers(
        model,
        tasks,
        out,
        freeze=names(freeze),
        truncate=names(truncate),
        options=merge_options(flags, {}),
        text_options=read_options(TextOptions, arguments),
        encoder_options=read_options(EncoderOptions, arguments),
        save_models=save_models,
    )
    for line in remarks(study):
        note(line)
    run_study(study, jobs=jobs, progress=run_bar, note=note)
    done = write_curves(study)
    typer.echo(summary(done))
    for path in done.files:
        note(f"wrote {path}")


def fold(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a classifier with an attached norm.")],
    out: Annotated[Path, typer.Argument(help="Folder for the stock checkpoint.")],
) -> None:
    """Merge a norm into the layer behind it: a stock checkpoint with the same logits, at no cost at inference."""
    from cls_analysis.workflows.folding import fold_checkpoint

    note(f"wrote {fold_checkpoint(checkpoint, out)}")

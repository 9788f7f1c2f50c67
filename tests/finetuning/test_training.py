"""One run under transformers' Trainer: seeds, batches, frozen parts, measures, steps that are skipped."""

from __future__ import annotations

import copy
from dataclasses import replace

import classifiers
import numpy as np
import pytest
import tiny
import torch

import cls_analysis as ca
from cls_analysis.errors import OptionError
from cls_analysis.finetuning.batches import plan_steps
from cls_analysis.finetuning.frozen import Frozen, train_frozen
from cls_analysis.finetuning.layers import choose_trained
from cls_analysis.finetuning.measures import block_of, moments_of
from cls_analysis.finetuning.models import Base
from cls_analysis.finetuning.settings import Recipe, RunSettings
from cls_analysis.finetuning.training import Data, predict_by_batches, train_run
from cls_analysis.normalization import attached_norms
from cls_analysis.tasks import load_task

ARMS = ("none", "scale", "center", "standardize", "batchnorm", "layernorm", "l2norm", "isobn", "whiten")


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """Two classes that the first letter tells apart; 33 rows to train."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("task")
    for name, n in (("train", 33), ("dev", 24)):
        rows = [
            f"{'ab'[i % 2]} {' '.join(rng.choice(list('cdefgh'), rng.integers(1, 6)))},{'no' if i % 2 else 'yes'}"
            for i in range(n)
        ]
        (folder / f"{name}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return load_task(f"{folder / 'train.csv'},{folder / 'dev.csv'}", metric="accuracy")


@pytest.fixture(scope="module")
def bases(tiny_folder):
    made = {}

    def base(name="bert", head="linear"):
        if (name, head) not in made:
            made[name, head] = Base.load(str(tiny_folder(name)), head=head, device="cpu")
        return made[name, head]

    return base


def settings_of(task, **options):
    recipe = Recipe(**{"epochs": 3, "batch_size": 16} | options.pop("recipe", {}))
    values = {
        "model": "tiny",
        "weights_hash": "w",
        "task": task.identity(),
        "head": "linear",
        "train": "all",
        "norm": "none",
        "norm_options": {},
        "position": "cls",
        "optimizer": "adamw",
        "clip": 1.0,
        "learning_rate": 1e-3,
        "seed": 0,
    } | options
    return RunSettings(**{"norm_name": values["norm"]} | values, recipe=recipe)


def weights(model):
    return {key: tensor.clone() for key, tensor in model.state_dict().items()}


@pytest.mark.parametrize("head", ["linear", "stock"])
def test_the_seed_decides_the_head(bases, head):
    # hardcase 10
    base = bases(head=head)
    first, again, other = (base.classifier(2, seed) for seed in (1, 1, 2))
    of_head = [key for key in first.state_dict() if block_of(key) == "head" and "LayerNorm" not in key]
    assert of_head
    for key, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key])
    changed = [key for key in of_head if not torch.equal(first.state_dict()[key], other.state_dict()[key])]
    assert any(key.endswith("weight") for key in changed)
    assert all("encoder" not in key for key in changed if head == "linear")


def test_the_stock_head_keeps_the_pretrained_weights(bases, tiny_folder):
    base = bases("roberta", "stock")
    model = base.classifier(2, 0)
    encoder = ca.Encoder.from_pretrained(tiny_folder("roberta"), device="cpu").model
    for key, tensor in encoder.state_dict().items():
        assert torch.equal(model.base_model.state_dict()[key], tensor), key


def test_weights_that_the_checkpoint_lacks_are_named(tmp_path):
    # A BERT saved without its pooler: the stock head's is then random by seed.
    model = tiny.make_model("bert", kind="BertForMaskedLM")
    base = Base.load(str(tiny.save(model, tiny.make_tokenizer("bert"), tmp_path / "m")), head="stock", device="cpu")
    assert base.untrained == ("pooler.dense.bias", "pooler.dense.weight")
    one, two = (base.classifier(2, seed).bert.pooler.dense.weight for seed in (0, 1))
    assert not torch.equal(one, two)


def test_a_classifier_of_other_classes_gets_a_fresh_head(task, tmp_path):
    # hardcase 34
    model = classifiers.make_classifier("bert", num_labels=5)
    base = Base.load(str(tiny.save(model, tiny.make_tokenizer("bert"), tmp_path / "m")), head="stock", device="cpu")
    fresh = base.classifier(2, 0)
    assert fresh.classifier.out_features == 2
    assert torch.equal(fresh.bert.pooler.dense.weight, model.bert.pooler.dense.weight)


@pytest.mark.parametrize("norm", ARMS)
def test_33_rows_in_batches_of_16(bases, task, norm):
    settings = settings_of(task, norm=norm)
    model, result = train_run(bases(), Data.of(bases(), task), settings)
    assert (result.counts["steps"], result.counts["examples"], result.counts["skipped"]) == (6, 99, 0)
    assert len(result.predictions) == 24
    assert np.isfinite(result.steps.drop(columns=[c for c in result.steps if "update" in c])).all().all()
    assert result.steps.filter(like="update_ratio").notna().sum().eq(1).all()  # of steps 0 to 5, the first
    if norm in ("center", "batchnorm", "isobn"):
        assert int(attached_norms(model)["cls"][1].n_updates) == 6


def test_arms_of_a_seed_share_head_batches_and_dropout(bases, task):
    base = bases()
    data = Data.of(base, task)
    seen = {}
    for norm in ("none", "twin"):
        batches = []

        class Watched(type(data.train)):
            def batch(self, rows, batches=batches):
                batches.append(np.asarray(rows).tolist())
                return super().batch(rows)

        watched = copy.copy(data.train)
        watched.__class__ = Watched
        _, result = train_run(base, replace(data, train=watched), settings_of(task, norm=norm, norm_name="none"))
        seen[norm] = batches, result
    assert seen["none"][0] == seen["twin"][0]
    plan = plan_steps(33, 16, 3, settings_of(task).seed_order)
    assert seen["none"][0] == [rows.tolist() for rows in plan]
    assert seen["none"][1].steps.equals(seen["twin"][1].steps)
    assert np.array_equal(seen["none"][1].predictions, seen["twin"][1].predictions)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("norm", ["none", "batchnorm", "standardize", "isobn"])
def test_a_frozen_encoder_gives_what_training_on_its_vectors_gives(bases, task, norm, optimizer):
    # The same run by the Trainer, the encoder run anew at each step, and by the batched engine: dropout included.
    base = bases()
    rate = 0.01 if optimizer == "adamw" else 0.3
    settings = settings_of(task, train="head", norm=norm, optimizer=optimizer, learning_rate=rate)
    _, run = train_run(base, Data.of(base, task), settings)
    train, dev = (
        torch.from_numpy(ca.extract_vectors(base.encoder, texts, -1)[tiny.LAYERS]) for texts in (task.train, task.dev)
    )
    frozen = Frozen(task, train, dev, 0.1, 0.02)
    made = ca.make_norm(norm, profile=ca.profile_vectors(train.numpy()))
    ((_, batched),) = train_frozen(frozen, [settings], {norm: made})
    at = batched.steps["step"]
    assert at.tolist() == run.steps["step"].tolist()
    for measure in ("loss", "gradient_norm", "h_gradient", "z_gradient", "h_gradient_scaled", "top10_share"):
        np.testing.assert_allclose(run.steps[measure], batched.steps[measure], rtol=2e-3, atol=1e-6, err_msg=measure)
    np.testing.assert_allclose(run.steps["gradient_ratio_head"], batched.steps["gradient_ratio_head"], rtol=2e-3)
    assert np.array_equal(run.predictions, batched.predictions)
    assert (run.by_batches is not None) == (norm == "batchnorm")
    if norm == "batchnorm":
        assert np.array_equal(run.by_batches, batched.by_batches)
    assert run.counts["clipped_share"] == batched.counts["clipped_share"]


def test_case_19_looking_at_batches_leaves_the_running_statistics(bases, task):
    base = bases()
    data, settings = Data.of(base, task), settings_of(task, norm="batchnorm")
    model, run = train_run(base, data, settings)
    before = weights(model)
    again = predict_by_batches(model, data.dev, settings)
    assert np.array_equal(again, run.by_batches)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert not any(module.training for module in model.modules())


def test_gradients_at_the_output_are_autograds(bases, task):
    base = bases()
    data = Data.of(base, task)
    settings = settings_of(task, norm="layernorm", recipe={"epochs": 1})
    _, result = train_run(base, data, settings)
    # The first step by hand.
    model = base.classifier(2, settings.seed_head)
    ca.attach_norm(model, ca.make_norm("layernorm", dim=tiny.HIDDEN)).train()
    rows = plan_steps(33, 16, 1, settings.seed_order)[0]
    batch = data.train.batch(rows)
    torch.manual_seed(settings.seed_dropout)
    kept = []
    hook = model.dropout.register_forward_pre_hook(
        lambda module, args: (args[0].retain_grad(), kept.append(args[0]))[1]
    )
    loss = model(**batch).loss
    hook.remove()
    loss.backward()
    first = result.steps.iloc[0]
    assert first["loss"] == pytest.approx(loss.item(), rel=1e-6)
    gradient = kept[0].grad * len(rows)
    assert first["h_gradient"] == pytest.approx(float(gradient.norm(dim=1).mean()), rel=1e-5)
    size = float(kept[0].detach().square().sum(dim=1).mean().sqrt())
    assert first["h_gradient_scaled"] == pytest.approx(first["h_gradient"] * size, rel=1e-5)
    total = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    assert first["gradient_norm"] == pytest.approx(total.item(), rel=1e-5)
    block = [p for name, p in model.named_parameters() if ".layer.1." in name]
    ratio = torch.stack([p.grad.norm() for p in block]).norm() / torch.stack([p.norm() for p in block]).norm()
    assert first["gradient_ratio_layer1"] == pytest.approx(ratio.item(), rel=1e-4)


@pytest.mark.parametrize(("train", "moving"), [("head", ()), ("top-1", ("layer2",)), ("top-2", ("layer1", "layer2"))])
@pytest.mark.parametrize("head", ["linear", "stock"])
def test_what_is_frozen_does_not_move(bases, task, head, train, moving):
    # hardcase 28: weight decay moves a parameter with a gradient of zero, so frozen ones must have none.
    base = bases(head=head)
    settings = settings_of(task, head=head, train=train)
    before = weights(base.classifier(2, settings.seed_head))
    model, result = train_run(base, Data.of(base, task), settings)
    for key, tensor in model.state_dict().items():
        if "cls_norm" in key or not tensor.is_floating_point():
            continue
        block = block_of(key)
        moved = not torch.equal(tensor, before[key])
        # Behind the norm, the pooler belongs to the head.
        assert moved == (block in ("head", *moving)), key
    named = {column.removeprefix("gradient_ratio_") for column in result.steps if column.startswith("gradient_ratio")}
    assert named == {"head", *moving}


def test_albert_has_no_blocks_of_its_own():
    model = classifiers.make_classifier("albert")
    with pytest.raises(OptionError, match=r"0 blocks .*ALBERT's share theirs"):
        choose_trained(model, "top-1")
    with pytest.raises(OptionError, match="has 3 blocks"):
        choose_trained(classifiers.make_classifier("bert"), "top-4")
    with pytest.raises(OptionError, match="--train takes all, head or top-K"):
        choose_trained(classifiers.make_classifier("bert"), "top4")


@pytest.mark.parametrize("name", classifiers.NAMES)
def test_every_architecture_trains_with_both_heads(bases, task, name):
    if name == "modernbert":
        base = bases(name, "stock")
        base.stock_config.classifier_pooling = "cls"
    for head, position in (("linear", "cls"), ("stock", "cls"), ("stock", "pooled")):
        base = bases(name, head)
        settings = settings_of(task, head=head, norm="standardize", position=position, recipe={"epochs": 1})
        model, result = train_run(base, Data.of(base, task), settings)
        assert result.counts["steps"] == 2
        assert list(attached_norms(model)) == [position]
        assert result.steps["h_gradient"].gt(0).all()


def test_xlnet_reads_the_last_token_behind_its_padding(bases, task):
    base = bases("xlnet", "stock")
    assert base.pads_left
    batch = Data.of(base, task).train.batch([0, 1, 2, 3, 4, 5])
    assert (batch["input_ids"][:, -1] == base.encoder.tokenizer.cls_token_id).all()
    assert (batch["attention_mask"][:, -1] == 1).all()
    assert (batch["attention_mask"].sum(dim=1) == torch.tensor([len(r) for r in _ids(base, task)[:6]])).all()


def _ids(base, task):
    return base.encoder.tokenize(task.train.text, None).ids


def test_a_step_that_is_not_finite_is_skipped_and_counted(bases, task):
    # hardcase 36: clipping an infinite gradient would write NaN into the weights.
    base = bases()
    broken = copy.deepcopy(base.encoder.model)
    data = Data.of(base, task)
    settings = settings_of(task, norm="scale", recipe={"epochs": 2})
    poisoned = plan_steps(33, 16, 2, settings.seed_order)[1][0]
    target = data.train.target.clone().float()
    target[poisoned] = float("inf")  # as a value to be met, its loss and gradient are infinite
    del broken
    regression = replace(data.task, classes=None, metrics=("pearson",), dev_target=task.dev_target.astype(float))
    rows = copy.copy(data.train)
    rows.target = target
    model, result = train_run(base, replace(data, task=regression, train=rows), settings)
    seen_in = [i for i, each in enumerate(plan_steps(33, 16, 2, settings.seed_order)) if poisoned in each]
    assert result.counts["skipped"] == len(seen_in) == 2
    assert result.counts["exploded"] == 2
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


def test_clipping_is_counted_and_can_be_off(bases, task):
    data = Data.of(bases(), task)
    _, clipped = train_run(bases(), data, settings_of(task, clip=1e-3))
    _, free = train_run(bases(), data, settings_of(task, clip=None))
    assert clipped.counts["clipped_share"] == 1.0
    assert free.counts["clipped_share"] == 0.0
    # The norm is the one before clipping: the first step is the same.
    assert clipped.steps["gradient_norm"][0] == free.steps["gradient_norm"][0]


def test_early_stopping_reports_the_best_epoch(bases, task):
    data = Data.of(bases(), task)
    settings = settings_of(task, learning_rate=1e-9, recipe={"epochs": 9, "early_stopping": 2})
    _, result = train_run(bases(), data, settings)
    # Nothing changes at such a rate: the first epoch stays the best, two more are waited for.
    assert result.counts["steps"] == 6


def test_moments_are_followed_as_the_vectors_move(bases, task):
    data = Data.of(bases(), task)
    _, moving = train_run(bases(), data, settings_of(task, learning_rate=1e-2))
    _, frozen = train_run(bases(), data, settings_of(task, train="head"))
    assert moving.moments["step"].tolist()[0] == 0
    assert moving.moments["step"].tolist()[-1] == 6
    assert moving.moments["rms_norm"].nunique() > 1
    assert frozen.moments["rms_norm"].nunique() == 1
    vectors = ca.extract_vectors(bases().encoder, task.dev, -1)[tiny.LAYERS]
    assert frozen.moments["norm_of_mean"][0] == pytest.approx(float(np.linalg.norm(vectors.mean(axis=0))), rel=1e-5)
    summary = ca.summarize(ca.profile_vectors(vectors)).iloc[0]
    for figure in ("common_mean_share", "average_cosine", "top1_energy_share", "isoscore"):
        assert frozen.moments[figure][0] == pytest.approx(summary[figure], rel=1e-4), figure
    assert np.isnan(moments_of(torch.ones(5, 3))["isoscore"])


def test_bfloat16(bases, task):
    _, result = train_run(bases(), Data.of(bases(), task), settings_of(task, norm="batchnorm", dtype="bfloat16"))
    assert np.isfinite(result.steps["loss"]).all()

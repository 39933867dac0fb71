"""Makes a trainer of transformers publish as this package's own trainer does."""

from pathlib import Path
from typing import Any

from transformers import Trainer

from .card import CardFacts, make_card
from .saving import README


def prepare_trainer(trainer: Trainer) -> None:
    """Makes a trainer of transformers publish the code that loads its model, and this package's card.

    From then on the trainer saves the model's Python files with the model. It writes this package's card in place of
    its own, which does not know the model, and puts there what `push_to_hub` or `create_model_card` is given. It still
    sends all of `output_dir` but the checkpoints.

    Args:
        trainer: Any trainer of a model of this package, such as a `Seq2SeqTrainer`.
    """
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    model.carries_code = True

    def create_model_card(
        language: str | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
    ) -> None:
        """Writes the card, of what `Trainer.create_model_card` takes."""
        if not trainer.is_world_process_zero():
            return
        task, *more_tasks = _listed(tasks) or [CardFacts.task]
        facts = CardFacts(
            title=model_name,
            license=license,
            task=task,
            data=", ".join(_listed(dataset) + _listed(dataset_args)) or None,
            datasets=_listed(dataset_tags),
            base_model=finetuned_from,
            updates=trainer.state.global_step,
            epochs=trainer.state.epoch,
        )
        card = make_card(facts, model.config, repo_id=trainer.hub_model_id)
        if language is not None:
            card.data["language"] = language
        card.data["tags"] = list(dict.fromkeys([*card.data["tags"], *_listed(tags), *more_tasks]))
        card.save(Path(str(trainer.args.output_dir)) / README)

    trainer.create_model_card = create_model_card  # type: ignore[method-assign]


def _listed(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())

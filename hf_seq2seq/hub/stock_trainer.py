"""Makes a trainer of transformers publish as this package's own trainer does."""

from pathlib import Path
from typing import Any

from transformers import Trainer

from .card import CardFacts, make_card


def prepare_trainer(trainer: Trainer) -> None:
    """Makes a trainer of transformers publish the code that loads its model, and this package's card.

    From then on the trainer saves the model's Python files with the model. It writes this package's card in place of
    its own, which does not know the model. It still sends all of `output_dir` but the checkpoints.

    Args:
        trainer: Any trainer of a model of this package, such as a `Seq2SeqTrainer`.
    """
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    model.carries_code = True

    def create_model_card(**_: Any) -> None:
        if trainer.is_world_process_zero():
            facts = CardFacts(updates=trainer.state.global_step, epochs=trainer.state.epoch)
            card = make_card(facts, model.config, repo_id=trainer.hub_model_id)
            card.save(Path(str(trainer.args.output_dir)) / "README.md")

    trainer.create_model_card = create_model_card  # type: ignore[method-assign, assignment]

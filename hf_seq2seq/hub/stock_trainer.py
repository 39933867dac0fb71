"""A stock trainer publishes as ours does."""

from pathlib import Path
from typing import Any

from transformers import Trainer

from .card import CardFacts, make_card


def prepare_trainer(trainer: Trainer) -> None:
    """Make a trainer of transformers publish the code that loads its model, and this package's card.

    What it saves from then on holds the two Python files, and in the place of its own card, which does not know the
    model, it writes ours. It still sends all of `output_dir` but its checkpoints.

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

"""The progress bar of training, with tokens a second beside the time left."""

from typing import Any

from transformers import ProgressCallback, TrainerControl, TrainerState, TrainingArguments


class TokensProgressCallback(ProgressCallback):
    """The trainer's own progress bar, which also shows the real target tokens a second of the last log line."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Shows what was logged."""
        super().on_log(args, state, control, logs=logs, **kwargs)
        speed = (logs or {}).get("target_tokens_per_second")
        if speed is not None and self.training_bar is not None:
            self.training_bar.set_postfix_str(f"{speed:,.0f} target tokens/s")

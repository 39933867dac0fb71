"""The verb `train`: from pairs of texts to a trained, evaluated, saved model."""

import shlex
from typing import Any

import typer


def train(context: typer.Context) -> None:
    """Train a model on pairs of texts, or train one further."""
    from hf_seq2seq.training.command_line import parse_arguments

    settings = parse_arguments(context.args)

    from hf_seq2seq.training.run import run_settings

    results = run_settings(settings)
    args = settings.training
    if args.process_index == 0:
        typer.echo(_plan(results) if args.dry_run else _summary(results, str(args.output_dir)))


def _plan(plan: dict[str, Any]) -> str:
    padding = "" if plan["padding"] is None else f", {plan['padding']:.1%} of them padding"
    return "\n".join(
        [
            "This would be trained; nothing was written.",
            f"  pairs       {plan['pairs']:,}, the longest side of {plan['longest']:,} tokens",
            f"  tokens      {plan['source_tokens']:,} of the source and {plan['target_tokens']:,} of the target",
            f"  batches     {plan['batches']:,} an epoch{padding}",
            f"  updates     {plan['updates']:,}, which are {plan['epochs']:.1f} epochs",
            f"  parameters  {plan['parameters']:,}",
            f"  memory      about {plan['memory_gib']:.1f} GiB a device, in float32",
        ]
    )


def _summary(results: dict[str, Any], output_dir: str) -> str:
    from hf_seq2seq.evaluation import report_line, score_lines

    loss = "" if results["train_loss"] is None else f"; training loss, as logged last, {results['train_loss']:.3f}"
    lines = [f"Trained for {results['num_steps']:,} updates{loss}."]
    if "num_scored_pairs" in results:
        lines.append(f"On {results['num_scored_pairs']:,} of {results['num_validation_pairs']:,} validation pairs:")
        scores = [report_line("loss", f"{results['validation_loss']:.3f}"), *score_lines(results)]
        lines += [f"  {line}" for line in scores]
    output_dir = shlex.quote(output_dir)
    lines += [
        f"The model and its tokenizer are in {output_dir}. What to do next:",
        f"  hf-seq2seq translate {output_dir} < new-source.txt > new-target.txt",
        f"  hf-seq2seq evaluate {output_dir} --source test-source.txt --reference test-target.txt",
        f"  hf-seq2seq train --model_name_or_path {output_dir} --train_source more-source.txt "
        "--train_target more-target.txt --output_dir tuned",
        f"  hf-seq2seq push {output_dir} YOU/NAME",
    ]
    return "\n".join(lines)

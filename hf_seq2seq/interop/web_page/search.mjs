// A beam search over the two graphs of the model. Shapes: B beams, S source length, V vocabulary.

import * as ort from "./library/ort.wasm.min.mjs";
import { Tokenizer } from "./library/tokenizers.min.mjs";

ort.env.wasm.wasmPaths = new URL("./library/", import.meta.url).href;
ort.env.wasm.numThreads = 1; // more need headers that few static hosts send

const json = async (name) => (await fetch(name)).json();

const integers = (rows) =>
  new ort.Tensor("int64", BigInt64Array.from(rows.flat(), BigInt), [rows.length, rows[0].length]);

/** A tensor of the given rows of another: those of the beams that live on. */
function selectRows(tensor, rows) {
  const size = tensor.data.length / tensor.dims[0];
  const data = new Float32Array(rows.length * size);
  rows.forEach((row, place) => data.set(tensor.data.subarray(row * size, (row + 1) * size), place * size));
  return new ort.Tensor("float32", data, [rows.length, ...tensor.dims.slice(1)]);
}

/** The `count` greatest of an array of numbers, as pairs [place, number]. */
function greatest(numbers, count) {
  const found = [];
  for (let place = 0; place < numbers.length; place++) {
    if (found.length < count || numbers[place] > found[found.length - 1][1]) {
      const at = found.findIndex((pair) => numbers[place] > pair[1]);
      found.splice(at < 0 ? found.length : at, 0, [place, numbers[place]]);
      if (found.length > count) found.pop();
    }
  }
  return found;
}

export class Translator {
  static async load() {
    const translator = new Translator();
    const [settings, tokenizer, config, encoder, decoder] = await Promise.all([
      json("settings.json"),
      json("tokenizer.json"),
      json("tokenizer_config.json"),
      ort.InferenceSession.create("encoder.onnx"),
      ort.InferenceSession.create("decoder.onnx"),
    ]);
    const control = new Set([config.pad_token, config.bos_token, config.eos_token, config.unk_token]);
    translator.controlIds = new Set(
      tokenizer.added_tokens.filter((token) => control.has(token.content)).map((token) => token.id));
    translator.names = new Map(tokenizer.added_tokens.map((token) => [token.id, token.content]));
    // A "</s>" that a text spells is text.
    tokenizer.added_tokens = tokenizer.added_tokens.filter((token) => !control.has(token.content));
    translator.tokenizer = new Tokenizer(tokenizer, config);
    return Object.assign(translator, { settings, encoder, decoder });
  }

  /** The hypotheses of a text, the best first: {text, score, sourceTokens, targetTokens, attention}. */
  async translate(text, beamSize = this.settings.beam_size) {
    const { ids } = this.tokenizer.encode(text);
    const source = ids.map(Number);
    const found = await this.search(source, beamSize);
    return found.map(({ ids, score, attention }) => ({
      text: this.tokenizer.decode(ids.filter((id) => !this.controlIds.has(id))),
      score,
      sourceTokens: this.tokensOf(source),
      targetTokens: this.tokensOf(ids),
      attention,
    }));
  }

  tokensOf(ids) {
    return ids.map((id) => this.names.get(id) ?? this.tokenizer.decode([id]));
  }

  async search(source, beamSize) {
    const { settings } = this;
    const length = Math.min(source.length + settings.extra_tokens, settings.num_positions ?? Infinity);
    const mask = [Array(source.length).fill(1)];
    const encoded = await this.encoder.run({ input_ids: integers([source]), attention_mask: integers(mask) });
    let beams = [{ ids: [], score: 0, attention: [] }];
    let past = this.emptyPast();
    const finished = [];
    const ranked = (beam) => beam.score / beam.ids.length ** settings.length_penalty;
    for (let step = 0; step < length && beams.length; step++) {
      const rows = beams.map(() => 0);
      const feeds = {
        input_ids: integers(beams.map((beam) => [beam.ids.at(-1) ?? settings.start_id])),
        encoder_attention_mask: integers(beams.map(() => mask[0])),
        ...past,
      };
      for (const [name, tensor] of Object.entries(encoded)) feeds[name] = selectRows(tensor, rows);
      const outputs = await this.decoder.run(feeds);
      const candidates = this.candidates(beams, outputs, 2 * beamSize);
      beams = [];
      candidates.slice(0, 2 * beamSize).forEach((candidate, place) => {
        const isDone = settings.end_ids.includes(candidate.ids.at(-1)) || step + 1 === length;
        if (!isDone && beams.length < beamSize) beams.push(candidate);
        if (isDone && place < beamSize) finished.push(candidate); // others are worse than beams that live on
      });
      finished.sort((one, other) => ranked(other) - ranked(one));
      finished.splice(beamSize);
      // No beam can overtake the worst of enough finished ones: its score only falls.
      const best = beams.length ? beams[0].score / length ** Math.max(settings.length_penalty, 0) : -Infinity;
      if (beamSize === 1 ? finished.length : finished.length >= beamSize && best <= ranked(finished.at(-1))) break;
      past = {};
      for (const name of Object.keys(outputs).filter((name) => name.startsWith("present."))) {
        past[name.replace("present", "past_key_values")] = selectRows(outputs[name], beams.map((beam) => beam.row));
      }
    }
    return finished.map((beam) => ({ ids: beam.ids, score: ranked(beam), attention: beam.attention }));
  }

  /** The best continuations of all beams, the best first. */
  candidates(beams, outputs, count) {
    const { log_probs: logProbs, attention } = outputs;
    const size = logProbs.dims[2];
    const sourceLength = attention.dims[2];
    const candidates = beams.flatMap((beam, row) => {
      const numbers = logProbs.data.subarray(row * size, (row + 1) * size);
      for (const id of this.settings.banned_ids) numbers[id] = -Infinity;
      const shares = Array.from(attention.data.subarray(row * sourceLength, (row + 1) * sourceLength));
      return greatest(numbers, count).map(([id, logProb]) => ({
        row,
        ids: [...beam.ids, id],
        score: beam.score + logProb,
        attention: [...beam.attention, shares],
      }));
    });
    return candidates.sort((one, other) => other.score - one.score);
  }

  emptyPast() {
    const { num_layers, num_heads, key_width, value_width } = this.settings;
    const past = {};
    for (let layer = 0; layer < num_layers; layer++) {
      for (const [part, width] of [["key", key_width], ["value", value_width]]) {
        past[`past_key_values.${layer}.decoder.${part}`] =
          new ort.Tensor("float32", new Float32Array(0), [1, num_heads, 0, width]);
      }
    }
    return past;
  }
}

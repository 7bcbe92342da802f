// One episode turn by turn, and the siblings of a group side by side.

function buildEpisode(viewer, episode, siblings) {
  const words = viewer.words();
  const mean = meanReward(viewer, siblings);
  const facts = [
    ["reward − group mean", episode.reward === null || mean === null ? "–" : signed(episode.reward - mean)],
    ...Object.entries(episode.terms).map(([name, value]) => [name.replaceAll("_", " "), formatNumber(value)]),
    ["type", episode.type + (episode.needs_memory === false ? " (needs no memory)" : "")],
    ["step", `${episode.step}, ${episode.kind}`],
  ];
  const origin = [["asked at", episode.asked_at.replace("T", " ")], ["bank", episode.bank], ["task", episode.task], ["sample", String(episode.sample)], ["data", episode.source], ["status", episode.status], ["weights", episode.version === null ? "" : `version ${episode.version}`], ["judge", episode.judge], ["start of the job", episode.run]].filter(([, value]) => value !== "");
  const list = (pairs) => el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, marked(value, words)))));
  const why = episode.abstained !== null ? `No reward: ${episode.abstained}` : episode.detail;
  const head = el("header", { class: "episode-head" },
    el("h3", { tabindex: "-1" }, marked(episode.question, words)),
    episode.options.length ? el("ol", { class: "choices", type: "A" }, episode.options.map((option) => el("li", {}, marked(option, words)))) : null,
    el("p", { class: "outcome" }, rewardBadge(episode), " ", statusTag(episode), " ", episode.answer === null ? el("span", { class: "muted" }, "no answer") : el("span", { class: "answer" }, marked(episode.answer, words))),
    why ? el("p", { class: "turn-error" }, marked(why, words)) : null,
    list(facts),
    el("details", { class: "origin" }, el("summary", {}, "Where it comes from"), list(origin)));
  return [head, episode.packet ? buildPacket(episode.packet, words) : null, buildSteps(viewer, episode), ...episode.turns.map((turn, number) => buildTurn(viewer, episode, turn, number, words))].filter(Boolean);
}

// The whole episode at a glance: one button a turn.
function buildSteps(viewer, episode) {
  const buttons = episode.turns.map((turn, number) => {
    const what = turn.calls.length ? turn.calls.map((call) => call.name).join(" + ") : turn.error ? "error" : number === episode.turns.length - 1 && episode.answer !== null ? "answer" : "text";
    const state = turn.error ? "bad" : turn.calls.some((call) => !call.ok) ? "mixed" : "fine";
    return el("li", {}, el("button", { type: "button", class: state, onclick: () => viewer.goToTurn(number) }, el("span", { class: "number" }, number + 1), what, state === "fine" ? null : el("span", { class: "sr" }, state === "bad" ? " (error)" : " (a call failed)")));
  });
  return el("ol", { class: "steps", "aria-label": "Turns" }, buttons);
}

function buildTurn(viewer, episode, turn, number, words) {
  const tokens = [turn.response_tokens === null ? null : `${turn.response_tokens.toLocaleString("en")} tokens sampled`, turn.prompt_tokens === null ? null : `${turn.prompt_tokens.toLocaleString("en")} before`].filter(Boolean).join(", ");
  return el("section", { class: "turn", tabindex: "-1", "aria-label": `Turn ${number + 1} of ${episode.turns.length}` },
    el("h4", {}, `Turn ${number + 1}`, el("span", { class: "muted small" }, tokens)),
    el("div", { class: "said" }, turn.text ? saidParts(turn.text, words) : el("span", { class: "muted" }, "(no text: there was no room for a turn)")),
    turn.error ? el("p", { class: "turn-error" }, el("strong", {}, "Did not parse: "), marked(turn.error, words)) : null,
    turn.calls.map((call) => buildCall(viewer, episode, call, words)));
}

// The policy's text as it was sampled, thinking, calls and answer set apart.
function saidParts(text, words) {
  const kinds = { think: "thinking", tool_call: "calling", answer: "answering" };
  return text.split(/(<think>[\s\S]*?(?:<\/think>|$)|<tool_call>[\s\S]*?(?:<\/tool_call>|$)|<answer>[\s\S]*?(?:<\/answer>|$))/).filter((part) => part !== "").map((part) => {
    const found = /^<(think|tool_call|answer)>/.exec(part);
    return el("span", { class: found ? kinds[found[1]] : "plain" }, marked(part, words));
  });
}

function buildCall(viewer, episode, call, words) {
  const values = Object.entries(call.arguments).map(([name, value]) => el("span", { class: "argument" }, el("span", { class: "muted" }, `${name}: `), marked(value, words)));
  const notes = [call.latency_s === null ? null : call.latency_s < 1 ? `${formatNumber(call.latency_s * 1000, 2)} ms` : `${formatNumber(call.latency_s, 2)} s`, call.cut ? "cut at a limit" : null].filter(Boolean).join(" · ");
  return el("div", { class: `call ${call.ok ? "ok" : "failed"}` },
    el("div", { class: "call-head" }, el("strong", {}, call.name), el("span", { class: `tag level-${call.level}` }, LEVEL_NAMES[call.level] ?? call.level), el("span", { class: call.ok ? "tag good" : "tag bad" }, call.ok ? "found" : (call.failure ?? "failed").replaceAll("_", " ")), el("span", { class: "muted small" }, notes)),
    values.length ? el("p", { class: "arguments" }, values) : null,
    el("pre", { class: "result", tabindex: "0", role: "region", "aria-label": `Result of ${call.name}, as the policy read it` }, marked(call.text, words)),
    buildMemories(viewer.run, episode, call, words));
}

function meanReward(viewer, places) {
  const rewards = places.map((place) => viewer.episodes[place].reward).filter((reward) => reward !== null);
  return rewards.length ? rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length : null;
}

function buildGroup(viewer, episode, places) {
  const words = viewer.words();
  const mean = meanReward(viewer, places);
  const rewards = places.map((place) => viewer.episodes[place].reward).filter((reward) => reward !== null);
  const equal = rewards.length > 1 && Math.max(...rewards) - Math.min(...rewards) <= 1e-8;
  const widest = Math.max(...rewards.map((reward) => Math.abs(reward - mean)), 1e-9);
  const about = [`${plural(places.length, "sample")} of one question at step ${episode.step}.`, mean === null ? "None has a reward." : `Mean reward ${signed(mean)}.`, equal ? "All rewards are equal: this group gives no gradient." : "", episode.kind === "train" && rewards.length < 2 ? "Fewer than two have a reward: the group is dropped." : ""].filter(Boolean).join(" ");
  const cards = places.map((place) => buildSibling(viewer, viewer.episodes[place], place, mean, widest, words));
  return [el("header", { class: "episode-head" }, el("h3", { tabindex: "-1" }, marked(episode.question, words)), el("p", { class: "about" }, about), el("p", { class: "muted small" }, viewer.run.advantage)), el("div", { class: "siblings" }, cards)];
}

function buildSibling(viewer, sibling, place, mean, widest, words) {
  const difference = sibling.reward === null || mean === null ? null : sibling.reward - mean;
  const path = sibling.turns.flatMap((turn) => turn.calls.map((call) => el("li", { class: call.ok ? "" : "failed" }, el("strong", {}, call.name), " ", el("span", { class: "muted" }, Object.values(call.arguments).join(", ")))));
  const bar = svg("svg", { class: `difference ${difference > 0 ? "up" : "down"}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "track", x: 0, y: 3, width: 100, height: 2 }), svg("line", { x1: 50, x2: 50, y1: 0, y2: 8 }));
  if (difference !== null) bar.append(svg("rect", { class: "value", x: difference < 0 ? 50 + (50 * difference) / widest : 50, y: 1, width: Math.abs((50 * difference) / widest), height: 6 }));
  return el("section", { class: `sibling ${place === viewer.selected ? "current" : ""}`, "aria-label": `Sample ${sibling.sample}` },
    el("h4", {}, `Sample ${sibling.sample}`, rewardBadge(sibling), statusTag(sibling)),
    el("p", { class: "small" }, "reward − mean ", el("strong", { class: "number" }, signed(difference))), bar,
    path.length ? el("ol", { class: "path" }, path) : el("p", { class: "muted small" }, "no call"),
    sibling.answer === null ? el("p", { class: "muted" }, sibling.detail || sibling.abstained || "no answer") : el("p", { class: "answer" }, marked(sibling.answer, words)),
    el("button", { type: "button", onclick: () => { viewer.mode = "episode"; viewer.open(place); } }, place === viewer.selected ? "Read this one" : "Open"));
}

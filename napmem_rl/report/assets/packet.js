// A packet of MemChain: what the policy read, what it wrote, and what the answer model reads, side by side. An id lights up wherever it stands.

function buildPacket(packet, words) {
  const uses = countUses(packet);
  const node = el("section", { class: "packet", "aria-label": "Packet" });
  const box = (title, note, content) => el("div", { class: "packet-part" }, el("h4", {}, title, el("span", { class: "muted small" }, note)), content);
  const candidates = el("ul", { class: "packet-items" }, packet.candidates.map((candidate) => buildCandidate(node, candidate, uses, words)));
  const evidence = packet.evidence.length ? el("ol", { class: "packet-items" }, packet.evidence.map((item) => el("li", { class: "entry" }, el("p", { class: "text" }, marked(item.statement, words)), buildIds(node, item.ids)))) : el("p", { class: "muted small" }, "None: no answer is asked for.");
  const tokens = (name) => (packet.facts[name] === null || packet.facts[name] === undefined ? "" : `, ${formatNumber(packet.facts[name])} tokens`);
  fill(node, [
    packet.plan ? el("dl", { class: "facts packet-plan" }, Object.entries(packet.plan).map(([name, value]) => el("div", {}, el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, marked(value, words))))) : null,
    el("div", { class: "packet-columns" },
      box("Candidates", `${packet.candidates.length}${tokens("candidate_tokens")}`, candidates),
      box("Trace and actions", `${packet.trace.length} steps, ${packet.actions.length} actions`, [buildTrace(node, packet, words), buildActions(node, packet, words)]),
      box("Evidence", `${packet.evidence.length}${tokens("evidence_tokens")}${packet.origin === "actions" ? ", out of actions" : ""}`, evidence)),
    buildFaults(packet, words),
  ]);
  return node;
}

// What is done with each candidate: its actions, and whether the evidence rests on it.
function countUses(packet) {
  const uses = new Map();
  const note = (id, label) => uses.set(id, new Set([...(uses.get(id) ?? []), label]));
  for (const action of packet.actions) for (const id of action.ids) note(id, action.action);
  for (const item of packet.evidence) for (const id of item.ids) note(id, "evidence");
  return uses;
}

function buildCandidate(node, candidate, uses, words) {
  const labels = [...(uses.get(candidate.id) ?? [])];
  const isUsed = labels.includes("evidence");
  const tags = labels.map((label) => el("span", { class: `tag ${label === "evidence" ? "good" : label === "DROP" ? "muted" : ""}` }, label));
  return el("li", { class: isUsed ? "entry used" : "entry", "data-id": candidate.id },
    el("div", { class: "item-head" }, buildIds(node, [candidate.id]), el("time", {}, candidate.time.slice(0, 10)), el("span", { class: "who" }, marked(candidate.speaker, words)), tags),
    el("p", { class: "text" }, marked(candidate.text, words)));
}

function buildTrace(node, packet, words) {
  if (!packet.trace.length) return el("p", { class: "muted small" }, "No trace.");
  return el("ol", { class: "packet-items trace" }, packet.trace.map((step) => el("li", { class: "entry" },
    el("div", { class: "item-head" }, el("span", { class: "tag" }, step.role.replaceAll("_", " ")), buildIds(node, step.ids)),
    el("p", { class: "text" }, marked(step.statement, words)),
    step.relation && step.relation !== "none" ? el("p", { class: "relation muted small" }, `↓ ${step.relation}`) : null)));
}

function buildActions(node, packet, words) {
  if (!packet.actions.length) return el("p", { class: "muted small" }, "No actions.");
  return el("ul", { class: "packet-items" }, packet.actions.map((action) => el("li", { class: "entry" },
    el("div", { class: "item-head" }, el("span", { class: `tag action-${action.action.toLowerCase()}` }, action.action), buildIds(node, action.ids), el("span", { class: "muted" }, marked(action.rationale, words))),
    action.statement ? el("p", { class: "text" }, marked(action.statement, words)) : null)));
}

function buildFaults(packet, words) {
  if (!packet.faults.length && !packet.removed.length) return null;
  return el("details", { class: "packet-faults", open: packet.faults.length <= 6 }, el("summary", {}, `${plural(packet.faults.length, "fault")}, ${plural(packet.removed.length, "entry")} taken out`.replace("entrys", "entries")),
    el("ul", {}, packet.faults.map((fault) => el("li", {}, marked(fault, words))), packet.removed.filter((why) => !packet.faults.includes(why)).map((why) => el("li", {}, "taken out: ", marked(why, words)))));
}

// Ids as buttons; pressing one marks every entry that has it, and brings its candidate into view.
function buildIds(node, ids) {
  const light = (event) => {
    const id = event.currentTarget.textContent;
    const isOn = event.currentTarget.getAttribute("aria-pressed") !== "true";
    for (const button of node.querySelectorAll("button.id")) {
      const is = isOn && button.textContent === id;
      button.setAttribute("aria-pressed", String(is));
      button.closest(".entry")?.classList.remove("lit");
    }
    for (const button of node.querySelectorAll("button.id[aria-pressed=true]")) button.closest(".entry")?.classList.add("lit");
    const candidate = [...node.querySelectorAll("[data-id]")].find((item) => item.dataset.id === id);
    if (isOn && candidate && !candidate.contains(event.currentTarget)) candidate.scrollIntoView({ block: "nearest" });
  };
  return el("span", { class: "ids" }, ids.map((id) => el("button", { type: "button", class: "id", "aria-pressed": "false", title: "Mark it wherever it stands", onclick: light }, id)));
}

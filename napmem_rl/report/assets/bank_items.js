// Items of all levels as elements. Whatever an item rests on is built when it is unfolded for the first time.

const LINK = /\s*\[((?:rec|trk):[^\s[\]]+)\]/g;
const PAGE_OF = 30; // items that a list shows at a time

function timeOf(item) {
  return el("time", { datetime: item.time, title: `${item.time} UTC` }, formatTime(item.time));
}

// A box that unfolds. `build` makes its content once.
function unfolding(className, summary, build, isOpen = false) {
  const box = el("details", { class: className }, el("summary", {}, summary));
  const fillOnce = () => {
    if (box.open && box.children.length === 1) fill(box, [build()]);
  };
  box.addEventListener("toggle", fillOnce);
  box.open = isOpen;
  fillOnce();
  return box;
}

function itemNode(store, id, words, isOpen = false) {
  const item = store.item(id);
  if (!item) return el("p", { class: "muted small missing" }, el("code", {}, id), " has no room in this page; ", el("code", {}, `napmem bank show BANK ${id}`), " shows it.");
  if (item.level === "message") return messageNode(store, item, words);
  return item.level === "record" ? recordNode(store, item, words, isOpen) : trackNode(store, item, words, isOpen);
}

function itemList(store, ids, words, isOpen = false) {
  return el("ul", { class: "items" }, ids.map((id) => el("li", {}, itemNode(store, id, words, isOpen))));
}

function messageNode(store, item, words, { isInConversation = false } = {}) {
  const head = el("div", { class: "item-head" }, el("span", { class: "who" }, item.who), timeOf(item), el("code", {}, item.id),
    isInConversation ? null : el("button", { type: "button", class: "link", onclick: () => openConversation(store, item) }, "in its conversation"));
  const caption = item.caption ? el("p", { class: "caption" }, "image: ", marked(item.caption, words)) : null;
  const upward = isInConversation ? store.recordsOf(item.id) : [];
  const remembered = upward.length ? unfolding("upward", `${plural(upward.length, "record")} drawn from this`, () => itemList(store, upward, words)) : null;
  return el("article", { class: `message ${item.isAssistant ? "assistant" : "user"}`, "data-id": item.id }, head, el("p", { class: "text" }, marked(item.text, words)), caption, remembered);
}

function recordNode(store, item, words, isOpen) {
  const summary = [el("span", { class: "item-head" }, el("span", { class: `tag type-${item.type}` }, item.type), timeOf(item), el("code", {}, item.id)), el("span", { class: "text" }, marked(item.text, words))];
  return unfolding("item record", summary, () => [
    item.before.length ? el("div", { class: "before" }, item.before.map((earlier) => el("p", { class: "small" }, el("span", { class: "muted" }, `before (${formatTime(earlier.time)}): `), el("s", {}, earlier.text)))) : null,
    el("p", { class: "rests" }, `drawn from ${plural(item.sources.length, "message")}`),
    itemList(store, item.sources, words),
  ], isOpen);
}

function trackNode(store, item, words, isOpen) {
  const head = el("span", { class: "item-head" }, el("span", { class: "tag level-track" }, "topic"), el("code", {}, item.file), el("span", { class: "muted" }, plural(item.sources.length, "record")), "newest ", timeOf(item));
  return unfolding("item track", [el("span", { class: "track-title" }, marked(item.title, words)), el("span", { class: "text" }, marked(item.summary, words)), head], () => [
    statements(store, item.narrative, words),
    unfolding("upward", `all ${plural(item.sources.length, "record")} of this topic`, () => itemList(store, item.sources, words)),
  ], isOpen);
}

// Lines of a profile or a topic. Each that names its evidence unfolds to it.
function statements(store, markdown, words) {
  return el("div", { class: "statements" }, markdown.split("\n").map((line) => statementNode(store, line.trim(), words)));
}

function statementNode(store, line, words) {
  if (!line) return null;
  const heading = /^#{1,6}\s+(.*)$/.exec(line);
  if (heading) return el("h4", {}, heading[1]);
  const links = [...new Set([...line.matchAll(LINK)].map((match) => match[1]))];
  const text = line.replace(LINK, "").replace(/^[-*]\s+/, "");
  if (!links.length) return el("p", { class: "plain" }, marked(text, words));
  const summary = [el("span", { class: "text" }, marked(text, words)), " ", el("span", { class: "evidence" }, links.join(" "))];
  return unfolding("statement", summary, () => itemList(store, links, words, true));
}

// A list that shows so many items at a time. `build` makes the element of one entry.
function pagedList(entries, build, noun) {
  const list = el("ul", { class: "items paged" });
  const more = el("button", { type: "button", class: "more" });
  let shown = 0;
  const show = () => {
    const first = list.children.length;
    list.append(...entries.slice(shown, shown + PAGE_OF).map((entry) => el("li", {}, build(entry))));
    shown = Math.min(shown + PAGE_OF, entries.length);
    more.textContent = `Show ${Math.min(PAGE_OF, entries.length - shown)} more of ${(entries.length - shown).toLocaleString("en")} ${noun}`;
    more.hidden = shown >= entries.length;
    return list.children[first];
  };
  more.addEventListener("click", () => show()?.querySelector("summary, button")?.focus());
  show();
  return [list, more];
}

function conversationNode(store, one) {
  const { text } = store.message(one.places[0]);
  const days = one.first.slice(0, 10) === one.last.slice(0, 10) ? formatTime(one.first) : `${formatTime(one.first.slice(0, 10))} to ${formatTime(one.last.slice(0, 10))}`;
  const summary = [el("span", { class: "item-head" }, el("time", { datetime: one.first }, days), el("span", {}, plural(one.places.length, "message")), el("code", {}, one.name)), el("span", { class: "text preview" }, text.slice(0, 160))];
  return unfolding("item session", summary, () => pagedList(one.places, (place) => messageNode(store, store.message(place), [], { isInConversation: true }), "messages"));
}

// A message among those around it, in a dialog.
function openConversation(store, item) {
  const dialog = document.getElementById("conversation");
  const places = store.conversation(item.session);
  const at = places.indexOf(item.place);
  let [start, stop] = [Math.max(0, at - 10), Math.min(places.length, at + 11)];
  const list = el("div", { class: "talk", tabindex: "0", role: "region", "aria-label": "Messages" });
  const [earlier, later] = ["earlier", "later"].map((name) => el("button", { type: "button", class: "more" }, `Show ${name} messages`));
  const render = () => {
    list.replaceChildren(...places.slice(start, stop).map((place) => messageNode(store, store.message(place), [], { isInConversation: true })));
    list.querySelector(`[data-id="${CSS.escape(item.id)}"]`)?.classList.add("here");
    earlier.hidden = start === 0;
    later.hidden = stop === places.length;
  };
  earlier.addEventListener("click", () => { start = Math.max(0, start - 20); render(); });
  later.addEventListener("click", () => { stop = Math.min(places.length, stop + 20); render(); });
  const name = store.data.messages.sessions[item.session];
  dialog.replaceChildren(el("h2", { id: "conversation-title" }, `Conversation of ${formatTime(item.time.slice(0, 10))}`), el("p", { class: "muted small" }, `session ${name}, ${plural(places.length, "message")}`), earlier, list, later, el("form", { method: "dialog" }, el("button", { type: "submit" }, "Close")));
  dialog.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); dialog.close(); });
  render();
  dialog.showModal();
  list.querySelector(".here")?.scrollIntoView({ block: "center" });
}

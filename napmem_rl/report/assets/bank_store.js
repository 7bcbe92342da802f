// The bank's levels out of their columns, by id. An item is made when it is asked for: a page may hold a hundred thousand.

const LEVELS = { profile: "profile", track: "topic", record: "record", message: "message" };

class Store {
  constructor(data) {
    this.data = data;
    this.messagePlace = new Map(data.messages.id.map((id, place) => [id, place]));
    this.recordPlace = new Map(data.records.id.map((id, place) => [id, place]));
    this.tracks = new Map(data.tracks.map((track) => [track.id, track]));
    this.folded = {};
  }

  message(place) {
    const columns = this.data.messages;
    return { level: "message", place, id: columns.id[place], time: columns.time[place], session: columns.session[place], who: columns.speakers[columns.speaker[place]], isAssistant: columns.assistant[place] === 1, text: columns.text[place], caption: columns.caption[place] ?? null };
  }

  record(place) {
    const columns = this.data.records;
    const id = columns.id[place];
    return { level: "record", place, id, time: columns.time[place], type: columns.type[place], text: columns.text[place], sources: columns.sources[place], before: columns.before[id] ?? [] };
  }

  track(track) {
    return { level: "track", sources: track.records, ...track };
  }

  // The item of an id, or null where the page does not hold it.
  item(id) {
    if (this.messagePlace.has(id)) return this.message(this.messagePlace.get(id));
    if (this.recordPlace.has(id)) return this.record(this.recordPlace.get(id));
    return this.tracks.has(id) ? this.track(this.tracks.get(id)) : null;
  }

  // Places of the messages of a conversation, in order.
  conversation(session) {
    return this.conversations().find((one) => one.session === session).places;
  }

  // All conversations, newest first: {session, places, first, last}.
  conversations() {
    if (!this.sessionList) {
      const { session, time, sessions } = this.data.messages;
      this.sessionList = sessions.map((name, code) => ({ session: code, name, places: [] }));
      session.forEach((code, place) => this.sessionList[code].places.push(place));
      for (const one of this.sessionList) {
        one.first = time[one.places[0]];
        one.last = time[one.places.at(-1)];
      }
      this.sessionList.sort((a, b) => (a.last < b.last ? 1 : a.last > b.last ? -1 : 0));
    }
    return this.sessionList;
  }

  // Ids of the records that rest on a message.
  recordsOf(messageId) {
    if (!this.dependents) {
      this.dependents = new Map();
      this.data.records.sources.forEach((sources, place) => {
        for (const id of sources) this.dependents.set(id, [...(this.dependents.get(id) ?? []), this.data.records.id[place]]);
      });
    }
    return this.dependents.get(messageId) ?? [];
  }

  // What is searched of each item of a level, folded: lower case, without accents.
  searchable(level) {
    if (!this.folded[level]) {
      const { messages, tracks } = this.data;
      const texts = {
        message: () => messages.text.map((text, place) => `${messages.id[place]} ${messages.speakers[messages.speaker[place]]}: ${text} ${messages.caption[place] ?? ""}`),
        record: () => this.data.records.text.map((text, place) => `${this.data.records.id[place]} ${text}`),
        track: () => tracks.map((track) => `${track.id} ${track.file} ${track.title} ${track.summary} ${track.narrative}`),
      };
      this.folded[level] = texts[level]().map(fold);
    }
    return this.folded[level];
  }
}

function fold(text) {
  return /^[\x00-\x7f]*$/.test(text) ? text.toLowerCase() : text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
}

// A moment as people read it: "5 Mar 2024, 18:00".
function formatTime(time) {
  const [year, month, day] = time.slice(0, 10).split("-");
  const name = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][Number(month) - 1];
  return `${Number(day)} ${name} ${year}${time.length > 10 ? `, ${time.slice(11, 16)}` : ""}`;
}

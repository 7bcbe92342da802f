// Small builders of elements. Text of a run is untrusted: it only ever becomes a text node, and nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

function el(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  return fill(node, children);
}

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return fill(node, children);
}

function formatNumber(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1).replaceAll("-", "−");
  const text = Number.isInteger(value) && size >= 1000 ? value.toLocaleString("en") : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

function signed(value) {
  if (value === null || value === undefined) return "–";
  const text = formatNumber(Number(value.toFixed(3)));
  return value > 0 ? `+${text}` : text;
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

// The text with the given words marked, as nodes.
function marked(text, words) {
  const wanted = words.filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!wanted.length) return [text];
  return text.split(new RegExp(`(${wanted.join("|")})`, "gi")).map((part, place) => (place % 2 ? el("mark", {}, part) : part));
}

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(input|select|textarea)$/i.test(target.tagName));
}

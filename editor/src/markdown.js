// A document of the editor as Markdown that the server reads as the same document.
//
// Links are outside, then bold, then italic. A delimiter of Markdown only counts beside the right
// characters; where it would not, the character next to it is written as an entity, which begins
// and ends with punctuation.

const SPACE = /^[ \t\n]$/;
const PUNCTUATION = /^[\p{P}\p{S}]$/u;
// What every version of the parser takes for punctuation, ASCII and Unicode.
const SURELY_PUNCTUATION = /^[\p{P}$+<=>^`|~]$/u;
const ODD_SPACE = /^[\f\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]$/;
const CONTROL = /[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]/g;
const ENTITY = /^&(#\d{1,7}|#x[\da-f]{1,6}|[a-z]\w{1,31});/i;
const FIELD = /\{\{.*?\}\}|\{%.*?%\}/s;
const ENTITIES = { "\u00a0": "&nbsp;" };

export const toMarkdown = (doc) => blocks(doc.content.content, true);

// --- Blocks -----------------------------------------------------------------------------------

const isEmpty = (node) => node.type.name === "paragraph" && !paragraph(node);

const blocks = (nodes, isLoose) => {
  let written = "";
  let before = null;
  for (const node of nodes) {
    if (isEmpty(node)) continue;
    const isParagraph = node.type.name === "paragraph";
    const isSameList = before?.type === node.type && !isParagraph;
    const isOther = isSameList && !before.isOther;
    const needsLine = isLoose || isParagraph || node.attrs.order > 1 || node.attrs.order === 0;
    if (before) written += needsLine ? "\n\n" : "\n";
    written += isParagraph ? paragraph(node) : list(node, isOther);
    before = { type: node.type, isOther };
  }
  return written;
};

// Another marker begins another list.
const list = (node, isOther) => {
  const isOrdered = node.type.name === "ordered_list";
  const items = node.content.content.map((item, at) => {
    const marker = isOrdered ? `${node.attrs.order + at}${isOther ? ")" : "."}` : isOther ? "*" : "-";
    const [first, ...rest] = item.content.content;
    const inner = blocks(isEmpty(first) ? rest : [first, ...rest], !node.attrs.tight);
    const indent = " ".repeat(marker.length + 1);
    const lines = inner.replace(/\n(?!\n|$)/g, `\n${indent}`);
    return inner ? `${marker} ${lines}` : marker;
  });
  return items.join(node.attrs.tight ? "\n" : "\n\n");
};

// --- Text -------------------------------------------------------------------------------------

const paragraph = (node) => {
  const items = itemsOf(node);
  narrow(items, "strong", (item) => item.href);
  narrow(items, "em", (item) => `${item.strong} ${item.href}`);
  return lines(write(items));
};

// One entry a character, field or line break.
const itemsOf = (node) => {
  const items = [];
  node.forEach((child) => {
    const marks = Object.fromEntries(child.marks.map((mark) => [mark.type.name, mark]));
    const own = { strong: Boolean(marks.strong), em: Boolean(marks.em), href: marks.link?.attrs.href ?? "" };
    if (child.type.name === "hard_break") items.push({ ...own, text: "\n" });
    else if (child.type.name === "field") items.push({ ...own, text: child.attrs.source, isField: true });
    else for (const piece of pieces(child.text)) items.push({ ...own, ...piece });
  });
  return items;
};

// A field that was typed and not yet turned into one stays as it is.
const pieces = (text) => {
  const found = FIELD.exec(text);
  const characters = (part) => [...part.replace(CONTROL, "").replace(/\n/g, " ")].map((each) => ({ text: each }));
  if (!found) return characters(text);
  const after = text.slice(found.index + found[0].length);
  return [...characters(text.slice(0, found.index)), { text: found[0], isField: true }, ...pieces(after)];
};

// Bold and italic neither begin nor end with a space, nor with punctuation beside a field, which
// is a word to the parser. A tag stays beside its line break, which the server leaves out.
const narrow = (items, mark, key) => {
  const isInside = (at, other) => items[other]?.[mark] && key(items[at]) === key(items[other]);
  const isBesideField = (at, other) =>
    items[other]?.isField && items[at].href === items[other].href && PUNCTUATION.test(items[at].text) && !isDelimited(items, at, other, mark);
  const trim = (order, step) => {
    for (const at of order) {
      if (!items[at][mark] || isInside(at, at + step)) continue;
      const isLonelyTag = items[at].text.startsWith("{%") && items[at + 1]?.text === "\n";
      if (SPACE.test(items[at].text) || isLonelyTag || isBesideField(at, at + step)) items[at][mark] = false;
    }
  };
  const forwards = [...items.keys()];
  trim(forwards, -1);
  trim(forwards.reverse(), 1);
};

// Italic beside the end of bold: the delimiter of bold is between them.
const isDelimited = (items, at, other, mark) => mark === "em" && items[at].strong !== items[other].strong;

// Text and delimiters in their order.
const write = (items) => {
  const parts = [];
  const open = { href: "", strong: false, em: false };
  const close = (name) => { if (open[name]) parts.push({ end: name, href: open.href }); open[name] = name === "href" ? "" : false; };
  const begin = (name, value) => { if (value) parts.push({ begin: name }); open[name] = value; };
  const nothing = { href: "", strong: false, em: false };
  [...items, nothing].forEach((item, at) => {
    const changes = { href: item.href !== open.href };
    changes.strong = changes.href || item.strong !== open.strong;
    changes.em = changes.strong || item.em !== open.em;
    for (const name of ["em", "strong", "href"]) if (changes[name]) close(name);
    for (const name of ["href", "strong", "em"]) if (changes[name]) begin(name, item[name]);
    if (item !== nothing) parts.push({ text: escaped(items, at), item });
  });
  chooseItalic(parts);
  const isUnsure = (part, at) => {
    if (part.begin === "strong" || part.begin === "em") return secure(parts, at, -1);
    return (part.end === "strong" || part.end === "em") && secure(parts, at, 1);
  };
  while (parts.some(isUnsure)); // what was changed for one may be inside of another
  return parts.map(source).join("");
};

const escaped = (items, at) => {
  const { text, isField } = items[at];
  const before = items[at - 1];
  const after = items[at + 1];
  const isWord = (item) => item && (item.isField || /^[\p{L}\p{N}]$/u.test(item.text));
  if (isField || text === "\n") return text;
  if (text === "{" && after?.isField) return entity(text);
  if ("\\*[]".includes(text)) return `\\${text}`;
  if (text === "_") return isWord(before) && isWord(after) && isSame(before, after) ? text : "\\_";
  if (text === "&") {
    const following = items.slice(at, at + 40).map((item) => item.text).join("");
    return ENTITY.test(following) ? "\\&" : text;
  }
  if (ODD_SPACE.test(text) && !(isPlain(before, items[at]) && isPlain(after, items[at]))) return entity(text);
  return text;
};
const isSame = (one, other) => one.strong === other.strong && one.em === other.em && one.href === other.href;
const isPlain = (item, beside) => item && isSame(item, beside) && !ODD_SPACE.test(item.text) && !SPACE.test(item.text);
const entity = (character) => ENTITIES[character] ?? `&#${character.codePointAt(0)};`;

// Stars beside stars may be read as one delimiter, so italic has underscores there, unless a field
// is in the way: it is a word, beside which underscores do not count.
const chooseItalic = (parts) => {
  const found = [];
  parts.forEach((part, at) => {
    if (part.begin === "em") found.push([at]);
    if (part.end === "em") found.at(-1).push(at);
  });
  const isField = (at) => parts[at]?.item?.isField;
  const isStars = (at) => parts[at]?.begin === "strong" || parts[at]?.end === "strong";
  const isClear = (at, step) => {
    if (isStars(at + step)) return !isField(at + 2 * step);
    return !isField(at + step) && !(isStars(at + 2 * step) && isField(at + 3 * step));
  };
  const touching = found.filter(([from, to]) => [from - 1, from + 1, to - 1, to + 1].some(isStars));
  const isOutside = (at, step) => parts[at + step]?.[step < 0 ? "end" : "begin"] === "strong";
  const isPossible = (at, step) => isOutside(at, step) || isClear(at, step);
  if (!touching.every(([from, to]) => isPossible(from, -1) && isPossible(to, 1))) return;
  for (const [from, to] of touching) parts[from].sign = parts[to].sign = "_";
};

// What is beyond a run of stars.
const beyond = (parts, at, step) => {
  let found = at + step;
  while (parts[found] && source(parts[found]).startsWith("*")) found += step;
  return parts[found];
};

// Make the delimiter at this place count: by the character outside of it, if it must change.
const secure = (parts, at, step) => {
  const outside = parts[at + step];
  const inside = beyond(parts, at, -step);
  if (!outside?.item || isOpen(outside) || outside.item.isField) return false;
  const isWord = inside.item && (inside.item.isField || !(isWritten(inside) || PUNCTUATION.test(inside.text)));
  if (isWord && parts[at].sign !== "_") return false;
  outside.text = entity(outside.text);
  return true;
};
const isOpen = (part) => !part.item.isField && (isWritten(part) || SPACE.test(part.text) || SURELY_PUNCTUATION.test(part.text));
const isWritten = (part) => [...part.text].length > 1; // escaped, so with punctuation at its ends

const source = (part) => {
  if ("text" in part) return part.text;
  const mark = part.begin ?? part.end;
  if (mark === "strong") return "**";
  if (mark === "em") return part.sign ?? "*";
  return part.begin ? "[" : `](${address(part.href)})`;
};

// What has a meaning in the address of a link is percent-encoded; fields stay as they are.
const address = (href) => {
  const found = FIELD.exec(href);
  if (found) return address(href.slice(0, found.index)) + found[0] + address(href.slice(found.index + found[0].length));
  const plain = href.replace(/[\s\\<>]/g, encodeURIComponent).replace(/[()]/g, "\\$&");
  return plain.replace(/&(?=#?\w+;)/g, "&amp;");
};

// A line that begins like an entry of a list is escaped; one that is empty would end the paragraph.
const lines = (text) => {
  const trimmed = text.replace(/[ \t\n]+$/, "");
  if (!trimmed) return "";
  const each = trimmed.split("\n").map((line) => line.replace(/^[ \t]+|[ \t]+$/g, ""));
  const last = each.length - 1;
  return each.map((line, at) => (line ? unlisted(line) : "\\") + (at < last ? "\n" : "")).join("");
};
const unlisted = (line) => line.replace(/^([-+])(?=[ \t]|$)/, "\\$1").replace(/^(\d{1,9})([.)])(?=[ \t]|$)/, "$1\\$2");

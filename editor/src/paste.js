// What is pasted from Word, Google Docs or the web, as HTML of which the schema takes its part.
import { Fragment, Slice } from "prosemirror-model";
import { schema } from "./schema.js";

const LEVEL = /mso-list:[^;]*level(\d)/i;

// Without what the Content Security Policy forbids, even in a page that nobody sees. The schema
// decides what is taken over; it reads data-style.
const withoutStyles = (html) => html
  .replace(/<(style|script)\b[^]*?<\/\1\s*>/gi, "")
  .replace(/<[a-z][^>]*>/gi, (tag) => tag.replace(/([\s"'/])(style|on\w+)\s*=/gi, "$1 data-$2="));

export const cleaned = (html) => {
  const page = new window.DOMParser().parseFromString(withoutStyles(html), "text/html");
  for (const element of page.querySelectorAll("title, meta, link, img")) element.remove();
  for (const table of [...page.querySelectorAll("table")].reverse()) {
    table.replaceWith(...[...table.querySelectorAll("td, th")].map((cell) => {
      const part = page.createElement("div");
      part.append(...cell.childNodes);
      return part;
    }));
  }
  for (const link of page.querySelectorAll("a[href*='google.com/url?']")) {
    const to = new URL(link.getAttribute("href")).searchParams.get("q");
    if (to) link.setAttribute("href", to);
  }
  listsOfWord(page);
  return page.body.innerHTML;
};

// Word writes the entries of a list as paragraphs, each with its bullet or number as text.
const listsOfWord = (page) => {
  let open = []; // the lists that the entry before is in
  let before = null;
  for (const entry of page.querySelectorAll("p[data-style*='mso-list']")) {
    const level = Number(LEVEL.exec(entry.dataset.style)?.[1] ?? 1);
    const marker = entry.querySelector("[data-style*='mso-list:Ignore'], [data-style*='mso-list: Ignore']");
    const isNumbered = /^\s*\w+[.)]/.test(marker?.textContent ?? "");
    marker?.remove();
    const isNext = before && before === entry.previousElementSibling;
    if (!isNext) open = [];
    open.length = Math.min(open.length, level);
    while (open.length < level) {
      const list = page.createElement(isNumbered ? "ol" : "ul");
      const inside = open.at(-1);
      if (inside) (inside.lastElementChild ?? inside.appendChild(page.createElement("li"))).append(list);
      else entry.before(list);
      open.push(list);
    }
    const item = page.createElement("li");
    item.append(...entry.childNodes);
    open.at(-1).append(item);
    entry.remove();
    before = open[0];
  }
};

// An empty line is between paragraphs; other lines are broken where they were.
export const fromPlainText = (text, context) => {
  const marks = context.marks();
  const paragraphs = text.replace(/\r\n?/g, "\n").split(/\n\s*\n/).map((part) => {
    const lines = part.trim().split("\n").map((line) => (line ? [schema.text(line, marks)] : []));
    const content = lines.flatMap((line, at) => (at ? [schema.nodes.hard_break.create(), ...line] : line));
    return schema.nodes.paragraph.create(null, content);
  });
  return new Slice(Fragment.from(paragraphs), 1, 1);
};

// Exactly what the Markdown of the server knows (src/postroom/writing/rich_text.py).
import { Schema } from "prosemirror-model";

export const SCHEMES = /^(https?:|mailto:|tel:|\{\{)/i;
const style = (element) => element.getAttribute("data-style") ?? "";
const when = (isTrue) => (isTrue ? null : false); // null: no attributes; false: not this one
// A field by its name and its default, a tag as it is.
const shown = (source) => {
  const found = /^\{\{\s*(.+?)\s*(?:\|\s*default\(["'](.*)["']\)\s*)?\}\}$/.exec(source);
  if (!found) return source;
  return found[2] ? `${found[1]} · ${found[2]}` : found[1];
};

export const schema = new Schema({
  nodes: {
    doc: { content: "block+" },
    paragraph: { group: "block", content: "inline*", parseDOM: [{ tag: "p" }], toDOM: () => ["p", 0] },
    bullet_list: {
      group: "block",
      content: "list_item+",
      attrs: { tight: { default: true } },
      parseDOM: [{ tag: "ul" }],
      toDOM: () => ["ul", 0],
    },
    ordered_list: {
      group: "block",
      content: "list_item+",
      attrs: { order: { default: 1 }, tight: { default: true } },
      parseDOM: [{ tag: "ol", getAttrs: (list) => ({ order: list.start >= 0 ? list.start : 1 }) }],
      toDOM: (node) => ["ol", node.attrs.order === 1 ? {} : { start: node.attrs.order }, 0],
    },
    list_item: {
      content: "paragraph block*",
      defining: true,
      parseDOM: [{ tag: "li" }],
      toDOM: () => ["li", 0],
    },
    text: { group: "inline" },
    // A merge field or a control tag, as it is written.
    field: {
      group: "inline",
      inline: true,
      atom: true,
      attrs: { source: {} },
      leafText: (node) => node.attrs.source,
      parseDOM: [{ tag: "span[data-field]", getAttrs: (span) => ({ source: span.dataset.field }) }],
      toDOM: ({ attrs: { source } }) => [
        "span",
        { class: source.startsWith("{%") ? "field-tag" : "field", "data-field": source, title: source },
        shown(source),
      ],
    },
    hard_break: {
      group: "inline",
      inline: true,
      selectable: false,
      linebreakReplacement: true,
      leafText: () => "\n",
      parseDOM: [{ tag: "br" }],
      toDOM: () => ["br"],
    },
  },
  marks: {
    link: {
      attrs: { href: {} },
      inclusive: false,
      parseDOM: [{
        tag: "a[href]",
        getAttrs: (a) => (SCHEMES.test(a.getAttribute("href")) ? { href: a.getAttribute("href") } : false),
      }],
      // Not a link to follow: a click in the editor must not leave the page.
      toDOM: (mark) => ["a", { "data-href": mark.attrs.href, title: mark.attrs.href }, 0],
    },
    em: {
      parseDOM: [
        { tag: "em, i", getAttrs: (node) => when(!/(?<![\w-])font-style:\s*normal/.test(style(node))) },
        { tag: "[data-style]", consuming: false, getAttrs: (node) => when(/(?<![\w-])font-style:\s*italic/.test(style(node))) },
      ],
      toDOM: () => ["em", 0],
    },
    strong: {
      parseDOM: [
        { tag: "strong, b", getAttrs: (node) => when(!/(?<![\w-])font-weight:\s*(normal|[1-5]00)/.test(style(node))) },
        { tag: "[data-style]", consuming: false, getAttrs: (node) => when(/(?<![\w-])font-weight:\s*(bold|[6-9]00)/.test(style(node))) },
      ],
      toDOM: () => ["strong", 0],
    },
  },
});

// The dialog for a link: the page has it, so that its words are translated.
import { schema, SCHEMES } from "./schema.js";

const { link } = schema.marks;

// A position beside which the first link of the selection begins, or the cursor is.
const position = ({ doc, selection: { from, to, empty } }) => {
  let found = from;
  if (empty) return found;
  doc.nodesBetween(from, to, (node, at) => {
    if (found === from && node.isInline && link.isInSet(node.marks)) found = Math.max(at, from);
  });
  return found;
};

// The link at the cursor or in the selection, from end to end.
export const linkAround = (state) => {
  const $at = state.doc.resolve(position(state));
  const after = $at.parent.childAfter($at.parentOffset).node;
  const before = state.selection.empty ? $at.parent.childBefore($at.parentOffset).node : null;
  const mark = [after, before].map((node) => node && link.isInSet(node.marks)).find(Boolean);
  if (!mark) return null;
  let from = null;
  let to = null;
  $at.parent.forEach((node, offset) => {
    const start = $at.start() + offset;
    if (!mark.isInSet(node.marks)) return;
    if (start !== to && (to === null || to < $at.pos)) from = start;
    if (start === to || from === start) to = start + node.nodeSize;
  });
  return { mark, from, to };
};

// What people type for an address: example.org and ada@example.org, too.
export const completed = (typed) => {
  const href = typed.trim();
  if (!href || SCHEMES.test(href)) return href;
  if (/^[^\s/@]+@[^\s/@]+$/.test(href)) return `mailto:${href}`;
  return /^[a-z][a-z0-9+.-]*:/i.test(href) ? "" : `https://${href}`;
};

const change = (view, range, href, words) => {
  const { state } = view;
  const tr = state.tr;
  const { from, to } = range;
  if (from === to && href) {
    const text = words.trim() || href;
    tr.insertText(text, from).addMark(from, from + text.length, link.create({ href }));
  } else {
    tr.removeMark(from, to, link);
    if (href) tr.addMark(from, to, link.create({ href }));
  }
  view.dispatch(tr.removeStoredMark(link).scrollIntoView());
};

export const askForLink = (view) => {
  const dialog = document.getElementById("rich-text-link");
  if (!dialog || dialog.open) return false;
  const found = linkAround(view.state);
  const { from, to, empty } = view.state.selection;
  const range = found ?? { from, to };
  const [address, words] = [dialog.querySelector("[data-address]"), dialog.querySelector("[data-words]")];
  address.value = found?.mark.attrs.href ?? "";
  address.setCustomValidity("");
  words.value = "";
  words.closest("div").hidden = Boolean(found) || !empty;
  dialog.querySelector("[value=remove]").hidden = !found;
  const check = () => {
    const isWrong = address.value.trim() && !completed(address.value);
    address.setCustomValidity(isWrong ? address.dataset.wrong : "");
  };
  const closed = () => {
    address.removeEventListener("input", check);
    if (dialog.returnValue === "set" && completed(address.value)) change(view, range, completed(address.value), words.value);
    if (dialog.returnValue === "remove") change(view, range, "", "");
    view.focus();
  };
  address.addEventListener("input", check);
  dialog.returnValue = "";
  dialog.addEventListener("close", closed, { once: true });
  dialog.showModal();
  return true;
};

// Rich text over a text area. The text area stays the field of the form, with its Markdown current.
import { baseKeymap, chainCommands, exitCode, toggleMark } from "prosemirror-commands";
import { history, redo, undo } from "prosemirror-history";
import { keymap } from "prosemirror-keymap";
import { liftListItem, sinkListItem, splitListItem, wrapInList } from "prosemirror-schema-list";
import { EditorState, Plugin } from "prosemirror-state";
import { EditorView } from "prosemirror-view";
import { askForLink, linkAround } from "./link.js";
import { toMarkdown } from "./markdown.js";
import { cleaned, fromPlainText } from "./paste.js";
import { schema } from "./schema.js";

const { nodes, marks } = schema;
const FIELD = /\{\{[^{}\n]{1,290}\}\}|\{%-?\s*[a-z][^{}\n]{0,290}%\}/;
const editors = new Map(); // by the id of the text area
let kept = new Map(); // states of editors whose text area is being replaced

// --- Commands ---------------------------------------------------------------------------------

const insertBreak = (state, dispatch) => {
  dispatch?.(state.tr.replaceSelectionWith(nodes.hard_break.create(), true).scrollIntoView());
  return true;
};

// Markdown has no empty paragraphs: one to type in is enough.
const noSecondEmpty = (state) => {
  const { $from, empty } = state.selection;
  return empty && $from.depth === 1 && $from.parent.type === nodes.paragraph && !$from.parent.content.size;
};

const isInList = (state, type) => {
  const { $from } = state.selection;
  for (let depth = $from.depth; depth > 0; depth--) {
    const node = $from.node(depth);
    if (node.type === nodes.bullet_list || node.type === nodes.ordered_list) return node.type === type;
  }
  return false;
};

const otherList = (type) => (type === nodes.bullet_list ? nodes.ordered_list : nodes.bullet_list);

// Into a list, out of it, or from one kind into the other.
const toggleList = (type) => (state, dispatch) => {
  if (isInList(state, type)) return liftListItem(nodes.list_item)(state, dispatch);
  if (!isInList(state, otherList(type))) return wrapInList(type)(state, dispatch);
  const { $from } = state.selection;
  let depth = $from.depth;
  while ($from.node(depth).type !== otherList(type)) depth--;
  dispatch?.(state.tr.setNodeMarkup($from.before(depth), type, { tight: $from.node(depth).attrs.tight }));
  return true;
};

const isMarked = (state, mark) => {
  const { from, to, empty, $from } = state.selection;
  if (empty) return Boolean(mark.isInSet(state.storedMarks ?? $from.marks()));
  return state.doc.rangeHasMark(from, to, mark);
};

const insertField = (state, dispatch, source) => {
  const node = nodes.field.create({ source }, null, state.storedMarks ?? state.selection.$from.marks());
  dispatch(state.tr.replaceSelectionWith(node, false).scrollIntoView());
};

const ACTIONS = {
  bold: { run: toggleMark(marks.strong), isOn: (state) => isMarked(state, marks.strong) },
  italic: { run: toggleMark(marks.em), isOn: (state) => isMarked(state, marks.em) },
  link: { run: (state, dispatch, view) => askForLink(view), isOn: (state) => Boolean(linkAround(state)) },
  bullets: { run: toggleList(nodes.bullet_list), isOn: (state) => isInList(state, nodes.bullet_list) },
  numbers: { run: toggleList(nodes.ordered_list), isOn: (state) => isInList(state, nodes.ordered_list) },
};

// A field or tag that was typed or pasted becomes one.
const typedFields = new Plugin({
  appendTransaction(transactions, _before, state) {
    if (!transactions.some((each) => each.docChanged)) return null;
    const tr = state.tr;
    state.doc.descendants((node, position) => {
      const found = node.isText && FIELD.exec(node.text);
      if (!found) return;
      const from = tr.mapping.map(position + found.index);
      tr.replaceWith(from, from + found[0].length, nodes.field.create({ source: found[0] }, null, node.marks));
    });
    return tr.docChanged ? tr : null;
  },
});

const plugins = () => [
  keymap({
    "Mod-b": ACTIONS.bold.run,
    "Mod-i": ACTIONS.italic.run,
    "Mod-k": ACTIONS.link.run,
    "Mod-z": undo,
    "Mod-y": redo,
    "Mod-Shift-z": redo,
    "Shift-Enter": chainCommands(exitCode, insertBreak),
    "Mod-Enter": insertBreak,
    Enter: chainCommands(splitListItem(nodes.list_item), noSecondEmpty),
    "Mod-]": sinkListItem(nodes.list_item),
    "Mod-[": liftListItem(nodes.list_item),
  }),
  keymap(baseKeymap),
  history(),
  typedFields,
];

// --- The toolbar --------------------------------------------------------------------------------

class Toolbar {
  constructor(editor) {
    this.editor = editor;
    const template = document.getElementById("rich-text-tools");
    this.dom = template.content.firstElementChild.cloneNode(true);
    this.buttons = [...this.dom.querySelectorAll("[data-action]")];
    this.panel = this.dom.querySelector(".rich-fields");
    this.dom.querySelector("[role=toolbar]").setAttribute("aria-controls", `${editor.textarea.id}-rich`);
    this.buttons.forEach((button, at) => { button.tabIndex = at ? -1 : 0; });
    this.dom.addEventListener("mousedown", (event) => { if (event.target.closest("button")) event.preventDefault(); });
    this.dom.addEventListener("click", (event) => this.click(event));
    this.dom.addEventListener("keydown", (event) => this.key(event));
  }

  click(event) {
    const action = event.target.closest("[data-action]")?.dataset.action;
    const field = event.target.closest("[data-insert-field]")?.dataset.insertField;
    const { view } = this.editor;
    if (action === "markdown") this.editor.toggleMarkdown();
    else if (action === "field") this.showFields(this.panel.hidden);
    else if (action) {
      if (action !== "link") view.focus();
      ACTIONS[action].run(view.state, view.dispatch, view);
    } else if (field) {
      const otherwise = this.panel.querySelector("input");
      const filter = otherwise.value.trim() ? ` | default("${otherwise.value.trim().replace(/["\\{}]/g, "")}")` : "";
      insertField(view.state, view.dispatch, `{{ ${field}${filter} }}`);
      otherwise.value = "";
      this.showFields(false);
      view.focus();
    }
  }

  showFields(isShown) {
    this.panel.hidden = !isShown;
    this.dom.querySelector("[data-action=field]").setAttribute("aria-expanded", String(isShown));
    if (isShown) this.panel.querySelector("button").focus();
  }

  // Arrows go along the toolbar, Escape back to the text; Enter in a line must not send the form.
  key(event) {
    if (event.key === "Enter" && event.target.matches("input")) event.preventDefault();
    if (event.key === "Escape") {
      event.preventDefault();
      this.showFields(false);
      this.editor.view.focus();
    }
    const at = this.buttons.indexOf(event.target);
    const last = this.buttons.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    this.buttons[at].tabIndex = -1;
    this.buttons[to].tabIndex = 0;
    this.buttons[to].focus();
  }

  update(state) {
    for (const button of this.buttons) {
      const action = ACTIONS[button.dataset.action];
      if (action) button.setAttribute("aria-pressed", String(action.isOn(state)));
    }
  }

  setMarkdown(isMarkdown) {
    for (const button of this.buttons) {
      if (button.dataset.action === "markdown") button.setAttribute("aria-pressed", String(isMarkdown));
      else button.disabled = isMarkdown;
      button.tabIndex = (button.dataset.action === "markdown") === isMarkdown ? 0 : -1;
    }
    if (!isMarkdown) this.buttons.forEach((button, at) => { button.tabIndex = at ? -1 : 0; });
    this.showFields(false);
  }
}

// --- The editor ---------------------------------------------------------------------------------

class TextEditor {
  constructor(textarea, doc) {
    this.textarea = textarea;
    this.label = document.querySelector(`label[for="${CSS.escape(textarea.id)}"]`);
    this.label.id ||= `${textarea.id}-label`;
    this.label.addEventListener("click", () => { if (!this.isMarkdown) this.view.focus(); });
    this.hint = document.getElementById(`${textarea.id}-hint`);
    this.toolbar = new Toolbar(this);
    this.dom = document.createElement("div");
    this.dom.className = "rich-text";
    textarea.before(this.dom);
    this.dom.append(this.toolbar.dom);
    const earlier = kept.get(textarea.id);
    const isSame = earlier?.markdown === textarea.value;
    this.view = new EditorView(this.dom, {
      state: isSame ? earlier.state : EditorState.create({ doc, plugins: plugins() }),
      attributes: this.attributes(),
      transformPastedHTML: cleaned,
      clipboardTextParser: fromPlainText,
      dispatchTransaction: (transaction) => this.dispatch(transaction),
    });
    this.showMarkdown(false);
    this.toolbar.update(this.view.state);
  }

  attributes() {
    const isDescribed = this.hint && !("aboutMarkdown" in this.hint.dataset);
    return {
      id: `${this.textarea.id}-rich`,
      class: "form-control",
      role: "textbox",
      "aria-multiline": "true",
      "aria-labelledby": this.label.id,
      ...(isDescribed ? { "aria-describedby": this.hint.id } : {}),
    };
  }

  dispatch(transaction) {
    this.view.updateState(this.view.state.apply(transaction));
    this.toolbar.update(this.view.state);
    if (!transaction.docChanged) return;
    this.textarea.value = toMarkdown(this.view.state.doc);
    this.textarea.dispatchEvent(new Event("input", { bubbles: true }));
  }

  showMarkdown(isMarkdown) {
    this.isMarkdown = isMarkdown;
    this.textarea.hidden = !isMarkdown;
    this.view.dom.hidden = isMarkdown;
    // The label belongs to what is shown.
    if (isMarkdown) this.label.htmlFor = this.textarea.id;
    else this.label.removeAttribute("for");
    if (this.hint && "aboutMarkdown" in this.hint.dataset) this.hint.hidden = !isMarkdown;
    this.toolbar.setMarkdown(isMarkdown);
  }

  // The server reads the Markdown, since it has the only parser of it.
  async toggleMarkdown() {
    if (!this.isMarkdown) {
      this.textarea.rows = Math.max(this.textarea.rows, this.textarea.value.split("\n").length + 1);
      this.showMarkdown(true);
      this.textarea.focus();
      return;
    }
    const said = this.toolbar.dom.querySelector(".rich-said");
    const doc = await readByServer(this.textarea.value);
    said.textContent = doc ? "" : said.dataset.words;
    said.hidden = Boolean(doc);
    if (!doc) return;
    const { state } = this.view;
    const isSame = toMarkdown(state.doc) === this.textarea.value;
    if (!isSame) this.view.updateState(state.apply(state.tr.replaceWith(0, state.doc.content.size, doc.content)));
    this.showMarkdown(false);
    this.view.focus();
  }
}

const readByServer = async (text) => {
  const url = document.getElementById("rich-text-tools").dataset.read;
  try {
    const answer = await fetch(url, { method: "POST", body: new URLSearchParams({ text }), headers: { "HX-Request": "true" } });
    return answer.ok ? documentFrom(await answer.text()) : null;
  } catch {
    return null; // no connection: the Markdown stays
  }
};

const documentFrom = (json) => {
  if (!json) return null;
  const doc = schema.nodeFromJSON(JSON.parse(json));
  doc.check();
  return doc;
};

export const attachAll = (root) => {
  if (!document.getElementById("rich-text-tools")) return;
  for (const textarea of root.querySelectorAll("textarea[data-rich-text]")) {
    const doc = documentFrom(textarea.dataset.richText);
    textarea.removeAttribute("data-rich-text");
    if (doc) editors.set(textarea.id, new TextEditor(textarea, doc));
  }
  kept = new Map();
};

// What can be undone in a text survives the exchange of the blocks around it.
export const keepStates = () => {
  kept = new Map();
  for (const [id, editor] of editors) {
    if (editor.textarea.closest("#blocks") === null) continue;
    if (!editor.isMarkdown) kept.set(id, { markdown: editor.textarea.value, state: editor.view.state });
    editor.view.destroy();
    editors.delete(id);
  }
};


// The script of the block editor: rich text in text areas, blocks that are dragged, and undo by
// keyboard. Every page works without it.
import { attachAll, keepStates } from "./text_editor.js";
import { startDragging } from "./drag.js";
import { toMarkdown } from "./markdown.js";
import { cleaned } from "./paste.js";
import { schema } from "./schema.js";

// Say where a block is after it was moved; the focus goes to it, too.
const announce = (blocks) => {
  const region = document.getElementById("block-moved");
  const block = blocks.querySelector(`#block-${CSS.escape(blocks.dataset.touched || "none")}`);
  if (!region || !block) return;
  const others = [...block.parentElement.children].filter((each) => each.matches(".block"));
  region.textContent = region.dataset.words
    .replace("{block}", block.querySelector("legend").textContent.trim())
    .replace("{number}", others.indexOf(block) + 1)
    .replace("{count}", others.length);
};

// Ctrl-Z undoes the last change of the blocks, unless something is being typed.
const undo = (event) => {
  const isUndo = (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "z";
  if (!isUndo || event.defaultPrevented || event.target.closest("input, textarea, select, [contenteditable], dialog")) return;
  const button = document.querySelector("#blocks button[name=op][value=undo]");
  if (!button) return;
  event.preventDefault();
  button.click();
};

const showHandles = (root) => { for (const handle of root.querySelectorAll(".block-handle")) handle.hidden = false; };

const start = (root) => { attachAll(root); showHandles(root); };

document.addEventListener("htmx:beforeSwap", (event) => { if (event.detail.target.id === "blocks") keepStates(); });
document.addEventListener("htmx:afterSwap", () => {
  const blocks = document.getElementById("blocks");
  if (blocks) start(blocks);
});
document.addEventListener("htmx:afterSettle", (event) => { if (event.detail.elt.id === "blocks") announce(event.detail.elt); });
document.addEventListener("keydown", undo);
startDragging();
start(document);

export { cleaned, schema, toMarkdown };

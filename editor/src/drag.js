// Blocks are dragged by their handle, with a mouse, a pen or a finger. The block itself moves along;
// dropping it presses the same kind of button as those beside it, so the server has the last word.

const EDGE_PX = 60; // near the edge of the window the page scrolls
const STEP_PX = 14;

export const placeOf = (block) => {
  const column = block.parentElement;
  const at = [...column.children].filter((each) => each.matches(".block")).indexOf(block);
  return column.dataset.column ? `${column.dataset.column}.${at}` : String(at);
};

const press = (block, operation) => {
  const button = block.querySelector("button[name=op][value^='copy:']").cloneNode();
  button.value = operation;
  button.hidden = true;
  block.append(button);
  window.htmx?.process(button);
  button.click();
};

// The column below the pointer that may take the block, and the block that it goes before.
const target = (block, x, y) => {
  const isColumns = block.dataset.kind === "columns";
  const below = document.elementsFromPoint(x, y).find((each) => !block.contains(each));
  let column = below?.closest("[data-column]");
  if (isColumns) column = column?.closest("[data-column='']") ?? column?.parentElement.closest("[data-column='']");
  if (!column) return null;
  const others = [...column.children].filter((each) => each.matches(".block") && each !== block);
  const next = others.find((each) => {
    const box = each.getBoundingClientRect();
    return y < box.top + box.height / 2;
  });
  return { column, next: next ?? others.at(-1)?.nextElementSibling ?? column.firstElementChild };
};

class Drag {
  constructor(block, handle, pointer) {
    Object.assign(this, { block, handle, pointer, home: block.parentElement, next: block.nextElementSibling });
    this.from = placeOf(block);
    this.y = null;
    block.classList.add("is-dragged");
    handle.setPointerCapture(pointer);
    this.timer = setInterval(() => this.scroll(), 30);
    this.listen("addEventListener");
  }

  listen(method) {
    for (const name of ["pointermove", "pointerup", "pointercancel"]) this.handle[method](name, this);
    document[method]("keydown", this, true);
  }

  handleEvent(event) {
    if (event.type === "pointermove") this.move(event.clientX, event.clientY);
    else if (event.type === "pointerup") this.end(true);
    else if (event.type === "pointercancel" || event.key === "Escape") this.end(false);
  }

  move(x, y) {
    Object.assign(this, { x, y });
    const found = target(this.block, x, y);
    if (found && found.next !== this.block) found.column.insertBefore(this.block, found.next);
  }

  scroll() {
    if (this.y === null) return;
    const isUp = this.y < EDGE_PX;
    if (!isUp && this.y < window.innerHeight - EDGE_PX) return;
    window.scrollBy(0, isUp ? -STEP_PX : STEP_PX);
    this.move(this.x, this.y);
  }

  end(isDropped) {
    clearInterval(this.timer);
    this.listen("removeEventListener");
    this.block.classList.remove("is-dragged");
    const to = placeOf(this.block);
    if (!isDropped || to === this.from) this.back();
    else {
      this.block.addEventListener("htmx:afterRequest", (event) => { if (event.detail.failed) this.back(); });
      press(this.block, `move:${this.block.dataset.block}:${to}`);
    }
  }

  back() {
    this.home.insertBefore(this.block, this.next);
  }
}

export const startDragging = () => document.addEventListener("pointerdown", (event) => {
  const handle = event.target.closest?.(".block-handle");
  if (!handle || event.button) return;
  event.preventDefault();
  new Drag(handle.closest(".block"), handle, event.pointerId);
});

// Script adds life, never function: every page works without it.
"use strict";

(() => {
  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const precise = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const minute = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
  const second = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const round = new Intl.NumberFormat();
  const withZone = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

  // Times in the reader's own zone, UTC on hover.
  const localise = (root) => {
    for (const time of root.querySelectorAll("time[data-moment]")) {
      const at = new Date(time.dateTime);
      time.title = `${withZone.format(at)} · ${at.toISOString().slice(0, 19)} UTC`;
      time.textContent = (time.dataset.moment === "second" ? precise : full).format(at);
      time.removeAttribute("data-moment");
    }
  };

  // The time left until then, counted down.
  const ahead = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto" });
  const countDown = () => {
    for (const time of document.querySelectorAll("time[data-until]")) {
      const left = Math.max(0, Math.round((new Date(time.dateTime) - Date.now()) / 1000));
      time.textContent = ahead.format(left, "second");
    }
  };

  // A field that wants to know the reader's zone.
  const fillZones = (root) => {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    for (const field of root.querySelectorAll("[data-own-zone]")) {
      if (!field.value && zone) field.value = zone;
    }
  };

  // The button of a form with a date and a time says them: data-time-in-words="… {when}".
  const inWords = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
  const sayTimes = () => {
    for (const words of document.querySelectorAll("[data-time-in-words]")) {
      const { date, time } = words.closest("form").elements;
      const at = new Date(`${date.value}T${time.value}Z`);  // as it is typed, in whichever zone
      words.dataset.otherwise ??= words.textContent;
      words.textContent = isNaN(at) ? words.dataset.otherwise
        : words.dataset.timeInWords.replace("{when}", inWords.format(at));
    }
  };

  // A curve from numbers that stand in the page: data-chart='[[times], [values]]'.
  const draw = (root) => {
    for (const place of root.querySelectorAll("[data-chart]")) {
      const data = JSON.parse(place.dataset.chart);
      if (!window.uPlot || data[0].length < 2) continue;
      const style = getComputedStyle(document.documentElement);
      const colour = (name) => {
        const probe = document.createElement("i");
        probe.className = "visually-hidden";
        document.body.append(probe);
        probe.style.color = style.getPropertyValue(name);
        const found = getComputedStyle(probe).color;
        probe.remove();
        return found;
      };
      place.textContent = "";
      const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
      const span = data[0].at(-1) - data[0][0];
      const times = (_, at) => at.map((s) => (span > 180 ? minute : second).format(new Date(s * 1000)));
      // Nobody has seen a quarter of a sender.
      const whole = "whole" in place.dataset ? { incrs: [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5, 6].map((zeros) => one * 10 ** zeros)).sort((a, b) => a - b) } : {};
      new uPlot({
        width: place.clientWidth,
        height: place.clientHeight || 176,
        legend: { show: false },
        cursor: { show: false },
        scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
        axes: [
          { ...axis, size: 28, space: 90, values: times },
          { ...axis, size: 52, space: 28, ...whole, values: (_, at) => at.map((number) => round.format(number)) },
        ],
        series: [{}, { stroke: colour("--green"), width: 2, fill: colour("--green-pale"), points: { show: false } }],
      }, data, place);
    }
  };

  // Buttons that need script, and a page that may write to the clipboard: hidden without.
  const offerCopies = (root) => {
    if (!navigator.clipboard) return;
    for (const button of root.querySelectorAll("[data-copy]")) button.hidden = false;
  };

  const copy = (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy);
    navigator.clipboard.writeText(source.textContent.trim()).then(() => {
      button.textContent = button.dataset.done;
    });
  };

  // A form is sent once, however often its button is pressed. Where the answer goes into a frame
  // the page stays, and the form with it.
  const sendOnce = (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post" || event.submitter?.formTarget) return;
    if ("sent" in form.dataset) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "";
    // A moment later: the name and value of a disabled button would not be sent.
    setTimeout(() => {
      for (const button of form.querySelectorAll("button:enabled")) {
        button.disabled = true;
        button.dataset.sent = "";
      }
    });
  };

  // Back in the browser: the page comes as it was left.
  const sendAgain = () => {
    for (const element of document.querySelectorAll("[data-sent]")) {
      delete element.dataset.sent;
      if (element.localName === "button") element.disabled = false;
    }
  };

  const liven = (root) => { localise(root); sayTimes(); countDown(); fillZones(root); draw(root); offerCopies(root); };
  setInterval(countDown, 1000);
  document.addEventListener("click", copy);
  document.addEventListener("input", sayTimes);
  document.addEventListener("submit", sendOnce);
  window.addEventListener("pageshow", sendAgain);
  document.addEventListener("DOMContentLoaded", () => liven(document));
  document.addEventListener("htmx:afterSettle", (event) => liven(event.detail.elt));
  document.addEventListener("htmx:sseMessage", () => liven(document));
  // Curves have the width and the colours of the moment they are drawn.
  window.addEventListener("resize", () => draw(document));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(document));
  // A session that ended: the whole page goes to sign in, not a part of it. Not from under somebody
  // who writes: what they typed would be gone.
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401 && event.detail.elt.id !== "checks") window.location.reload();
  });
})();

// The mail beside the editor follows what is typed. A new frame each time: going back in the
// browser then leaves the page, instead of going through every version of the mail.
(() => {
  document.addEventListener("htmx:afterSettle", (event) => {
    const button = document.querySelector("button[formtarget='mail']");
    const old = document.querySelector("iframe[name='mail']");
    if (event.detail.elt.id !== "checks" || !button || !old) return;
    if ("sent" in button.form.dataset) return; // the preview would replace the save that is being sent
    const fresh = old.cloneNode();
    old.replaceWith(fresh);
    button.click();
  });
})();

// Leaving a field runs the checks again. Replacing them between the press and the release of a click
// would lose the click, so they wait for the release.
(() => {
  const checks = document.getElementById("checks");
  let isPressed = false;
  let isStale = false;
  const release = () => {
    isPressed = false;
    // Later: the click comes after the release.
    if (isStale) setTimeout(() => htmx.trigger(checks, "released"));
    isStale = false;
  };
  checks?.addEventListener("pointerdown", () => { isPressed = true; });
  document.addEventListener("pointerup", release);
  document.addEventListener("pointercancel", release);
  checks?.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target !== checks || !isPressed) return;
    event.detail.shouldSwap = false;
    isStale = true;
  });
})();

// Drafts save themselves while somebody writes, and nobody leaves unsaved words without a question.
(() => {
  const form = document.getElementById("message");
  const line = document.getElementById("autosave");
  if (!form || !line) return;
  const SAVE_EVERY_MS = 3000;
  const TRY_AGAIN_MS = 10000;
  const minute = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
  let url = form.dataset.autosave; // empty: nothing saves itself here, or not any more
  let timer = null;
  let busy = null; // the save that is on its way
  let isLeaving = false;

  // Files are sent with the form alone, and whose preview it is belongs to no message.
  const fields = () => {
    const data = new FormData(form);
    const unsaved = ["html_file", "text_file", "attachments", "picture_file", "picture_for", "find_picture", "as"];
    for (const name of unsaved) data.delete(name);
    return data;
  };
  const words = () => JSON.stringify([...fields()].filter(([name]) => !["etag", "once", "ref", "undo", "snippet", "template"].includes(name)));
  let saved = "unsaved" in form.dataset ? null : words();
  const hasFile = () => [...form.querySelectorAll("input[type=file]")].some((input) => input.files.length);
  const isChanged = () => words() !== saved || hasFile();
  const hasBody = () => {
    const { body, text, shape } = form.elements;
    return Boolean(body?.value.trim() || text.value.trim() || (shape && shape.value !== "[]"));
  };

  const say = (text) => {
    if (line.textContent !== text) line.textContent = text;
    line.hidden = !text;
  };
  const plan = (wait = SAVE_EVERY_MS) => {
    if (url) timer ??= setTimeout(save, wait);
  };

  const hidden = (name, value) => {
    const input = form.elements[name] ?? document.createElement("input");
    Object.assign(input, { type: "hidden", name, value });
    form.append(input);
  };

  // From the first save on, the form is that of a draft, also if the page is loaded again.
  const follow = ({ ref, etag }) => {
    hidden("etag", etag);
    hidden("ref", ref);
    form.elements.once?.remove();
    form.action = `/admin/messages/${ref}/write`;
    url = `/admin/messages/${ref}/autosave`;
    if (location.pathname !== `/admin/messages/${ref}/write`) history.replaceState(null, "", form.action);
  };

  const send = async (sent) => {
    let told = null;
    let status = 0;
    try {
      // Said to be a part of a page: whoever is signed out is told so, instead of a page to sign in.
      const answer = await fetch(url, { method: "POST", body: fields(), headers: { "HX-Request": "true" } });
      status = answer.status;
      if (answer.ok) told = await answer.json();
    } catch { /* no connection: the same as no answer */ }
    if (told?.state === "saved") {
      saved = sent;
      follow(told);
      say(line.dataset.saved.replace("{time}", minute.format(new Date())));
    } else if (told?.state === "refused") {
      say(line.dataset.refused.replace("{why}", told.words));
    } else if (told?.state === "stopped") {
      url = "";
      say(told.words);
    } else {
      say(status === 401 ? line.dataset.signedOut : line.dataset.failed);
      plan(TRY_AGAIN_MS);
    }
  };

  const save = async () => {
    clearTimeout(timer);
    timer = null;
    await busy;
    const sent = words();
    if (!url || isLeaving || sent === saved || !hasBody()) return;
    busy = send(sent);
    await busy;
    busy = null;
    // A refusal stands until somebody types; what was typed meanwhile is saved in its turn.
    if (words() !== sent) plan();
  };

  if (line.textContent) line.hidden = false;
  form.addEventListener("input", () => plan());
  form.addEventListener("save", (event) => {
    if (!url) return;
    event.preventDefault();
    save();
  });
  form.addEventListener("change", () => plan());
  // The buttons of the block editor bring new blocks: the preview and the draft follow them.
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.elt.id === "blocks") form.dispatchEvent(new Event("change", { bubbles: true }));
  });
  const cancel = form.querySelector("[data-close]");
  if (cancel) cancel.textContent = cancel.dataset.close;
  document.addEventListener("visibilitychange", () => { if (document.hidden) save(); });

  // Not beside a save that is on its way: the form would not know the draft it has become.
  let isPreview = false;
  form.addEventListener("submit", (event) => {
    const by = event.submitter;
    isPreview = Boolean(by?.formTarget);
    if (isPreview) return;
    if (busy) {
      event.preventDefault();
      event.stopImmediatePropagation();
      busy.finally(() => form.requestSubmit(by));
      return;
    }
    isLeaving = true;
    clearTimeout(timer);
    timer = null;
  });
  // The preview follows every key: it must not upload files each time.
  form.addEventListener("formdata", (event) => { if (isPreview) event.formData.delete("attachments"); });
  window.addEventListener("pageshow", () => { isLeaving = false; });

  // A link is followed once the draft is saved; if it cannot be, the browser asks.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[href]");
    const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || link.target || event.defaultPrevented || !url || !isChanged()) return;
    if (link.getAttribute("href").startsWith("#")) return;
    event.preventDefault();
    await save();
    location.href = link.href;
  });
  window.addEventListener("beforeunload", (event) => {
    if (!isLeaving && isChanged()) event.preventDefault();
  });
})();

// The keyboard in the editor: Enter in a line presses no button (but searches pictures), Ctrl+S
// saves, Ctrl+Z outside of a text takes back the last change of the blocks.
(() => {
  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    const form = target.form ?? document.querySelector("form:has(.form-bar)");
    const bar = form?.querySelector(".form-bar");
    if (!bar || event.defaultPrevented) return;
    const isText = target.matches("input, textarea, select, [contenteditable]");
    const isCommand = (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
    if (key === "Enter" && target.matches("input:not([type=file])")) target.closest(".upload-row")?.querySelector("button").click();
    else if (isCommand && key === "s") {
      if (form.dispatchEvent(new Event("save", { cancelable: true }))) form.requestSubmit(bar.querySelector("button"));
    }
    else if (isCommand && key === "z" && !isText) bar.querySelector("#undo button")?.click();
    else return;
    event.preventDefault();
  });
  // What a button changed is looked at next; without such a block, it can be taken back.
  document.addEventListener("htmx:afterSettle", (event) => {
    const blocks = event.detail.elt;
    if (blocks.id !== "blocks") return;
    const touched = document.getElementById(`block-${blocks.dataset.touched}`);
    (touched ?? document.querySelector("#undo button"))?.focus({ preventScroll: true });
    touched?.scrollIntoView({ block: "nearest" });
  });
})();

// One click to the format that fits the body.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-kind]");
  const choice = button && document.querySelector(`#message input[name="kind"][value="${button.dataset.kind}"]`);
  if (!choice) return;
  event.preventDefault();
  choice.checked = true;
  choice.dispatchEvent(new Event("change", { bubbles: true }));
});

// Pictures are dropped or pasted: on the page of the media library, or on a picture in the editor.
(() => {
  const hints = (root) => { for (const hint of root.querySelectorAll("[data-drop-hint]")) hint.hidden = false; };
  document.addEventListener("DOMContentLoaded", () => hints(document));
  document.addEventListener("htmx:afterSettle", (event) => hints(event.detail.elt));

  const isPicture = (file) => file.type.startsWith("image/");
  const give = (input, files) => {
    const taken = new DataTransfer();
    for (const file of files) taken.items.add(file);
    input.files = taken.files;
  };
  // The place that takes the files: the upload form of the library, or a picture of the editor.
  const placeOf = (target) => document.querySelector("form[data-drop]")
    ?? target.closest?.("[data-picture-place]")
    ?? target.closest?.("fieldset.block, fieldset.article")?.querySelector("[data-picture-place]");

  const upload = (place, files) => {
    if (place.matches("form")) {
      give(place.querySelector("input[type=file]"), files);
      place.requestSubmit();
      return;
    }
    const form = place.closest("form");
    for (const old of form.querySelectorAll("[name=picture_file], [name=picture_for]")) old.remove();
    const input = Object.assign(document.createElement("input"), { type: "file", name: "picture_file", hidden: true });
    const whose = Object.assign(document.createElement("input"), { type: "hidden", name: "picture_for", value: place.dataset.picturePlace });
    place.append(input, whose);
    give(input, files.slice(0, 1));
    place.querySelector("button[name=op]").click();
  };

  document.addEventListener("dragover", (event) => {
    const place = event.dataTransfer?.types.includes("Files") && placeOf(event.target);
    for (const other of document.querySelectorAll(".is-dropping")) other.classList.toggle("is-dropping", other === place);
    if (!place) return;
    event.preventDefault();
    place.classList.add("is-dropping");
  });
  document.addEventListener("drop", (event) => {
    for (const place of document.querySelectorAll(".is-dropping")) place.classList.remove("is-dropping");
    const place = event.dataTransfer?.types.includes("Files") && placeOf(event.target);
    if (!place) return;
    event.preventDefault();
    const files = [...event.dataTransfer.files];
    if (files.length) upload(place, files);
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])].filter(isPicture);
    const place = files.length && placeOf(event.target);
    if (!place) return;
    event.preventDefault();
    upload(place, files);
  });
  // A chosen file is uploaded at once: the next click would send it anyway.
  document.addEventListener("change", (event) => {
    if (event.target.name !== "picture_file" || !event.target.files.length) return;
    event.stopPropagation();
    event.target.closest("[data-picture-place]").querySelector("button[value^='upload:']")?.click();
  }, true);
})();

// “Show me” selects the line of the body that a finding is about.
(() => {
  const select = (line) => {
    const body = document.querySelector("textarea#body");
    if (!body || !line) return false;
    const lines = body.value.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    body.focus();
    body.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    body.scrollTop = (body.scrollHeight / Math.max(1, lines.length)) * Math.max(0, line - 4);
    return true;
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-line]");
    if (link && select(Number(link.dataset.line))) event.preventDefault();
  });
  select(Number(new URLSearchParams(location.search).get("line")));
})();

// Script adds life, never function: every page works without it.
"use strict";

(() => {
  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const minute = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
  const second = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const round = new Intl.NumberFormat();
  const withZone = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

  // Times in the reader's own zone, UTC on hover.
  const localise = (root) => {
    for (const time of root.querySelectorAll("time[data-moment]")) {
      const at = new Date(time.dateTime);
      time.title = `${withZone.format(at)} · ${at.toISOString().slice(0, 19)} UTC`;
      time.textContent = full.format(at);
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
    const fresh = old.cloneNode();
    old.replaceWith(fresh);
    button.click();
  });
})();

"use strict";
// Zoom along time, and what is under the pointer or the focus in one line. Without this the page shows all there is.
(() => {
  const charts = document.getElementById("timeline");
  const readout = document.querySelector(".readout");
  const panes = [...document.querySelectorAll(".pane")];
  const firstText = readout.textContent;
  let zoom = 1;

  const say = (mark) => {
    const title = mark && mark.querySelector(":scope > title");
    if (title) readout.textContent = title.textContent;
  };

  const zoomTo = (wanted, pane, at = 0.5) => {
    const before = zoom;
    zoom = Math.min(200, Math.max(1, wanted));
    const old = pane || panes[0];
    const middle = (old.scrollLeft + at * old.clientWidth) / before;
    for (const one of panes) {
      one.style.setProperty("--zoom", zoom);
      one.firstElementChild.classList.toggle("close", zoom >= 3);
    }
    for (const one of panes) one.scrollLeft = middle * zoom - at * one.clientWidth;
  };

  const zoomBy = { in: () => zoom * 1.5, out: () => zoom / 1.5, fit: () => 1 };
  const tools = document.querySelector(".zoom");
  if (tools && panes.length) {
    tools.hidden = false;
    tools.addEventListener("click", (event) => {
      const by = event.target.dataset.zoom;
      if (by) zoomTo(zoomBy[by]());
    });
  }

  let scrolling = false;
  for (const pane of panes) {
    pane.addEventListener("scroll", () => {
      if (scrolling) return;
      scrolling = true;
      for (const one of panes) if (one !== pane) one.scrollLeft = pane.scrollLeft;
      requestAnimationFrame(() => { scrolling = false; });
    });
    pane.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const box = pane.getBoundingClientRect();
      zoomTo(zoom * (event.deltaY < 0 ? 1.25 : 0.8), pane, (event.clientX - box.left) / box.width);
    }, { passive: false });
  }

  let here = null;
  const go = (mark) => {
    if (here) here.classList.remove("here");
    here = mark;
    if (!mark) return;
    mark.classList.add("here");
    say(mark);
    const pane = mark.closest(".pane");
    const box = mark.getBoundingClientRect();
    const seen = pane.getBoundingClientRect();
    if (box.left < seen.left || box.left > seen.right) pane.scrollLeft += box.left - seen.left - 40;
  };

  charts.addEventListener("pointerover", (event) => {
    if (event.target.tagName === "rect") say(event.target);
  });
  charts.addEventListener("keydown", (event) => {
    const pane = event.target.closest(".pane");
    if (!pane) return;
    const keys = { "+": "in", "=": "in", "-": "out", "0": "fit" };
    if (keys[event.key] && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      zoomTo(zoomBy[keys[event.key]](), pane);
      return;
    }
    const lane = event.target.closest(".lane");
    if (!lane) return;
    const marks = [...lane.querySelectorAll("rect")];
    const at = marks.indexOf(here);
    const moves = { ArrowRight: at + 1, ArrowLeft: at < 0 ? marks.length - 1 : at - 1, Home: 0, End: marks.length - 1 };
    if (event.key in moves) {
      event.preventDefault();
      go(marks[Math.min(marks.length - 1, Math.max(0, moves[event.key]))]);
    } else if (event.key === "Escape") {
      go(null);
      readout.textContent = firstText;
    }
  });
  charts.addEventListener("focusin", (event) => {
    const lane = event.target.closest(".lane");
    if (lane && (!here || here.closest(".lane") !== lane)) {
      go(null);
      readout.textContent = lane.getAttribute("aria-label");
    }
  });

  // a link into the emitted file opens it
  const open = () => {
    const found = location.hash && document.getElementById(location.hash.slice(1));
    for (let one = found && found.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
    if (found) found.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", open);
  open();
})();

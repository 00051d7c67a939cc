// Refreshes what stands now every two seconds while somebody looks, and says so when the monitor does not answer: a page
// that is old must never look healthy. Without this script the page works, and is loaded anew every ten seconds.
"use strict";
(() => {
  const EVERY = 2000, PATIENCE = 5000, OLD = 7000;
  const box = document.getElementById("no-answer");
  const pulse = document.getElementById("pulse");
  const announce = document.getElementById("announce");
  const live = () => document.getElementById("live");
  if (!live()) return;
  let answered = Date.now(), asOf = live().dataset.now, why = "", asking = false;

  function judge() {
    const old = Date.now() - answered > OLD;
    document.body.classList.toggle("old", old);
    box.hidden = !old;
    if (old) {
      const words = `✕ ${why || "The monitor does not answer"}. What you see is from ${asOf} UTC, and may not be true any more.`;
      if (box.textContent !== words) box.textContent = words;
      document.title = "? no answer – Offsetwatch";
    }
    pulse.textContent = old ? `old: as of ${asOf}` : document.hidden ? `paused, as of ${asOf}` : `live, as of ${asOf}`;
  }

  function show(fresh) {
    const before = live(), focused = document.activeElement && document.activeElement.id;
    const changed = before.dataset.state !== fresh.dataset.state || before.dataset.open !== fresh.dataset.open;
    for (const one of before.querySelectorAll("details[open][id]")) {
      const again = fresh.querySelector(`#${CSS.escape(one.id)}`);
      if (again) again.open = true;
    }
    const selecting = !getSelection().isCollapsed && before.contains(getSelection().anchorNode);
    if (selecting && !changed) return;
    const scrolled = [...before.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    before.replaceWith(fresh);
    fresh.querySelectorAll(".wide").forEach((one, n) => { one.scrollLeft = scrolled[n] || 0; });
    asOf = fresh.dataset.now;
    document.title = `${fresh.dataset.state === "ok" ? "healthy" : fresh.dataset.state} – Offsetwatch`;
    if (changed) announce.textContent = fresh.querySelector("h1").textContent;
    const again = focused && document.getElementById(focused);
    if (again && again !== document.activeElement) again.focus({ preventScroll: true });
  }

  async function ask() {
    if (asking || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch("/fragments/overview", {
        cache: "no-store", redirect: "error", headers: { Accept: "text/plain" }, signal: AbortSignal.timeout(PATIENCE),
      });
      if (!answer.ok) throw new Error(answer.status === 401 ? "You are no longer logged in" : `The monitor answers with an error (${answer.status})`);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
      if (!fresh) throw new Error("The monitor answers with something else");
      show(document.importNode(fresh, true));
      answered = Date.now();
      why = "";
    } catch (error) {
      why = error.constructor === Error ? error.message : "";
    } finally {
      asking = false;
      judge();
    }
  }

  function reveal() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const folded = target && target.closest("details");
    if (folded) { folded.open = true; target.scrollIntoView({ block: "center" }); target.focus({ preventScroll: true }); }
  }

  setInterval(ask, EVERY);
  setInterval(judge, 1000);
  document.addEventListener("visibilitychange", () => { judge(); ask(); });
  addEventListener("pageshow", (event) => { if (event.persisted) { answered = 0; judge(); ask(); } });
  addEventListener("hashchange", reveal);
  reveal();
  judge();
})();

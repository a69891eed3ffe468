// Keeps the page up to date. Without it everything works, and a reload shows what is new.
"use strict";

const queue = document.getElementById("queue");
const liveness = document.getElementById("liveness");
// A client polls its job as often.
const OWN_PAUSE_MS = 5000;
const AGAIN_MS = 60000;
// Server's clock minus this one's.
let offset = 0;

// As the server writes it.
function age(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.floor(seconds))} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

function tick() {
  for (const time of document.querySelectorAll("time.age")) {
    const text = age((Date.now() + offset - Date.parse(time.dateTime)) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
}

// The own jobs change only when the queue does. What somebody is using is left alone.
let ownIsDue = false;
let ownAskedAt = 0;
async function refreshOwn() {
  const own = document.getElementById("own");
  const isInUse = own?.contains(document.activeElement) || own?.querySelector("details[open]");
  if (!ownIsDue || isInUse || !own?.hasAttribute("data-signed-in") || Date.now() - ownAskedAt < OWN_PAUSE_MS) return;
  ownIsDue = false;
  ownAskedAt = Date.now();
  try {
    const answer = await fetch("/", { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("own");
    if (fresh && !own.contains(document.activeElement)) own.replaceWith(fresh);
  } catch {
    ownIsDue = true;
  }
}

function follow() {
  const events = new EventSource("/queue/events");
  events.onopen = () => { liveness.textContent = "Live"; };
  events.onerror = () => {
    liveness.textContent = "Not live at this moment";
    // Another status than 200: the browser does not try again by itself.
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, AGAIN_MS);
  };
  events.addEventListener("queue", (event) => {
    const scrolled = [...queue.querySelectorAll(".scroll")].map((box) => [box.getAttribute("aria-label"), box.scrollLeft]);
    const focused = queue.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    queue.innerHTML = JSON.parse(event.data);
    for (const [label, left] of scrolled) {
      const box = queue.querySelector(`.scroll[aria-label="${label}"]`);
      if (box) box.scrollLeft = left;
    }
    if (focused) queue.querySelector(`[aria-label="${focused}"]`)?.focus({ preventScroll: true });
    const now = queue.querySelector("[data-now]")?.dataset.now;
    if (now) offset = Date.parse(now) - Date.now();
    ownIsDue = true;
    tick();
    refreshOwn();
  });
}

if (queue && liveness) {
  follow();
  setInterval(() => { tick(); refreshOwn(); }, 1000);
}

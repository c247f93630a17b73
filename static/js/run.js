// Tells when the state of this conversation's reply changes, whatever swap changed it.
const state = () => document.getElementById("run")?.dataset.run ?? "idle";

export function watchRun(changed) {
  let last = state();
  const look = () => {
    const before = last;
    last = state();
    if (last !== before) changed(last, before);
  };
  const watched = { subtree: true, childList: true, attributes: true, attributeFilter: ["data-run"] };
  new MutationObserver(look).observe(document.getElementById("status"), watched);
  return last;
}

// A reply that went on until now is over: "ready" or "failed"; "" when there is nothing to tell.
export function ended(now, before) {
  if (before !== "running" || !["idle", "failed"].includes(now)) return "";
  if (now === "failed") return "failed";
  // What the person stopped is no news to them.
  return document.querySelector("#log > .reply:last-of-type [id$='-stopped']") ? "" : "ready";
}

// What is being written in a conversation: this tab's own words first, else the last ones of any tab.
import { keep, kept } from "./store.js";

const PAUSE_MS = 300;
const TAB = "sessionStorage";

function parsed(json) {
  try {
    const { text, files } = JSON.parse(json);
    return { text: `${text}`, files: [...files] };
  } catch {
    return null;
  }
}

export function startDraft(conversation) {
  const name = `draft.${conversation}`;
  const draft = parsed(kept(name, TAB)) ?? parsed(kept(name)) ?? { text: "", files: [] };
  const json = () => (draft.text || draft.files.length ? JSON.stringify(draft) : "");
  let last = json();
  let timer = 0;

  const save = () => {
    timer = 0;
    const now = json();
    if (now === last) return;
    // What another tab wrote since is not ours to clear away.
    if (now || kept(name) === last) keep(name, now);
    keep(name, now, TAB);
    last = now;
  };
  addEventListener("pagehide", save);

  return {
    draft,
    set(part) {
      Object.assign(draft, part);
      timer ||= setTimeout(save, PAUSE_MS);
    },
  };
}

// The files that go with the next message: chosen, dropped or pasted, and uploaded at once. The server draws the chips.
import { keep, kept } from "./store.js";

export function startAttach(chat, { editing, complain }) {
  const list = document.getElementById("attached");
  const input = document.getElementById("attach");
  const uploading = document.getElementById("uploading");
  const lost = document.getElementById("upload-lost");
  const words = input.dataset;
  const draft = `files.${chat.dataset.conversation}`;
  const fields = () => [...list.querySelectorAll("input")];
  const paths = () => fields().map((field) => field.value);

  const add = (files) => {
    if (editing()) return complain(words.editing);
    const given = new DataTransfer();
    for (const file of files) if (file.size <= words.limit) given.items.add(file);
    complain(given.files.length < files.length ? words.tooLarge : "");
    input.files = given.files;
    if (given.files.length) htmx.trigger(input, "upload");
  };

  const address = `${input.getAttribute("hx-post")}?${kept(draft)}`;
  if (kept(draft)) htmx.ajax("GET", address, { source: list, swap: "beforeend" });
  const save = () => keep(draft, new URLSearchParams(paths().map((path) => ["path", path])).toString());
  new MutationObserver(save).observe(list, { childList: true });
  input.addEventListener("change", () => add(input.files));
  // The same file may be chosen again; after a failure it stays for the retry.
  input.addEventListener("htmx:after:swap", () => (input.value = ""));
  document.getElementById("upload-drop").addEventListener("click", () => (lost.textContent = input.value = ""));
  acceptDrops(add);

  return {
    add,
    paths,
    // Why a message cannot go yet, if so.
    holds: () => (uploading.matches(".htmx-request") ? "uploading" : lost.textContent && "files_failed"),
    sent: (gone) => fields().forEach((field) => gone.includes(field.value) && field.closest("li").remove()),
  };
}

// Anywhere on the page: a file dropped beside the box must not replace the page.
function acceptDrops(add) {
  const veil = document.getElementById("drop");
  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      const { types, files } = event.dataTransfer;
      if (!types.includes("Files")) return;
      event.preventDefault();
      veil.hidden = name !== "dragover" && !event.relatedTarget;
      if (name === "drop") add(files);
    });
  }
}

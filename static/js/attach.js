// The files that go with the next message: chosen, dropped or pasted, uploaded at once, shown as chips.
const MOST = 10;
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

// Hidden and direction characters do not make a name look like another.
const told = (words, name) => words.replace("{name}", name.replace(/\p{C}/gu, "\ufffd"));

function sizeOf(bytes) {
  const step = bytes < 1024 ? 0 : bytes < 1024 ** 2 ? 1 : 2;
  const number = (bytes / 1024 ** step).toLocaleString(document.documentElement.lang, { maximumFractionDigits: 1 });
  return `${number}\u00a0${["B", "KB", "MB"][step]}`;
}

// Calls back with the stored file, or with null and the problem that the server told.
function upload(url, csrf, file, progress, done) {
  const request = new XMLHttpRequest();
  const form = new FormData();
  form.append("file", file);
  request.upload.onprogress = (event) => progress(event.loaded / event.total);
  request.onloadend = () => (request.status === 201 ? done(request.response) : done(null, request.response ?? {}));
  request.open("POST", url);
  request.responseType = "json";
  request.setRequestHeader("X-CSRFToken", csrf);
  request.send(form);
  return request;
}

export function startFiles(chat, { draft, set }, { changed, closed, problem }) {
  const list = document.getElementById("attached");
  const words = list.dataset;
  const csrf = document.querySelector("[name=csrfmiddlewaretoken]").value;
  const files = `/api/conversations/${chat.dataset.conversation}/files`;
  let chips = [];

  const stored = () => chips.map((chip) => chip.stored).filter(Boolean);
  const settled = () => {
    set({ files: stored() });
    changed();
  };
  const drop = (gone) => {
    chips = chips.filter((chip) => !gone.includes(chip));
    for (const chip of gone) chip.row.remove();
    settled();
  };
  const remove = (chip) => {
    chip.request?.abort();
    const url = chip.file && chip.stored && `${files}?path=${encodeURIComponent(chip.stored.path)}`;
    // What an older draft holds may have gone with a message from another tab.
    if (url) fetch(url, { method: "DELETE", headers: { "X-CSRFToken": csrf } }).catch(() => {});
    drop([chip]);
  };
  const show = (chip) => {
    const { name, size, path, media_type: kind } = chip.stored ?? chip.file;
    const part = (selector) => chip.row.querySelector(selector);
    chip.row.classList.toggle("failed", Boolean(chip.why));
    part(".name").textContent = told("{name}", name);
    part(".meta").textContent = chip.why || sizeOf(size);
    part("progress").hidden = chip.stored || chip.why;
    part("progress").ariaLabel = told(words.uploading, name);
    part(".again").hidden = !chip.why;
    part(".off").ariaLabel = told(words.remove, name);
    if (path && PICTURES.includes(kind)) {
      const image = new Image();
      image.alt = "";
      image.onload = () => part(".thumb").replaceChildren(image);
      image.src = `/api/sessions/${chat.dataset.conversation}/files?path=${encodeURIComponent(path)}&inline=1`;
    }
  };
  const send = (chip) => {
    chip.why = "";
    show(chip);
    const progress = (part) => (chip.row.querySelector("progress").value = part);
    chip.request = upload(files, csrf, chip.file, progress, (made, refused) => {
      chip.stored = made;
      const why = { too_large: words.tooLarge, workspace_full: words.full }[refused?.code] ?? refused?.detail;
      chip.why = made ? "" : told(why ?? words.lost, chip.file.name);
      show(chip);
      settled();
    });
  };
  const made = (of) => {
    const row = document.getElementById("file-chip").content.firstElementChild.cloneNode(true);
    const chip = { row, why: "", ...of };
    row.querySelector(".off").onclick = () => remove(chip);
    row.querySelector(".again").onclick = () => send(chip);
    chips.push(chip);
    list.append(row);
    return chip;
  };
  const add = (given) => {
    const lines = closed() ? [words.editing] : [];
    for (const file of closed() ? [] : given) {
      const why = file.folder ? words.folder : !file.size ? words.empty : file.size > words.limit ? words.tooLarge : "";
      if (why) lines.push(told(why, file.name));
      else if (chips.length < MOST) send(made({ file }));
      else lines[MOST] = words.tooMany;
    }
    problem(lines.filter(Boolean).join("\n"));
  };

  for (const file of draft.files) show(made({ stored: file }));
  const input = document.getElementById("attach");
  input.addEventListener("change", () => {
    add(input.files);
    input.value = "";
  });
  const busy = () => chips.some((chip) => !chip.stored && !chip.why);
  addEventListener("beforeunload", (event) => busy() && event.preventDefault());
  acceptDrops(add);

  return {
    add,
    busy,
    failed: () => chips.some((chip) => chip.why),
    paths: () => stored().map((file) => file.path),
    sent: (paths) => drop(chips.filter((chip) => paths.includes(chip.stored?.path))),
  };
}

// Anywhere on the page: a file dropped beside the box must not replace the page.
function acceptDrops(add) {
  const veil = document.getElementById("drop");
  const on = (name, hide, act) =>
    document.addEventListener(name, (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      veil.hidden = hide(event);
      act?.(event.dataTransfer);
    });
  on("dragover", () => false);
  on("dragleave", (event) => !event.relatedTarget);
  on("drop", () => true, ({ items }) => {
    const entry = (item) => item.webkitGetAsEntry();
    const given = [...items].filter((item) => item.kind === "file");
    add(given.map((item) => (entry(item)?.isDirectory ? { folder: true, name: entry(item).name } : item.getAsFile())));
  });
}

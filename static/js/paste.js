// Pasting: files are attached, and a very long text is offered as a file before it fills the box.
const LONG = 10_000;
const LINES = 200;

const isLong = (text) => text.length > LONG || text.split("\n", LINES + 1).length > LINES;

export function startPaste(box, limit, attach, changed) {
  const bar = document.getElementById("pasted");
  const [asFile, asText] = bar.querySelectorAll("button");
  let text = "";
  let number = 1;

  box.addEventListener("paste", (event) => {
    const { files } = event.clipboardData;
    const pasted = event.clipboardData.getData("text/plain");
    const fits = box.value.length + pasted.length <= limit;
    // A copied cell or paragraph comes as a picture too; its text is meant.
    if (files.length && !pasted) attach(files);
    else if (isLong(pasted) || !fits) {
      text = pasted;
      const length = text.length.toLocaleString(document.documentElement.lang);
      bar.querySelector("span").textContent = bar.dataset.text.replace("{name}", length);
      asFile.textContent = bar.dataset.attach.replace("{name}", `pasted-${number}.txt`);
      asText.hidden = !fits;
      bar.hidden = false;
    } else return;
    event.preventDefault();
  });
  bar.addEventListener("click", ({ target }) => {
    if (!target.closest("button")) return;
    if (target === asFile) attach([new File([text], `pasted-${number++}.txt`, { type: "text/plain" })]);
    if (target === asText) {
      box.setRangeText(text, box.selectionStart, box.selectionEnd, "end");
      changed();
    }
    text = "";
    bar.hidden = true;
    box.focus();
  });
}

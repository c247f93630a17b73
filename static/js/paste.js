// Pasting: files are attached, and a very long text is offered as a file before it fills the box.
const LONG = 10_000;
const LINES = 200;

export function startPaste(box, attach, changed) {
  const bar = document.getElementById("pasted");
  const [asFile, asText] = bar.querySelectorAll("button");
  let text = "";

  box.addEventListener("paste", (event) => {
    const { files } = event.clipboardData;
    const pasted = event.clipboardData.getData("text/plain");
    const fits = box.value.length + pasted.length <= box.dataset.limit;
    // A copied cell or paragraph comes as a picture too; its text is meant.
    if (files.length && !pasted) attach(files);
    else if (!fits || pasted.length > LONG || pasted.split("\n", LINES + 1).length > LINES) {
      text = pasted;
      asText.hidden = !fits;
      bar.hidden = false;
    } else return;
    event.preventDefault();
  });
  bar.addEventListener("click", ({ target }) => {
    if (!target.closest("button")) return;
    if (target === asFile) attach([new File([text], "pasted.txt", { type: "text/plain" })]);
    if (target === asText) {
      box.setRangeText(text, box.selectionStart, box.selectionEnd, "end");
      changed();
    }
    text = "";
    bar.hidden = true;
    box.focus();
  });
}

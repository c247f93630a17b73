// Follows the end of the thread only while the reader is there; else offers the way back.
const NEAR = 48;

export function startFollow(thread, chip) {
  let atEnd = true;
  const near = () => thread.scrollHeight - thread.scrollTop - thread.clientHeight < NEAR;
  const toEnd = () => {
    thread.scrollTop = thread.scrollHeight;
    chip.hidden = true;
    atEnd = true;
  };

  thread.addEventListener("scroll", () => {
    atEnd = near();
    if (atEnd) chip.hidden = true;
  }, { passive: true });
  chip.addEventListener("click", toEnd);
  // The box under the thread grows with its text; the end must stay in sight.
  new ResizeObserver(() => atEnd && toEnd()).observe(thread);
  toEnd();

  let height = 0;
  return {
    toEnd,
    before() {
      height = thread.scrollHeight;
    },
    after() {
      if (atEnd) toEnd();
      else if (thread.scrollHeight > height) chip.hidden = false;
    },
  };
}

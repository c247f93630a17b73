// Follows the end of the thread only while the reader is there; else offers the way back.
const NEAR = 48;

export function startFollow(thread, chip) {
  let atEnd = true;
  let top = 0;
  let height = 0;
  const toEnd = () => {
    thread.scrollTop = thread.scrollHeight;
    top = thread.scrollTop;
    chip.hidden = true;
    atEnd = true;
  };
  // Told before the scrolling itself: a frame that comes between the two must not pull the reader back.
  const leave = () => {
    if (thread.scrollTop > 0) atEnd = false;
  };

  thread.addEventListener("wheel", (event) => event.deltaY < 0 && leave(), { passive: true });
  thread.addEventListener("touchmove", leave, { passive: true });
  thread.addEventListener("keydown", (event) => ["ArrowUp", "PageUp", "Home"].includes(event.key) && leave());
  thread.addEventListener("scroll", () => {
    const gap = thread.scrollHeight - thread.scrollTop - thread.clientHeight;
    atEnd = gap < (thread.scrollTop < top ? 2 : NEAR);
    top = thread.scrollTop;
    if (atEnd) chip.hidden = true;
  }, { passive: true });
  chip.addEventListener("click", toEnd);
  // The box under the thread grows with its text; the end must stay in sight.
  new ResizeObserver(() => atEnd && toEnd()).observe(thread);
  toEnd();

  return {
    toEnd,
    leave,
    follows: () => atEnd,
    before() {
      height = thread.scrollHeight;
    },
    after() {
      if (atEnd) toEnd();
      else if (thread.scrollHeight > height) chip.hidden = false;
    },
  };
}

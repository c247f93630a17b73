// Sets the chosen theme before anything is drawn; without a choice the system's holds.
try {
  const theme = localStorage.getItem("branchline.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be closed to us; the system's theme is fine.
}

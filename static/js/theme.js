// Sets the chosen theme and density before anything is drawn; without a choice the system's theme holds.
try {
  for (const name of ["theme", "density"]) {
    const chosen = localStorage.getItem(`branchline.${name}`);
    if (["light", "dark", "compact"].includes(chosen)) document.documentElement.dataset[name] = chosen;
  }
} catch {
  // Storage may be closed to us; the usual look is fine.
}

// Small things kept in this browser, or in this tab. Storage may be full or closed: then nothing is kept.
export function kept(name, area = "localStorage") {
  try {
    return window[area].getItem(`branchline.${name}`) ?? "";
  } catch {
    return "";
  }
}

export function keep(name, value, area = "localStorage") {
  try {
    if (value) window[area].setItem(`branchline.${name}`, value);
    else window[area].removeItem(`branchline.${name}`);
  } catch {
    // As said above.
  }
}

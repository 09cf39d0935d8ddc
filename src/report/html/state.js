// SPDX-License-Identifier: Apache-2.0
// What the reader is looking at. It stands behind the # of the address, so that every state has a link.
//   row     number of the row that is open         view   map, modules, table, runs
//   element number of the worst element of that row that is pointed at
//   q       words of the search                    level, verdict, result, sort, columns   of the table
//   errors, open, steps   of the map               step, rank   of the plot of depth        type   of the tree
const listeners = [];
let current = read();

function read() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function written(values) {
  const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "")).toString();
  return text === "" ? location.pathname + location.search : `#${text}`;
}

function tell(before) {
  const changed = new Set([...Object.keys(before), ...Object.keys(current)].filter((key) => before[key] !== current[key]));
  for (const { keys, call } of listeners) {
    if (keys.some((key) => changed.has(key))) call();
  }
}

export const state = {
  /** The value of a key as text; `otherwise` when it is not set. */
  get(key, otherwise = "") {
    return current[key] ?? otherwise;
  },

  /** The open row's number, or null. */
  get row() {
    return /^\d+$/.test(current.row ?? "") ? Number(current.row) : null;
  },

  /** Sets keys; "" removes one. A step that "back" undoes, unless `quiet`. */
  set(changes, quiet = false) {
    const before = current;
    current = { ...current };
    if ("row" in changes) delete current.element; // of another row
    for (const [key, value] of Object.entries(changes)) {
      if (value === null || value === "") delete current[key];
      else current[key] = String(value);
    }
    try {
      history[quiet ? "replaceState" : "pushState"](null, "", written(current));
    } catch {
      // A page inside a notebook's frame has no address of its own; the state is kept all the same.
    }
    tell(before);
  },

  /** Calls `call` after one of the keys has changed. */
  on(keys, call) {
    listeners.push({ keys, call });
  },
};

for (const event of ["hashchange", "popstate"]) {
  window.addEventListener(event, () => {
    const before = current;
    current = read();
    tell(before);
  });
}

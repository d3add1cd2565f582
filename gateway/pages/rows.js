// Table rows that stay the same elements while their numbers change: focus and selection survive a look.

// `items` to rows: `key(item)` names a row, `make(item)` gives its cells, `fill(cells, item)` their contents.
export function keepRows(body, items, { key, make, fill }) {
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  items.forEach((item, i) => {
    const name = key(item);
    let row = known.get(name);
    if (!row) {
      row = document.createElement("tr");
      row.dataset.key = name;
      row.append(...make(item));
    }
    known.delete(name);
    fill([...row.children], item);
    if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
  });
  for (const row of known.values()) row.remove();
}

export function cell(text = "", kind = "") {
  const element = document.createElement("td");
  element.textContent = text;
  element.className = kind;
  return element;
}

// A row's name.
export function head(...content) {
  const element = document.createElement("th");
  element.scope = "row";
  element.append(...content);
  return element;
}

// Only what has changed, so that a selection in the table stays.
export function put(element, text, kind = element.className) {
  if (element.textContent !== text) element.textContent = text;
  if (element.className !== kind) element.className = kind;
}

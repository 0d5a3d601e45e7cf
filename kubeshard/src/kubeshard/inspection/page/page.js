"use strict";

// Names of shards come from labels, which anybody may write: everything is set as text.
const byId = (id) => document.getElementById(id);

function element(tag, classes, text) {
  const made = document.createElement(tag);
  made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
}

const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

const rows = new Map();

function rowOf(shard) {
  if (rows.has(shard)) return rows.get(shard);
  const row = element("tr", "");
  const cell = (classes) => row.appendChild(element("td", classes));
  row.appendChild(element("th", "", shard)).scope = "row";
  const made = { row, state: cell("state"), objects: cell("number"), followers: cell("number"),
    draining: cell("number drains"), moved: cell("number") };
  const bar = cell("bars").appendChild(element("div", "bar"));
  made.main = bar.appendChild(element("i", "main"));
  made.drained = bar.appendChild(element("i", "draining"));
  made.follower = bar.appendChild(element("i", "follower"));
  rows.set(shard, made);
  return made;
}

function show(message) {
  const picture = message.picture;
  document.title = `${message.ring}: ${message.verdict}`;
  byId("ring").textContent = message.ring;
  byId("verdict").textContent = message.verdict;
  byId("verdict").className = message.well ? "well" : "";
  byId("half").textContent = message.scale / 2;
  byId("full").textContent = message.scale;
  byId("counts").textContent =
    `${counted(picture.total, "object")}, ${counted(picture.moves, "move")}, ${counted(picture.drains, "drain")}`
    + " since this page's program began";
  const present = new Set();
  for (const shard of picture.rows) {
    const row = rowOf(shard.shard);
    present.add(shard.shard);
    row.row.className = shard.live ? "" : "gone";
    row.state.textContent = shard.state || "new";
    row.state.className = `state ${shard.state}`;
    row.objects.textContent = shard.objects;
    row.followers.textContent = shard.followers;
    row.draining.textContent = shard.draining ? `${shard.draining} for ${Math.floor(shard.drainingFor)} s` : "";
    row.moved.replaceChildren();
    if (shard.arrived) row.moved.append(element("span", "arrived", `+${shard.arrived} `));
    if (shard.left) row.moved.append(element("span", "left", `-${shard.left}`));
    const drained = Math.min(shard.draining, shard.objects);
    const part = (count) => `${(100 * count) / message.scale}%`;
    row.main.style.width = part(shard.objects - drained);
    row.drained.style.width = part(drained);
    row.follower.style.width = part(shard.followers);
    byId("shards").append(row.row);
  }
  for (const [shard, row] of rows) {
    if (!present.has(shard)) { row.row.remove(); rows.delete(shard); }
  }
}

let rings = [];
let current = "";

function showRings(message) {
  current = message.ring;
  if (rings.join("/") === message.rings.join("/")) return;
  rings = message.rings;
  byId("rings").replaceChildren(...(rings.length > 1 ? rings : []).map((name) => {
    const link = element("a", name === current ? "current" : "", name);
    link.href = `?ring=${encodeURIComponent(name)}`;
    if (name === current) link.setAttribute("aria-current", "page");
    return link;
  }));
}

function showHistory(happenings) {
  byId("history").replaceChildren(...happenings.map((happening) => {
    const item = element("li", "");
    item.append(element("time", "", new Date(1000 * happening.at).toLocaleTimeString()), happening.what);
    return item;
  }));
  if (!happenings.length) byId("history").append(element("li", "", "nothing"));
}

function showPlacement(found) {
  const its = found.bucket;
  const facts = [["shard", found.shard ? `${found.shard} (${found.shardState})` : "none"],
    [its ? "due" : "hash ring", found.desired], ["hash key", found.key ? `${found.key} -> ${found.point}` : ""],
    ["bucket", its ? `${its.number} of ${its.of} by ${its.by}` : ""],
    ["range", its ? `${its.group}: ${its.owner || "nobody"}, epoch ${its.epoch}; ${its.configMap}` : ""],
    ["next", found.successors.join(", ")], ["why", `${found.reason}: ${found.message}`], ["do", found.remedy]];
  const place = found.namespace ? `${found.namespace}/` : "";
  const list = element("dl", "");
  for (const [name, text] of facts) if (text) list.append(element("dt", "", name), element("dd", "", text));
  byId("found").append(element("h3", "", `${found.resource} ${place}${found.name} in ring ${found.ring}`), list);
}

async function look() {
  const words = new URLSearchParams({ object: byId("object").value, namespace: byId("namespace").value });
  let answer;
  try {
    answer = await (await fetch(`why?${words}`)).json();
  } catch {
    answer = { error: "no answer: does the program still run?" };
  }
  byId("found").replaceChildren();
  if (answer.error) byId("found").append(element("p", "lost", answer.error));
  for (const found of answer.placements || []) showPlacement(found);
}

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  look();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.tagName === "INPUT") {
    if (event.key === "Escape") event.target.blur();
  } else if (event.key === "/") {
    event.preventDefault();
    byId("object").focus();
  } else if ((event.key === "[" || event.key === "]") && rings.length > 1) {
    const next = (rings.indexOf(current) + (event.key === "]" ? 1 : rings.length - 1)) % rings.length;
    location.search = `?ring=${encodeURIComponent(rings[next])}`;
  }
});

const events = new EventSource(`events${location.search}`);
events.onmessage = (event) => {
  const message = JSON.parse(event.data);
  show(message);
  showRings(message);
  showHistory(message.history);
};
events.onerror = () => {
  byId("verdict").textContent = "not connected: does the program still run?";
  byId("verdict").className = "lost";
};

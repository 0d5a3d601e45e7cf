"use strict";

// Names of shards come from labels, which anybody may write: everything is set as text.
const byId = (id) => document.getElementById(id);

function element(tag, classes, text) {
  const made = document.createElement(tag);
  made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
}

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
  byId("verdict").className = message.settled ? "settled" : "";
  byId("half").textContent = message.scale / 2;
  byId("full").textContent = message.scale;
  byId("counts").textContent =
    `${picture.total} objects, ${picture.moves} moves, ${picture.drains} drains since this page's program began`;
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

const events = new EventSource("events");
events.onmessage = (event) => show(JSON.parse(event.data));
events.onerror = () => {
  byId("verdict").textContent = "not connected: does the program still run?";
  byId("verdict").className = "lost";
};

// Loaded into Azurite where it has to hold a large table. It looks for a row by walking through
// the whole partition, so a list of a hundred thousand people would take it half a day; here it
// finds a row by its two keys. What it answers stays the same.
"use strict";

const Loki = require(require.resolve("lokijs", { paths: [process.argv[1]] }));
const { prototype } = Loki.Collection;
const { findOne, insertOne, remove, clear } = prototype;

const nameOf = (row) => `${row.PartitionKey}\n${row.RowKey}`;
const isRow = (one) => one && typeof one.PartitionKey === "string" && typeof one.RowKey === "string";

function rowsOf(collection) {
  if (!collection.rowsByName) {
    const rows = new Map(collection.data.filter(isRow).map((row) => [nameOf(row), row]));
    Object.defineProperty(collection, "rowsByName", { value: rows, configurable: true });
  }
  return collection.rowsByName;
}

prototype.findOne = function (query) {
  if (!isRow(query) || Object.keys(query).length !== 2) return findOne.call(this, query);
  return rowsOf(this).get(nameOf(query)) || null;
};

prototype.insertOne = function (row, ...rest) {
  const inserted = insertOne.call(this, row, ...rest);
  if (isRow(inserted)) rowsOf(this).set(nameOf(inserted), inserted);
  return inserted;
};

prototype.remove = function (row) {
  if (isRow(row)) rowsOf(this).delete(nameOf(row));
  return remove.call(this, row);
};

prototype.clear = function (...options) {
  delete this.rowsByName;
  return clear.apply(this, options);
};

// Loaded into Azurite before it starts. Its time stands still, as that of the tests does, until a
// line on standard input moves it by so many milliseconds. It ends when its standard input does,
// so no emulator outlives its tests.
"use strict";

const RealDate = Date;
let now = RealDate.now();

globalThis.Date = new Proxy(RealDate, {
  construct: (date, given, asked) => Reflect.construct(date, given.length ? given : [now], asked),
  apply: () => new RealDate(now).toString(),
  get: (date, name) => (name === "now" ? () => now : Reflect.get(date, name)),
});
RealDate.prototype.constructor = globalThis.Date;

// Azurite makes the etag of a row out of the time and the first four digits of these nanoseconds.
// The real ones come round every second; counted, they differ from write to write.
const realHrtime = process.hrtime;
let ticks = 0;
process.hrtime = (since) =>
  since ? realHrtime(since) : [realHrtime()[0], (1000 + (ticks++ % 9000)) * 100000];
process.hrtime.bigint = realHrtime.bigint;

require("node:readline")
  .createInterface({ input: process.stdin })
  .on("line", (milliseconds) => {
    now += Number(milliseconds);
    process.stdout.write("moved\n");
  })
  .on("close", () => process.exit(0));

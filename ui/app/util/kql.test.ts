import { expect, test } from "vitest";
import { accepted, byteAt, bytesOf, EXAMPLES, faultOf, MAX_QUERY_BYTES, quoted, unitAt } from "./kql";

const texts = ["", "status: online", "tags: prüfen and x", "tags: 😀 or ü", "名前: 東京*", "a\u0301 👩‍👩‍👧 b"];

test("positions go to bytes and back at every character", () => {
  for (const text of texts) {
    let at = 0;
    for (const character of [...text, ""]) {
      expect(byteAt(text, at), `${text} at ${at}`).toBe(bytesOf(text.slice(0, at)));
      expect(unitAt(text, byteAt(text, at)), `${text} at ${at}`).toBe(at);
      at += character.length;
    }
  }
});

test.each([
  ["ü", 1, 2],
  ["😀", 2, 4],
  ["😀", 1, 0], // between its surrogates
  ["a😀ü", 4, 7],
  ["a😀ü", 2, 1],
])("%s has position %i at byte %i", (text, unit, byte) => expect(byteAt(text, unit)).toBe(byte));

test("a byte within a character means its beginning", () => {
  expect([0, 1, 2, 3, 4, 5, 6].map((b) => unitAt("😀ü", b))).toEqual([0, 0, 0, 0, 2, 2, 3]);
});

test("a lone surrogate is three bytes, as the browser sends it", () => {
  expect(byteAt("\uD83Dx", 1)).toBe(3);
  expect(unitAt("\uD83Dx", 3)).toBe(1);
});

test.each([
  ["sta", 0, 3, "status", "status", 6],
  ["tags: 😀 and sta and x", 15, 18, "status", "tags: 😀 and status and x", 19],
  ["tags: prü", 6, 10, '"prüfen" ', 'tags: "prüfen" ', 15],
  ["tags: 東京 ", 13, 13, "and ", "tags: 東京 and ", 13],
])("a suggestion replaces its bytes of %s", (text, from, to, put, want, cursor) => {
  expect(accepted(text, { from, to, text: put })).toEqual({ text: want, cursor });
});

test("an error has a message and the position below it", () => {
  expect(faultOf("[request query.kuery]: Kuery is malformed: Expected a value\nstatus:  \n-------^")).toEqual({
    what: "The query cannot be parsed: Expected a value",
    place: "status:  \n-------^",
  });
  expect(faultOf("[request query.kuery]: is too long")).toEqual({ what: "is too long", place: "" });
  expect(faultOf("perPage [x] is odd")).toEqual({ what: "perPage [x] is odd", place: "" });
});

test("a quoted text stands for itself", () => expect(quoted('a "b" \\c')).toBe('"a \\"b\\" \\\\c"'));

test("the examples are six and short enough", () => {
  expect(new Set(EXAMPLES.map((e) => e.query)).size).toBe(EXAMPLES.length);
  for (const { query } of EXAMPLES) expect(bytesOf(query)).toBeLessThan(MAX_QUERY_BYTES);
});

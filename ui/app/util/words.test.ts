import { expect, test } from "vitest";
import { localPath } from "./paths";
import { cleanKey, keyFromHash } from "./settings/login";
import { changeText, plural, sentence, sentenceAbout, shellQuote, size } from "./words";

test.each([
  [0, "0 B"],
  [999, "999 B"],
  [1_500, "1.5 kB"],
  [12_000_000, "12 MB"],
  [999_600, "1.0 MB"],
  [-3, "0 B"],
])("%d bytes are %s", (n, want) => {
  expect(size(n)).toBe(want);
});

test("counts have the right noun", () => {
  expect([plural(1, "agent"), plural(2, "agent"), plural(0, "agent")]).toEqual(["1 agent", "2 agents", "0 agents"]);
});

test("a text from elsewhere becomes one sentence", () => {
  expect([sentence("no space left"), sentence("Stop!"), sentence(" ")]).toEqual(["No space left.", "Stop!", ""]);
});

test("only words that a shell would change are quoted", () => {
  expect(shellQuote("https://h:8220/x")).toBe("https://h:8220/x");
  expect(shellQuote("a b")).toBe("'a b'");
  expect(shellQuote("it's; rm -rf $HOME")).toBe(`'it'\\''s; rm -rf $HOME'`);
});

test("the key is read from a login link, and from nothing else", () => {
  expect(keyFromHash("#key=a+b/c==")).toBe("a+b/c==");
  expect(keyFromHash("#key=a%2Bb%3D")).toBe("a+b=");
  expect(keyFromHash("#key=%")).toBe("%");
  expect(keyFromHash("#key=")).toBeNull();
  expect(keyFromHash("#agents")).toBeNull();
});

test("a pasted key is found in the text around it", () => {
  expect(cleanKey("  Authorization: ApiKey YTpi\n")).toBe("YTpi");
  expect(cleanKey("YT pi")).toBe("YTpi");
});

test("after the login only a page of this site is opened", () => {
  expect(localPath("/agents?q=web")).toBe("/agents?q=web");
  for (const bad of ["https://evil.example", "//evil.example", "/\\evil.example", "agents", "/", 7]) expect(localPath(bad)).toBeUndefined();
});

test("a name at the start of a sentence keeps its spelling", () => {
  expect(sentenceAbout("db-01 is away", "db-01")).toBe("db-01 is away.");
  expect(sentenceAbout("the agent is away", "db-01")).toBe("The agent is away.");
  expect(sentenceAbout("it is away", "")).toBe("It is away.");
});

test("a change is a sentence, and the name of a host keeps its small letter", () => {
  expect(changeText("paused: 8 of 8 failed")).toBe("Paused: 8 of 8 failed.");
  expect(changeText("web-gru-0016 runs 2.5.0")).toBe("web-gru-0016 runs 2.5.0.");
});

package terminal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/host/terminal"
)

func TestUnsafeCharactersAreEscaped(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"web-01", "web-01"},
		{"zürich → 東京 👩‍💻 “quoted”", "zürich → 東京 👩‍💻 “quoted”"},
		{"two\nlines\tand a tab", "two\nlines\tand a tab"},
		{"\x1b[2J\x1b]0;title\a", `\u001b[2J\u001b]0;title\u0007`},
		{"over\rwritten\b\x7f\x00", `over\u000dwritten\u0008\u007f\u0000`},
		{"\u009b2J \u0085", `\u009b2J \u0085`},
		{"1.\u202e0.1\u202c \u2066x\u2069 \u200e\u200f\u061c", `1.\u202e0.1\u202c \u2066x\u2069 \u200e\u200f\u061c`},
		{"\x9b2J", `\x9b2J`},
	} {
		if got := terminal.Escape(c.in); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.in, got, c.want)
		}
		if got, want := terminal.EscapeLine(c.in), strings.NewReplacer("\n", `\u000a`, "\t", `\u0009`).Replace(c.want); got != want || !terminal.IsSafe(got) {
			t.Errorf("%q becomes the line %q, want %q", c.in, got, want)
		}
		if safe := c.in == c.want && !strings.ContainsAny(c.in, "\n\t"); terminal.IsSafe(c.in) != safe {
			t.Errorf("%q: safe is %v", c.in, !safe)
		}
	}
}

func TestWriterEscapesAllText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringOf(rapid.RuneFrom([]rune("aé東\n\t\x1b\u009b\u202e\u2066\x7f"))),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		).Draw(t, "text")
		var out bytes.Buffer
		if n, err := terminal.NewWriter(&out).Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
		got := out.String()
		if got != terminal.Escape(text) || terminal.Escape(got) != got || !utf8.ValidString(got) {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func TestEscapedJSONMeansTheSame(t *testing.T) {
	want := "a\x1b\u009b\u202e\x7f\n\"\\"
	var out bytes.Buffer
	if err := json.NewEncoder(terminal.NewWriter(&out)).Encode(want); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != want || !terminal.IsSafe(strings.TrimSpace(out.String())) {
		t.Errorf("%s means %q (%v), want %q", out.Bytes(), got, err, want)
	}
}

func TestRawIsTheWriterBehind(t *testing.T) {
	var out bytes.Buffer
	fmt.Fprint(terminal.Raw(terminal.NewWriter(&out)), "\x1b[H")
	fmt.Fprint(terminal.Raw(&out), "\x1b[J")
	if out.String() != "\x1b[H\x1b[J" {
		t.Errorf("written is %q", out.String())
	}
}

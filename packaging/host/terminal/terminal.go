// Package terminal keeps text of others from acting on the terminal that shows it. Names
// and messages come from hosts, servers and packages; a control character in them could
// move the cursor and rewrite what stands above, and a bidirectional one could show an
// address or a version in another order.
package terminal

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// unsafe reports whether r acts on a terminal, or on the order in which text is shown:
// control characters, among them escape and delete, and Unicode's marks, embeddings,
// overrides and isolates of direction.
func unsafe(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f: // C0, delete, C1
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

func unsafeInText(r rune) bool { return r != '\n' && r != '\t' && unsafe(r) }

// IsSafe reports whether s is valid UTF-8 of one line without unsafe characters.
func IsSafe(s string) bool { return !strings.ContainsFunc(s, unsafe) && utf8.ValidString(s) }

// Escape replaces unsafe characters by their number, such as \u001b. It keeps newlines and
// tabs: texts have several lines.
func Escape(s string) string {
	if !strings.ContainsFunc(s, unsafeInText) && utf8.ValidString(s) {
		return s
	}
	return string(appendEscaped(nil, []byte(s)))
}

// EscapeLine is Escape for what has one line, such as a name: it replaces newlines and tabs
// too.
func EscapeLine(s string) string {
	if IsSafe(s) {
		return s
	}
	return strings.NewReplacer("\n", `\u000a`, "\t", `\u0009`).Replace(Escape(s))
}

// appendEscaped uses the form of JSON, so that escaped JSON means the same.
func appendEscaped(out, text []byte) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1: // some terminals obey C1 as single bytes
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case unsafeInText(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}

// Writer escapes what is written as Escape does. Programs write all their output through
// it. Every call of Write must have whole characters, as those of package fmt do.
type Writer struct{ raw io.Writer }

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w} }

// Write implements io.Writer.
func (w *Writer) Write(text []byte) (int, error) {
	out := text
	if bytes.ContainsFunc(text, unsafeInText) || !utf8.Valid(text) {
		out = appendEscaped(make([]byte, 0, 2*len(text)), text)
	}
	if _, err := w.raw.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Raw returns what is behind w if that is a Writer, else w: for the program's own control
// sequences, and to find out whether it is a terminal.
func Raw(w io.Writer) io.Writer {
	if e, ok := w.(*Writer); ok {
		return e.raw
	}
	return w
}

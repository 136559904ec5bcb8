package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/muster-fleet/muster/packaging/host/terminal"
)

// Text of hosts is shown on terminals, so it must not act on them; see package terminal.
// An enrolment with such text is refused. The reports of an enrolled host are not: that
// would cut the host off, or lose a result, because of a message. They are stored with the
// characters escaped.

// listed is how many names a sentence lists; the rest is counted.
const listed = 10

// List lists names for a sentence.
func List[S ~string](names []S) string {
	var b strings.Builder
	for i, name := range names[:min(len(names), listed)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(name))
	}
	if more := len(names) - listed; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// firstRunes returns the first n characters of a text.
func firstRunes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for at := range text {
		if n == 0 {
			return text[:at]
		}
		n--
	}
	return text
}

// CheckText refuses text with characters that act on a terminal.
func CheckText(field, text string) error {
	if terminal.IsSafe(text) {
		return nil
	}
	return FieldError(field, "is %q, which has characters that act on a terminal: want one line of plain text", text)
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// CheckID refuses an id, chosen by a client, that is not safe in a path.
func CheckID(field, id string) error {
	if idForm.MatchString(id) {
		return nil
	}
	return FieldError(field, "is %q, want up to 100 letters, digits, '.', '_' or '-'", id)
}

// CheckTexts is CheckText for all texts and keys in a JSON value.
func CheckTexts(field string, raw json.RawMessage) error {
	if !mayBeUnsafe(raw) {
		return nil
	}
	var bad error
	_, err := eachText(raw, field, func(at, text string) string {
		if bad == nil {
			bad = CheckText(at, text)
		}
		return text
	})
	if err != nil {
		return FieldError(field, "is not JSON: %w", err)
	}
	return bad
}

// EscapeReport returns a JSON value of a report with all its texts and keys escaped by
// escape, which is terminal.Escape or terminal.EscapeLine.
func EscapeReport(raw json.RawMessage, escape func(string) string) json.RawMessage {
	if !mayBeUnsafe(raw) {
		return raw
	}
	v, err := eachText(raw, "", func(_, text string) string { return escape(text) })
	if err != nil {
		return raw // the caller has decoded it
	}
	out, err := json.Marshal(v)
	if err != nil {
		panic("escape a report: " + err.Error()) // it was decoded from JSON
	}
	return out
}

// mayBeUnsafe reports whether a JSON value has characters, or escapes other than those of
// quotes, slashes and backslashes, that a text in it may have to be checked for. Most
// reports have none, and are not decoded once more.
func mayBeUnsafe(raw json.RawMessage) bool {
	for rest := raw; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			break
		}
		if i+1 == len(rest) || !strings.ContainsRune(`"\/`, rune(rest[i+1])) {
			return true
		}
		rest = rest[i+2:]
	}
	return !terminal.IsSafe(string(raw))
}

// eachText decodes a JSON value and replaces each text and key in it by what f returns.
func eachText(raw json.RawMessage, field string, f func(at, text string) string) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // the stored numbers are those of the report
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return replaceTexts(v, field, f), nil
}

func replaceTexts(v any, at string, f func(at, text string) string) any {
	switch v := v.(type) {
	case string:
		return f(at, v)
	case []any:
		for i, e := range v {
			v[i] = replaceTexts(e, fmt.Sprintf("%s[%d]", at, i), f)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			safe := f(at, key)
			out[safe] = replaceTexts(v[key], at+"."+terminal.EscapeLine(key), f)
		}
		return out
	}
	return v
}

// Shorten returns the beginning of a text that has more than most bytes, and an ellipsis.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// CutText returns a text of at most most bytes: one that is longer is cut, and says how long it was.
func CutText[T ~string | ~[]byte](text T, most int) string {
	if len(text) <= most {
		return string(text)
	}
	note := fmt.Sprintf("… (%d bytes)", len(text))
	end := max(0, most-len(note))
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return string(text[:end]) + note
}

const (
	// MaxEventText is how much text of a host one event has at most. Readers of events read the
	// first lines, and a host may cause an event with each of its messages.
	MaxEventText = 1 << 10
	// agentEvents begins the types of what hosts report.
	agentEvents = "agent."
	// maxEventData bounds the data of an event: MaxEventText, escaped, and what Muster adds.
	maxEventData = 2 << 10
)

// Bounded returns the event as it is stored: if its data is long, the texts in it are cut.
func (e Event) Bounded() Event {
	for most := MaxEventText; len(e.Data) > maxEventData && most >= MaxEventText/8; most /= 2 {
		v, err := eachText(e.Data, "", func(_, text string) string { return CutText(text, most) })
		if err != nil {
			return e // its author has encoded it
		}
		data, err := json.Marshal(v)
		if err != nil {
			panic("cut the texts of an event: " + err.Error()) // it was decoded from JSON
		}
		e.Data = data
	}
	if len(e.Data) > maxEventData && strings.HasPrefix(e.Type, agentEvents) {
		e.Data = nil // a list of a host's: readers read the agent
	}
	return e
}

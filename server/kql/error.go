package kql

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error says what is wrong with a query, and where.
type Error struct {
	Query   string
	Pos     int // in bytes
	Message string
}

// errorWindow is how much of a query an error shows, in characters: a line of a
// terminal.
const errorWindow = 80

// Error is three lines: what is wrong, the query around the place, and a caret
// under it.
func (e *Error) Error() string {
	text, caret := e.window()
	return "Kuery is malformed: " + e.Message + "\n" + text + "\n" + strings.Repeat(" ", caret) + "^"
}

// window cuts the query around Pos, and says how many characters come before it.
func (e *Error) window() (text string, caret int) {
	pos := min(max(e.Pos, 0), len(e.Query))
	var before, after []rune
	for i := pos; i > 0 && len(before) <= errorWindow; {
		r, size := utf8.DecodeLastRuneInString(e.Query[:i])
		before = append(before, r)
		i -= size
	}
	for i := pos; i < len(e.Query) && len(after) <= errorWindow; {
		r, size := utf8.DecodeRuneInString(e.Query[i:])
		after = append(after, r)
		i += size
	}
	left, right := len(before), len(after)
	if left+right > errorWindow {
		left = min(left, max(errorWindow/2, errorWindow-right))
		right = min(right, errorWindow-left)
	}
	shown := make([]rune, 0, left+right)
	for i := left - 1; i >= 0; i-- {
		shown = append(shown, before[i])
	}
	shown = append(shown, after[:right]...)
	for i, r := range shown {
		// A line that is one line, and one column a character, for the caret.
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) {
			shown[i] = ' '
		}
	}
	if left < len(before) {
		shown[0] = '…'
	}
	if right < len(after) {
		shown[len(shown)-1] = '…'
	}
	return string(shown), left
}

func errorAt(query string, pos int, format string, args ...any) error {
	return &Error{Query: query, Pos: pos, Message: fmt.Sprintf(format, args...)}
}

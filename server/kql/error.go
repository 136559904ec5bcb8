package kql

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error describes what is wrong with a query, and where.
type Error struct {
	Query   string
	Pos     int // in bytes
	Message string
}

// errorWindow is how many characters of the query an error shows: one line of a
// terminal.
const errorWindow = 80

// Error returns Detail after a few words that say what it is about.
func (e *Error) Error() string { return "the query cannot be parsed: " + e.Detail() }

// Detail returns three lines: the message, the query around the position, and a caret
// under it.
func (e *Error) Detail() string {
	text, caret := e.window()
	return e.Message + "\n" + text + "\n" + strings.Repeat(" ", caret) + "^"
}

// window returns the query around Pos, and the number of characters before Pos.
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
		// Keep the text on one line, with one column for each character, for the caret.
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

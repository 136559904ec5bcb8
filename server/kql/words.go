package kql

import (
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/clipperhouse/uax29/v2/words"
)

// maxWord is how long a word is at most, in UTF-16 units; Elasticsearch cuts a
// longer one into several.
const maxWord = 255

// Words are the words of a text as texts are compared: by Unicode's rules for
// words (UAX #29), in lower case, without what has no letter and no digit. It is
// what Elasticsearch's standard analyser makes of a text, but for emoji, which are
// words there, and for Thai, Lao, Khmer and Burmese, where it keeps a run of
// letters together.
func Words(text string) []string {
	var out []string
	add := func(text string) {
		for tokens := words.FromString(text); tokens.Next(); {
			if strings.IndexFunc(tokens.Value(), isWordly) >= 0 {
				out = append(out, lower(tokens.Value()))
			}
		}
	}
	tokens := words.FromString(strings.ToValidUTF8(text, "\uFFFD"))
	for tokens.Next() {
		word := tokens.Value()
		for n := fitting(word); n < len(word); n = fitting(word) {
			// The first word of what fits, which may be less.
			first := words.FromString(word[:n])
			first.Next()
			add(first.Value())
			word = word[first.End():]
		}
		add(word)
	}
	return out
}

// fitting is how many bytes of a text are not longer than a word may be.
func fitting(text string) int {
	units := 0
	for i, r := range text {
		if units += utf16.RuneLen(r); units > maxWord {
			return i
		}
	}
	return len(text)
}

// isWordly says whether a character makes a word of what it stands in: letters,
// digits, and letters in circles.
func isWordly(r rune) bool {
	return unicode.In(r, unicode.L, unicode.Nd, unicode.Nl) || unicode.Is(unicode.Other_Alphabetic, r) && !unicode.IsMark(r)
}

// lower maps each character for itself, whatever stands around it.
func lower(text string) string { return strings.Map(unicode.ToLower, text) }

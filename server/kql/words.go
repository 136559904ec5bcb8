package kql

import (
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/words"
)

// maxWord is how long a word is at most, in UTF-16 units; Elasticsearch cuts a
// longer one into several.
const maxWord = 255

// Words are the words of a text as texts are compared: by Unicode's rules for
// words (UAX #29), in lower case, without what has no letter, no digit and no
// emoji. It is what Elasticsearch's standard analyser makes of a text, but for
// Thai, Lao, Khmer and Burmese, where it keeps a run of letters together, and for
// letters newer than Unicode 12, which it does not know.
func Words(text string) []string {
	var out []string
	add := func(text string) {
		for tokens := words.FromString(text); tokens.Next(); {
			word := tokens.Value()
			if i := joinedEmoji(word); i > 0 {
				out = append(out, lower(word[:i]))
				word = word[i:]
			}
			if isWord(word) {
				out = append(out, lower(asEmoji(word)))
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

// What holds the characters of an emoji together, or says how it is drawn.
const (
	joiner      = '\u200d'
	asText      = '\ufe0e' // behind a symbol that can be drawn as an emoji, too
	keycap      = '\u20e3' // around a digit, # or *
	firstRegion = '\U0001f1e6'
	lastRegion  = '\U0001f1ff'
)

// isWord says whether a token is a word: a letter or digit, an emoji, a flag, or a
// key of a telephone.
func isWord(token string) bool {
	regions := 0
	for _, r := range token {
		switch {
		case isWordly(r) || unicode.Is(pictographs, r):
			return true
		case r >= firstRegion && r <= lastRegion:
			regions++
		}
	}
	return regions > 1 || strings.HasSuffix(token, string(keycap)) && strings.ContainsRune("#*", rune(token[0]))
}

// joinedEmoji is where an emoji begins that a joiner holds to a letter before it:
// 0 if none does. UAX #29 makes one word of both.
func joinedEmoji(word string) int {
	first, _ := utf8.DecodeRuneInString(word)
	if !isWordly(first) || unicode.Is(pictographs, first) {
		return 0
	}
	for i, r := range word {
		if i > 0 && unicode.Is(pictographs, r) && strings.HasSuffix(word[:i], string(joiner)) {
			return i
		}
	}
	return 0
}

// asEmoji is an emoji alone: without the wish to be drawn as a text, and a colour
// of skin without what it colours, if that is no word.
func asEmoji(word string) string {
	i := strings.IndexFunc(word, func(r rune) bool { return isWordly(r) || unicode.Is(pictographs, r) })
	if i < 0 {
		return word
	}
	first, _ := utf8.DecodeRuneInString(word[i:])
	if unicode.Is(skinColours, first) && !isWord(word[:i]) {
		word = word[i:]
	}
	if unicode.Is(pictographs, first) {
		return strings.TrimSuffix(word, string(asText))
	}
	return word
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
	return unicode.In(r, unicode.L, unicode.Nd, unicode.Nl, letterly) || unicode.Is(unicode.Other_Alphabetic, r) && !unicode.IsMark(r)
}

// lower maps each character for itself, whatever stands around it.
func lower(text string) string { return strings.Map(unicode.ToLower, text) }

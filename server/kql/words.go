package kql

import (
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/words"
)

// maxWord is the maximum length of a word, in UTF-16 units. Elasticsearch splits longer
// ones.
const maxWord = 255

// Words splits a text into the words that text comparisons use: by Unicode's word
// boundaries (UAX #29), in lower case, dropping segments without a letter, digit or
// emoji. The result is that of Elasticsearch's standard analyzer, except for Thai, Lao,
// Khmer and Burmese, where Elasticsearch keeps a run of letters together, and for
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
			// Take the first word of the part that fits, which may be shorter.
			first := words.FromString(word[:n])
			first.Next()
			add(first.Value())
			word = word[first.End():]
		}
		add(word)
	}
	return out
}

// Characters that join the parts of an emoji or select its presentation.
const (
	joiner      = '\u200d'
	asText      = '\ufe0e' // after a symbol that has an emoji presentation, too
	keycap      = '\u20e3' // after a digit, # or *
	firstRegion = '\U0001f1e6'
	lastRegion  = '\U0001f1ff'
)

// isWord reports whether a segment is a word: it has a letter, digit or emoji, or is a
// flag or a keycap.
func isWord(token string) bool {
	regions := 0
	for _, r := range token {
		switch {
		case isWordChar(r) || unicode.Is(pictographs, r):
			return true
		case r >= firstRegion && r <= lastRegion:
			regions++
		}
	}
	return regions > 1 || strings.HasSuffix(token, string(keycap)) && strings.ContainsRune("#*", rune(token[0]))
}

// joinedEmoji returns where an emoji begins that a zero-width joiner attaches to a
// preceding letter, 0 if there is none. UAX #29 makes both one segment.
func joinedEmoji(word string) int {
	first, _ := utf8.DecodeRuneInString(word)
	if !isWordChar(first) || unicode.Is(pictographs, first) {
		return 0
	}
	for i, r := range word {
		if i > 0 && unicode.Is(pictographs, r) && strings.HasSuffix(word[:i], string(joiner)) {
			return i
		}
	}
	return 0
}

// asEmoji removes from an emoji the text presentation selector, and from a skin tone
// modifier the preceding character if that is not a word.
func asEmoji(word string) string {
	i := strings.IndexFunc(word, func(r rune) bool { return isWordChar(r) || unicode.Is(pictographs, r) })
	if i < 0 {
		return word
	}
	first, _ := utf8.DecodeRuneInString(word[i:])
	if unicode.Is(skinTones, first) && !isWord(word[:i]) {
		word = word[i:]
	}
	if unicode.Is(pictographs, first) {
		return strings.TrimSuffix(word, string(asText))
	}
	return word
}

// fitting returns how many bytes of a text fit in a word.
func fitting(text string) int {
	units := 0
	for i, r := range text {
		if units += utf16.RuneLen(r); units > maxWord {
			return i
		}
	}
	return len(text)
}

// isWordChar reports whether a character makes its segment a word: letters, digits, and
// letters in circles.
func isWordChar(r rune) bool {
	return unicode.In(r, unicode.L, unicode.Nd, unicode.Nl, letterlike) || unicode.Is(unicode.Other_Alphabetic, r) && !unicode.IsMark(r)
}

// lower maps each rune to lower case by itself, without regard to context.
func lower(text string) string { return strings.Map(unicode.ToLower, text) }

package cli

import (
	"strings"
	"testing"
	"time"
)

func TestWordsFindThings(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	all := []thing{
		{"abcdefgh", "web", at},
		{"abcdxyzw", "db", at.Add(2 * time.Hour)},
		{"qrstuvwx", "twice", at.Add(time.Hour)},
		{"mnopmnop", "twice", at},
		{"ijklijkl", "abcdefgh", at}, // its name is another's id
	}
	for _, c := range []struct{ word, want, says string }{
		{"abcdefgh", "abcdefgh", ""},
		{"db", "abcdxyzw", ""},
		{"@last", "abcdxyzw", ""},
		{"abcde", "abcdefgh", ""},
		{"qrst", "qrstuvwx", ""},
		{"qrs", "qrs", ""}, // too short to be the beginning of an id
		{"other", "other", ""},
		{"twice", "", "2 rollouts have the name twice: write the id, such as qrstuvwx or mnopmnop"},
		{"abcd", "", "2 rollouts have an id that begins with abcd"},
	} {
		got, err := things{noun: "rollout"}.pick(c.word, all)
		switch {
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: got %q and the error %v, want %q", c.word, got, err, c.says)
		case c.says == "" && (err != nil || got != c.want):
			t.Errorf("%s: got %q and the error %v, want %q", c.word, got, err, c.want)
		}
	}
	if _, err := (things{noun: "rollout"}).pick("@last", nil); err == nil || !strings.Contains(err.Error(), "there is no rollout") {
		t.Errorf("@last of none: %v", err)
	}
}

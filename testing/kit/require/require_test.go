package require

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// witness implements the methods of a test that this package uses, and records its end.
type witness struct {
	testing.TB
	ended, said string
}

type stop struct{}

func (*witness) Helper() {}

func (w *witness) Skipf(format string, args ...any) { w.end("skipped", format, args) }

func (w *witness) Fatalf(format string, args ...any) { w.end("failed", format, args) }

func (w *witness) end(how, format string, args []any) {
	w.ended, w.said = how, fmt.Sprintf(format, args...)
	panic(stop{})
}

// outcome runs f, and returns how f ended its test.
func outcome(f func(testing.TB)) (w witness) {
	defer func() {
		if r := recover(); r != nil && r != (stop{}) {
			panic(r)
		}
	}()
	w.ended = "went on"
	f(&w)
	return w
}

func TestMissingRequirementSkipsAndFailsInCI(t *testing.T) {
	here := t.TempDir()
	for _, test := range []struct {
		what           string
		need           func(testing.TB)
		ended, endedCI string
		says           string
	}{
		{"a program that is there", func(t testing.TB) { Program(t, "go") }, "went on", "went on", ""},
		{"one that is not", func(t testing.TB) { Program(t, "no-such-program") }, "skipped", "failed", "no-such-program is not installed"},
		{"a folder that is there", func(t testing.TB) { Path(t, here, "") }, "went on", "went on", ""},
		{"one that is not", func(t testing.TB) { Path(t, filepath.Join(here, "x"), "build it") }, "skipped", "failed", "build it"},
		{"what could be made", func(t testing.TB) { Made(t, nil, "") }, "went on", "went on", ""},
		{"what could not", func(t testing.TB) { Made(t, errors.New("no route"), "plug it in") }, "skipped", "failed", "no route"},
		{"this system", func(t testing.TB) { System(t, "plan9", runtime.GOOS) }, "went on", "went on", ""},
		{"a service of its own", func(t testing.TB) { Own(t, "") }, "went on", "went on", ""},
		{"somebody's", func(t testing.TB) { Own(t, "the nodes of es.example.org") }, "skipped", "skipped", "must not harm the nodes of es.example.org"},
		{"another system", func(t testing.TB) { System(t, "plan9", "aix") }, "skipped", "skipped", "plan9 and aix"},
	} {
		t.Run(test.what, func(t *testing.T) {
			for ci, want := range map[string]string{"": test.ended, "true": test.endedCI} {
				t.Setenv(ciVariable, ci)
				got := outcome(test.need)
				if got.ended != want {
					t.Errorf("with CI=%q the test %s (%s), want %s", ci, got.ended, got.said, want)
				}
				if !strings.Contains(got.said, test.says) {
					t.Errorf("it says %q, which lacks %q", got.said, test.says)
				}
				if got.ended == "failed" && !strings.Contains(got.said, "CI=true") {
					t.Errorf("it says %q, and not why a skip became a failure", got.said)
				}
			}
		})
	}
}

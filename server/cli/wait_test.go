package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
)

func TestPollLooksUntilAnEnd(t *testing.T) {
	var (
		away    = errors.New("nothing listens")
		down    = &refusal{status: 503, message: "the store is away"}
		refused = &refusal{status: 404, message: "there is no such rollout"}
		nowhere = serverError(serverAddress{URL: "http://muster.example"})
		late    = errors.New("late")
		stopped = errors.New("stopped")
	)
	for name, c := range map[string]struct {
		looks []error // one a second; after them it is over
		stop  time.Duration
		err   error
		took  time.Duration
		lines []string
	}{
		"it is over at once":              {},
		"the server returns":              {looks: []error{away, away, down, nil, away}, took: 5 * time.Second, lines: []string{"nothing listens", "the store is away", "nothing listens"}},
		"a refusal stays one":             {looks: []error{nil, refused}, err: refused, took: time.Second},
		"no server is named":              {looks: []error{nil, nowhere}, err: nowhere, took: time.Second},
		"the time is over":                {looks: make([]error, 20), err: late, took: 10 * time.Second},
		"Ctrl-C, before the time is over": {looks: make([]error, 20), stop: 3 * time.Second, err: stopped, took: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.stop > 0 {
					time.AfterFunc(c.stop, cancel)
				}
				var out bytes.Buffer
				cmd := &cobra.Command{}
				cmd.SetErr(&out)
				cmd.SetContext(ctx)
				begin, n := time.Now(), 0
				err := poll(cmd, 10*time.Second, func(context.Context) (bool, error) {
					if n == len(c.looks) {
						return true, nil
					}
					n++
					return false, c.looks[n-1]
				}, func() error { return late }, stopped)
				if !errors.Is(err, c.err) || time.Since(begin) != c.took {
					t.Errorf("it ends after %s with %v, want %s and %v", time.Since(begin), err, c.took, c.err)
				}
				var lines []string
				for line := range strings.Lines(out.String()) {
					_, text, _ := strings.Cut(strings.TrimSpace(line), "  ")
					lines = append(lines, text)
				}
				if got, want := strings.Join(lines, "\n"), strings.Join(c.lines, "\n"); got != want {
					t.Errorf("it prints\n%s\nwant\n%s", got, want)
				}
			})
		})
	}
}

func serverError(t serverAddress) error {
	_, err := t.client()
	return err
}

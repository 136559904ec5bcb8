// Package doctor has what the checks of a machine have in common: what a check finds, how all are
// run and printed, and the checks that a server and a host share. Packages agent/doctor and
// server/app/doctor have the others, for the commands `muster-agent doctor` and `muster doctor`.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Level says how bad a finding is.
type Level string

// The levels. Only a Problem keeps something from working.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Problem Level = "problem"
)

const (
	// checkTimeout bounds a check. The slowest asks a server that does not answer.
	checkTimeout = 10 * time.Second

	// lastWords is how long a check whose context has ended may take to return what it knows. A check
	// that waits for a disk cannot heed its context, and is given up.
	lastWords = 2 * time.Second
)

// Finding is what a check found.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Found string `json:"found"`
	// Mend is the command or the step that mends it; empty if all is well.
	Mend string `json:"mend,omitempty"`
}

// Good returns a finding that all is well.
func Good(format string, args ...any) Finding {
	return Finding{Level: OK, Found: fmt.Sprintf(format, args...)}
}

// Bad returns a problem, and what mends it.
func Bad(mend, format string, args ...any) Finding {
	return Finding{Level: Problem, Found: fmt.Sprintf(format, args...), Mend: mend}
}

// Doubt returns a warning, and what mends it.
func Doubt(mend, format string, args ...any) Finding {
	return Finding{Level: Warning, Found: fmt.Sprintf(format, args...), Mend: mend}
}

// Check is one check. Find must return when its context ends. A check that does not apply to the
// machine returns the zero Finding.
type Check struct {
	Name string
	Find func(ctx context.Context) Finding
}

// Run runs the checks at the same time, and returns their findings in the order of the checks.
func Run(ctx context.Context, checks []Check) []Finding {
	all := make([]Finding, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() {
			all[i] = c.find(ctx)
			all[i].Check = c.Name
		})
	}
	wg.Wait()
	var found []Finding
	for _, f := range all {
		if f.Level != "" {
			found = append(found, f)
		}
	}
	return found
}

// find runs the check, and gives it up if it does not return in time.
func (c Check) find(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	done := make(chan Finding, 1) // a check that was given up sends to nobody
	go func() { done <- c.Find(ctx) }()
	select {
	case f := <-done:
		return f
	case <-ctx.Done():
	}
	select {
	case f := <-done:
		return f
	case <-time.After(lastWords):
		return Bad("look for a disk that does not answer: sudo dmesg | tail; findmnt", "the check did not end within %s", checkTimeout+lastWords)
	}
}

// Err returns how many problems were found, and nil if none was.
func Err(found []Finding) error {
	n := 0
	for _, f := range found {
		if f.Level == Problem {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return errors.New("1 problem was found")
	}
	return fmt.Errorf("%d problems were found", n)
}

// Print writes the findings for people, or as JSON.
func Print(w io.Writer, found []Finding, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(found)
	}
	width := 0
	for _, f := range found {
		width = max(width, len(f.Check))
	}
	indent := strings.Repeat(" ", width+11)
	for _, f := range found {
		if _, err := fmt.Fprintf(w, "%-8s %-*s  %s\n", f.Level, width, f.Check, f.Found); err != nil {
			return err
		}
		if f.Mend == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s→ %s\n", indent, f.Mend); err != nil {
			return err
		}
	}
	return nil
}

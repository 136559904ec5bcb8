package component

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/runtime"
)

const (
	// listenTimeout bounds how long output is waited for, which only explains a failure.
	listenTimeout = 3 * time.Second
	// listenLines is how many lines are read, to find those that are new among them.
	listenLines = 50
	// quotedLines is how many of them an error has: the one that says what is wrong, and in a
	// crash loop the first ones of the next start.
	quotedLines = 3
	// maxQuoted bounds a line in an error, in bytes.
	maxQuoted = 200
)

// listen returns the last lines that a version has printed, none if they cannot be read.
func (w *work) listen(i primitive.Installed) []string {
	ctx, cancel := context.WithTimeout(context.Background(), listenTimeout)
	defer cancel()
	r, err := primitive.Release(w.c.m.Disk, w.c.dir, w.c.name, i)
	if err != nil {
		return nil
	}
	read := w.change.Adapter.Logs
	if p, ok := w.change.Adapter.(runtime.Printer); ok {
		read = p.Output
	}
	lines, err := read(ctx, r, listenLines)
	if err != nil {
		return nil
	}
	return lines
}

// hear remembers what was printed so far, so that withOutput does not quote the version before.
func (w *work) hear() {
	i := w.j.To
	if w.j.From != nil {
		i = *w.j.From
	}
	w.heard, w.printed = true, w.listen(i)
}

// withOutput adds to the error of a version that does not start or run what was printed last.
func (w *work) withOutput(err error, i *primitive.Installed) error {
	if !w.heard || i == nil {
		return err
	}
	before := w.printed
	w.printed = w.listen(*i)
	return quoting(err, quotable(newLines(before, w.printed)))
}

// quoting adds lines to an error, unless the runtime has done so.
func quoting(err error, lines []string) error {
	said := func(line string) bool { return strings.Contains(err.Error(), strconv.Quote(line)) }
	if len(lines) == 0 || slices.ContainsFunc(lines, said) {
		return err
	}
	return fmt.Errorf("%w; its last output: %q", err, strings.Join(lines, "\n"))
}

// newLines returns those of the last lines that come after those which were the last before.
func newLines(before, now []string) []string {
	for n := min(len(before), len(now)); n > 0; n-- {
		if slices.Equal(before[len(before)-n:], now[:n]) {
			return now[n:]
		}
	}
	return now
}

// quotable returns the last lines for an error, without empty ones and repetitions.
func quotable(lines []string) []string {
	var out []string
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if line = line[:min(len(line), maxQuoted)]; line != "" {
			out = append(out, line)
		}
	}
	out = slices.Compact(out)
	return out[max(0, len(out)-quotedLines):]
}

package suite

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// step is one part of the tests. Its name has at most nameWidth letters.
type step struct {
	name, about string
	run         func(ctx context.Context, root string, out io.Writer) error
}

const nameWidth = 8

// runParallel runs sequences of steps: the sequences run at the same time, the steps of
// one sequence in order. Each line of output begins with the name of its step. The first
// step that fails cancels all others; its last output is repeated at the end, where
// other steps cannot hide it.
func runParallel(ctx context.Context, root string, out io.Writer, sequences ...[]step) error {
	began := time.Now()
	var (
		printing sync.Mutex
		failing  sync.Once
		last     []byte // the failed step's last output
	)
	all, running := errgroup.WithContext(ctx)
	for _, sequence := range sequences {
		all.Go(func() error {
			for _, s := range sequence {
				p := &stepOutput{ctx: running, name: s.name, to: out, printing: &printing}
				p.printf("── %s (after %s)", s.about, time.Since(began).Round(time.Second))
				started := time.Now()
				err := s.run(running, root, p)
				p.flush()
				took := time.Since(started).Round(time.Second)
				switch {
				case err == nil:
					p.printf("── done in %s", took)
				case running.Err() != nil: // another step failed, or the user interrupted
					p.printf("── stopped after %s", took)
					return err
				default:
					p.printf("── FAILED after %s: %v", took, err)
					failing.Do(func() { last = p.tail })
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
			return nil
		})
	}
	err := all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		fmt.Fprintf(out, "\n%s", last)
	}
	return err
}

// stepOutput writes whole lines, each after the name of the step. It drops what is written
// after ctx ends, since the output of interrupted commands would hide the cause. It is
// safe for concurrent use.
type stepOutput struct {
	ctx      context.Context //nolint:containedctx // of the step
	name     string
	to       io.Writer
	printing *sync.Mutex // shared by all steps

	mu   sync.Mutex
	rest []byte // an incomplete line
	tail []byte
}

// keptTail bounds the output of a failed step that is repeated.
const keptTail = 32 << 10

func (o *stepOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return len(p), nil
	}
	o.tail = append(o.tail, p...)
	if over := len(o.tail) - keptTail; over > 0 {
		o.tail = append(o.tail[:0], o.tail[over:]...)
	}
	o.rest = append(o.rest, p...)
	for {
		line, rest, whole := bytes.Cut(o.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		o.line(line)
		o.rest = rest
	}
}

func (o *stepOutput) line(text []byte) {
	o.printing.Lock()
	defer o.printing.Unlock()
	fmt.Fprintf(o.to, "%-*s %s\n", nameWidth, o.name, text)
}

func (o *stepOutput) printf(format string, args ...any) { o.line(fmt.Appendf(nil, format, args...)) }

// flush writes an incomplete last line.
func (o *stepOutput) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.rest) > 0 {
		o.line(o.rest)
		o.rest = nil
	}
}

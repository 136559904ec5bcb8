package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

var errStalled = fmt.Errorf("fewer than %d bytes arrived in %s", MinProgress, StallTimeout)

// watchdog ends an attempt that waits StallTimeout for an answer, or for MinProgress bytes of
// its body. It is stopped between two reads, while this host writes or keeps to the rate limit.
type watchdog struct {
	timer *time.Timer
	// left is what remains of StallTimeout for the bytes that arrive now, and got is their
	// number.
	left time.Duration
	got  int
}

// watched runs one attempt under a watchdog, which runs until the first read.
func watched(ctx context.Context, do func(context.Context, *watchdog) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dog := &watchdog{timer: time.AfterFunc(StallTimeout, func() { cancel(errStalled) }), left: StallTimeout}
	defer dog.timer.Stop()
	err := do(ctx, dog)
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

// watch returns a reader of r during whose Read the watchdog runs.
func (d *watchdog) watch(r io.Reader) io.Reader { return watchedReader{r, d} }

type watchedReader struct {
	io.Reader
	dog *watchdog
}

func (r watchedReader) Read(p []byte) (int, error) {
	d, begun := r.dog, time.Now()
	d.timer.Reset(d.left)
	n, err := r.Reader.Read(p)
	d.timer.Stop()
	d.left -= time.Since(begun)
	if d.got += n; d.got >= MinProgress {
		d.left, d.got = StallTimeout, 0
	}
	return n, err
}

package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

var errStalled = fmt.Errorf("nothing arrived for %s", StallTimeout)

// watchdog ends an attempt in which nothing arrives. It is stopped between two reads, while
// this host writes or keeps to the rate limit.
type watchdog struct{ timer *time.Timer }

// watched runs one attempt under a watchdog, which runs until the first read.
func watched(ctx context.Context, do func(context.Context, *watchdog) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dog := &watchdog{time.AfterFunc(StallTimeout, func() { cancel(errStalled) })}
	defer dog.timer.Stop()
	err := do(ctx, dog)
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

// watch returns a reader of r during whose Read the watchdog runs.
func (d *watchdog) watch(r io.Reader) io.Reader { return watchedReader{r, d.timer} }

type watchedReader struct {
	io.Reader
	timer *time.Timer
}

func (r watchedReader) Read(p []byte) (int, error) {
	r.timer.Reset(StallTimeout)
	defer r.timer.Stop()
	return r.Reader.Read(p)
}

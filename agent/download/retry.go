package download

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
)

// source is a URL of the file and the state of the requests to it.
type source struct {
	raw  string
	url  *url.URL
	name string // for messages: without password and query, which may be secrets
	// err is the last error. gone means that the source is not asked again.
	err  error
	gone bool
	// failures counts the attempts in a row without new bytes from any source.
	failures int
	// notBefore is the end of the source's Retry-After.
	notBefore time.Time
	// wholeOnly means that its answers to range requests cannot be used.
	wholeOnly bool
}

// try makes one attempt with a source. moved reports whether there are new bytes, also
// after an error.
type try func(ctx context.Context, s *source) (moved bool, err error)

// errNotYet is returned if no source has sent the whole file in this round.
var errNotYet = errors.New("not yet")

// fromAny tries the sources in order, repeatedly, until an attempt succeeds, the host
// fails, or every source was refused or failed MaxAttempts times in a row. It calls
// waiting, if not nil, before each wait.
func (f *Fetcher) fromAny(ctx context.Context, urls []string, waiting func(why string, until time.Time), ask try) error {
	if len(urls) == 0 {
		return ending(&fault{ours: true, lasting: true, err: errors.New("no source is known for the file: enrol this host, or name a source_uri")})
	}
	sources := parseSources(urls)
	b := backoff.Backoff{Rand: f.Rand}
	var first *source
	for {
		gave, err := f.askEach(ctx, order(sources, first, time.Now()), ask)
		if !errors.Is(err, errNotYet) {
			return err
		}
		if first = gave; gave != nil {
			b.Reset()
			for _, s := range sources {
				s.failures = 0
			}
		}
		if !slices.ContainsFunc(sources, (*source).worthAsking) {
			return summary(sources)
		}
		until := nextRetry(sources, time.Now(), b.Next())
		if waiting != nil {
			waiting(reasons(sources), until)
		}
		if err := backoff.Sleep(ctx, time.Until(until)); err != nil {
			return err
		}
	}
}

// askEach tries each source once, without waits. It stops at the first that sends new
// bytes, which is tried first in the next round.
func (f *Fetcher) askEach(ctx context.Context, sources []*source, ask try) (gave *source, err error) {
	for _, s := range sources {
		moved, err := ask(ctx, s)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var bad *fault
		if errors.As(err, &bad) && bad.ours {
			return nil, ending(err)
		}
		s.failed(err, time.Now())
		if f.Failed != nil && !errors.Is(err, ErrNotFound) {
			f.Failed(s.name, s.err)
		}
		if moved && !s.gone {
			return s, errNotYet
		}
	}
	return nil, errNotYet
}

func (s *source) worthAsking() bool { return !s.gone && s.failures < MaxAttempts }

func (s *source) failed(err error, now time.Time) {
	s.notBefore = time.Time{}
	s.failures++
	var f *fault
	if !errors.As(err, &f) {
		s.err = linkError(err)
		return
	}
	s.err, s.gone = err, f.lasting
	if f.retryAfter > 0 {
		s.notBefore = now.Add(f.retryAfter)
	}
}

// order returns the sources to try now: first, and then the others in their order.
func order(sources []*source, first *source, now time.Time) []*source {
	var out []*source
	for _, s := range sources {
		switch {
		case !s.worthAsking() || now.Before(s.notBefore):
		case s == first:
			out = append([]*source{s}, out...)
		default:
			out = append(out, s)
		}
	}
	return out
}

// nextRetry returns when to begin the next round: pause after the earliest time at which a
// source may be asked. The jittered pause is added to a Retry-After, so that agents with
// the same one do not return together.
func nextRetry(sources []*source, now time.Time, pause time.Duration) time.Time {
	var earliest time.Time
	for _, s := range sources {
		if !s.worthAsking() {
			continue
		}
		at := now
		if s.notBefore.After(now) {
			at = s.notBefore
		}
		if earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
	}
	return earliest.Add(pause)
}

// parseSources parses URLs. An invalid one becomes a source that is gone, so that the
// error names it.
func parseSources(urls []string) []*source {
	var out []*source
	for _, raw := range urls {
		s := &source{raw: raw, name: raw}
		u, err := url.Parse(raw)
		switch {
		case err != nil:
			s.name = "source" // the URL may hold a password
			s.failed(refused("%w: want https://host/path, http://host/path or file:///path", linkError(err)), time.Time{})
		case u.Scheme != schemeFile && (u.Scheme != "http" && u.Scheme != "https" || u.Host == ""):
			s.failed(refused("is no place to fetch from: want https://host/path, http://host/path or file:///path"), time.Time{})
		default:
			s.url, s.name = u, DisplayName(u)
		}
		out = append(out, s)
	}
	return out
}

// DisplayName returns the name of a source for messages: without password and query, which may be
// secrets.
func DisplayName(u *url.URL) string {
	shown := *u
	shown.User, shown.RawQuery, shown.Fragment = nil, "", ""
	return fmt.Sprint(&shown)
}

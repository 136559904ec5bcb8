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

// source is one place a file may be at, and what it has said so far.
type source struct {
	raw  string
	url  *url.URL
	name string // for people: without password and query, which may be secrets
	// err is what it failed with last; gone: it is not asked again.
	err  error
	gone bool
	// vain is how often in a row it was asked without a new byte from anywhere.
	vain int
	// notBefore is when it wants to be asked again.
	notBefore time.Time
	// wholeOnly: its answers to range requests cannot be used.
	wholeOnly bool
}

// try asks one source. moved says that it has brought the file forward, also
// when it broke off.
type try func(ctx context.Context, s *source) (moved bool, err error)

// errNotYet: no source has given the whole file at this try.
var errNotYet = errors.New("not yet")

// fromAny asks the sources in order, again and again, until one attempt
// succeeds, none of them is worth asking, the host fails, or each was asked
// MaxAttempts times in a row for nothing. waiting, if not nil, is called before each wait.
func (f *Fetcher) fromAny(ctx context.Context, urls []string, waiting func(why string, until time.Time), ask try) error {
	if len(urls) == 0 {
		return ending(&fault{ours: true, lasting: true, err: errors.New("no source is known for the file: enrol this host, or name a source_uri")})
	}
	sources := parseSources(urls)
	b := backoff.Backoff{Rand: f.Rand}
	var first *source
	for {
		gave, err := askEach(ctx, order(sources, first, time.Now()), ask)
		if !errors.Is(err, errNotYet) {
			return err
		}
		if first = gave; gave != nil {
			b.Reset()
			for _, s := range sources {
				s.vain = 0
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

// askEach asks each source once, the next one at once when one fails. It ends with
// the first that gave something: that one is asked again before others.
func askEach(ctx context.Context, sources []*source, ask try) (gave *source, err error) {
	for _, s := range sources {
		moved, err := ask(ctx, s)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var f *fault
		if errors.As(err, &f) && f.ours {
			return nil, ending(err)
		}
		s.failed(err, time.Now())
		if moved && !s.gone {
			return s, errNotYet
		}
	}
	return nil, errNotYet
}

func (s *source) worthAsking() bool { return !s.gone && s.vain < MaxAttempts }

func (s *source) failed(err error, now time.Time) {
	s.notBefore = time.Time{}
	s.vain++
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

// order is whom to ask now: first, then the others as they were given.
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

// nextRetry is when the next source may be asked: after pause, and no sooner than
// the most patient of them allows. The pause comes on top of what a server asks
// for, or all who got the same answer would come back together.
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

// parseSources keeps a URL that is none as a source that is gone, so that the
// error names it beside the others.
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
			s.url, s.name = u, displayName(u)
		}
		out = append(out, s)
	}
	return out
}

func displayName(u *url.URL) string {
	shown := *u
	shown.User, shown.RawQuery, shown.Fragment = nil, "", ""
	return fmt.Sprint(&shown)
}

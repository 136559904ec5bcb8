// Package download fetches packages over links that break: it goes on where it
// stopped, within one attempt series and over restarts of the agent, and says
// how far it is. The upgrade executor calls it. What it fetches is not trusted;
// package trust judges the result.
package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/packaging/disk"
)

const (
	// MaxAttempts is how often in a row nothing may arrive before the download
	// is given up. With full jitter under a minute that is some eight minutes:
	// a server's restart or a failover, but not a source that is gone.
	MaxAttempts = 20
	// StallTimeout ends an attempt in which nothing arrives.
	StallTimeout = time.Minute
	// MaxSize bounds a package: half of what install unpacks at most.
	MaxSize = 2 << 30
	// MaxSmall bounds a file fetched whole, such as a signature.
	MaxSmall = 64 << 10
	// SpaceMargin must stay free beside a download: the agent's own state and
	// log have to be written in any case.
	SpaceMargin = 16 << 20
	// ReportEvery is the time between two progress reports.
	ReportEvery = time.Second

	op          = "download"
	partSuffix  = ".part"
	stateSuffix = ".part.state"
	bufferSize  = 64 << 10
)

// Source is an origin and the client to use there.
type Source struct {
	// Own is the client for the agent's server, which knows the pinned CA.
	Own *http.Client
	// Origin is that server's base URL. Only requests to its scheme, host and
	// port go through Own, and get credentials.
	Origin string
	// Authorize adds the credentials.
	Authorize func(*http.Request)
	// Other is the client for every other origin.
	Other *http.Client
	// UserAgent is sent to other origins.
	UserAgent string
}

// Fetcher downloads into one folder.
type Fetcher struct {
	Disk   disk.Disk
	Source Source
	// RateLimit is in bytes per second; 0 means none.
	RateLimit int64
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64
}

// Progress is how far a download is.
type Progress struct {
	Percent        float64 // 0 to 100; 0 while the size is not known
	BytesPerSecond float64
	// Retry is why the last attempt broke off, and RetryAt when the next
	// begins; zero while bytes arrive.
	Retry   string
	RetryAt time.Time
}

// ErrNotFound says that the source does not have the package.
var ErrNotFound = errors.New("not found")

// permanentError ends the attempts: trying again would give the same.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

func permanent(format string, args ...any) error {
	return &permanentError{fmt.Errorf(format, args...)}
}

// refusal is an answer that is worth another attempt.
type refusal struct {
	status     string
	retryAfter time.Duration
}

func (e *refusal) Error() string { return "server answered " + e.status }

// Kept says whether a failed download leaves its first part behind for a later
// one: it does when the link is at fault, and not when the disk or the source is.
func Kept(err error) bool {
	var p *permanentError
	return err != nil && !errors.As(err, &p)
}

// Small fetches a file of up to [MaxSmall] bytes into memory.
func (f *Fetcher) Small(ctx context.Context, rawURL string) ([]byte, error) {
	var data []byte
	err := f.retry(ctx, nil, func(ctx context.Context) (bool, error) {
		resp, err := f.get(ctx, rawURL, nil)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return false, answerError(resp, rawURL)
		}
		data, err = io.ReadAll(io.LimitReader(resp.Body, MaxSmall+1))
		if len(data) > MaxSmall {
			return false, permanent("%s has more than %d bytes", rawURL, MaxSmall)
		}
		return false, err
	})
	return data, err
}

// Fetch downloads rawURL to dir/name and returns when the file is durable. A
// file that is there already counts as downloaded. report, if not nil, is
// called about every second.
func (f *Fetcher) Fetch(ctx context.Context, rawURL, dir, name string, report func(Progress)) error {
	final := filepath.Join(dir, name)
	if fi, err := f.Disk.Lstat(op, final); err == nil && fi.Mode().IsRegular() {
		return nil
	}
	if err := f.Disk.MkdirAll(op, dir, 0o700); err != nil {
		return &permanentError{err}
	}
	if report == nil {
		report = func(Progress) {}
	}
	p := &part{fetcher: f, url: rawURL, path: final + partSuffix, statePath: final + stateSuffix, report: report}
	defer p.close()
	if err := p.open(); err != nil {
		return &permanentError{err}
	}
	if err := f.retry(ctx, report, p.attempt); err != nil {
		return err
	}
	if err := p.commit(final); err != nil {
		return &permanentError{err}
	}
	report(Progress{Percent: 100})
	return nil
}

// Discard removes what a download of name has left in dir, finished or not.
func Discard(d disk.Disk, dir, name string) error {
	final := filepath.Join(dir, name)
	return errors.Join(d.Remove(op, final+partSuffix), d.Remove(op, final+stateSuffix),
		d.Remove(op, final+stateSuffix+".new"), d.Remove(op, final))
}

// retry repeats attempt until it succeeds, fails for good, or fails MaxAttempts
// times in a row without progress.
func (f *Fetcher) retry(ctx context.Context, report func(Progress), attempt func(context.Context) (progressed bool, err error)) error {
	b := backoff.Backoff{Rand: f.Rand}
	for {
		progressed, err := attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var end *permanentError
		if errors.As(err, &end) {
			return err
		}
		if progressed {
			b.Reset()
		}
		wait := b.Next()
		if b.Failures() >= MaxAttempts {
			return fmt.Errorf("gave up after %d attempts in a row without a byte: %w", MaxAttempts, err)
		}
		var r *refusal
		if errors.As(err, &r) {
			wait = max(wait, r.retryAfter)
		}
		if report != nil {
			report(Progress{Retry: err.Error(), RetryAt: time.Now().Add(wait)})
		}
		if err := backoff.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func (f *Fetcher) get(ctx context.Context, rawURL string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, nil)
	if err != nil {
		return nil, permanent("package source %q: %v", rawURL, err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	client := f.Source.Other
	if SameOrigin(req.URL, f.Source.Origin) {
		client = f.Source.Own
		f.Source.Authorize(req)
	} else {
		req.Header.Set("User-Agent", f.Source.UserAgent)
	}
	// A transparent gunzip would make offsets mean something else.
	req.Header.Set("Accept-Encoding", "identity")
	return client.Do(req)
}

// SameOrigin says whether u has the scheme, host and port of base.
func SameOrigin(u *url.URL, base string) bool {
	b, err := url.Parse(base)
	return err == nil && u.Scheme == b.Scheme && strings.EqualFold(u.Hostname(), b.Hostname()) && port(u) == port(b)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// answerError sorts an answer other than the wanted one.
func answerError(resp *http.Response, rawURL string) error {
	switch code := resp.StatusCode; {
	case code == http.StatusNotFound || code == http.StatusGone:
		return &permanentError{fmt.Errorf("package %s %w at %s: publish it with `muster package push`", filepath.Base(resp.Request.URL.Path), ErrNotFound, rawURL)}
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500:
		return &refusal{status: resp.Status, retryAfter: backoff.RetryAfter(resp.Header, time.Now())}
	case code >= 300 && code < 400:
		return permanent("%s redirects to %q, another server than this agent was enrolled with: name that place as source_uri", rawURL, resp.Header.Get("Location"))
	}
	return permanent("%s: server answered %s", rawURL, resp.Status)
}

// wholeSize reads the size of the whole file from an answer, -1 if unknown.
func wholeSize(resp *http.Response) int64 {
	if resp.StatusCode != http.StatusPartialContent {
		return resp.ContentLength
	}
	_, total, _ := strings.Cut(resp.Header.Get("Content-Range"), "/")
	n, err := strconv.ParseInt(total, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// rangeStart reads where a partial answer begins, -1 if it does not say.
func rangeStart(resp *http.Response) int64 {
	span, _ := strings.CutPrefix(resp.Header.Get("Content-Range"), "bytes ")
	first, _, _ := strings.Cut(span, "-")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

const openPart = os.O_RDWR | os.O_CREATE

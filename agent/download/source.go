package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
)

// answer is a source's answer to a request for a file.
type answer struct {
	body  io.ReadCloser
	start int64 // the body's first byte in the file
	size  int64 // of the whole file; -1 unknown
	// tag changes when the bytes do; "" if the source sends no such tag.
	tag string
}

// open requests the file from byte from on. If the file's tag is no longer tag, the source
// sends the new file from its first byte, unless tag is "". A source without support for
// ranges sends the file from its first byte too.
func (f *Fetcher) open(ctx context.Context, s *source, from int64, tag string) (answer, error) {
	if s.wholeOnly {
		from = 0
	}
	if s.url.Scheme == schemeFile {
		return f.openFile(s, from)
	}
	header := http.Header{}
	if from > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", from))
		if tag != "" {
			header.Set("If-Range", tag)
		}
	}
	resp, err := f.ask(ctx, http.MethodGet, s, header)
	if err != nil {
		return answer{}, err
	}
	a, err := readAnswer(resp, from)
	if err != nil {
		resp.Body.Close()
		s.wholeOnly = s.wholeOnly || errors.Is(err, errBadRange)
	}
	return a, err
}

// errBadRange is returned if the source, or a proxy in front of it, answers a range request
// wrongly.
var errBadRange = errors.New("answered another range than was asked for")

func readAnswer(resp *http.Response, from int64) (answer, error) {
	a := answer{body: resp.Body, size: resp.ContentLength, tag: strongTag(resp.Header)}
	switch resp.StatusCode {
	case http.StatusOK:
		return a, nil
	case http.StatusPartialContent:
		start, size, ok := contentRange(resp.Header)
		if !ok || start != from {
			return a, errBadRange
		}
		a.start, a.size = start, size
		return a, nil
	case http.StatusRequestedRangeNotSatisfiable:
		size, ok := sizeBehind416(resp.Header)
		if !ok || size > from {
			return a, errBadRange
		}
		return a, refused("%w (%d bytes, more were asked for): replace the file there by the one that was published", ErrContent, size)
	}
	return a, answerError(resp)
}

// find returns nil if the source has the file.
func (f *Fetcher) find(ctx context.Context, s *source) error {
	if s.url.Scheme == schemeFile {
		_, err := f.stat(s)
		return err
	}
	resp, err := f.ask(ctx, http.MethodHead, s, nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		// A signed URL allows only GET, and some servers do not support HEAD.
		if resp, err = f.ask(ctx, http.MethodGet, s, http.Header{"Range": {"bytes=0-0"}}); err != nil {
			return err
		}
		resp.Body.Close()
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
		return nil
	}
	return answerError(resp)
}

func (f *Fetcher) ask(ctx context.Context, method string, s *source, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.raw, nil)
	if err != nil {
		return nil, refused("%w: check the URL", err)
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
		other := *client
		other.CheckRedirect = f.Source.checkRedirect
		client = &other
	}
	// A transparent gunzip would change the offsets.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := client.Do(req)
	var redirect *fault
	if errors.As(err, &redirect) {
		err = redirect // without the URL, which the message names already
	}
	return resp, err
}

// SameOrigin reports whether u has the scheme, host and port of base.
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

// answerError turns an unexpected answer into an error, with the next step for errors that
// waiting does not resolve.
func answerError(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code == http.StatusNotFound || code == http.StatusGone:
		return refused("%w: publish it with `muster package push`, or name another place as source_uri", ErrNotFound)
	case code == http.StatusRequestTimeout || code == http.StatusTooEarly || code == http.StatusTooManyRequests || code >= 500:
		return &fault{err: fmt.Errorf("server answered %s", resp.Status), retryAfter: backoff.RetryAfter(resp.Header, time.Now())}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return refused("server answered %s: an agent has a key for its own server only, enrol it again if that is this one; else let the source serve without credentials", resp.Status)
	case code == http.StatusProxyAuthRequired:
		return refused("a proxy answered %s: put its credentials into network.proxy of agent.yml, or name the host in network.no_proxy", resp.Status)
	case code >= 300 && code < 400:
		return refused("redirects to %q, another server than this agent was enrolled with: name that place as source_uri", resp.Header.Get("Location"))
	}
	return refused("server answered %s: check the URL of the source", resp.Status)
}

// strongTag returns the ETag unless it is weak, since equal weak tags do not mean equal
// bytes.
func strongTag(h http.Header) string {
	if tag := h.Get("ETag"); !strings.HasPrefix(tag, "W/") {
		return tag
	}
	return ""
}

// contentRange parses "bytes 10-19/20". size is -1 for "bytes 10-19/*".
func contentRange(h http.Header) (start, size int64, ok bool) {
	span, total, found := strings.Cut(strings.TrimPrefix(h.Get("Content-Range"), "bytes "), "/")
	first, _, dash := strings.Cut(span, "-")
	start, err := strconv.ParseInt(first, 10, 64)
	if !found || !dash || err != nil || start < 0 {
		return -1, -1, false
	}
	size, err = strconv.ParseInt(total, 10, 64)
	switch {
	case total == "*":
		return start, -1, true
	case err != nil || size <= start:
		return -1, -1, false
	}
	return start, size, true
}

// sizeBehind416 parses "bytes */1234".
func sizeBehind416(h http.Header) (int64, bool) {
	total, found := strings.CutPrefix(h.Get("Content-Range"), "bytes */")
	n, err := strconv.ParseInt(total, 10, 64)
	return n, found && err == nil && n >= 0
}

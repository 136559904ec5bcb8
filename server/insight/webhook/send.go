package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// PostTimeout bounds one delivery, including the answer. A receiver that needs longer
// should answer first and work later.
const PostTimeout = 10 * time.Second

// answerMax is how much of a receiver's answer is read. It is not used.
const answerMax = 4 << 10

// Backoff is how long to wait before each retry. By the second a restarted receiver is
// back, by the fourth its restarted host; the last gives an operator some minutes. Then
// the later notifications should be delivered.
var Backoff = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// failure is why a delivery failed.
type failure struct {
	text string
	// again is whether a retry may succeed.
	again bool
	// after is the Retry-After of the receiver.
	after time.Duration
}

// post sends one body once.
func (s *Service) post(ctx context.Context, w fleet.Webhook, typ, delivery string, body []byte) *failure {
	ctx, cancel := context.WithTimeout(ctx, PostTimeout)
	defer cancel()
	now := s.Now.UTC()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return &failure{text: "its address is not one: " + reason(err)}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "muster")
	setHeaders(req.Header, w.Secret, typ, delivery, body, now)
	client := http.Client{Transport: s.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		var refused *notAllowedError
		if errors.As(err, &refused) {
			return &failure{text: refused.Error()}
		}
		return &failure{text: reason(err), again: true}
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, answerMax)) // so that the connection can be used again
	code := resp.StatusCode
	if code/100 == 2 {
		return nil
	}
	f := &failure{after: retryAfter(resp.Header.Get("Retry-After"), now)}
	f.text = strings.TrimSpace(fmt.Sprintf("the receiver answered %d %s", code, http.StatusText(code))) +
		fmt.Sprintf(" after %v", s.Now.UTC().Sub(now).Round(time.Millisecond))
	switch {
	case code/100 == 3:
		f.text += " (redirects are not followed: give the address itself)"
	case code/100 == 5, code == http.StatusRequestTimeout, code == http.StatusTooManyRequests:
		f.again = true
	}
	return f
}

// reason returns the text of an error without the address, which may contain a token, and
// without what the receiver sent: the error for an answer that is not HTTP quotes it.
func reason(err error) string {
	var (
		whole *url.Error
		dns   *net.DNSError
		dial  *net.OpError
		cert  *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &whole) && whole.Timeout():
		return fmt.Sprintf("no answer within %v", PostTimeout)
	case errors.Is(err, context.Canceled):
		return "cancelled before the receiver answered"
	case errors.As(err, &dns):
		return dns.Error()
	case errors.As(err, &dial):
		return dial.Error()
	case errors.As(err, &cert):
		return cert.Error()
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // the standard library has no value for it
		return "the receiver speaks HTTP, not HTTPS"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the receiver closed the connection without an answer"
	}
	return "the receiver's answer is not HTTP"
}

// retryAfter parses a Retry-After header: seconds or a date. It returns 0 for other text.
func retryAfter(text string, now time.Time) time.Duration {
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// pause returns how long to wait after the given number of failed tries; ok is false if
// that was the last. A receiver may request more, up to the longest step.
func (f *failure) pause(tries int) (_ time.Duration, ok bool) {
	if !f.again || tries > len(Backoff) {
		return 0, false
	}
	return max(Backoff[tries-1], min(f.after, Backoff[len(Backoff)-1])), true
}
